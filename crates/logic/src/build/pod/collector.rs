//! The history collector: a sidecar that stores logs and events for the time after the cluster.

use super::builder::PodBuilder;
use super::context::{NodeType, PodContext};
use super::resources::requests_and_limits;
use super::{auth, env};
use crate::cluster_spec;
use crate::labels;
use crate::names::reserved::COLLECTOR;
use k8s_openapi::api::core::v1::Container;

const EVENT_TYPES: &str = "TASK_DEFINITION_EVENT,TASK_LIFECYCLE_EVENT,ACTOR_TASK_DEFINITION_EVENT,\
    TASK_PROFILE_EVENT,DRIVER_JOB_DEFINITION_EVENT,DRIVER_JOB_LIFECYCLE_EVENT,ACTOR_DEFINITION_EVENT,\
    ACTOR_LIFECYCLE_EVENT,NODE_DEFINITION_EVENT,NODE_LIFECYCLE_EVENT";

/// Appends the collector if it is enabled.
pub(super) fn add_container(context: &PodContext<'_>, builder: &mut PodBuilder) {
    let Some(options) = cluster_spec::collector(&context.cluster.spec, &context.config.gates) else { return };
    let user_env = options.env.as_deref().unwrap_or_default();
    let role = if context.node_type == NodeType::Head { "Head" } else { "Worker" };
    let mut env = vec![
        env::from_field("POD_IP", "status.podIP"),
        env::literal("RAY_CLUSTER_NAME", context.cluster_name()),
        env::literal("RAY_CLUSTER_NAMESPACE", cluster_spec::namespace(context.cluster)),
        env::literal("RAY_ROLE", role),
        env::literal("EVENTS_PORT", "8084"),
        env::literal("FQ_RAY_IP", context.fqdn.as_str()),
    ];
    for (name, key) in [("OWNER_KIND", labels::ORIGINATED_FROM_CRD), ("OWNER_NAME", labels::ORIGINATED_FROM_CR_NAME)] {
        if let Some(owner) = cluster_spec::label(context.cluster, key).filter(|owner| !owner.is_empty()) {
            env.push(env::literal(name, owner));
        }
    }
    const DASHBOARD: &str = "RAY_DASHBOARD_ADDRESS";
    if context.node_type == NodeType::Head && !user_env.iter().any(|entry| entry.name == DASHBOARD) {
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
    auth::configure_container(context.cluster, &mut container);
    builder.sidecars.push(container);
}

/// Makes Ray send its events to the collector.
pub(super) fn add_ray_env(context: &PodContext<'_>, ray: &mut Container) {
    if cluster_spec::collector(&context.cluster.spec, &context.config.gates).is_none() {
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{cluster, container, env, env_names, head, mounts, ray, volumes, worker};
    use crate::config::{Config, FeatureGates};
    use serde_json::{Value, json};

    fn collecting(options: Value) -> Value {
        json!({
            "metadata": {"labels": {"ray.io/originated-from-crd": "RayJob", "ray.io/originated-from-cr-name": "train"}},
            "spec": {"historyServerOptions": {"collectorOptions": options}},
        })
    }

    #[test]
    fn the_collector_runs_beside_head_and_workers() {
        let options = json!({"image": "collector:1", "env": [{"name": "STORAGE_BACKEND", "value": "S3"}]});
        let cluster = cluster(collecting(options));
        let first = [
            "POD_IP",
            "RAY_CLUSTER_NAME",
            "RAY_CLUSTER_NAMESPACE",
            "RAY_ROLE",
            "EVENTS_PORT",
            "FQ_RAY_IP",
            "OWNER_KIND",
            "OWNER_NAME",
        ];
        for (pod, role, last) in [
            (head(&cluster, &Config::default()), "Head", &["RAY_DASHBOARD_ADDRESS", "STORAGE_BACKEND"][..]),
            (worker(&cluster, &Config::default()), "Worker", &["STORAGE_BACKEND"]),
        ] {
            let made = container(&pod, COLLECTOR);
            assert_eq!(env_names(made), [&first, last].concat());
            assert_eq!(env(made, "RAY_ROLE"), Some(role));
            assert_eq!(env(made, "RAY_CLUSTER_NAME"), Some("test-cluster"));
            assert_eq!(env(made, "OWNER_KIND"), Some("RayJob"));
            assert_eq!(env(made, "OWNER_NAME"), Some("train"));
            assert_eq!(made.image_pull_policy.as_deref(), Some("IfNotPresent"));
            let resources = json!({
                "limits": {"cpu": "200m", "memory": "256Mi"},
                "requests": {"cpu": "50m", "memory": "64Mi"},
            });
            assert_eq!(json!(made.resources), resources);
            assert_eq!(volumes(&pod), ["shared-mem", "ray-logs"]);
            assert_eq!((mounts(ray(&pod)), mounts(made)), (vec!["/dev/shm", "/tmp/ray"], vec!["/tmp/ray"]));
            assert_eq!(env(ray(&pod), "RAY_enable_ray_event"), Some("true"));
            let last: Vec<_> = env_names(ray(&pod)).split_off(env_names(ray(&pod)).len() - 5);
            assert_eq!(
                last,
                [
                    "RAY_enable_ray_event",
                    "RAY_enable_core_worker_ray_event_to_aggregator",
                    "RAY_DASHBOARD_AGGREGATOR_AGENT_EVENTS_EXPORT_ADDR",
                    "RAY_DASHBOARD_AGGREGATOR_AGENT_EXPOSABLE_EVENT_TYPES",
                    "RAY_DASHBOARD_AGGREGATOR_AGENT_PUBLISHER_HTTP_ENDPOINT_EXPOSABLE_EVENT_TYPES",
                ]
            );
            assert!(!env(ray(&pod), last[3]).unwrap().contains(' '));
        }
    }

    #[test]
    fn user_settings_are_kept() {
        let mut given = collecting(json!({
            "image": "collector:1",
            "imagePullPolicy": "Never",
            "resources": {"limits": {"cpu": "1"}},
            "env": [{"name": "RAY_DASHBOARD_ADDRESS", "value": "mine"}],
        }));
        given["spec"]["authOptions"] = json!({"mode": "token"});
        given["ray"] = json!({"env": [{"name": "RAY_enable_ray_event", "value": "false"}]});
        let pod = head(&cluster(given), &Config::default());
        let made = container(&pod, COLLECTOR);
        let entries = env_names(made);
        assert_eq!(entries[entries.len() - 3..], ["RAY_DASHBOARD_ADDRESS", "RAY_AUTH_MODE", "RAY_AUTH_TOKEN"]);
        assert_eq!(made.image_pull_policy.as_deref(), Some("Never"));
        assert_eq!(json!(made.resources), json!({"limits": {"cpu": "1"}}));
        assert_eq!(env(ray(&pod), "RAY_enable_ray_event"), Some("false"));
    }

    #[test]
    fn a_collector_of_the_user_shares_the_logs() {
        let config = Config { gates: FeatureGates::KUBERAY, ..Config::default() };
        let given = json!({"pod": {"sidecars": [{"name": COLLECTOR, "image": "mine"}]}});
        let pod = head(&cluster(given), &config);
        assert_eq!(
            (mounts(ray(&pod)), mounts(container(&pod, COLLECTOR))),
            (vec!["/dev/shm", "/tmp/ray"], vec!["/tmp/ray"])
        );
        assert_eq!(env(ray(&pod), "RAY_enable_ray_event"), None);
    }

    #[test]
    fn the_feature_gate_disables_the_collector() {
        let config = Config { gates: FeatureGates::KUBERAY, ..Config::default() };
        let pod = head(&cluster(collecting(json!({"image": "collector:1"}))), &config);
        assert_eq!(pod.spec.as_ref().unwrap().containers.len(), 1);
        assert_eq!(env(ray(&pod), "RAY_enable_ray_event"), None);
        assert_eq!(volumes(&pod), ["shared-mem"]);
    }
}
