//! The OpenShift Route that leads to the dashboard.

use super::cluster_facts as facts;
use super::{ingress, owner};
use crate::names;
use crate::validate::ValidCluster;
use serde_json::{Value, json};

/// The Route, as `route.openshift.io/v1` JSON.
pub fn route(cluster: &ValidCluster<'_>) -> Value {
    let name = facts::name(cluster);
    let namespace = facts::namespace(cluster);
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
            "port": {"targetPort": facts::dashboard_port(&cluster.spec)},
            "wildcardPolicy": "None",
        },
    });
    if let Some(annotations) = cluster.metadata.annotations.as_ref().filter(|annotations| !annotations.is_empty()) {
        route["metadata"]["annotations"] = json!(annotations);
    }
    route
}
