//! The objects that every cluster has from the start.

use serde_json::{Value, json};

use crate::error::ApiError;
use crate::ops::{Cluster, WriteOptions};
use crate::store::ListRange;

/// Fills the caches from the store, then creates the objects that every cluster has.
pub(crate) fn run(cluster: &Cluster) -> Result<(), ApiError> {
    let services = cluster.store.list("services", &ListRange::default(), |_| true);
    for service in services.map(|page| page.entries).unwrap_or_default() {
        cluster.service_ips.reserve(&service.value());
    }
    crate::controllers::crd::serve_stored(cluster);
    for name in ["default", "kube-system", "kube-public", "kube-node-lease"] {
        make(cluster, "", "namespaces", "", json!({"metadata": {"name": name}}))?;
    }
    let classes = [
        (
            "system-node-critical",
            2_000_001_000_i64,
            "Used for system critical pods that must not be moved from their current node.",
        ),
        (
            "system-cluster-critical",
            2_000_000_000,
            "Used for system critical pods that must run in the cluster, but can be moved to another node if necessary.",
        ),
    ];
    for (name, value, description) in classes {
        let class = json!({"metadata": {"name": name}, "value": value, "description": description});
        make(cluster, "scheduling.k8s.io", "priorityclasses", "", class)?;
    }
    let everything = json!({"metadata": {"name": "cluster-admin"}, "rules": [
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]});
    make(cluster, "rbac.authorization.k8s.io", "clusterroles", "", everything)?;
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 443}]},
    });
    make(cluster, "", "services", "default", service)
}

fn make(cluster: &Cluster, group: &str, plural: &str, namespace: &str, value: Value) -> Result<(), ApiError> {
    let resource = cluster.registry.builtin(group, plural);
    let name = value["metadata"]["name"].as_str().unwrap_or("");
    if cluster.store.get(&resource.table, &crate::store::ObjectKey::new(namespace, name)).is_some() {
        return Ok(());
    }
    match cluster.create(&resource, namespace, value, &WriteOptions::default()) {
        Err(error) if error.reason() != "AlreadyExists" => Err(error),
        _ => Ok(()),
    }
}
