//! Whether pods reach the Internet: the user's choice, the settings that pods need, and what does not work without.

use anyhow::Context;
use futures::StreamExt;
use kube::api::DynamicObject;
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::watcher;
use kube::{Api, Client, Resource, ResourceExt};
use manta_agent::network::egress::Internet;
use serde_json::Value;
use std::collections::{BTreeSet, HashMap};
use std::io::{BufRead, IsTerminal, Write};
use std::path::{Path, PathBuf};

use super::progress::ray_resource;

/// The file in the state directory that remembers the user's choices.
const CONFIG: &str = "config.json";

/// Ports of the Internet that pods may connect to: SSH, HTTP, HTTPS, and git's own.
const PORTS: [u16; 4] = [22, 80, 443, 9418];

/// The user's settings for package indexes, certificates and proxies, which pods get as they are.
const VARIABLES: [&str; 37] = [
    "PIP_INDEX_URL",
    "PIP_EXTRA_INDEX_URL",
    "PIP_TRUSTED_HOST",
    "PIP_CERT",
    "PIP_CLIENT_CERT",
    "PIP_CONFIG_FILE",
    "PIP_DEFAULT_TIMEOUT",
    "PIP_FIND_LINKS",
    "PIP_NO_INDEX",
    "PIP_PROXY",
    "PIP_RETRIES",
    "UV_CONFIG_FILE",
    "UV_DEFAULT_INDEX",
    "UV_EXTRA_INDEX_URL",
    "UV_FIND_LINKS",
    "UV_HTTP_TIMEOUT",
    "UV_INDEX",
    "UV_INDEX_STRATEGY",
    "UV_INDEX_URL",
    "UV_INSECURE_HOST",
    "UV_NATIVE_TLS",
    "CONDA_CHANNEL_ALIAS",
    "CONDA_SSL_VERIFY",
    "SSL_CERT_FILE",
    "SSL_CERT_DIR",
    "REQUESTS_CA_BUNDLE",
    "CURL_CA_BUNDLE",
    "GIT_SSL_CAINFO",
    "HF_ENDPOINT",
    "HTTP_PROXY",
    "HTTPS_PROXY",
    "ALL_PROXY",
    "http_proxy",
    "https_proxy",
    "all_proxy",
    "NO_PROXY",
    "no_proxy",
];

/// Names and addresses of the cluster, which are not behind the user's proxy.
const NOT_PROXIED: &str = "localhost,127.0.0.1,.cluster.local,.svc,10.244.0.0/16,10.96.0.0/16";

/// Makes installers give up at once instead of after a minute of retries.
const OFFLINE: [(&str, &str); 3] = [("PIP_RETRIES", "0"), ("PIP_DEFAULT_TIMEOUT", "2"), ("UV_OFFLINE", "1")];

/// The flags of the choice.
#[derive(clap::Args, Clone, Debug)]
pub(crate) struct InternetArgs {
    /// Let pods connect to the Internet; asked once and remembered in the state directory
    #[arg(long, overrides_with = "no_internet")]
    internet: bool,
    /// Keep pods from connecting to the Internet
    #[arg(long, overrides_with = "internet")]
    no_internet: bool,
}

/// A choice, and whether to remember it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Choice {
    pub(super) allowed: bool,
    is_new: bool,
}

impl InternetArgs {
    /// Returns the choice of the flags, of an earlier run, or of the user, who is asked only if it is remembered.
    pub(super) fn choice(&self, state: &Path, is_kept: bool) -> anyhow::Result<Choice> {
        let flag = self.internet.then_some(true).or(self.no_internet.then_some(false));
        let can_ask = is_kept && std::io::stdin().is_terminal() && std::io::stdout().is_terminal();
        choose(flag, remembered(state)?, || if can_ask { ask().map(Some) } else { Ok(None) })
    }
}

fn choose(
    flag: Option<bool>,
    remembered: Option<bool>,
    ask: impl FnOnce() -> std::io::Result<Option<bool>>,
) -> anyhow::Result<Choice> {
    match (flag, remembered) {
        (Some(allowed), before) => Ok(Choice { allowed, is_new: before != Some(allowed) }),
        (None, Some(allowed)) => Ok(Choice { allowed, is_new: false }),
        (None, None) => {
            let answer = ask().context("cannot read the answer")?;
            Ok(Choice { allowed: answer == Some(true), is_new: answer.is_some() })
        }
    }
}

fn ask() -> std::io::Result<bool> {
    let mut out = std::io::stdout();
    write!(
        out,
        "Allow pods to connect to the Internet? runtime_env needs it for pip, conda and remote directories.\n\
         You are asked only once; --internet and --no-internet change the answer. [y/N] "
    )?;
    out.flush()?;
    let mut line = String::new();
    std::io::stdin().lock().read_line(&mut line)?;
    Ok(matches!(line.trim().to_lowercase().as_str(), "y" | "yes"))
}

fn remembered(state: &Path) -> anyhow::Result<Option<bool>> {
    let file = state.join(CONFIG);
    let text = match std::fs::read_to_string(&file) {
        Ok(text) => text,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => {
            let shown = file.display();
            return Err(error)
                .with_context(|| format!("cannot read {shown}; choose a directory of your own with --state"));
        }
    };
    let config: Value =
        serde_json::from_str(&text).with_context(|| format!("{} is not JSON; remove it", file.display()))?;
    Ok(config.get("internet").and_then(Value::as_bool))
}

impl Choice {
    /// Remembers a new choice; the state directory must exist.
    pub(super) fn remember(self, state: &Path) -> anyhow::Result<()> {
        if !self.is_new {
            return Ok(());
        }
        let file = state.join(CONFIG);
        let text = format!("{:#}\n", serde_json::json!({"internet": self.allowed}));
        std::fs::write(&file, text).with_context(|| format!("cannot write {}", file.display()))
    }
}

/// Returns what pods get: with Internet access the user's own settings, else settings that fail fast.
pub(super) fn settings(allowed: bool, has_pod_networks: bool) -> Internet {
    if !allowed {
        let offline = OFFLINE.iter().map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        // Pods that share the machine's network reach whatever the machine reaches.
        return Internet { env: if has_pod_networks { offline.collect() } else { Vec::new() }, ..Internet::default() };
    }
    let variable = |name: &str| std::env::var(name).ok().filter(|value| !value.is_empty());
    let home = std::env::var_os("HOME").map(PathBuf::from);
    from_user(&variable, home.as_deref(), &|path| path.exists())
}

fn from_user(
    variable: &dyn Fn(&str) -> Option<String>,
    home: Option<&Path>,
    exists: &dyn Fn(&Path) -> bool,
) -> Internet {
    let mut env: Vec<(String, String)> =
        VARIABLES.iter().filter_map(|name| Some(((*name).to_owned(), variable(name)?))).collect();
    if env.iter().any(|(name, _)| name.to_lowercase().ends_with("_proxy")) {
        for name in ["NO_PROXY", "no_proxy"] {
            match env.iter_mut().find(|(n, _)| n == name) {
                Some((_, value)) => *value = format!("{value},{NOT_PROXIED}"),
                None => env.push((name.to_owned(), NOT_PROXIED.to_owned())),
            }
        }
    }
    let mut ports = BTreeSet::from(PORTS);
    ports.extend(env.iter().flat_map(|(_, value)| parts(value)).filter_map(port_of));
    // Files and folders that the variables name, and pip's own configuration, at places where pip looks for it.
    let named = env.iter().flat_map(|(name, value)| paths(name, value)).filter(|path| path.is_absolute());
    let mut files: Vec<(PathBuf, PathBuf)> = named.map(|path| (path.clone(), path)).collect();
    files.retain(|(source, _)| exists(source));
    let own = pip_files(variable, home).into_iter().filter(|path| exists(path));
    files.extend(own.zip(PIP_TARGETS).map(|(source, target)| (source, target.into())));
    files.sort();
    files.dedup();
    Internet { ports: ports.into_iter().collect(), env, files }
}

/// Where pip looks for a configuration file that is not the user's own; the first takes precedence.
const PIP_TARGETS: [&str; 2] = ["/etc/pip.conf", "/etc/xdg/pip/pip.conf"];

/// Returns the places of pip's configuration files on this machine, the one that takes precedence first.
fn pip_files(variable: &dyn Fn(&str) -> Option<String>, home: Option<&Path>) -> Vec<PathBuf> {
    let config = variable("XDG_CONFIG_HOME").map(PathBuf::from).filter(|path| path.is_absolute());
    let config = config.or_else(|| home.map(|home| home.join(".config")));
    let own = config.map(|folder| folder.join("pip/pip.conf"));
    let legacy = home.map(|home| home.join(".pip/pip.conf"));
    own.into_iter().chain(legacy).chain(PIP_TARGETS.map(PathBuf::from)).collect()
}

/// Returns what may be a path in a setting, which may be a list.
fn paths(name: &str, value: &str) -> Vec<PathBuf> {
    // OpenSSL separates folders as in PATH.
    if name == "SSL_CERT_DIR" {
        std::env::split_paths(value).collect()
    } else {
        parts(value).map(PathBuf::from).collect()
    }
}

/// Returns the parts of a setting, which may be a list.
fn parts(value: &str) -> impl Iterator<Item = &str> {
    value.split([' ', ',', '\n', '\t']).filter(|part| !part.is_empty())
}

/// Returns what pods cannot use of the user's settings, for warnings at the start. Values are not shown whole, because
/// they may contain passwords.
pub(super) fn unusable(internet: &Internet) -> Vec<String> {
    let loopback = |text: &str| parts(text).find_map(loopback_of).map(str::to_owned);
    let mut all = Vec::new();
    for (name, value) in &internet.env {
        if name.to_lowercase() == "no_proxy" || name == "PIP_TRUSTED_HOST" || name == "UV_INSECURE_HOST" {
            continue;
        }
        if let Some(host) = loopback(value) {
            all.push(on_loopback(name, &host));
        }
        let is_relative = |part: &&str| !part.contains("://") && !Path::new(part).is_absolute();
        if name.ends_with("_FIND_LINKS")
            && let Some(part) = parts(value).find(is_relative)
        {
            all.push(format!("{name} contains the relative path {part}, which pods cannot see; use an absolute path"));
        }
    }
    for (source, _) in internet.files.iter().filter(|(source, _)| source.ends_with("pip.conf")) {
        let text = std::fs::read_to_string(source).unwrap_or_default();
        let values = text.lines().filter_map(|line| line.split_once('=').map(|(_, value)| value.trim()));
        all.extend(values.filter_map(loopback).map(|host| on_loopback(&source.display().to_string(), &host)));
    }
    all
}

fn on_loopback(setting: &str, host: &str) -> String {
    format!(
        "{setting} points to {host}, this machine's loopback, which pods cannot reach; make the server listen on another \
         address of the machine and use that one"
    )
}

/// Returns the host of a URL, or of a proxy without a scheme, if it is the machine's loopback.
fn loopback_of(text: &str) -> Option<&str> {
    let rest = text.split_once("://").map_or(text, |(_, rest)| rest);
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    let host = match host.strip_prefix('[') {
        Some(v6) => v6.split(']').next()?,
        None => host.split(':').next()?,
    };
    let is_loopback = host.parse::<std::net::IpAddr>().map_or(host == "localhost", |ip| ip.is_loopback());
    is_loopback.then_some(host)
}

/// Returns the port that a URL names.
fn port_of(url: &str) -> Option<u16> {
    let (_, rest) = url.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next()?;
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    host.rsplit_once(':')?.1.parse().ok()
}

/// Returns the first part of a runtime environment that pods cannot download, in the local mode of a state directory.
pub(crate) fn not_downloadable(state: &Path, environment: &Value) -> anyhow::Result<Option<String>> {
    let is_allowed = remembered(state)? == Some(true);
    // Ports that belong to no object are those of pods on the machine's own network.
    let shares_network = super::addresses(state).iter().any(|address| address.object.is_empty());
    Ok(if is_allowed || shares_network { None } else { downloads(environment) })
}

/// Records a Warning event on every object whose `runtime_env` cannot be set up without the Internet; never returns.
pub(super) async fn warn(client: Client) {
    let reporter = Reporter { controller: "manta".into(), instance: None };
    let recorder = Recorder::new(client.clone(), reporter);
    let streams = ["RayJob", "RayService", "RayCronJob"].map(|kind| {
        let api: Api<DynamicObject> = Api::all_with(client.clone(), &ray_resource(kind));
        watcher(api, watcher::Config::default()).map(move |event| (kind, event)).boxed()
    });
    let mut all = futures::stream::select_all(streams);
    let mut told: HashMap<String, Option<i64>> = HashMap::new();
    while let Some((kind, event)) = all.next().await {
        let Ok(watcher::Event::Apply(object) | watcher::Event::InitApply(object)) = event else { continue };
        let (uid, generation) = (object.uid().unwrap_or_default(), object.metadata.generation);
        if told.insert(uid, generation) == Some(generation) {
            continue;
        }
        let Some(what) = needs(&object.data).filter(|_| !has_ended(&object.data)) else { continue };
        let event = Event {
            type_: EventType::Warning,
            reason: "NoInternet".to_owned(),
            note: Some(no_internet(&what)),
            action: "Start".to_owned(),
            secondary: None,
        };
        if let Err(error) = recorder.publish(&event, &object.object_ref(&ray_resource(kind))).await {
            tracing::warn!(%error, "cannot record an event");
        }
    }
}

/// Whether an object is a job that has ended, which needs nothing any more.
fn has_ended(object: &Value) -> bool {
    let state = object.pointer("/status/jobDeploymentStatus").and_then(Value::as_str);
    matches!(state, Some("Complete" | "Failed" | "ValidationFailed"))
}

/// Says that a part of a runtime environment cannot be downloaded, and what to do.
pub(crate) fn no_internet(what: &str) -> String {
    format!(
        "runtime_env has {what}, and pods cannot connect to the Internet: stop local mode and start it with manta up \
         --internet"
    )
}

/// Returns the first part of an object's runtime environments that has to be downloaded.
fn needs(object: &Value) -> Option<String> {
    let yaml = |path: &str| {
        let text = object.pointer(path)?.as_str()?;
        serde_saphyr::from_str::<Value>(text).ok()
    };
    let jobs = ["/spec/runtimeEnvYAML", "/spec/jobTemplate/runtimeEnvYAML"].into_iter().filter_map(yaml);
    let served = yaml("/spec/serveConfigV2").into_iter().flat_map(|config| {
        let applications = config.get("applications").and_then(Value::as_array).cloned().unwrap_or_default();
        applications.into_iter().flat_map(|application| {
            let deployments = application.get("deployments").and_then(Value::as_array).cloned().unwrap_or_default();
            let own = deployments.iter().filter_map(|d| d.pointer("/ray_actor_options/runtime_env").cloned());
            application.get("runtime_env").cloned().into_iter().chain(own.collect::<Vec<_>>())
        })
    });
    jobs.chain(served).find_map(|environment| downloads(&environment))
}

fn downloads(environment: &Value) -> Option<String> {
    let is_set = |key: &str| environment.get(key).is_some_and(|v| !matches!(v, Value::Null));
    if let Some(key) = ["pip", "uv", "conda"].into_iter().find(|key| is_set(key)) {
        return Some(key.to_owned());
    }
    let remote = |value: &Value| {
        let scheme = value.as_str().and_then(|text| text.split_once("://")).map(|(scheme, _)| scheme);
        scheme.is_some_and(|scheme| !matches!(scheme, "file" | "gcs"))
    };
    ["working_dir", "py_modules"].iter().find_map(|key| {
        let value = environment.get(*key)?;
        let values = value.as_array().map_or(std::slice::from_ref(value), Vec::as_slice);
        values.iter().find(|v| remote(v)).map(|v| format!("{key} {}", v.as_str().unwrap_or_default()))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn the_choice_is_asked_once() {
        let never = || -> std::io::Result<Option<bool>> { panic!("asked again") };
        let check = |got: anyhow::Result<Choice>, allowed: bool, is_new: bool| {
            assert_eq!(got.unwrap(), Choice { allowed, is_new });
        };
        check(choose(Some(true), None, never), true, true);
        check(choose(Some(false), Some(true), never), false, true);
        check(choose(Some(true), Some(true), never), true, false);
        check(choose(None, Some(true), never), true, false);
        check(choose(None, None, || Ok(Some(true))), true, true);
        check(choose(None, None, || Ok(Some(false))), false, true);
        check(choose(None, None, || Ok(None)), false, false);
    }

    #[test]
    fn the_choice_is_remembered_in_the_state_directory() {
        let state = tempfile::tempdir().unwrap();
        assert_eq!(remembered(state.path()).unwrap(), None);
        Choice { allowed: true, is_new: true }.remember(state.path()).unwrap();
        assert_eq!(remembered(state.path()).unwrap(), Some(true));
        std::fs::write(state.path().join(CONFIG), "nonsense").unwrap();
        assert!(remembered(state.path()).unwrap_err().to_string().contains("remove it"));
    }

    #[test]
    fn pods_get_the_users_index_certificates_and_proxies() {
        let variables = HashMap::from([
            ("PIP_INDEX_URL", "https://me:secret@index.corp:8443/simple"),
            ("SSL_CERT_FILE", "/home/me/ca.pem"),
            ("REQUESTS_CA_BUNDLE", "/etc/ssl/certs/ca.crt"),
            ("HTTPS_PROXY", "http://proxy.corp:3128"),
            ("no_proxy", ".corp"),
            ("AWS_SECRET_ACCESS_KEY", "none of a pod's business"),
        ]);
        let variable = |name: &str| variables.get(name).map(|value| (*value).to_owned());
        let there = ["/home/me/ca.pem", "/etc/ssl/certs/ca.crt", "/home/me/.config/pip/pip.conf"];
        let got = from_user(&variable, Some(Path::new("/home/me")), &|path| there.iter().any(|p| path == Path::new(p)));
        assert_eq!(got.ports, [22, 80, 443, 3128, 8443, 9418]);
        let names: Vec<&str> = got.env.iter().map(|(name, _)| name.as_str()).collect();
        let expect = ["PIP_INDEX_URL", "SSL_CERT_FILE", "REQUESTS_CA_BUNDLE", "HTTPS_PROXY", "no_proxy", "NO_PROXY"];
        assert_eq!(names, expect);
        assert!(got.env[4].1.starts_with(".corp,localhost,"), "{:?}", got.env[4]);
        let path = |text: &str| PathBuf::from(text);
        let expect = [
            (path("/etc/ssl/certs/ca.crt"), path("/etc/ssl/certs/ca.crt")),
            (path("/home/me/.config/pip/pip.conf"), path("/etc/pip.conf")),
            (path("/home/me/ca.pem"), path("/home/me/ca.pem")),
        ];
        assert_eq!(got.files, expect);
        assert_eq!(unusable(&got), [] as [&str; 0]);
    }

    #[test]
    fn folders_of_certificates_are_a_list() {
        let variable = |name: &str| (name == "SSL_CERT_DIR").then(|| "/etc/ssl/certs:/home/me/certs:/gone".to_owned());
        let got = from_user(&variable, None, &|path| path.ends_with("certs"));
        let expect = ["/etc/ssl/certs", "/home/me/certs"].map(|path| (PathBuf::from(path), PathBuf::from(path)));
        assert_eq!(got.files, expect);
    }

    #[test]
    fn pip_reads_the_same_configuration_in_pods() {
        let check = |config: &str, there: &[&str], expect: &[(&str, &str)]| {
            let variable = |name: &str| (name == "XDG_CONFIG_HOME").then(|| config.to_owned());
            let home = Some(Path::new("/home/me"));
            let got = from_user(&variable, home, &|path| there.iter().any(|there| path == Path::new(there)));
            let expect: Vec<_> = expect.iter().map(|(from, to)| (PathBuf::from(from), PathBuf::from(to))).collect();
            assert_eq!(got.files, expect, "{there:?}");
        };
        let (etc, xdg) = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf");
        let (default, other) = ("/home/me/.config/pip/pip.conf", "/config/pip/pip.conf");
        check("", &[default], &[(default, etc)]);
        check("/config", &[default, other], &[(other, etc)]);
        check("", &[etc], &[(etc, etc)]);
        check("", &[xdg], &[(xdg, etc)]);
        check("", &[etc, xdg], &[(etc, etc), (xdg, xdg)]);
        check("", &[default, etc, xdg], &[(etc, xdg), (default, etc)]);
        check("", &["/home/me/.pip/pip.conf", etc], &[(etc, xdg), ("/home/me/.pip/pip.conf", etc)]);
    }

    #[test]
    fn folders_of_packages_reach_the_pods() {
        let variables = HashMap::from([
            ("PIP_NO_INDEX", "1"),
            ("PIP_FIND_LINKS", "https://links.corp:8080/simple /home/me/wheels"),
            ("UV_FIND_LINKS", "/home/me/wheels,./more"),
        ]);
        let variable = |name: &str| variables.get(name).map(|value| (*value).to_owned());
        let got = from_user(&variable, None, &|path| path == Path::new("/home/me/wheels"));
        let wheels = PathBuf::from("/home/me/wheels");
        assert_eq!(got.files, [(wheels.clone(), wheels)]);
        assert!(got.ports.contains(&8080) && got.env.contains(&("PIP_NO_INDEX".into(), "1".into())), "{got:?}");
        let expect = "UV_FIND_LINKS contains the relative path ./more, which pods cannot see; use an absolute path";
        assert_eq!(unusable(&got), [expect]);
    }

    #[test]
    fn settings_that_name_the_loopback_are_reported() {
        let check = |name: &str, value: &str, host: Option<&str>| {
            let internet = Internet { env: vec![(name.to_owned(), value.to_owned())], ..Internet::default() };
            let expect: Vec<String> = host.map(|host| on_loopback(name, host)).into_iter().collect();
            assert_eq!(unusable(&internet), expect, "{name}={value}");
        };
        check("HTTPS_PROXY", "http://me:secret@127.0.0.1:3128", Some("127.0.0.1"));
        check("http_proxy", "localhost:3128/", Some("localhost"));
        check("ALL_PROXY", "socks5://[::1]:1080", Some("::1"));
        check("PIP_EXTRA_INDEX_URL", "https://a.corp/simple http://127.0.0.2/simple", Some("127.0.0.2"));
        check("PIP_INDEX_URL", "https://localhost.corp/simple", None);
        check("no_proxy", "localhost,127.0.0.1", None);
        check("PIP_TRUSTED_HOST", "localhost", None);
        check("SSL_CERT_FILE", "/home/me/localhost/ca.pem", None);
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("pip.conf");
        std::fs::write(&file, "[global]\nindex-url = http://localhost:3141/simple\n").unwrap();
        let internet = Internet { files: vec![(file.clone(), "/etc/pip.conf".into())], ..Internet::default() };
        assert_eq!(unusable(&internet), [on_loopback(&file.display().to_string(), "localhost")]);
    }

    #[test]
    fn runtime_environments_that_download_are_found() {
        let check = |spec: Value, expect: Option<&str>| {
            assert_eq!(needs(&json!({"spec": spec})).as_deref(), expect, "{spec}");
        };
        check(json!({"runtimeEnvYAML": "pip: [emoji]\n"}), Some("pip"));
        check(json!({"runtimeEnvYAML": "env_vars: {A: b}\nworking_dir: /code\n"}), None);
        check(json!({"runtimeEnvYAML": "working_dir: https://x/y.zip"}), Some("working_dir https://x/y.zip"));
        check(json!({"runtimeEnvYAML": "py_modules: [./a, s3://b/c.zip]"}), Some("py_modules s3://b/c.zip"));
        check(json!({"runtimeEnvYAML": "conda: null\nworking_dir: file:///a.zip"}), None);
        check(json!({"jobTemplate": {"runtimeEnvYAML": "uv: {packages: [a]}"}}), Some("uv"));
        let serve = "applications:\n- name: a\n  runtime_env: {env_vars: {}}\n  deployments:\n  - name: d\n    \
                     ray_actor_options: {runtime_env: {conda: {dependencies: []}}}\n";
        check(json!({"serveConfigV2": serve}), Some("conda"));
        check(json!({"serveConfigV2": "a: ["}), None);
        check(json!({}), None);
    }

    #[test]
    fn jobs_that_have_ended_need_nothing() {
        let check = |status: Value, expect: bool| assert_eq!(has_ended(&json!({"status": status})), expect, "{status}");
        check(json!({"jobDeploymentStatus": "Complete"}), true);
        check(json!({"jobDeploymentStatus": "Failed"}), true);
        check(json!({"jobDeploymentStatus": "Running"}), false);
        check(json!({"jobDeploymentStatus": "Suspended"}), false);
        check(json!({}), false);
    }

    #[test]
    fn what_local_mode_cannot_download_is_known_before_a_submission() {
        let state = tempfile::tempdir().unwrap();
        let found = |environment: Value| not_downloadable(state.path(), &environment).unwrap();
        let pip = json!({"pip": ["emoji"], "working_dir": "."});
        assert_eq!(found(pip.clone()).as_deref(), Some("pip"));
        assert_eq!(found(json!({"working_dir": "."})), None);
        let file = state.path().join("addresses.json");
        std::fs::write(&file, r#"[{"object": "", "endpoint": "client", "url": "x"}]"#).unwrap();
        assert_eq!(found(pip.clone()), None, "pods share the machine's network");
        std::fs::remove_file(&file).unwrap();
        Choice { allowed: true, is_new: true }.remember(state.path()).unwrap();
        assert_eq!(found(pip), None);
    }
}
