//! The operator's settings, which are read once at start.

use k8s_openapi::api::core::v1::{Container, EnvVar};
use std::collections::BTreeMap;
use std::time::Duration;

/// The compatible KubeRay version, which is written to annotations and usage tags.
pub const KUBERAY_VERSION: &str = "v1.7.0";

/// The input of a decision besides the objects.
#[derive(Clone, Debug, PartialEq)]
pub struct Config {
    /// `CLUSTER_DOMAIN`.
    pub cluster_domain: String,
    /// `ENABLE_INIT_CONTAINER_INJECTION`: workers get `wait-gcs-ready`.
    pub inject_init_container: bool,
    /// `ENABLE_PROBES_INJECTION`: Ray containers get probes.
    pub inject_probes: bool,
    /// `ENABLE_LOGIN_SHELL`: bash runs as a login shell.
    pub login_shell: bool,
    /// `ENABLE_DETERMINISTIC_HEAD_POD_NAME`.
    pub deterministic_head_pod_name: bool,
    /// `ENABLE_RAY_HEAD_CLUSTER_IP_SERVICE`: the head Service is not headless.
    pub head_cluster_ip_service: bool,
    /// `USE_INGRESS_ON_OPENSHIFT`.
    pub ingress_on_openshift: bool,
    /// `ENABLE_GCS_FT_REDIS_CLEANUP`.
    pub redis_cleanup: bool,
    /// `ENABLE_RANDOM_POD_DELETE`: surplus workers are deleted even with an autoscaler.
    pub random_pod_delete: bool,
    /// `ENABLE_ZERO_DOWNTIME`: an upgrade of a RayService creates a second cluster.
    pub zero_downtime: bool,
    /// `DELETE_RAYJOB_CR_AFTER_JOB_FINISHES`.
    pub delete_rayjob_after_finish: bool,
    /// `RAYJOB_DEPLOYMENT_STATUS_TRANSITION_GRACE_PERIOD_SECONDS`; values of zero and below are valid.
    pub rayjob_transition_grace_seconds: i64,
    /// `RAYJOB_STATUS_CHECK_TIMEOUT_SECONDS`.
    pub rayjob_status_check_timeout: Duration,
    /// `headSidecarContainers` of the configuration file.
    pub head_sidecars: Vec<Container>,
    /// `workerSidecarContainers` of the configuration file.
    pub worker_sidecars: Vec<Container>,
    /// `defaultContainerEnvs` of the configuration file.
    pub default_container_envs: Vec<EnvVar>,
    /// `defaultPodAnnotations` of the configuration file.
    pub default_pod_annotations: BTreeMap<String, String>,
    /// `defaultPodLabels` of the configuration file.
    pub default_pod_labels: BTreeMap<String, String>,
    /// The batch scheduler of Ray Pods.
    pub batch_scheduler: Option<BatchScheduler>,
    pub gates: FeatureGates,
    pub platform: Platform,
    pub safeguards: Safeguards,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            cluster_domain: "cluster.local".to_owned(),
            inject_init_container: true,
            inject_probes: true,
            login_shell: false,
            deterministic_head_pod_name: false,
            head_cluster_ip_service: false,
            ingress_on_openshift: false,
            redis_cleanup: true,
            random_pod_delete: false,
            zero_downtime: true,
            delete_rayjob_after_finish: false,
            rayjob_transition_grace_seconds: 300,
            rayjob_status_check_timeout: Duration::from_secs(300),
            head_sidecars: Vec::new(),
            worker_sidecars: Vec::new(),
            default_container_envs: Vec::new(),
            default_pod_annotations: BTreeMap::new(),
            default_pod_labels: BTreeMap::new(),
            batch_scheduler: None,
            gates: FeatureGates::default(),
            platform: Platform::default(),
            safeguards: Safeguards::default(),
        }
    }
}

/// What keeps a decision right when caches are stale, replies are lost and operators crash. All of it is on, and nothing
/// that a user can set switches it off: the simulation does, to show that its checker notices.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Safeguards {
    /// Writes that no watch has shown yet are part of what is observed.
    pub in_flight_writes: bool,
    /// Deletions name the UID that was observed.
    pub uid_preconditions: bool,
    /// Statuses are written onto the version that was read.
    pub version_preconditions: bool,
    /// Requests end with the term of a leader.
    pub leadership_fence: bool,
    /// A run of a RayCronJob has one name, whenever it is created.
    pub deterministic_run_names: bool,
    /// A RayJob has one submission ID per attempt.
    pub one_submission_per_attempt: bool,
    /// Objects that were looked up by name count only if they belong to the object that asked.
    pub owner_checks: bool,
    /// A cluster is not deleted while traffic reaches it.
    pub drain_before_deletion: bool,
}

impl Default for Safeguards {
    fn default() -> Self {
        Self {
            in_flight_writes: true,
            uid_preconditions: true,
            version_preconditions: true,
            leadership_fence: true,
            deterministic_run_names: true,
            one_submission_per_attempt: true,
            owner_checks: true,
            drain_before_deletion: true,
        }
    }
}

/// The APIs of the server, which are discovered at start.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Platform {
    pub openshift: bool,
    pub cert_manager: bool,
    pub gateway_api: bool,
    /// Whether Kubernetes has workload-aware scheduling (`scheduling.k8s.io/v1alpha2`).
    pub workload_api: bool,
    /// Whether a watch can begin with the objects that there are (`sendInitialEvents`).
    pub streaming_lists: bool,
}

/// The schedulers that schedule the Pods of a cluster as a gang.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchScheduler {
    Volcano,
    Yunikorn,
    Kai,
    SchedulerPlugins,
    KubernetesWorkloads,
}

/// `--feature-gates`, with KubeRay's defaults except for features that are complete here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct FeatureGates {
    pub ray_cluster_status_conditions: bool,
    pub ray_job_deletion_policy: bool,
    pub ray_multi_host_indexing: bool,
    pub ray_service_incremental_upgrade: bool,
    pub ray_cron_job: bool,
    pub sidecar_submitter_restart: bool,
    pub ray_cluster_network_policy: bool,
    pub gcs_fault_tolerance_embedded_storage: bool,
    pub ray_cluster_mtls: bool,
    pub ray_cluster_history_server: bool,
    pub kubernetes_was: bool,
}

impl FeatureGates {
    /// The defaults of KubeRay v1.7.0.
    pub const KUBERAY: Self = Self {
        ray_cluster_status_conditions: true,
        ray_job_deletion_policy: true,
        ray_multi_host_indexing: true,
        ray_service_incremental_upgrade: true,
        ray_cron_job: false,
        sidecar_submitter_restart: false,
        ray_cluster_network_policy: false,
        gcs_fault_tolerance_embedded_storage: false,
        ray_cluster_mtls: false,
        ray_cluster_history_server: false,
        kubernetes_was: false,
    };
}

impl Default for FeatureGates {
    fn default() -> Self {
        Self {
            ray_cron_job: true,
            ray_cluster_network_policy: true,
            gcs_fault_tolerance_embedded_storage: true,
            ray_cluster_mtls: true,
            ray_cluster_history_server: true,
            ..Self::KUBERAY
        }
    }
}
