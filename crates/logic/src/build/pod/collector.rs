//! The history collector: a sidecar that keeps logs and events beyond the cluster's life.

use super::draft::{Draft, Node, Role};
use super::resources::requests_and_limits;
use super::{auth, env};
use crate::build::cluster_facts as facts;
use crate::labels;
use k8s_openapi::api::core::v1::Container;

/// The container's name.
pub(super) const COLLECTOR: &str = "ray-history-collector";

const EVENT_TYPES: &str = "TASK_DEFINITION_EVENT,TASK_LIFECYCLE_EVENT,ACTOR_TASK_DEFINITION_EVENT,\
    TASK_PROFILE_EVENT,DRIVER_JOB_DEFINITION_EVENT,DRIVER_JOB_LIFECYCLE_EVENT,ACTOR_DEFINITION_EVENT,\
    ACTOR_LIFECYCLE_EVENT,NODE_DEFINITION_EVENT,NODE_LIFECYCLE_EVENT";

/// Appends the collector, if the cluster has one.
pub(super) fn add_container(node: &Node<'_>, draft: &mut Draft) {
    let Some(options) = facts::collector(&node.cluster.spec, &node.config.gates) else { return };
    let user_env = options.env.as_deref().unwrap_or_default();
    let role = if node.role == Role::Head { "Head" } else { "Worker" };
    let mut env = vec![
        env::from_field("POD_IP", "status.podIP"),
        env::literal("RAY_CLUSTER_NAME", node.cluster_name()),
        env::literal("RAY_CLUSTER_NAMESPACE", facts::namespace(node.cluster)),
        env::literal("RAY_ROLE", role),
        env::literal("EVENTS_PORT", "8084"),
        env::literal("FQ_RAY_IP", node.fqdn.as_str()),
    ];
    for (name, key) in [("OWNER_KIND", labels::ORIGINATED_FROM_CRD), ("OWNER_NAME", labels::ORIGINATED_FROM_CR_NAME)] {
        if let Some(owner) = facts::label(node.cluster, key).filter(|owner| !owner.is_empty()) {
            env.push(env::literal(name, owner));
        }
    }
    const DASHBOARD: &str = "RAY_DASHBOARD_ADDRESS";
    if node.role == Role::Head && !user_env.iter().any(|entry| entry.name == DASHBOARD) {
        env.push(env::literal(DASHBOARD, "http://localhost:8265"));
    }
    env.extend_from_slice(user_env);
    let pull_policy = options.image_pull_policy.clone().filter(|policy| !policy.is_empty());
    let mut container = Container {
        name: COLLECTOR.to_owned(),
        image: options.image.clone(),
        image_pull_policy: Some(pull_policy.unwrap_or_else(|| "IfNotPresent".to_owned())),
        env: Some(env),
        resources: Some(
            options.resources.clone().unwrap_or_else(|| requests_and_limits("50m", "64Mi", "200m", "256Mi")),
        ),
        ..Container::default()
    };
    auth::configure_container(node.cluster, &mut container);
    draft.sidecars.push(container);
}

/// Has Ray send its events to the collector.
pub(super) fn add_ray_env(node: &Node<'_>, ray: &mut Container) {
    if facts::collector(&node.cluster.spec, &node.config.gates).is_none() {
        return;
    }
    for (name, value) in [
        ("RAY_enable_ray_event", "true"),
        ("RAY_enable_core_worker_ray_event_to_aggregator", "true"),
        ("RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR", "http://localhost:8084/v1/events"),
        ("RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES", EVENT_TYPES),
        ("RAY_DASHBOARD_AGGREGATOR_AGENT_PUBLISHER_HTTP_ENDPOINT_EXPOSABLE_EVENT_TYPES", EVENT_TYPES),
    ] {
        env::push_if_absent(ray, env::literal(name, value));
    }
}
