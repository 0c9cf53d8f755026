//! Flags, configuration file, environment and feature gates, read once into [`Arguments`].
//!
//! Names and defaults are KubeRay's. Settings without effect are accepted and listed in [`Arguments::notes`].

mod environment;
mod file;
mod flags;
pub mod gates;

#[cfg(test)]
mod tests;

use crate::clock::{Clock, LocalZone};
use crate::dashboard::Route;
use crate::random::Random;
use crate::run::Settings;
use file::File;
use flags::Flags;
pub use flags::{UsageError, usage};
use manta_logic::config::{BatchScheduler, Config, FeatureGates};
use manta_logic::post_mortem::Limits;
use std::path::{Path, PathBuf};
use std::time::Duration;

/// The complete configuration of the operator's process.
#[derive(Clone, Debug)]
pub struct Arguments {
    pub settings: Settings,
    pub process: Process,
    /// Settings that have no effect here, each with its replacement.
    pub notes: Vec<String>,
}

/// Settings of the process around the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Process {
    pub kubeconfig: Option<PathBuf>,
    /// The address of `/metrics`.
    pub metrics_address: Option<String>,
    /// The address of `/healthz` and `/readyz`.
    pub probe_address: Option<String>,
    /// Whether `/metrics` is served over TLS, and only to those who may get it.
    pub secure_metrics: bool,
    /// Whether the `kuberay_*` metrics are served.
    pub kuberay_metrics: bool,
    pub leader_election: bool,
    /// The namespace of the Lease, if given.
    pub leader_election_namespace: Option<String>,
    /// The admission webhooks, if enabled.
    pub webhooks: Option<WebhookArgs>,
    pub log: Log,
}

/// How the admission webhooks are served.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WebhookArgs {
    pub address: String,
    pub certificates: Certificates,
}

/// Where the webhooks' certificates come from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Certificates {
    /// Something else writes them to this folder.
    Folder(PathBuf),
    /// The operator generates them, for the ValidatingWebhookConfiguration of this name.
    SelfSignedFor(String),
}

/// Settings of the log.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Log {
    pub level: Level,
    pub encoder: Encoder,
    pub file: Option<(PathBuf, Encoder)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Encoder {
    Json,
    Console,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Level {
    Error,
    Info,
    Debug,
    Trace,
}

/// Why the operator cannot start.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ArgsError {
    #[error(transparent)]
    Usage(#[from] UsageError),
    #[error("failed to read config file: {0}: {1}")]
    Unreadable(String, String),
    #[error("failed to decode config file: {0}: {1}")]
    Undecodable(String, String),
    #[error("failed to create log encoder for {0}: invalid encoder \"{1}\" (must be 'json' or 'console')")]
    Encoder(&'static str, String),
    #[error("invalid value \"{0}\" for flag -zap-log-level: it must be debug, info, error, panic or a number above 0")]
    Level(String),
    #[error("Unable to set flag gates for known features: unrecognized feature gate: {0}")]
    UnknownGate(String),
    #[error("Unable to set flag gates for known features: missing bool value for {0}")]
    MissingValue(String),
    #[error(
        "Unable to set flag gates for known features: invalid value of {0}={1}, err: strconv.ParseBool: parsing \"{1}\": invalid syntax"
    )]
    InvalidValue(String, String),
    #[error("batch scheduler configs validation failed: {0}")]
    BatchScheduler(String),
}

impl Arguments {
    /// Parses a command line; `env` looks up a variable, `read` reads a file.
    pub fn read(
        arguments: impl IntoIterator<Item = String>,
        env: impl Fn(&str) -> Option<String>,
        read: impl Fn(&Path) -> Result<String, String>,
    ) -> Result<Self, ArgsError> {
        let flags = Flags::parse(arguments)?;
        let file = match flags.text("config") {
            "" => from_flags(&flags),
            path => read_file(path, &read)?,
        };
        let gates = gates::parse(flags.text("feature-gates"))?;
        let notes = notes(&flags, &file, &env);
        Ok(Self { process: process(&flags, &file, &env)?, settings: settings(&flags, file, gates, &env)?, notes })
    }
}

fn read_file(path: &str, read: &impl Fn(&Path) -> Result<String, String>) -> Result<File, ArgsError> {
    let text = read(Path::new(path)).map_err(|error| ArgsError::Unreadable(path.to_owned(), error))?;
    File::parse(&text).map_err(|error| ArgsError::Undecodable(path.to_owned(), error))
}

/// Returns the flags as a configuration file.
fn from_flags(flags: &Flags) -> File {
    let text = |name: &str| Some(flags.text(name).to_owned());
    let switch = |name: &str| Some(flags.switch(name));
    File {
        metrics_addr: text("metrics-addr"),
        probe_addr: text("health-probe-bind-address")
            .map(|address| if address.is_empty() { "0".into() } else { address }),
        enable_leader_election: switch("enable-leader-election"),
        leader_election_namespace: text("leader-election-namespace"),
        reconcile_concurrency: flags.text("reconcile-concurrency").parse().ok(),
        watch_namespace: text("watch-namespace"),
        qps: flags.text("qps").parse().ok(),
        burst: flags.text("burst").parse().ok(),
        log_file: text("log-file-path"),
        enable_batch_scheduler: switch("enable-batch-scheduler"),
        batch_scheduler: text("batch-scheduler"),
        use_kubernetes_proxy: switch("use-kubernetes-proxy"),
        enable_metrics: switch("enable-metrics"),
        ..File::default()
    }
}

fn process(flags: &Flags, file: &File, env: &impl Fn(&str) -> Option<String>) -> Result<Process, ArgsError> {
    let encoder = |of: &'static str, name: &str| match flags.text(name) {
        "json" => Ok(Encoder::Json),
        "console" => Ok(Encoder::Console),
        other => Err(ArgsError::Encoder(of, other.to_owned())),
    };
    let file_encoder = encoder("file", "log-file-encoder")?;
    Ok(Process {
        kubeconfig: non_empty(Some(flags.text("kubeconfig"))).map(PathBuf::from),
        metrics_address: address(file.metrics_addr.as_deref(), ":8080"),
        probe_address: address(file.probe_addr.as_deref(), ":8082"),
        secure_metrics: flags.switch("secure-metrics"),
        kuberay_metrics: file.enable_metrics.unwrap_or(false),
        leader_election: file.enable_leader_election.unwrap_or(true),
        leader_election_namespace: non_empty(file.leader_election_namespace.as_deref()).map(str::to_owned),
        webhooks: (env("ENABLE_WEBHOOKS").as_deref() == Some("true")).then(|| webhooks(flags)),
        log: Log {
            level: level(flags)?,
            encoder: encoder("stdout", "log-stdout-encoder")?,
            file: non_empty(file.log_file.as_deref()).map(|path| (PathBuf::from(path), file_encoder)),
        },
    })
}

fn webhooks(flags: &Flags) -> WebhookArgs {
    let certificates = match flags.text("webhook-self-signed-for") {
        "" => Certificates::Folder(PathBuf::from(flags.text("webhook-cert-dir"))),
        configuration => Certificates::SelfSignedFor(configuration.to_owned()),
    };
    WebhookArgs { address: flags.text("webhook-bind-address").to_owned(), certificates }
}

fn settings(
    flags: &Flags,
    file: File,
    gates: FeatureGates,
    env: &impl Fn(&str) -> Option<String>,
) -> Result<Settings, ArgsError> {
    let proxy = file.use_kubernetes_proxy.unwrap_or(false);
    let namespaces = file.watch_namespace.as_deref().unwrap_or_default();
    Ok(Settings {
        watch_namespaces: namespaces.split(',').filter(|name| !name.is_empty()).map(str::to_owned).collect(),
        host: env("HOSTNAME").filter(|host| !host.is_empty()).unwrap_or_else(|| "manta".to_owned()),
        dashboard_route: if proxy { Route::ApiServerProxy } else { Route::Direct },
        clock: Clock::System,
        local_zone: LocalZone::System,
        random: Random::System,
        post_mortems: post_mortems(flags),
        post_mortem_directory: non_empty(Some(flags.text("post-mortem-directory"))).map(PathBuf::from),
        config: Config {
            batch_scheduler: batch_scheduler(&file, &gates)?,
            gates,
            head_sidecars: file.head_sidecar_containers.unwrap_or_default(),
            worker_sidecars: file.worker_sidecar_containers.unwrap_or_default(),
            default_container_envs: file.default_container_envs.unwrap_or_default(),
            default_pod_annotations: file.default_pod_annotations.unwrap_or_default(),
            default_pod_labels: file.default_pod_labels.unwrap_or_default(),
            ..environment::config(env)
        },
    })
}

/// Returns how much to keep of objects that ended.
fn post_mortems(flags: &Flags) -> Option<Limits> {
    let number = |name: &str| flags.text(name).parse::<u32>().ok();
    let count = number("post-mortem-records").filter(|count| *count > 0)?;
    let hours = number("post-mortem-hours").unwrap_or_default();
    let age = Duration::from_secs(3600 * u64::from(hours));
    Some(Limits { count: count as usize, age, ..Limits::default() })
}

fn non_empty(text: Option<&str>) -> Option<&str> {
    text.filter(|text| !text.is_empty())
}

/// Returns the address to listen on; `0` means none.
fn address(given: Option<&str>, default: &str) -> Option<String> {
    Some(non_empty(given).unwrap_or(default)).filter(|address| *address != "0").map(str::to_owned)
}

fn level(flags: &Flags) -> Result<Level, ArgsError> {
    let level = match flags.text("zap-log-level") {
        "" if flags.switch("zap-devel") => Level::Debug,
        "" => Level::Info,
        text => match (text.to_lowercase().as_str(), text.parse::<u32>()) {
            ("debug", _) | (_, Ok(1)) => Level::Debug,
            ("info", _) => Level::Info,
            ("error" | "panic", _) => Level::Error,
            (_, Ok(verbosity)) if verbosity > 1 => Level::Trace,
            _ => return Err(ArgsError::Level(text.to_owned())),
        },
    };
    Ok(level)
}

fn batch_scheduler(file: &File, gates: &FeatureGates) -> Result<Option<BatchScheduler>, ArgsError> {
    let wrong = |why: &str| Err(ArgsError::BatchScheduler(why.to_owned()));
    let volcano = file.enable_batch_scheduler.unwrap_or(false);
    match (non_empty(file.batch_scheduler.as_deref()), volcano, gates.kubernetes_was) {
        (None, false, false) => Ok(None),
        (None, false, true) => Ok(Some(BatchScheduler::KubernetesWorkloads)),
        (_, _, true) => wrong(
            "the KubernetesWAS feature gate cannot be combined with --batch-scheduler or --enable-batch-scheduler",
        ),
        (Some(_), true, false) => wrong(
            "both feature flags enable-batch-scheduler (deprecated) and batch-scheduler are set. Please use batch-scheduler only",
        ),
        (None, true, false) | (Some("volcano"), ..) => Ok(Some(BatchScheduler::Volcano)),
        (Some("yunikorn"), ..) => Ok(Some(BatchScheduler::Yunikorn)),
        (Some("kai-scheduler"), ..) => Ok(Some(BatchScheduler::Kai)),
        (Some("scheduler-plugins"), ..) => Ok(Some(BatchScheduler::SchedulerPlugins)),
        (Some(other), ..) => wrong(&format!("scheduler is not supported, name={other}")),
    }
}

/// Returns a note for every setting that has no effect.
fn notes(flags: &Flags, file: &File, env: &impl Fn(&str) -> Option<String>) -> Vec<String> {
    let budget = "writes share one budget, and the API server's own fairness does the rest";
    let note_if = |given: bool, text: &str| given.then(|| text.to_owned());
    [
        note_if(
            file.reconcile_concurrency.is_some_and(|workers| workers > 1),
            "reconcileConcurrency has no effect: every object has a pass of its own, side by side with the others",
        ),
        (file.qps.is_some_and(|qps| qps != 0.0 && qps != 100.0)).then(|| format!("qps has no effect: {budget}")),
        (file.burst.is_some_and(|burst| burst != 0 && burst != 200)).then(|| format!("burst has no effect: {budget}")),
        note_if(
            file.log_file_encoder.is_some() || file.log_stdout_encoder.is_some(),
            "logFileEncoder and logStdoutEncoder of the configuration file have no effect: use the flags",
        ),
        note_if(
            file.delete_ray_job_after_job_finishes.is_some(),
            "deleteRayJobAfterJobFinishes has no effect: set DELETE_RAYJOB_CR_AFTER_JOB_FINISHES",
        ),
        note_if(
            file.enable_batch_scheduler == Some(true),
            "Feature flag enable-batch-scheduler is deprecated and will not be supported soon. Use batch-scheduler instead. ",
        ),
        note_if(
            flags.switch("forced-cluster-upgrade"),
            "Deprecated feature flag forced-cluster-upgrade is enabled, which has no effect.",
        ),
        note_if(
            ["zap-encoder", "zap-time-encoding", "zap-stacktrace-level"].iter().any(|name| flags.is_given(name)),
            "zap-encoder, zap-time-encoding and zap-stacktrace-level have no effect: use log-stdout-encoder",
        ),
        note_if(
            env("RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV").is_some(),
            "RAYCLUSTER_DEFAULT_REQUEUE_SECONDS_ENV has no effect: changes wake an object, no timer does",
        ),
        (!flags.ignored.is_empty())
            .then(|| format!("ignored, because no flag comes first: {}", flags.ignored.join(" "))),
    ]
    .into_iter()
    .flatten()
    .collect()
}
