//! The objects that every cluster has from the start.

use serde_json::{Value, json};

use crate::auth::{Rule, cluster_role_bindings, cluster_roles, uncovered};
use crate::error::ApiError;
use crate::ops::{Cluster, Target, WriteOptions};
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
    make_roles(cluster)?;
    let service = json!({
        "metadata": {"name": "kubernetes", "labels": {"component": "apiserver", "provider": "kubernetes"}},
        "spec": {"clusterIP": "10.96.0.1", "ports": [{"name": "https", "port": 443, "targetPort": 443}]},
    });
    make(cluster, "", "services", "default", service)
}

/// Creates the default roles and bindings, and adds the rules that those of an older version lack.
fn make_roles(cluster: &Cluster) -> Result<(), ApiError> {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let roles = cluster_roles();
    // Without RBAC nothing reads the others.
    let is_used = |role: &&Value| cluster.authority.rbac || role["metadata"]["name"] == "cluster-admin";
    for role in roles.iter().filter(is_used) {
        make(cluster, GROUP, "clusterroles", "", role.clone())?;
        update_role(cluster, role)?;
    }
    if cluster.authority.rbac {
        for binding in cluster_role_bindings() {
            make(cluster, GROUP, "clusterrolebindings", "", binding)?;
        }
        crate::controllers::role_aggregation::aggregate(cluster);
    }
    Ok(())
}

fn update_role(cluster: &Cluster, role: &Value) -> Result<(), ApiError> {
    let resource = cluster.registry.builtin("rbac.authorization.k8s.io", "clusterroles");
    let name = role["metadata"]["name"].as_str().unwrap_or("");
    let target = Target { resource: &resource, namespace: "", name };
    let stored = cluster.get(target)?.value();
    let updates = stored["metadata"]["annotations"]["rbac.authorization.kubernetes.io/autoupdate"] == "true";
    let missing = uncovered(&Rule::parse_all(&stored), &Rule::parse_all(role));
    if !updates || missing.is_empty() {
        return Ok(());
    }
    let rules = |role: &Value| role["rules"].as_array().cloned().unwrap_or_default();
    let all: Vec<Value> = rules(&stored).into_iter().chain(rules(role)).collect();
    cluster.edit(target, |stored| stored["rules"] = all.clone().into()).map(|_| ())
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
