//! Flags, environment and feature gates of the operator, read once into [`Settings`].

use crate::dashboard::Route;
use crate::run::Settings;
use manta_logic::config::{Config, FeatureGates};
use std::time::Duration;

/// What the operator is told on its command line.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    /// `--feature-gates`.
    pub feature_gates: String,
    /// `--watch-namespace`.
    pub watch_namespace: String,
    /// `--use-kubernetes-proxy`.
    pub use_kubernetes_proxy: bool,
}

/// Why the operator cannot start.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum ArgsError {
    #[error("Unable to set flag gates for known features: unrecognized feature gate: {0}")]
    UnknownGate(String),
    #[error("Unable to set flag gates for known features: missing bool value for {0}")]
    MissingValue(String),
    #[error(
        "Unable to set flag gates for known features: invalid value of {0}={1}, err: strconv.ParseBool: parsing \"{1}\": invalid syntax"
    )]
    InvalidValue(String, String),
}

impl Flags {
    /// The settings that follow from the flags and from the environment, which `env` reads.
    pub fn settings(&self, env: impl Fn(&str) -> Option<String>) -> Result<Settings, ArgsError> {
        let mut config = from_environment(&env);
        config.gates = parse_gates(&self.feature_gates)?;
        Ok(Settings {
            config,
            watch_namespaces: self
                .watch_namespace
                .split(',')
                .filter(|name| !name.is_empty())
                .map(str::to_owned)
                .collect(),
            host: env("HOSTNAME").unwrap_or_else(|| "manta".to_owned()),
            dashboard_route: if self.use_kubernetes_proxy { Route::ApiServerProxy } else { Route::Direct },
        })
    }
}

fn from_environment(env: &impl Fn(&str) -> Option<String>) -> Config {
    let lower = |name: &str| env(name).unwrap_or_default().to_lowercase();
    let on_unless_false = |name: &str| lower(name) != "false";
    let off_unless_true = |name: &str| lower(name) == "true";
    let seconds = |name: &str| env(name).and_then(|text| text.parse::<i64>().ok());
    Config {
        cluster_domain: env("CLUSTER_DOMAIN")
            .filter(|domain| !domain.is_empty())
            .unwrap_or_else(|| "cluster.local".to_owned()),
        inject_init_container: on_unless_false("ENABLE_INIT_CONTAINER_INJECTION"),
        inject_probes: on_unless_false("ENABLE_PROBES_INJECTION"),
        login_shell: off_unless_true("ENABLE_LOGIN_SHELL"),
        deterministic_head_pod_name: off_unless_true("ENABLE_DETERMINISTIC_HEAD_POD_NAME"),
        head_cluster_ip_service: off_unless_true("ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE"),
        ingress_on_openshift: off_unless_true("USE_INGRESS_ON_OPENSHIFT"),
        redis_cleanup: on_unless_false("ENABLE_GCS_FT_REDIS_CLEANUP"),
        random_pod_delete: off_unless_true("ENABLE_RANDOM_POD_DELETE"),
        zero_downtime: on_unless_false("ENABLE_ZERO_DOWNTIME"),
        delete_rayjob_after_finish: off_unless_true("DELETE_RAYJOB_CR_AFTER_JOB_FINISHES"),
        rayjob_transition_grace_seconds: seconds("RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS")
            .unwrap_or(300),
        rayjob_status_check_timeout: Duration::from_secs(
            seconds("RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS").filter(|seconds| *seconds > 0).unwrap_or(300).unsigned_abs(),
        ),
        ..Config::default()
    }
}

/// Reads `Name=bool,Name=bool`; `AllAlpha` and `AllBeta` set every gate of that stage not set by name.
fn parse_gates(text: &str) -> Result<FeatureGates, ArgsError> {
    let mut gates = FeatureGates::default();
    let mut by_name = Vec::new();
    for item in text.split(',').map(str::trim).filter(|item| !item.is_empty()) {
        let (name, value) = item.split_once('=').ok_or_else(|| ArgsError::MissingValue(item.to_owned()))?;
        let (name, value) = (name.trim(), value.trim());
        let on = parse_bool(value).ok_or_else(|| ArgsError::InvalidValue(name.to_owned(), value.to_owned()))?;
        match name {
            "AllAlpha" => alpha(&mut gates).into_iter().for_each(|gate| *gate = on),
            "AllBeta" => beta(&mut gates).into_iter().for_each(|gate| *gate = on),
            name => by_name.push((name.to_owned(), on)),
        }
    }
    for (name, on) in by_name {
        *gate(&mut gates, &name).ok_or_else(|| ArgsError::UnknownGate(name.clone()))? = on;
    }
    Ok(gates)
}

fn gate<'a>(gates: &'a mut FeatureGates, name: &str) -> Option<&'a mut bool> {
    Some(match name {
        "RayClusterStatusConditions" => &mut gates.ray_cluster_status_conditions,
        "RayJobDeletionPolicy" => &mut gates.ray_job_deletion_policy,
        "RayMultiHostIndexing" => &mut gates.ray_multi_host_indexing,
        "RayServiceIncrementalUpgrade" => &mut gates.ray_service_incremental_upgrade,
        "RayCronJob" => &mut gates.ray_cron_job,
        "SidecarSubmitterRestart" => &mut gates.sidecar_submitter_restart,
        "RayClusterNetworkPolicy" => &mut gates.ray_cluster_network_policy,
        "GCSFaultToleranceEmbeddedStorage" => &mut gates.gcs_fault_tolerance_embedded_storage,
        "RayClusterMTLS" => &mut gates.ray_cluster_mtls,
        "RayClusterHistoryServer" => &mut gates.ray_cluster_history_server,
        "KubernetesWAS" => &mut gates.kubernetes_was,
        _ => return None,
    })
}

fn beta(gates: &mut FeatureGates) -> [&mut bool; 4] {
    [
        &mut gates.ray_cluster_status_conditions,
        &mut gates.ray_job_deletion_policy,
        &mut gates.ray_multi_host_indexing,
        &mut gates.ray_service_incremental_upgrade,
    ]
}

fn alpha(gates: &mut FeatureGates) -> [&mut bool; 7] {
    [
        &mut gates.ray_cron_job,
        &mut gates.sidecar_submitter_restart,
        &mut gates.ray_cluster_network_policy,
        &mut gates.gcs_fault_tolerance_embedded_storage,
        &mut gates.ray_cluster_mtls,
        &mut gates.ray_cluster_history_server,
        &mut gates.kubernetes_was,
    ]
}

/// What Go's `strconv.ParseBool` takes.
fn parse_bool(text: &str) -> Option<bool> {
    match text {
        "1" | "t" | "T" | "TRUE" | "true" | "True" => Some(true),
        "0" | "f" | "F" | "FALSE" | "false" | "False" => Some(false),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gates_by_name_and_by_stage() {
        let gates = parse_gates("AllAlpha=false, RayCronJob = true ,,RayMultiHostIndexing=0").unwrap();
        assert!(gates.ray_cron_job && !gates.ray_cluster_mtls && !gates.ray_multi_host_indexing);
        assert!(gates.ray_job_deletion_policy);
        assert_eq!(parse_gates("Nope=true"), Err(ArgsError::UnknownGate("Nope".into())));
        assert_eq!(parse_gates("RayCronJob"), Err(ArgsError::MissingValue("RayCronJob".into())));
        assert_eq!(parse_gates("RayCronJob=yes"), Err(ArgsError::InvalidValue("RayCronJob".into(), "yes".into())));
    }

    #[test]
    fn switches_compare_without_case() {
        let settings = |name: &'static str, value: &'static str| {
            Flags::default().settings(|asked| (asked == name).then(|| value.to_owned())).unwrap().config
        };
        assert!(!settings("ENABLE_PROBES_INJECTION", "False").inject_probes);
        assert!(settings("ENABLE_PROBES_INJECTION", "no").inject_probes);
        assert!(settings("ENABLE_LOGIN_SHELL", "TRUE").login_shell);
        assert_eq!(settings("CLUSTER_DOMAIN", "abc.com").cluster_domain, "abc.com");
        assert_eq!(settings("RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS", "-3").rayjob_status_check_timeout.as_secs(), 300);
    }
}
