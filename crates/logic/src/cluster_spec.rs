//! Queries on the metadata and the spec of a RayCluster: the features that it uses, the names and ports of its parts.
//!
//! Validation, builders, schedulers and plans share these functions, so each default and each rule of precedence is
//! written once.

use crate::config::{Config, FeatureGates};
use crate::labels::{self, annotation};
use crate::names;
use crate::version::RayVersion;
use k8s_openapi::api::core::v1::{Container, PodTemplateSpec};
use manta_api::{
    AuthMode, AutoscalerVersion, CollectorOptions, GcsBackend, GcsStorage, RayCluster, RayClusterSpec, WorkerGroupSpec,
};
use std::collections::BTreeMap;

/// The port of Ray's global control store (GCS) unless the head sets one.
const DEFAULT_HEAD_PORT: &str = "6379";
/// The dashboard's port unless the head names one.
pub const DEFAULT_DASHBOARD_PORT: i32 = 8265;
/// The Serve proxy's port unless the head names one.
pub const DEFAULT_SERVE_PORT: i32 = 8000;
/// The metrics port unless a container names one.
pub const DEFAULT_METRICS_PORT: i32 = 8080;
/// How long the Redis cleanup may take before the finalizer is removed anyway.
const DEFAULT_DELETION_TIMEOUT_SECONDS: i64 = 300;

/// The kind of object that created a RayCluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Creator {
    RayCluster,
    RayJob,
    RayService,
}

impl Creator {
    /// Returns the kind as it is written in labels and usage tags.
    pub fn as_str(self) -> &'static str {
        match self {
            Creator::RayCluster => "RayCluster",
            Creator::RayJob => "RayJob",
            Creator::RayService => "RayService",
        }
    }
}

/// Returns the creator that the cluster's label names; any other label means that a user created the cluster.
pub fn creator(cluster: &RayCluster) -> Creator {
    match label(cluster, labels::ORIGINATED_FROM_CRD) {
        Some("RayJob") => Creator::RayJob,
        Some("RayService") => Creator::RayService,
        _ => Creator::RayCluster,
    }
}

/// Returns the cluster's name.
pub fn name(cluster: &RayCluster) -> &str {
    cluster.metadata.name.as_deref().unwrap_or_default()
}

/// Returns the cluster's namespace.
pub fn namespace(cluster: &RayCluster) -> &str {
    cluster.metadata.namespace.as_deref().unwrap_or_default()
}

/// Returns the cluster's UID.
pub fn uid(cluster: &RayCluster) -> &str {
    cluster.metadata.uid.as_deref().unwrap_or_default()
}

/// Returns a label of the cluster.
pub fn label<'a>(cluster: &'a RayCluster, key: &str) -> Option<&'a str> {
    cluster.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Returns an annotation of the cluster.
pub fn annotation<'a>(cluster: &'a RayCluster, key: &str) -> Option<&'a str> {
    cluster.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}

/// Returns the worker groups.
pub fn worker_groups(spec: &RayClusterSpec) -> &[WorkerGroupSpec] {
    spec.worker_group_specs.as_deref().unwrap_or_default()
}

/// Returns the number of hosts in one replica of the group.
pub fn hosts(group: &WorkerGroupSpec) -> i32 {
    group.num_of_hosts.unwrap_or(1)
}

/// Returns whether a replica of the group spans several hosts.
pub fn is_multi_host(group: &WorkerGroupSpec) -> bool {
    hosts(group) > 1
}

/// Returns whether the group is suspended.
pub fn is_suspended(group: &WorkerGroupSpec) -> bool {
    group.suspend == Some(true)
}

/// Returns the container that runs Ray: the first one, whatever its name.
pub fn ray_container(template: &PodTemplateSpec) -> Option<&Container> {
    template.spec.as_ref()?.containers.first()
}

/// Returns the port of the GCS as the user wrote it.
pub fn head_port(spec: &RayClusterSpec) -> &str {
    head_param(spec, "port").unwrap_or(DEFAULT_HEAD_PORT)
}

/// Returns a parameter of the head's `ray start`.
pub fn head_param<'a>(spec: &'a RayClusterSpec, key: &str) -> Option<&'a str> {
    spec.head_group_spec.ray_start_params.as_ref()?.get(key).map(String::as_str)
}

/// Returns the domain name of the head Service.
pub fn head_fqdn(cluster: &RayCluster, config: &Config) -> String {
    let service = names::head_service(name(cluster), &cluster.spec);
    names::fqdn(&service, namespace(cluster), &config.cluster_domain)
}

/// Returns the ports of the head Service by name.
///
/// A head container that declares no ports gets all of Ray's, and every head has a `metrics` port.
pub fn head_ports(spec: &RayClusterSpec) -> BTreeMap<String, i32> {
    let declared =
        ray_container(&spec.head_group_spec.template).and_then(|ray| ray.ports.as_deref()).unwrap_or_default();
    let mut ports: BTreeMap<String, i32> = declared
        .iter()
        .map(|port| match port.name.as_deref() {
            Some(name) if !name.is_empty() => (name.to_owned(), port.container_port),
            _ => (format!("{}-port", port.container_port), port.container_port),
        })
        .collect();
    if declared.is_empty() {
        let defaults = [
            ("client", 10001),
            ("gcs-server", 6379),
            ("dashboard", DEFAULT_DASHBOARD_PORT),
            ("serve", DEFAULT_SERVE_PORT),
        ];
        ports.extend(defaults.map(|(name, port)| (name.to_owned(), port)));
    }
    ports.entry("metrics".to_owned()).or_insert(DEFAULT_METRICS_PORT);
    ports
}

/// Returns the first port of a container that has this name.
pub fn container_port(container: &Container, name: &str) -> Option<i32> {
    let ports = container.ports.as_deref().unwrap_or_default();
    ports.iter().find(|port| port.name.as_deref() == Some(name)).map(|port| port.container_port)
}

/// Returns the dashboard's port on the head Service.
pub fn dashboard_port(spec: &RayClusterSpec) -> i32 {
    head_ports(spec).get("dashboard").copied().unwrap_or(DEFAULT_DASHBOARD_PORT)
}

/// Returns whether the autoscaler runs beside the head and decides the number of workers.
pub fn is_autoscaling(spec: &RayClusterSpec) -> bool {
    spec.enable_in_tree_autoscaling == Some(true)
}

/// Returns whether the options select autoscaler v1.
pub fn is_autoscaler_v1(spec: &RayClusterSpec) -> bool {
    autoscaler_version(spec) == Some(&AutoscalerVersion::V1)
}

/// Returns whether the options select autoscaler v2.
pub fn is_autoscaler_v2(spec: &RayClusterSpec) -> bool {
    autoscaler_version(spec) == Some(&AutoscalerVersion::V2)
}

/// Returns the autoscaler version that the options select.
pub fn autoscaler_version(spec: &RayClusterSpec) -> Option<&AutoscalerVersion> {
    spec.autoscaler_options.as_ref()?.version.as_ref()
}

/// Returns the ServiceAccount that the user names for the head.
pub fn head_service_account(spec: &RayClusterSpec) -> Option<&str> {
    let pod = spec.head_group_spec.template.spec.as_ref()?;
    pod.service_account_name.as_deref().filter(|name| !name.is_empty())
}

/// Returns whether the cluster survives the loss of its head: by options (even empty ones) or by annotation.
pub fn is_gcs_ft_enabled(cluster: &RayCluster) -> bool {
    cluster.spec.gcs_fault_tolerance_options.is_some() || is_true(annotation(cluster, annotation::FT_ENABLED))
}

/// Returns whether the options put the state of the GCS on a volume of the head.
pub fn is_gcs_storage_embedded(spec: &RayClusterSpec) -> bool {
    spec.gcs_fault_tolerance_options.as_ref().is_some_and(|options| options.backend == Some(GcsBackend::Rocksdb))
}

/// Returns whether the state of the GCS is in Redis, which must be cleaned up when the cluster is deleted.
pub fn is_redis_ft_enabled(cluster: &RayCluster) -> bool {
    is_gcs_ft_enabled(cluster) && !is_gcs_storage_embedded(&cluster.spec)
}

/// Returns the cluster's namespace in Redis: the one that the user sets, or else the UID.
pub fn external_storage_namespace(cluster: &RayCluster) -> &str {
    let options = cluster.spec.gcs_fault_tolerance_options.as_ref();
    let by_options = options.and_then(|options| options.external_storage_namespace.as_deref());
    by_options
        .filter(|namespace| !namespace.is_empty())
        .or_else(|| annotation(cluster, annotation::EXTERNAL_STORAGE_NAMESPACE))
        .unwrap_or_else(|| uid(cluster))
}

/// Returns the settings of the embedded storage.
pub fn gcs_storage(spec: &RayClusterSpec) -> Option<&GcsStorage> {
    spec.gcs_fault_tolerance_options.as_ref()?.storage.as_ref()
}

/// Returns the claim that the user provides for the embedded storage.
pub fn gcs_user_claim(spec: &RayClusterSpec) -> Option<&str> {
    gcs_storage(spec)?.claim_name.as_deref().filter(|name| !name.is_empty())
}

/// Returns the name of the claim for the embedded storage.
pub fn gcs_claim_name(cluster: &RayCluster) -> String {
    gcs_user_claim(&cluster.spec).map_or_else(|| format!("{}-gcs-pvc", name(cluster)), str::to_owned)
}

/// Returns the number of seconds after which the finalizer of a deleted cluster is removed in any case.
pub fn gcs_ft_deletion_timeout_seconds(cluster: &RayCluster) -> i64 {
    annotation(cluster, annotation::GCS_FT_DELETION_TIMEOUT)
        .and_then(|text| text.parse().ok())
        .filter(|seconds| *seconds > 0)
        .unwrap_or(DEFAULT_DELETION_TIMEOUT_SECONDS)
}

/// Returns whether Ray requires a token.
pub fn is_token_auth(spec: &RayClusterSpec) -> bool {
    spec.auth_options.as_ref().is_some_and(|options| options.mode == Some(AuthMode::Token))
}

/// Returns whether the tokens are those of ServiceAccounts.
pub fn is_k8s_token_auth(spec: &RayClusterSpec) -> bool {
    spec.auth_options.as_ref().is_some_and(|options| options.enable_k8s_token_auth == Some(true))
}

/// Returns the Secret that the user provides for the token.
pub fn auth_user_secret(spec: &RayClusterSpec) -> Option<&str> {
    spec.auth_options.as_ref()?.secret_name.as_deref().filter(|name| !name.is_empty())
}

/// Returns the name of the Secret that holds the token.
pub fn auth_secret_name(cluster: &RayCluster) -> String {
    auth_user_secret(&cluster.spec).map_or_else(|| names::clip50(name(cluster)), str::to_owned)
}

/// Returns whether the operator creates the Secret that holds the token, which it also does when no mode is set.
pub fn needs_auth_secret(spec: &RayClusterSpec) -> bool {
    let Some(options) = &spec.auth_options else { return false };
    options.mode != Some(AuthMode::Disabled) && !is_k8s_token_auth(spec) && auth_user_secret(spec).is_none()
}

/// Returns whether the Pods of the cluster use TLS among themselves.
pub fn is_tls_enabled(spec: &RayClusterSpec, gates: &FeatureGates) -> bool {
    gates.ray_cluster_mtls && spec.tls_options.as_ref().is_some_and(|options| options.enabled == Some(true))
}

/// Returns the options of the history collector if it is enabled.
pub fn collector<'a>(spec: &'a RayClusterSpec, gates: &FeatureGates) -> Option<&'a CollectorOptions> {
    if !gates.ray_cluster_history_server {
        return None;
    }
    spec.history_server_options.as_ref()?.collector_options.as_ref()
}

/// Returns whether the dashboard agent serves the health of the whole node over HTTP.
pub fn has_unified_health_check(spec: &RayClusterSpec) -> bool {
    const FIRST: RayVersion = RayVersion::new(2, 53, 0);
    spec.ray_version.as_deref().and_then(RayVersion::parse).is_some_and(|version| version >= FIRST)
}

/// Returns whether a `proxy_location` of Serve means that workers run no proxy.
pub fn leaves_workers_without_proxy(proxy_location: &str) -> bool {
    ["HeadOnly", "Disabled"].contains(&proxy_location)
}

/// Returns whether a label or an annotation is `true`, in any case.
pub fn is_true(value: Option<&str>) -> bool {
    value.is_some_and(|text| text.eq_ignore_ascii_case("true"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::cluster;
    use serde_json::{Value, json};

    #[test]
    fn autoscaling_follows_the_spec() {
        let check = |spec: Value, expect: [bool; 3]| {
            let spec = cluster(json!({"spec": spec})).spec;
            assert_eq!([is_autoscaling(&spec), is_autoscaler_v1(&spec), is_autoscaler_v2(&spec)], expect);
        };
        check(json!({}), [false, false, false]);
        check(json!({"enableInTreeAutoscaling": false, "autoscalerOptions": {}}), [false, false, false]);
        check(json!({"enableInTreeAutoscaling": true}), [true, false, false]);
        check(json!({"autoscalerOptions": {"version": "v1"}}), [false, true, false]);
        check(json!({"enableInTreeAutoscaling": true, "autoscalerOptions": {"version": "v2"}}), [true, false, true]);
    }

    #[test]
    fn fault_tolerance_is_by_annotation_or_options() {
        let check = |annotation: Value, options: Value, expect: [bool; 3]| {
            let cluster = cluster(json!({
                "metadata": {"annotations": {annotation::FT_ENABLED: annotation}},
                "spec": {"gcsFaultToleranceOptions": options},
            }));
            let made =
                [is_gcs_ft_enabled(&cluster), is_redis_ft_enabled(&cluster), is_gcs_storage_embedded(&cluster.spec)];
            assert_eq!(made, expect);
        };
        check(json!("true"), json!(null), [true, true, false]);
        check(json!("TRUE"), json!(null), [true, true, false]);
        check(json!("false"), json!(null), [false, false, false]);
        check(json!("false"), json!({}), [true, true, false]);
        check(json!("false"), json!({"backend": ""}), [true, true, false]);
        check(json!("false"), json!({"backend": "redis"}), [true, true, false]);
        check(json!("false"), json!({"backend": "rocksdb"}), [true, false, true]);
    }

    #[test]
    fn the_deletion_timeout_is_a_positive_number_of_seconds() {
        for (text, expect) in [
            (json!(null), 300),
            (json!("not-a-number"), 300),
            (json!("0"), 300),
            (json!("-5"), 300),
            (json!("120"), 120),
            (json!("1"), 1),
        ] {
            let annotations = text.as_str().map(|text| json!({annotation::GCS_FT_DELETION_TIMEOUT: text}));
            let cluster = cluster(json!({"metadata": {"annotations": annotations}}));
            assert_eq!(gcs_ft_deletion_timeout_seconds(&cluster), expect, "{text}");
        }
    }

    #[test]
    fn ports_are_found_by_name() {
        let cluster = cluster(json!({"ray": {"ports": [{"name": "a", "containerPort": 1}]}}));
        let ray = ray_container(&cluster.spec.head_group_spec.template).unwrap();
        assert_eq!((container_port(ray, "a"), container_port(ray, "b")), (Some(1), None));
    }
}
