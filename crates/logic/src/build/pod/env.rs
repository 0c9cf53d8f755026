//! Environment variables of Ray containers.
//!
//! A variable that is pushed "if absent" leaves the user's value in force. The others are always appended, and Kubernetes
//! takes the last variable of a name, so the operator's value wins.

use super::builder::PodBuilder;
use super::collector;
use super::context::{NodeType, PodContext};
use crate::cluster_spec::Creator;
use crate::config::KUBERAY_VERSION;
use crate::labels;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector};

/// Returns a variable with a value; an empty value is omitted, as on the API server.
pub(in crate::build) fn literal(name: &str, value: impl Into<String>) -> EnvVar {
    let value = Some(value.into()).filter(|value| !value.is_empty());
    EnvVar { name: name.to_owned(), value, value_from: None }
}

/// Returns a variable with the value of a field of the Pod.
pub(super) fn from_field(name: &str, path: &str) -> EnvVar {
    let field_ref = Some(ObjectFieldSelector { api_version: None, field_path: path.to_owned() });
    let value_from = Some(EnvVarSource { field_ref, ..EnvVarSource::default() });
    EnvVar { name: name.to_owned(), value: None, value_from }
}

/// Returns a variable with the value of a label of the Pod.
pub(super) fn from_label(name: &str, key: &str) -> EnvVar {
    from_field(name, &format!("metadata.labels['{key}']"))
}

/// Returns whether a container has a variable of this name.
pub(in crate::build) fn has(container: &Container, name: &str) -> bool {
    container.env.iter().flatten().any(|entry| entry.name == name)
}

/// Appends variables.
pub(super) fn push(container: &mut Container, entries: impl IntoIterator<Item = EnvVar>) {
    container.env.get_or_insert_default().extend(entries);
}

/// Appends a variable unless the container has one of its name.
pub(super) fn push_if_absent(container: &mut Container, entry: EnvVar) {
    if !has(container, &entry.name) {
        push(container, [entry]);
    }
}

/// Adds the address of the head to every init container.
pub(super) fn add_to_init_containers(context: &PodContext<'_>, builder: &mut PodBuilder) {
    for container in builder.init_containers() {
        push(container, head_address(context));
    }
}

/// Adds the variables that every Ray container has, in KubeRay's order.
pub(super) fn add_to_ray_container(context: &PodContext<'_>, builder: &mut PodBuilder, ray_start: &str) {
    let ray = &mut builder.ray;
    for entry in &context.config.default_container_envs {
        push_if_absent(ray, entry.clone());
    }
    if context.node_type == NodeType::Worker {
        push(ray, head_address(context));
    }
    push(
        ray,
        [
            from_label("RAY_CLUSTER_NAME", labels::CLUSTER),
            from_field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
            from_field("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
            from_label("RAY_NODE_TYPE_NAME", labels::GROUP),
            literal("KUBERAY_GEN_RAY_START_CMD", ray_start),
        ],
    );
    push_if_absent(ray, literal("RAY_PORT", context.head_port));
    if context.creator == Creator::RayService {
        // Serve's proxies must not wait for a dead head.
        push_if_absent(ray, literal("RAY_timeout_ms_task_wait_for_death_info", "0"));
        push_if_absent(ray, literal("RAY_gcs_server_request_timeout_seconds", "5"));
        push_if_absent(ray, literal("RAY_SERVE_KV_TIMEOUT_S", "5"));
    }
    let host = if context.node_type == NodeType::Head { "127.0.0.1" } else { &context.fqdn };
    push_if_absent(ray, literal("RAY_ADDRESS", format!("{host}:{}", context.head_port)));
    push_if_absent(ray, literal("RAY_USAGE_STATS_KUBERAY_IN_USE", "1"));
    if context.node_type == NodeType::Head {
        let tags = format!("kuberay_version={KUBERAY_VERSION};kuberay_crd={}", context.creator.as_str());
        push(ray, [literal("RAY_USAGE_STATS_EXTRA_TAGS", tags)]);
    }
    push_if_absent(ray, literal("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1"));
    collector::add_ray_env(context, ray);
}

fn head_address(context: &PodContext<'_>) -> [EnvVar; 2] {
    [literal("FQ_RAY_IP", context.fqdn.as_str()), literal("RAY_IP", context.head_service())]
}

#[cfg(test)]
mod tests {
    use crate::build::testing::{arg, cluster, container, env, env_names, head, ray, worker};
    use crate::config::Config;
    use serde_json::json;

    #[test]
    fn all_variables_of_a_head() {
        let pod = head(&cluster(json!({})), &Config::default());
        for (name, value) in [
            ("RAY_ADDRESS", "127.0.0.1:6379"),
            ("RAY_USAGE_STATS_KUBERAY_IN_USE", "1"),
            ("RAY_CLUSTER_NAME", "metadata.labels['ray.io/cluster']"),
            ("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
            ("RAY_CLOUD_INSTANCE_ID", "metadata.name"),
            ("RAY_NODE_TYPE_NAME", "metadata.labels['ray.io/group']"),
            ("RAY_USAGE_STATS_EXTRA_TAGS", "kuberay_version=v1.7.0;kuberay_crd=RayCluster"),
            ("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1"),
        ] {
            assert_eq!(env(ray(&pod), name), Some(value), "{name}");
        }
        assert_eq!(env(ray(&pod), "FQ_RAY_IP"), None);
    }

    #[test]
    fn the_port_follows_the_parameters_of_the_head() {
        for (params, port) in [(json!({}), "6379"), (json!({"port": "1234"}), "1234")] {
            let cluster = cluster(json!({"head": {"rayStartParams": params}}));
            let (head, worker) = (head(&cluster, &Config::default()), worker(&cluster, &Config::default()));
            assert_eq!(env(ray(&head), "RAY_PORT"), Some(port));
            assert_eq!(env(ray(&worker), "RAY_PORT"), Some(port));
            let address = format!("test-cluster-head-svc.test-ns.svc.cluster.local:{port}");
            assert_eq!(env(ray(&worker), "RAY_ADDRESS"), Some(address.as_str()));
        }
    }

    #[test]
    fn the_address_uses_the_cluster_domain_and_the_custom_service_name() {
        let config = Config { cluster_domain: "abc.com".to_owned(), ..Config::default() };
        let cluster = cluster(json!({"head": {"headService": {"metadata": {"name": "my-head-svc"}}}}));
        let pod = worker(&cluster, &config);
        assert_eq!(env(ray(&pod), "FQ_RAY_IP"), Some("my-head-svc.test-ns.svc.abc.com"));
        assert_eq!(env(ray(&pod), "RAY_IP"), Some("my-head-svc"));
    }

    #[test]
    fn user_variables_override_default_variables() {
        let given = |value: &str| super::literal("TEST_DEFAULT_ENV_NAME", value);
        let config = Config { default_container_envs: vec![given("default")], ..Config::default() };
        let own = cluster(json!({"both": {"env": [given("own")]}}));
        let none = cluster(json!({}));
        for (cluster, value) in [(own, "own"), (none, "default")] {
            for pod in [head(&cluster, &config), worker(&cluster, &config)] {
                let names = env_names(ray(&pod));
                assert_eq!(names.iter().filter(|name| **name == "TEST_DEFAULT_ENV_NAME").count(), 1);
                assert_eq!(env(ray(&pod), "TEST_DEFAULT_ENV_NAME"), Some(value));
            }
        }
    }

    #[test]
    fn the_open_file_limit_is_a_variable_of_the_user() {
        let limit = super::literal("RAY_START_ULIMIT_OPEN_FILES", "1048576");
        let pod = head(&cluster(json!({"ray": {"env": [limit]}})), &Config::default());
        let plain = head(&cluster(json!({})), &Config::default());
        assert_eq!(arg(ray(&pod)), arg(ray(&plain)));
        assert!(arg(ray(&pod)).starts_with("ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; ray start --head "));
        assert_eq!(env(ray(&pod), "RAY_START_ULIMIT_OPEN_FILES"), Some("1048576"));
    }

    #[test]
    fn variables_of_users_come_before_those_of_the_operator() {
        let own = ["RAY_PORT", "RAY_CLUSTER_NAME", "RAY_ADDRESS"].map(|name| super::literal(name, "own"));
        let pod = worker(&cluster(json!({"workerRay": {"env": own}})), &Config::default());
        assert_eq!(
            env_names(ray(&pod)),
            [
                "RAY_PORT",
                "RAY_CLUSTER_NAME",
                "RAY_ADDRESS",
                "FQ_RAY_IP",
                "RAY_IP",
                "RAY_CLUSTER_NAME",
                "RAY_CLUSTER_NAMESPACE",
                "RAY_CLOUD_INSTANCE_ID",
                "RAY_NODE_TYPE_NAME",
                "KUBERAY_GEN_RAY_START_CMD",
                "RAY_USAGE_STATS_KUBERAY_IN_USE",
                "RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE",
            ]
        );
        assert_eq!(env(ray(&pod), "RAY_PORT"), Some("own"));
        assert_eq!(env(ray(&pod), "RAY_CLUSTER_NAME"), Some("metadata.labels['ray.io/cluster']"));
    }

    #[test]
    fn a_rayservice_does_not_wait_for_a_dead_head() {
        let service = json!({"metadata": {"labels": {"ray.io/originated-from-crd": "RayService"}}});
        let cluster = cluster(service);
        for pod in [head(&cluster, &Config::default()), worker(&cluster, &Config::default())] {
            assert_eq!(env(ray(&pod), "RAY_timeout_ms_task_wait_for_death_info"), Some("0"));
            assert_eq!(env(ray(&pod), "RAY_gcs_server_request_timeout_seconds"), Some("5"));
            assert_eq!(env(ray(&pod), "RAY_SERVE_KV_TIMEOUT_S"), Some("5"));
        }
    }

    #[test]
    fn init_containers_of_users_get_the_head_address() {
        let init = json!([{"name": "mine", "image": "busybox"}]);
        let cluster = cluster(json!({"pod": {"initContainers": init}, "workerPod": {"initContainers": init}}));
        for pod in [head(&cluster, &Config::default()), worker(&cluster, &Config::default())] {
            assert_eq!(env_names(container(&pod, "mine")), ["FQ_RAY_IP", "RAY_IP"]);
        }
    }
}
