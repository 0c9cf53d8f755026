//! Gateway and HTTPRoute of an incremental upgrade, as `gateway.networking.k8s.io/v1` JSON, and their comparison with
//! live objects.

use super::owner;
use crate::cluster_spec;
use crate::names;
use manta_api::{RayCluster, RayService};
use serde_json::{Value, json};

const API_VERSION: &str = "gateway.networking.k8s.io/v1";

/// The RayService has no upgrade options.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("Missing RayService ClusterUpgradeOptions during upgrade.")]
pub struct MissingUpgradeOptions;

/// A cluster and its share of the traffic.
#[derive(Clone, Copy, Debug)]
pub struct Backend<'a> {
    pub cluster: &'a RayCluster,
    pub weight: i32,
}

/// Returns the name of a RayService's Gateway.
pub fn gateway_name(service: &str) -> String {
    format!("{service}-gateway")
}

/// Returns the name of a RayService's HTTPRoute.
pub fn http_route_name(service: &str) -> String {
    format!("{service}-httproute")
}

/// Returns the Gateway of a RayService.
pub fn gateway(service: &RayService) -> Result<Value, MissingUpgradeOptions> {
    let strategy = service.spec.upgrade_strategy.as_ref();
    let options = strategy.and_then(|strategy| strategy.cluster_upgrade_options.as_ref());
    let options = options.ok_or(MissingUpgradeOptions)?;
    let spec = json!({
        "gatewayClassName": options.gateway_class_name,
        "listeners": [{"name": "http", "protocol": "HTTP", "port": 80}],
    });
    Ok(object(service, "Gateway", gateway_name(name(service)), spec))
}

/// Returns the HTTPRoute of a RayService, which splits requests by weight between the active cluster and the pending
/// one, if there is one.
pub fn http_route(service: &RayService, active: Backend<'_>, pending: Option<Backend<'_>>) -> Value {
    let namespace = service.metadata.namespace.as_deref().unwrap_or_default();
    let backends: Vec<Value> =
        std::iter::once(active).chain(pending).map(|backend| backend_ref(backend, namespace)).collect();
    let spec = json!({
        "parentRefs": [{"name": gateway_name(name(service)), "namespace": namespace}],
        "rules": [{
            "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
            "backendRefs": backends,
        }],
    });
    object(service, "HTTPRoute", http_route_name(name(service)), spec)
}

/// Returns whether two Gateway specs have the same class, and listeners of the same name, protocol and port.
pub fn same_gateway_spec(one: &Value, other: &Value) -> bool {
    one["gatewayClassName"] == other["gatewayClassName"]
        && same_lists(&one["listeners"], &other["listeners"], |one, other| {
            ["name", "protocol", "port"].iter().all(|field| one[*field] == other[*field])
        })
}

/// Returns whether two HTTPRoute specs are equal apart from defaults of the API server.
pub fn same_http_route_spec(one: &Value, other: &Value) -> bool {
    let hostnames = same_lists(&one["hostnames"], &other["hostnames"], Value::eq);
    let parents = same_lists(&one["parentRefs"], &other["parentRefs"], |one, other| {
        ["name", "namespace"].iter().all(|field| one[*field] == other[*field])
    });
    hostnames && parents && same_lists(&one["rules"], &other["rules"], same_rule)
}

fn same_rule(one: &Value, other: &Value) -> bool {
    same_lists(&one["matches"], &other["matches"], Value::eq)
        && same_lists(&one["filters"], &other["filters"], Value::eq)
        && same_lists(&one["backendRefs"], &other["backendRefs"], same_backend)
}

fn same_backend(one: &Value, other: &Value) -> bool {
    let number = |backend: &Value, field: &str, default: i64| backend[field].as_i64().unwrap_or(default);
    one["name"] == other["name"]
        && one["namespace"] == other["namespace"]
        && number(one, "weight", 1) == number(other, "weight", 1)
        && number(one, "port", 0) == number(other, "port", 0)
}

/// Returns whether two lists have the same length and the same items; a missing list is an empty one.
fn same_lists(one: &Value, other: &Value, same: impl Fn(&Value, &Value) -> bool) -> bool {
    let empty = Vec::new();
    let (one, other) = (one.as_array().unwrap_or(&empty), other.as_array().unwrap_or(&empty));
    one.len() == other.len() && one.iter().zip(other).all(|(one, other)| same(one, other))
}

fn backend_ref(backend: Backend<'_>, namespace: &str) -> Value {
    let ray = cluster_spec::ray_container(&backend.cluster.spec.head_group_spec.template);
    let port =
        ray.and_then(|ray| cluster_spec::container_port(ray, "serve")).unwrap_or(cluster_spec::DEFAULT_SERVE_PORT);
    json!({
        "name": names::serve_service(cluster_spec::name(backend.cluster)),
        "namespace": namespace,
        "port": port,
        "weight": backend.weight,
    })
}

fn object(service: &RayService, kind: &str, name: String, spec: Value) -> Value {
    json!({
        "apiVersion": API_VERSION,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": service.metadata.namespace,
            "ownerReferences": [owner::controller_reference(RayService::KIND, &service.metadata)],
        },
        "spec": spec,
    })
}

fn name(service: &RayService) -> &str {
    service.metadata.name.as_deref().unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::cluster;

    fn service() -> RayService {
        let options = json!({"gatewayClassName": "istio"});
        serde_json::from_value(json!({
            "metadata": {"name": "web", "namespace": "test-ns", "uid": "u"},
            "spec": {"upgradeStrategy": {"clusterUpgradeOptions": options}},
        }))
        .unwrap()
    }

    #[test]
    fn the_gateway_has_the_class_of_the_options() {
        let made = gateway(&service()).unwrap();
        assert_eq!(made["metadata"]["name"], "web-gateway");
        assert_eq!(made["metadata"]["ownerReferences"][0]["kind"], "RayService");
        let listeners = json!([{"name": "http", "protocol": "HTTP", "port": 80}]);
        assert_eq!(made["spec"], json!({"gatewayClassName": "istio", "listeners": listeners}));
        let error = gateway(&RayService::default()).unwrap_err();
        assert_eq!(error.to_string(), "Missing RayService ClusterUpgradeOptions during upgrade.");
    }

    #[test]
    fn the_route_splits_the_traffic() {
        let active = cluster(json!({"metadata": {"name": "web-a"}}));
        let pending = cluster(
            json!({"metadata": {"name": "web-b"}, "ray": {"ports": [{"name": "serve", "containerPort": 9000}]}}),
        );
        let backend = |cluster, weight| Backend { cluster, weight };
        let made = http_route(&service(), backend(&active, 80), Some(backend(&pending, 20)));
        assert_eq!(made["metadata"]["name"], "web-httproute");
        let expect = json!({
            "parentRefs": [{"name": "web-gateway", "namespace": "test-ns"}],
            "rules": [{
                "matches": [{"path": {"type": "PathPrefix", "value": "/"}}],
                "backendRefs": [
                    {"name": "web-a-serve-svc", "namespace": "test-ns", "port": 8000, "weight": 80},
                    {"name": "web-b-serve-svc", "namespace": "test-ns", "port": 9000, "weight": 20},
                ],
            }],
        });
        assert_eq!(made["spec"], expect);
        let alone = http_route(&service(), backend(&active, 100), None);
        assert_eq!(alone["spec"]["rules"][0]["backendRefs"].as_array().unwrap().len(), 1);
    }

    /// Changes one field of a spec and checks whether the two specs are still the same.
    fn check(same: fn(&Value, &Value) -> bool, spec: &Value, path: &str, value: Value, expect: bool) {
        let mut changed = spec.clone();
        let (parent, field) = path.rsplit_once('/').unwrap();
        changed.pointer_mut(parent).unwrap()[field] = value;
        assert_eq!(same(spec, &changed), expect, "{path}");
        assert_eq!(same(&changed, spec), expect, "{path}");
    }

    #[test]
    fn routes_are_compared_without_defaults() {
        let (active, pending) = (cluster(json!({})), cluster(json!({})));
        let [active, pending] = [(&active, 80), (&pending, 20)].map(|(cluster, weight)| Backend { cluster, weight });
        let spec = http_route(&service(), active, Some(pending))["spec"].clone();
        let check = |path: &str, value: Value, expect: bool| check(same_http_route_spec, &spec, path, value, expect);
        check("/hostnames", json!([]), true);
        check("/hostnames", json!(["x"]), false);
        check("/parentRefs", json!([]), false);
        for (place, field, value, expect) in [
            ("/parentRefs/0", "name", json!("x"), false),
            ("/parentRefs/0", "namespace", json!("x"), false),
            ("/parentRefs/0", "group", json!("gateway.networking.k8s.io"), true),
            ("/rules/0", "filters", json!([]), true),
            ("/rules/0", "filters", json!([{}]), false),
            ("/rules/0", "matches", json!([]), false),
            ("/rules/0", "backendRefs", json!([]), false),
            ("/rules/0/backendRefs/1", "name", json!("x"), false),
            ("/rules/0/backendRefs/1", "namespace", json!("x"), false),
            ("/rules/0/backendRefs/1", "weight", json!(1), false),
            ("/rules/0/backendRefs/1", "weight", json!(null), false),
            ("/rules/0/backendRefs/1", "port", json!(1), false),
            ("/rules/0/backendRefs/1", "kind", json!("Service"), true),
        ] {
            check(&format!("{place}/{field}"), value, expect);
        }
        check("/rules", json!([]), false);
    }

    #[test]
    fn gateways_are_compared_without_defaults() {
        let spec = gateway(&service()).unwrap()["spec"].clone();
        for (path, value, expect) in [
            ("/gatewayClassName", json!("x"), false),
            ("/listeners", json!([]), false),
            ("/listeners/0/name", json!("x"), false),
            ("/listeners/0/protocol", json!("x"), false),
            ("/listeners/0/port", json!(81), false),
            ("/listeners/0/allowedRoutes", json!({"namespaces": {"from": "Same"}}), true),
        ] {
            check(same_gateway_spec, &spec, path, value, expect);
        }
    }
}
