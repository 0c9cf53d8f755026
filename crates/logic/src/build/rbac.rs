//! ServiceAccount, Role and RoleBinding of the autoscaler.

use super::owner;
use crate::cluster_spec;
use crate::labels;
use crate::names::clip50;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::ServiceAccount;
use k8s_openapi::api::rbac::v1::{PolicyRule, Role, RoleBinding, RoleRef, Subject};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::RayCluster;
use std::collections::BTreeMap;

/// Returns the ServiceAccount of a head with an autoscaler: the user's, or else one with the cluster's name.
pub fn service_account_name(cluster: &RayCluster) -> String {
    clip50(cluster_spec::head_service_account(&cluster.spec).unwrap_or_else(|| cluster_spec::name(cluster)))
}

/// Returns the autoscaler's ServiceAccount for clusters that name none.
pub fn service_account(cluster: &ValidCluster<'_>) -> ServiceAccount {
    ServiceAccount { metadata: metadata(cluster, service_account_name(cluster)), ..ServiceAccount::default() }
}

/// Returns the autoscaler's Role: it reads and resizes Pods and patches its own cluster.
pub fn role(cluster: &ValidCluster<'_>) -> Role {
    let rules = vec![
        rule("", "pods", &["get", "list", "watch", "patch"]),
        rule("", "pods/resize", &["patch"]),
        rule("ray.io", "rayclusters", &["get", "patch"]),
    ];
    Role { metadata: metadata(cluster, clip50(cluster_spec::name(cluster))), rules: Some(rules) }
}

/// Returns the binding of the Role to the ServiceAccount.
pub fn role_binding(cluster: &ValidCluster<'_>) -> RoleBinding {
    let name = clip50(cluster_spec::name(cluster));
    let subject = Subject {
        kind: "ServiceAccount".to_owned(),
        name: service_account_name(cluster),
        namespace: cluster.metadata.namespace.clone(),
        api_group: None,
    };
    let role_ref = RoleRef {
        api_group: Some("rbac.authorization.k8s.io".to_owned()),
        kind: "Role".to_owned(),
        name: name.clone(),
    };
    RoleBinding { metadata: metadata(cluster, name), subjects: Some(vec![subject]), role_ref }
}

fn metadata(cluster: &RayCluster, name: String) -> ObjectMeta {
    let labels = [
        (labels::CLUSTER, cluster_spec::name(cluster)),
        (labels::APP_NAME, labels::KUBERAY),
        (labels::CREATED_BY, labels::KUBERAY_OPERATOR),
    ];
    ObjectMeta {
        name: Some(name),
        namespace: cluster.metadata.namespace.clone(),
        labels: Some(BTreeMap::from(labels.map(|(key, value)| (key.to_owned(), value.to_owned())))),
        owner_references: Some(vec![owner::cluster_reference(cluster)]),
        ..ObjectMeta::default()
    }
}

fn rule(group: &str, resource: &str, verbs: &[&str]) -> PolicyRule {
    PolicyRule {
        api_groups: Some(vec![group.to_owned()]),
        resources: Some(vec![resource.to_owned()]),
        verbs: verbs.iter().map(|verb| (*verb).to_owned()).collect(),
        ..PolicyRule::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{cluster, valid};
    use serde_json::{Value, json};

    #[test]
    fn the_binding_refers_to_account_and_role() {
        let check = |given: Value, account: &str, role: &str| {
            let cluster = cluster(given);
            let binding = role_binding(&valid(&cluster));
            let subject = json!([{"kind": "ServiceAccount", "name": account, "namespace": "test-ns"}]);
            assert_eq!(json!(binding.subjects), subject);
            let role_ref = json!({"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": role});
            assert_eq!(json!(binding.role_ref), role_ref);
            assert_eq!(binding.metadata.name.as_deref(), Some(role));
            assert_eq!(super::role(&valid(&cluster)).metadata.name.as_deref(), Some(role));
            assert_eq!(service_account(&valid(&cluster)).metadata.name.as_deref(), Some(account));
        };
        check(json!({"pod": {"serviceAccountName": "mine"}}), "mine", "test-cluster");
        check(json!({}), "test-cluster", "test-cluster");
        check(json!({"pod": {"serviceAccountName": ""}}), "test-cluster", "test-cluster");
        let end = "b".repeat(50);
        check(json!({"metadata": {"name": format!("{}{end}", "a".repeat(150))}}), &end, &end);
    }

    #[test]
    fn the_role_allows_the_requests_of_the_autoscaler() {
        let cluster = cluster(json!({}));
        let expect = json!([
            {"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list", "watch", "patch"]},
            {"apiGroups": [""], "resources": ["pods/resize"], "verbs": ["patch"]},
            {"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get", "patch"]},
        ]);
        assert_eq!(json!(role(&valid(&cluster)).rules), expect);
    }
}
