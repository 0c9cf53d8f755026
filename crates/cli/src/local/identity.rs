//! The users of the in-process operator and node agent, and the roles that they hold.

use anyhow::Context;
use kube::Client;
use manta_apiserver::auth::User;

use super::apply;

/// The roles of an installed operator, which hold in local mode as well.
const OPERATOR: &str = include_str!("../../../../deploy/kustomize/operator.yaml");

/// The operator may reach dashboards through the API server, and the agent schedules pods and forwards Services besides
/// running pods.
const LOCAL: &str = "
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {name: manta-local-operator}
rules:
  - apiGroups: ['']
    resources: [pods/proxy, services/proxy]
    verbs: [get, create, update, patch, delete]
  - apiGroups: [coordination.k8s.io]
    resources: [leases]
    verbs: [get, create, update]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: manta-local-operator}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: manta-local-operator}
subjects: [{kind: ServiceAccount, name: kuberay-operator, namespace: ray-system}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: manta-local-agent}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:kube-scheduler}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:nodes}]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {name: manta-local-proxy}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: system:node-proxier}
subjects: [{apiGroup: rbac.authorization.k8s.io, kind: Group, name: system:nodes}]
";

/// Returns the user of the operator.
pub(super) fn operator() -> User {
    User::service_account("ray-system", "kuberay-operator", "")
}

/// Returns the user of the node agent.
pub(super) fn agent() -> User {
    User::node("manta")
}

/// Grants both users their roles.
pub(super) async fn grant_roles(admin: &Client) -> anyhow::Result<()> {
    let documents = OPERATOR.split("\n---\n").filter(|document| document.contains("kind: ClusterRole"));
    let roles: Vec<&str> = documents.chain([LOCAL]).collect();
    let applied = apply::apply_text(admin, "the roles of local mode", &roles.join("\n---\n")).await;
    applied.map(|_| ()).context("cannot grant the operator and the agent their roles")
}
