//! `--config`: the configuration file, `config.ray.io/v1alpha1` `Configuration`.

use k8s_openapi::api::core::v1::{Container, EnvVar};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The known fields; others are ignored, as in KubeRay.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct File {
    pub(super) api_version: Option<String>,
    pub(super) kind: Option<String>,
    pub(super) metrics_addr: Option<String>,
    pub(super) probe_addr: Option<String>,
    pub(super) enable_leader_election: Option<bool>,
    pub(super) leader_election_namespace: Option<String>,
    pub(super) reconcile_concurrency: Option<i64>,
    pub(super) watch_namespace: Option<String>,
    pub(super) qps: Option<f64>,
    pub(super) burst: Option<i64>,
    pub(super) log_file: Option<String>,
    /// Parsed but ignored, like the next two: flags and environment take precedence.
    pub(super) log_file_encoder: Option<String>,
    pub(super) log_stdout_encoder: Option<String>,
    pub(super) delete_ray_job_after_job_finishes: Option<bool>,
    pub(super) enable_batch_scheduler: Option<bool>,
    pub(super) batch_scheduler: Option<String>,
    pub(super) use_kubernetes_proxy: Option<bool>,
    pub(super) enable_metrics: Option<bool>,
    pub(super) head_sidecar_containers: Option<Vec<Container>>,
    pub(super) worker_sidecar_containers: Option<Vec<Container>>,
    pub(super) default_container_envs: Option<Vec<EnvVar>>,
    pub(super) default_pod_annotations: Option<BTreeMap<String, String>>,
    pub(super) default_pod_labels: Option<BTreeMap<String, String>>,
}

const API_VERSION: &str = "config.ray.io/v1alpha1";
const KIND: &str = "Configuration";

impl File {
    /// Parses YAML or JSON.
    pub(super) fn parse(text: &str) -> Result<Self, String> {
        let value: serde_json::Value = serde_saphyr::from_str(text).map_err(|error| error.to_string())?;
        let file: Self = serde_json::from_value(value).map_err(|error| error.to_string())?;
        match (file.api_version.as_deref(), file.kind.as_deref()) {
            (Some(API_VERSION), Some(KIND)) => Ok(file),
            (version, kind) => Err(format!(
                "it says apiVersion {:?} and kind {:?}, and must say {API_VERSION} and {KIND}",
                version.unwrap_or_default(),
                kind.unwrap_or_default()
            )),
        }
    }
}
