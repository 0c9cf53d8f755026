//! Environment entries: how they are written, and those of every Ray container.
//!
//! Where an entry is "if absent", the user's value wins. Others are appended in any case, and
//! Kubernetes takes the last of a name, so there the operator's value wins.

use super::collector;
use super::draft::{Draft, Node, Role};
use crate::build::cluster_facts::Creator;
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
