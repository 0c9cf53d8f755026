//! Parses the command line like Go's `flag` package: one dash or two, `--name=value` or `--name value`, and the value
//! of a switch only after `=`.

use super::gates::parse_bool;
use std::collections::HashMap;
use std::fmt::Write;

/// The type of a flag's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ValueType {
    Text,
    Switch,
    Integer,
    Number,
}

use ValueType::{Integer, Number, Switch, Text};

/// Every flag: its name, its type, its default and its help.
const FLAGS: [(&str, ValueType, &str, &str); 31] = [
    ("batch-scheduler", Text, "", "Batch scheduler: volcano, yunikorn, kai-scheduler or scheduler-plugins"),
    ("burst", Integer, "200", "Accepted and ignored: requests share one budget of writes instead"),
    ("config", Text, "", "Configuration file; most of the other flags are ignored then"),
    ("enable-batch-scheduler", Switch, "false", "Deprecated: the same as --batch-scheduler=volcano"),
    ("enable-leader-election", Switch, "true", "Act only while holding the Lease ray-operator-leader"),
    ("enable-metrics", Switch, "false", "Serve the kuberay_* metrics"),
    ("feature-gates", Text, "", "Feature gates, as Name=true,Name=false"),
    ("forced-cluster-upgrade", Switch, "false", "Deprecated, without effect"),
    ("health-probe-bind-address", Text, ":8082", "Address of /healthz and /readyz; 0 for none"),
    ("kubeconfig", Text, "", "Kubeconfig file; otherwise KUBECONFIG, the Pod's own account, or ~/.kube/config"),
    ("leader-election-namespace", Text, "", "Namespace of the Lease; otherwise the Pod's, or the kubeconfig's"),
    ("log-file-encoder", Text, "json", "Format of the log file: json or console"),
    ("log-file-path", Text, "", "Write the log to this file too"),
    ("log-stdout-encoder", Text, "json", "Format of the log: json or console"),
    ("metrics-addr", Text, ":8080", "Address of /metrics; 0 for none"),
    (
        "post-mortem-directory",
        Text,
        "",
        "Keep records as files in this directory, such as a mounted volume or bucket, instead of ConfigMaps",
    ),
    ("post-mortem-hours", Integer, "168", "How long to keep the records of objects that ended, failed or were deleted"),
    ("post-mortem-records", Integer, "50", "Such records to keep in each namespace; 0 to keep none"),
    ("qps", Number, "100", "Accepted and ignored: requests share one budget of writes instead"),
    ("reconcile-concurrency", Integer, "1", "Accepted and ignored: every object has a pass of its own"),
    (
        "secure-metrics",
        Switch,
        "false",
        "Serve /metrics over TLS, to those only whose token the API server allows to get it",
    ),
    ("use-kubernetes-proxy", Switch, "false", "Reach Ray through the API server's proxy instead of directly"),
    ("watch-namespace", Text, "", "Namespaces to watch, comma-separated; all when empty"),
    (
        "webhook-bind-address",
        Text,
        ":9443",
        "Address of the admission webhooks, which ENABLE_WEBHOOKS=true switches on",
    ),
    (
        "webhook-cert-dir",
        Text,
        "/tmp/k8s-webhook-server/serving-certs",
        "Folder with tls.crt and tls.key of the webhooks; read again when they change",
    ),
    (
        "webhook-self-signed-for",
        Text,
        "",
        "Make the webhooks' certificates here, for the ValidatingWebhookConfiguration of this name",
    ),
    ("zap-devel", Switch, "false", "Log at level debug"),
    ("zap-encoder", Text, "", "Accepted and ignored: see --log-stdout-encoder"),
    ("zap-log-level", Text, "", "Level of the log: debug, info, error, panic, or a number above 0"),
    ("zap-stacktrace-level", Text, "", "Accepted and ignored: errors carry their causes instead of stacks"),
    ("zap-time-encoding", Text, "", "Accepted and ignored: times are ISO 8601"),
];

/// The flags of a command line.
#[derive(Clone, Debug)]
pub(super) struct Flags {
    given: HashMap<&'static str, String>,
    /// The first argument that is not a flag, and everything after it.
    pub(super) ignored: Vec<String>,
}

/// Why a command line cannot be parsed. All but `Help` are usage errors.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum UsageError {
    #[error("help requested")]
    Help,
    #[error("bad flag syntax: {0}")]
    Syntax(String),
    #[error("flag provided but not defined: -{0}")]
    Unknown(String),
    #[error("flag needs an argument: -{0}")]
    MissingValue(String),
    #[error("invalid boolean value \"{1}\" for -{0}: parse error")]
    InvalidBool(String, String),
    #[error("invalid value \"{1}\" for flag -{0}: parse error")]
    InvalidNumber(String, String),
}

impl Flags {
    /// Parses a command line, without the program's name.
    pub(super) fn parse(arguments: impl IntoIterator<Item = String>) -> Result<Self, UsageError> {
        let mut arguments = arguments.into_iter();
        let mut flags = Self { given: HashMap::new(), ignored: Vec::new() };
        while let Some(argument) = arguments.next() {
            let name = match argument.strip_prefix("--").or_else(|| argument.strip_prefix('-')) {
                Some("") if argument == "--" => {
                    flags.ignored.extend(arguments);
                    break;
                }
                Some(name) if !name.is_empty() => name,
                _ => {
                    flags.ignored.extend(std::iter::once(argument).chain(arguments));
                    break;
                }
            };
            if name.starts_with(['-', '=']) {
                return Err(UsageError::Syntax(argument));
            }
            let (name, value) = name.split_once('=').map_or((name, None), |(name, value)| (name, Some(value)));
            let Some((known, value_type, ..)) = FLAGS.into_iter().find(|flag| flag.0 == name) else {
                return Err(match name {
                    "h" | "help" => UsageError::Help,
                    name => UsageError::Unknown(name.to_owned()),
                });
            };
            let value = match (value_type, value) {
                (_, Some(value)) => value.to_owned(),
                (Switch, None) => "true".to_owned(),
                (_, None) => arguments.next().ok_or_else(|| UsageError::MissingValue(name.to_owned()))?,
            };
            check(known, value_type, &value)?;
            flags.given.insert(known, value);
        }
        Ok(flags)
    }

    /// Returns the value of a flag, or its default.
    pub(super) fn text(&self, name: &str) -> &str {
        let default = || FLAGS.iter().find(|flag| flag.0 == name).map_or("", |flag| flag.2);
        self.given.get(name).map_or_else(default, String::as_str)
    }

    pub(super) fn switch(&self, name: &str) -> bool {
        parse_bool(self.text(name)) == Some(true)
    }

    /// Returns whether a flag was given on the command line.
    pub(super) fn is_given(&self, name: &str) -> bool {
        self.given.contains_key(name)
    }
}

fn check(name: &str, value_type: ValueType, value: &str) -> Result<(), UsageError> {
    let flag_and_value = || (name.to_owned(), value.to_owned());
    let invalid_number = || {
        let (name, value) = flag_and_value();
        UsageError::InvalidNumber(name, value)
    };
    match value_type {
        Text => Ok(()),
        Switch if parse_bool(value).is_none() => {
            let (name, value) = flag_and_value();
            Err(UsageError::InvalidBool(name, value))
        }
        Switch => Ok(()),
        Integer => value.parse::<i64>().map(drop).map_err(|_| invalid_number()),
        Number => value.parse::<f64>().map(drop).map_err(|_| invalid_number()),
    }
}

/// Returns the names of all flags.
#[cfg(test)]
pub(super) fn names() -> impl Iterator<Item = &'static str> {
    FLAGS.into_iter().map(|flag| flag.0)
}

/// Returns the help text for all flags.
pub fn usage() -> String {
    let mut text = String::from("Usage of manta operator:\n");
    for (name, value_type, default, help) in FLAGS {
        let value = match value_type {
            Text => " string",
            Switch => "",
            Integer => " int",
            Number => " float",
        };
        let default = match default {
            "" | "false" => String::new(),
            default => format!(" (default {default})"),
        };
        // Writing to a String cannot fail.
        let _ = writeln!(text, "  --{name}{value}\n        {help}{default}");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(line: &str) -> Result<Flags, UsageError> {
        Flags::parse(line.split_whitespace().map(str::to_owned))
    }

    #[test]
    fn every_flag_has_a_default_and_accepts_every_notation() {
        let none = parse("").unwrap();
        for (name, value_type, default, _) in FLAGS {
            assert_eq!(none.text(name), default, "{name}");
            let value = match value_type {
                Text => "some",
                Switch if default == "true" => "false",
                Switch => "true",
                Integer => "7",
                Number => "2.5",
            };
            let mut ways = vec![format!("--{name}={value}"), format!("-{name}={value}")];
            if value_type != Switch {
                ways.extend([format!("--{name} {value}"), format!("-{name} {value}")]);
            } else if value == "true" {
                ways.extend([format!("--{name}"), format!("-{name}")]);
            }
            for way in ways {
                let flags = parse(&way).unwrap();
                assert_eq!((flags.text(name), flags.is_given(name)), (value, true), "{way}");
                assert_eq!(flags.given.len(), 1, "{way}");
            }
        }
    }

    #[test]
    fn the_last_value_wins_and_arguments_after_the_flags_are_ignored() {
        let flags = parse("--qps=1 -qps 2 --enable-metrics false --burst=3").unwrap();
        assert_eq!((flags.text("qps"), flags.switch("enable-metrics"), flags.text("burst")), ("2", true, "200"));
        assert_eq!(flags.ignored, ["false", "--burst=3"]);
        assert_eq!(parse("-- --burst=3").unwrap().ignored, ["--burst=3"]);
        assert_eq!(parse("--watch-namespace=a=b").unwrap().text("watch-namespace"), "a=b");
    }

    #[test]
    fn usage_errors_read_like_those_of_go() {
        for (line, expect) in [
            ("--nope", "flag provided but not defined: -nope"),
            ("-nope=1", "flag provided but not defined: -nope"),
            ("--config", "flag needs an argument: -config"),
            ("---config", "bad flag syntax: ---config"),
            ("--=x", "bad flag syntax: --=x"),
            ("--enable-metrics=maybe", "invalid boolean value \"maybe\" for -enable-metrics: parse error"),
            ("--burst=1.5", "invalid value \"1.5\" for flag -burst: parse error"),
            ("--qps fast", "invalid value \"fast\" for flag -qps: parse error"),
            ("-h", "help requested"),
            ("--help", "help requested"),
        ] {
            assert_eq!(parse(line).map(drop).map_err(|error| error.to_string()), Err(expect.to_owned()), "{line}");
        }
    }
}
