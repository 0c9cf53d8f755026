//! Environment entries: how they are written, and those of every Ray container.
//!
//! Where an entry is "if absent", the user's value wins. Others are appended in any case, and
//! Kubernetes takes the last of a name, so there the operator's value wins.

use super::collector;
use super::draft::{Draft, Node, Role};
use crate::cluster_spec::Creator;
use crate::config::KUBERAY_VERSION;
use crate::labels;
use k8s_openapi::api::core::v1::{Container, EnvVar, EnvVarSource, ObjectFieldSelector};

/// An entry with a value; an empty value is left out, as on the API server.
pub(in crate::build) fn literal(name: &str, value: impl Into<String>) -> EnvVar {
    let value = Some(value.into()).filter(|value| !value.is_empty());
    EnvVar { name: name.to_owned(), value, value_from: None }
}

/// An entry with the value of a field of the Pod.
pub(super) fn from_field(name: &str, path: &str) -> EnvVar {
    let field_ref = Some(ObjectFieldSelector { api_version: None, field_path: path.to_owned() });
    let value_from = Some(EnvVarSource { field_ref, ..EnvVarSource::default() });
    EnvVar { name: name.to_owned(), value: None, value_from }
}

/// An entry with the value of a label of the Pod.
pub(super) fn from_label(name: &str, key: &str) -> EnvVar {
    from_field(name, &format!("metadata.labels['{key}']"))
}

/// Whether a container has an entry of this name.
pub(in crate::build) fn has(container: &Container, name: &str) -> bool {
    container.env.iter().flatten().any(|entry| entry.name == name)
}

/// Appends entries in any case.
pub(super) fn push(container: &mut Container, entries: impl IntoIterator<Item = EnvVar>) {
    container.env.get_or_insert_default().extend(entries);
}

/// Appends an entry unless there is one of its name.
pub(super) fn push_if_absent(container: &mut Container, entry: EnvVar) {
    if !has(container, &entry.name) {
        push(container, [entry]);
    }
}

/// Tells every init container where the head is.
pub(super) fn add_to_init_containers(node: &Node<'_>, draft: &mut Draft) {
    for container in draft.init_containers() {
        push(container, head_address(node));
    }
}

/// Adds what every Ray container gets, in KubeRay's order.
pub(super) fn add_to_ray_container(node: &Node<'_>, draft: &mut Draft, ray_start: &str) {
    let ray = &mut draft.ray;
    for entry in &node.config.default_container_envs {
        if !has(ray, &entry.name) {
            push(ray, [entry.clone()]);
        }
    }
    if node.role == Role::Worker {
        push(ray, head_address(node));
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
    push_if_absent(ray, literal("RAY_PORT", node.head_port));
    if node.creator == Creator::RayService {
        // A dead head must not keep Serve's proxies waiting.
        push_if_absent(ray, literal("RAY_timeout_ms_task_wait_for_death_info", "0"));
        push_if_absent(ray, literal("RAY_gcs_server_request_timeout_seconds", "5"));
        push_if_absent(ray, literal("RAY_SERVE_KV_TIMEOUT_S", "5"));
    }
    let host = if node.role == Role::Head { "127.0.0.1" } else { &node.fqdn };
    push_if_absent(ray, literal("RAY_ADDRESS", format!("{host}:{}", node.head_port)));
    push_if_absent(ray, literal("RAY_USAGE_STATS_KUBERAY_IN_USE", "1"));
    if node.role == Role::Head {
        let tags = format!("kuberay_version={KUBERAY_VERSION};kuberay_crd={}", node.creator.as_str());
        push(ray, [literal("RAY_USAGE_STATS_EXTRA_TAGS", tags)]);
    }
    push_if_absent(ray, literal("RAY_DASHBOARD_ENABLE_K8S_DISK_USAGE", "1"));
    collector::add_ray_env(node, ray);
}

fn head_address(node: &Node<'_>) -> [EnvVar; 2] {
    [literal("FQ_RAY_IP", node.fqdn.as_str()), literal("RAY_IP", node.head_service())]
}

#[cfg(test)]
mod tests {
    use crate::build::testing::{arg, cluster, container, env, env_names, head, ray, worker};
    use crate::config::Config;
    use serde_json::json;

    #[test]
    fn a_head_knows_itself() {
        // 12
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
    fn the_port_is_the_heads() {
        // 1
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
    fn the_domain_is_the_operators_and_the_service_the_users() {
        // 86, 92
        let config = Config { cluster_domain: "abc.com".to_owned(), ..Config::default() };
        let cluster = cluster(json!({"head": {"headService": {"metadata": {"name": "my-head-svc"}}}}));
        let pod = worker(&cluster, &config);
        assert_eq!(env(ray(&pod), "FQ_RAY_IP"), Some("my-head-svc.test-ns.svc.abc.com"));
        assert_eq!(env(ray(&pod), "RAY_IP"), Some("my-head-svc"));
    }

    #[test]
    fn default_entries_give_way_to_the_users() {
        // 14
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
    fn the_file_limit_is_the_users() {
        // 15
        let limit = super::literal("RAY_START_ULIMIT_OPEN_FILES", "1048576");
        let pod = head(&cluster(json!({"ray": {"env": [limit]}})), &Config::default());
        let plain = head(&cluster(json!({})), &Config::default());
        assert_eq!(arg(ray(&pod)), arg(ray(&plain)));
        assert!(arg(ray(&pod)).starts_with("ulimit -n ${RAY_START_ULIMIT_OPEN_FILES:-65536}; ray start --head "));
        assert_eq!(env(ray(&pod), "RAY_START_ULIMIT_OPEN_FILES"), Some("1048576"));
    }

    #[test]
    fn users_and_operators_entries_stand_in_order() {
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
    fn init_containers_of_users_know_the_head_too() {
        let init = json!([{"name": "mine", "image": "busybox"}]);
        let cluster = cluster(json!({"pod": {"initContainers": init}, "workerPod": {"initContainers": init}}));
        for pod in [head(&cluster, &Config::default()), worker(&cluster, &Config::default())] {
            assert_eq!(env_names(container(&pod, "mine")), ["FQ_RAY_IP", "RAY_IP"]);
        }
    }
}
