//! Rules for the history collector: its image, its storage and its reserved names.

use super::ensure;
use super::pod::{find_env, has_container};
use crate::cluster_spec::worker_groups;
use crate::config::FeatureGates;
use crate::names::reserved::COLLECTOR;
use k8s_openapi::api::core::v1::EnvVar;
use manta_api::{CollectorOptions, RayClusterSpec};

/// The variables that the operator sets in the collector.
const MANAGED: [&str; 8] = [
    "POD_IP",
    "FQ_RAY_IP",
    "RAY_CLUSTER_NAME",
    "RAY_CLUSTER_NAMESPACE",
    "RAY_ROLE",
    "OWNER_KIND",
    "OWNER_NAME",
    "EVENTS_PORT",
];

pub(super) fn check(spec: &RayClusterSpec, gates: &FeatureGates) -> Result<(), String> {
    let Some(options) = &spec.history_server_options else { return Ok(()) };
    ensure(gates.ray_cluster_history_server, || "RayClusterHistoryServer feature gate is not enabled".to_owned())?;
    let Some(collector) = &options.collector_options else {
        return Err("historyServerOptions.collectorOptions must be set".to_owned());
    };
    check_collector(collector)?;
    const TAKEN: &str = "pod template must not define a container with name 'ray-history-collector' when history \
                         server collector options are enabled";
    ensure(!has_container(&spec.head_group_spec.template, COLLECTOR), || format!("head {TAKEN}"))?;
    let taken = worker_groups(spec).iter().find(|group| has_container(&group.template, COLLECTOR));
    taken.map_or(Ok(()), |group| Err(format!("worker group {} {TAKEN}", group.group_name)))
}

fn check_collector(collector: &CollectorOptions) -> Result<(), String> {
    ensure(collector.image.as_ref().is_some_and(|image| !image.is_empty()), || {
        "historyServerOptions.collectorOptions.image must be set".to_owned()
    })?;
    let env = collector.env.as_deref();
    if let Some(name) = MANAGED.into_iter().find(|name| find_env(env, name).is_some()) {
        return Err(format!(
            "historyServerOptions.collectorOptions.env must not contain {name}: it is managed by KubeRay and injected \
             automatically into the collector container"
        ));
    }
    let backend = literal(env, "STORAGE_BACKEND");
    ensure(!backend.is_empty(), || {
        "STORAGE_BACKEND environment variable must be set with a literal string value in \
         historyServerOptions.collectorOptions.env"
            .to_owned()
    })?;
    check_storage(env, &backend.to_uppercase())
}

/// Checks the variables that each storage needs; unknown storage is allowed.
fn check_storage(env: Option<&[EnvVar]>, backend: &str) -> Result<(), String> {
    let needed: &[&str] = match backend {
        "GCS" => &["GCS_BUCKET"],
        "S3" => &["S3_REGION"],
        "ALIYUNOSS" => &["OSS_BUCKET", "OSS_ENDPOINT", "OSS_REGION"],
        "AZUREBLOB" => return check_azure(env),
        _ => &[],
    };
    needed.iter().try_for_each(|name| {
        ensure(has_value(env, name), || {
            format!("{name} environment variable must be set when STORAGE_BACKEND is {backend}")
        })
    })
}

fn check_azure(env: Option<&[EnvVar]>) -> Result<(), String> {
    const CONNECTION: &str = "AZURE_STORAGE_CONNECTION_STRING";
    const ACCOUNT: &str = "AZURE_STORAGE_ACCOUNT_URL";
    let mode = literal(env, "AZURE_STORAGE_AUTH_MODE").trim().to_lowercase();
    let needed = match mode.as_str() {
        "connection_string" => CONNECTION,
        "workload_identity" | "default" => ACCOUNT,
        _ => {
            return ensure(has_value(env, CONNECTION) || has_value(env, ACCOUNT), || {
                format!(
                    "either {CONNECTION} or {ACCOUNT} environment variable must be set when STORAGE_BACKEND is \
                     AZUREBLOB"
                )
            });
        }
    };
    ensure(has_value(env, needed), || {
        format!(
            "{needed} environment variable must be set when STORAGE_BACKEND is AZUREBLOB and AZURE_STORAGE_AUTH_MODE \
             is {mode}"
        )
    })
}

fn literal<'a>(env: Option<&'a [EnvVar]>, name: &str) -> &'a str {
    find_env(env, name).and_then(|variable| variable.value.as_deref()).unwrap_or_default()
}

fn has_value(env: Option<&[EnvVar]>, name: &str) -> bool {
    let has = |v: &EnvVar| v.value_from.is_some() || v.value.as_ref().is_some_and(|value| !value.is_empty());
    find_env(env, name).is_some_and(has)
}
