//! Every field of the configuration file, every flag, and the notes about settings without effect.

use super::*;
use serde_json::json;
use std::collections::BTreeSet;

const FILE: &str = "apiVersion: config.ray.io/v1alpha1\nkind: Configuration\n";

fn read(line: &str, file: &str) -> Result<Arguments, ArgsError> {
    read_with(line, file, "")
}

fn read_with(line: &str, file: &str, variable: &str) -> Result<Arguments, ArgsError> {
    let (name, value) = variable.split_once('=').unwrap_or_default();
    Arguments::read(
        line.split_whitespace().map(str::to_owned),
        |asked| (asked == name).then(|| value.to_owned()),
        |path| match path.to_str() {
            Some("config.yaml") => Ok(file.to_owned()),
            _ => Err("no such file".to_owned()),
        },
    )
}

type Read = fn(&Arguments) -> String;

/// Returns what is kept of objects that ended.
fn kept(settings: &Settings) -> String {
    let words = |limits: Limits| format!("{} for {} h", limits.count, limits.age.as_secs() / 3600);
    settings.post_mortems.map_or_else(|| "nothing".to_owned(), words)
}

/// File entry, flag, how to read the value, and the value without and with it.
type Row = (Option<&'static str>, Option<&'static str>, Read, &'static str, &'static str);

/// The settings that take effect; `None` where there is no such field or no such flag.
const FIELDS: &[Row] = &[
    (None, Some("--post-mortem-records=0"), |a| kept(&a.settings), "50 for 168 h", "nothing"),
    (None, Some("--post-mortem-records=5"), |a| kept(&a.settings), "50 for 168 h", "5 for 168 h"),
    (None, Some("--post-mortem-hours=1"), |a| kept(&a.settings), "50 for 168 h", "50 for 1 h"),
    (
        None,
        Some("--post-mortem-directory=/records"),
        |a| format!("{:?}", a.settings.post_mortem_directory),
        "None",
        "Some(\"/records\")",
    ),
    (Some("metricsAddr: ':1'"), Some("--metrics-addr=:1"), |a| text_or_none(&a.process.metrics_address), ":8080", ":1"),
    (Some("metricsAddr: '0'"), Some("--metrics-addr=0"), |a| text_or_none(&a.process.metrics_address), ":8080", "none"),
    (
        Some("probeAddr: ':2'"),
        Some("--health-probe-bind-address=:2"),
        |a| text_or_none(&a.process.probe_address),
        ":8082",
        ":2",
    ),
    (None, Some("--health-probe-bind-address="), |a| text_or_none(&a.process.probe_address), ":8082", "none"),
    (
        Some("enableLeaderElection: false"),
        Some("--enable-leader-election=false"),
        |a| a.process.leader_election.to_string(),
        "true",
        "false",
    ),
    (
        Some("leaderElectionNamespace: here"),
        Some("--leader-election-namespace here"),
        |a| text_or_none(&a.process.leader_election_namespace),
        "none",
        "here",
    ),
    // Blanks are part of the name.
    (Some("watchNamespace: 'a, b'"), None, |a| format!("{:?}", a.settings.watch_namespaces), "[]", "[\"a\", \" b\"]"),
    (
        Some("watchNamespace: 'a,,b,'"),
        Some("--watch-namespace=a,,b,"),
        |a| a.settings.watch_namespaces.join(" "),
        "",
        "a b",
    ),
    (Some("watchNamespace: a,b"), Some("--watch-namespace=a,b"), |a| a.settings.watch_namespaces.join(" "), "", "a b"),
    (
        Some("logFile: /l"),
        Some("--log-file-path=/l"),
        |a| format!("{:?}", a.process.log.file),
        "None",
        "Some((\"/l\", Json))",
    ),
    (None, Some("--log-stdout-encoder=console"), |a| format!("{:?}", a.process.log.encoder), "Json", "Console"),
    (
        None,
        Some("--log-file-path=/l --log-file-encoder console"),
        |a| format!("{:?}", a.process.log.file),
        "None",
        "Some((\"/l\", Console))",
    ),
    (
        Some("enableBatchScheduler: true"),
        Some("--enable-batch-scheduler"),
        |a| format!("{:?}", a.settings.config.batch_scheduler),
        "None",
        "Some(Volcano)",
    ),
    (
        Some("batchScheduler: yunikorn"),
        Some("--batch-scheduler=yunikorn"),
        |a| format!("{:?}", a.settings.config.batch_scheduler),
        "None",
        "Some(Yunikorn)",
    ),
    (
        Some("batchScheduler: kai-scheduler"),
        Some("--batch-scheduler=kai-scheduler"),
        |a| format!("{:?}", a.settings.config.batch_scheduler),
        "None",
        "Some(Kai)",
    ),
    (
        Some("batchScheduler: scheduler-plugins"),
        Some("--batch-scheduler=scheduler-plugins"),
        |a| format!("{:?}", a.settings.config.batch_scheduler),
        "None",
        "Some(SchedulerPlugins)",
    ),
    (
        None,
        Some("--feature-gates=KubernetesWAS=true"),
        |a| format!("{:?}", a.settings.config.batch_scheduler),
        "None",
        "Some(KubernetesWorkloads)",
    ),
    (
        Some("useKubernetesProxy: true"),
        Some("--use-kubernetes-proxy"),
        |a| format!("{:?}", a.settings.dashboard_route),
        "Direct",
        "ApiServerProxy",
    ),
    (Some("enableMetrics: true"), Some("--enable-metrics"), |a| a.process.kuberay_metrics.to_string(), "false", "true"),
    (None, Some("--secure-metrics"), |a| a.process.secure_metrics.to_string(), "false", "true"),
    (None, Some("--kubeconfig=/k"), |a| format!("{:?}", a.process.kubeconfig), "None", "Some(\"/k\")"),
    (None, Some("--zap-devel"), |a| format!("{:?}", a.process.log.level), "Info", "Debug"),
    (None, Some("--zap-log-level=error"), |a| format!("{:?}", a.process.log.level), "Info", "Error"),
    (None, Some("--zap-log-level=debug"), |a| format!("{:?}", a.process.log.level), "Info", "Debug"),
    (None, Some("--zap-log-level=1"), |a| format!("{:?}", a.process.log.level), "Info", "Debug"),
    (None, Some("--zap-log-level=info"), |a| format!("{:?}", a.process.log.level), "Info", "Info"),
    (None, Some("--zap-log-level=panic"), |a| format!("{:?}", a.process.log.level), "Info", "Error"),
    (None, Some("--zap-log-level=3"), |a| format!("{:?}", a.process.log.level), "Info", "Trace"),
    (
        Some("headSidecarContainers: [{name: h}]"),
        None,
        |a| json!(a.settings.config.head_sidecars).to_string(),
        "[]",
        "[{\"name\":\"h\"}]",
    ),
    (
        Some("workerSidecarContainers: [{name: w}]"),
        None,
        |a| json!(a.settings.config.worker_sidecars).to_string(),
        "[]",
        "[{\"name\":\"w\"}]",
    ),
    (
        Some("defaultContainerEnvs: [{name: E, value: '1'}]"),
        None,
        |a| json!(a.settings.config.default_container_envs).to_string(),
        "[]",
        "[{\"name\":\"E\",\"value\":\"1\"}]",
    ),
    (
        Some("defaultPodAnnotations: {a: b}"),
        None,
        |a| json!(a.settings.config.default_pod_annotations).to_string(),
        "{}",
        "{\"a\":\"b\"}",
    ),
    (
        Some("defaultPodLabels: {c: d}"),
        None,
        |a| json!(a.settings.config.default_pod_labels).to_string(),
        "{}",
        "{\"c\":\"d\"}",
    ),
];

fn text_or_none(text: &Option<String>) -> String {
    text.clone().unwrap_or_else(|| "none".to_owned())
}

#[test]
fn every_field_and_flag_is_read() {
    for (field, flag, read_value, default, expect) in FIELDS {
        assert_eq!(read_value(&read("", "").unwrap()), *default, "{flag:?}");
        assert_eq!(read_value(&read("--config=config.yaml", FILE).unwrap()), *default, "{field:?}");
        if let Some(flag) = flag {
            assert_eq!(read_value(&read(flag, "").unwrap()), *expect, "{flag}");
            // With a file, only flags without a field in it take effect.
            let with_file = read(&format!("--config config.yaml {flag}"), FILE).unwrap();
            let counts = field.is_none() && !flag.contains("probe") && !flag.contains("log-file");
            assert_eq!(read_value(&with_file), if counts { *expect } else { *default }, "{flag} beside a file");
        }
        if let Some(field) = field {
            let file = format!("{FILE}{field}\nunknownField: 1\n");
            assert_eq!(read_value(&read("--config=config.yaml", &file).unwrap()), *expect, "{field}");
        }
    }
}

#[test]
fn webhooks_are_enabled_by_the_environment() {
    let seen = |line: &str, variable: &str| read_with(line, "", variable).unwrap().process.webhooks;
    // Only exactly `true` enables them.
    for other in ["", "ENABLE_WEBHOOKS=", "ENABLE_WEBHOOKS=True", "ENABLE_WEBHOOKS=1", "ENABLE_WEBHOOKS=false"] {
        assert_eq!(seen("", other), None, "{other}");
    }
    let on = "ENABLE_WEBHOOKS=true";
    let folder = |path: &str| Certificates::Folder(path.into());
    for (line, address, certificates) in [
        ("", ":9443", folder("/tmp/k8s-webhook-server/serving-certs")),
        ("--webhook-cert-dir=/c --webhook-bind-address=:1", ":1", folder("/c")),
        ("--webhook-self-signed-for=x", ":9443", Certificates::SelfSignedFor("x".to_owned())),
    ] {
        assert_eq!(seen(line, on), Some(WebhookArgs { address: address.to_owned(), certificates }), "{line}");
    }
}

/// Settings that take effect have a row above; the others have a note below.
#[test]
fn every_flag_and_field_is_tested() {
    let words = FIELDS.iter().filter_map(|row| row.1).flat_map(str::split_whitespace);
    let rows: BTreeSet<&str> = words.filter_map(|word| word.strip_prefix("--")?.split('=').next()).collect();
    let elsewhere = [
        "config",
        "qps",
        "burst",
        "reconcile-concurrency",
        "forced-cluster-upgrade",
        "zap-encoder",
        "zap-time-encoding",
        "zap-stacktrace-level",
        "webhook-bind-address",
        "webhook-cert-dir",
        "webhook-self-signed-for",
    ];
    for name in flags::names() {
        assert!(rows.contains(name) || elsewhere.contains(&name), "--{name} is not tested");
    }
    let fields: BTreeSet<&str> = FIELDS.iter().filter_map(|row| row.0?.split(':').next()).collect();
    let noted =
        ["reconcileConcurrency", "qps", "burst", "logFileEncoder", "logStdoutEncoder", "deleteRayJobAfterJobFinishes"];
    for name in [
        "metricsAddr",
        "probeAddr",
        "enableLeaderElection",
        "leaderElectionNamespace",
        "reconcileConcurrency",
        "watchNamespace",
        "qps",
        "burst",
        "logFile",
        "logFileEncoder",
        "logStdoutEncoder",
        "enableBatchScheduler",
        "batchScheduler",
        "useKubernetesProxy",
        "enableMetrics",
        "deleteRayJobAfterJobFinishes",
        "headSidecarContainers",
        "workerSidecarContainers",
        "defaultContainerEnvs",
        "defaultPodAnnotations",
        "defaultPodLabels",
    ] {
        assert!(fields.contains(name) || noted.contains(&name), "{name} is not tested");
    }
}

#[test]
fn settings_without_effect_are_noted() {
    let check = |line: &str, file: &str, variable: &str, expect: &str| {
        let notes = read_with(line, &format!("{FILE}{file}"), variable).unwrap().notes;
        assert_eq!(notes.len(), usize::from(!expect.is_empty()), "{line} {file} {variable}: {notes:?}");
        assert!(notes.iter().all(|note| note.contains(expect)), "{line} {file} {variable}: {notes:?}");
    };
    check("--qps=100.0 --burst=200 --reconcile-concurrency=1", "", "", "");
    check("--qps=5", "", "", "qps has no effect: writes share one budget");
    check("--burst=5", "", "", "burst has no effect");
    check("--reconcile-concurrency=5", "", "", "reconcileConcurrency has no effect: every object has a pass");
    check("--forced-cluster-upgrade", "", "", "forced-cluster-upgrade is enabled, which has no effect.");
    check("--enable-batch-scheduler", "", "", "Use batch-scheduler instead.");
    for flag in ["--zap-encoder=json", "--zap-time-encoding=epoch", "--zap-stacktrace-level=info"] {
        check(flag, "", "", "zap-stacktrace-level have no effect");
    }
    check("surplus --qps=5", "", "", "no flag comes first: surplus --qps=5");
    let file = "--config=config.yaml";
    check(file, "qps: 5", "", "qps has no effect");
    check(file, "burst: 5", "", "burst has no effect");
    check(file, "reconcileConcurrency: 5", "", "reconcileConcurrency has no effect");
    check(file, "logFileEncoder: json", "", "use the flags");
    check(file, "logStdoutEncoder: json", "", "use the flags");
    check(file, "deleteRayJobAfterJobFinishes: true", "", "DELETE_RAYJOB_CR_AFTER_JOB_FINISHES");
    check("", "", "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV=5", "no timer does");
}

#[test]
fn invalid_settings_are_errors() {
    let check = |line: &str, file: &str, expect: &str| {
        let error = read(line, file).map(drop).unwrap_err().to_string();
        assert!(error.contains(expect), "{line}: {error}");
    };
    check("--config=absent", "", "failed to read config file: absent: no such file");
    let file = "--config=config.yaml";
    check(file, "a: [", "failed to decode config file: config.yaml: ");
    check(
        file,
        "kind: Configuration",
        "it says apiVersion \"\" and kind \"Configuration\", and must say config.ray.io",
    );
    check(file, &format!("{FILE}burst: 300.5"), "failed to decode config file: config.yaml: invalid type");
    check(file, &format!("{FILE}enableMetrics: 'true'"), "invalid type: string");
    check(file, &format!("{FILE}headSidecarContainers: {{}}"), "invalid type: map");
    check(
        "--log-stdout-encoder=xml",
        "",
        "log encoder for stdout: invalid encoder \"xml\" (must be 'json' or 'console')",
    );
    check("--log-file-encoder=xml", "", "log encoder for file: invalid encoder \"xml\"");
    check("--zap-log-level=loud", "", "invalid value \"loud\" for flag -zap-log-level");
    check("--zap-log-level=0", "", "invalid value \"0\"");
    check("--batch-scheduler=default", "", "scheduler is not supported, name=default");
    check("--batch-scheduler=volcano --enable-batch-scheduler", "", "both feature flags enable-batch-scheduler");
    check("--batch-scheduler=volcano --feature-gates=KubernetesWAS=true", "", "the KubernetesWAS feature gate cannot");
    check("--nope", "", "flag provided but not defined: -nope");
}
