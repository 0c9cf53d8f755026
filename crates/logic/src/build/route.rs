//! The OpenShift Route for the dashboard.

use super::{ingress, owner};
use crate::cluster_spec;
use crate::names;
use crate::validate::ValidCluster;
use serde_json::{Value, json};

/// Returns the Route as `route.openshift.io/v1` JSON.
pub fn route(cluster: &ValidCluster<'_>) -> Value {
    let name = cluster_spec::name(cluster);
    let namespace = cluster_spec::namespace(cluster);
    let mut route = json!({
        "apiVersion": "route.openshift.io/v1",
        "kind": "Route",
        "metadata": {
            "name": names::route_name(&format!("{name}-head-route"), namespace),
            "namespace": namespace,
            "labels": ingress::dashboard_labels(cluster),
            "ownerReferences": [owner::cluster_reference(cluster)],
        },
        "spec": {
            "to": {"kind": "Service", "name": names::head_service(name, &cluster.spec), "weight": 100},
            "port": {"targetPort": cluster_spec::dashboard_port(&cluster.spec)},
            "wildcardPolicy": "None",
        },
    });
    if let Some(annotations) = cluster.metadata.annotations.as_ref().filter(|annotations| !annotations.is_empty()) {
        route["metadata"]["annotations"] = json!(annotations);
    }
    route
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{cluster, valid};

    #[test]
    fn the_route_points_to_the_dashboard() {
        let cluster = cluster(json!({"metadata": {"annotations": {"kubernetes.io/ingress.class": "nginx"}}}));
        let expect = json!({
            "apiVersion": "route.openshift.io/v1",
            "kind": "Route",
            "metadata": {
                "name": "test-cluster-head-route",
                "namespace": "test-ns",
                "labels": {
                    "ray.io/cluster": "test-cluster",
                    "ray.io/identifier": "test-cluster-head",
                    "app.kubernetes.io/name": "kuberay",
                    "app.kubernetes.io/created-by": "kuberay-operator",
                },
                "annotations": {"kubernetes.io/ingress.class": "nginx"},
                "ownerReferences": [owner::cluster_reference(&cluster)],
            },
            "spec": {
                "to": {"kind": "Service", "name": "test-cluster-head-svc", "weight": 100},
                "port": {"targetPort": 8265},
                "wildcardPolicy": "None",
            },
        });
        assert_eq!(route(&valid(&cluster)), expect);
    }
}
