//! Escalation checks: nobody grants permissions that they do not hold.
//!
//! A role may only be written by somebody who holds all of its rules, or who may `escalate` it; a binding only by
//! somebody who holds the rules of its role, or who may `bind` it.

use serde_json::Value;

use super::rule::{Rule, uncovered};
use super::{Attributes, Authority, User};
use crate::error::{ApiError, Named};
use crate::ops::Cluster;
use crate::registry::Resource;
use crate::store::ObjectKey;

const GROUP: &str = "rbac.authorization.k8s.io";

impl Authority {
    /// Refuses a role or binding that grants more than its author holds.
    pub(crate) fn check_escalation(
        &self,
        user: &User,
        resource: &Resource,
        new: &Value,
        old: Option<&Value>,
        cluster: &Cluster,
    ) -> Result<(), ApiError> {
        if !self.rbac || &*resource.group != GROUP || user.is_master() {
            return Ok(());
        }
        let unchanged = |fields: &[&str]| old.is_some_and(|old| fields.iter().all(|field| old[*field] == new[*field]));
        match &*resource.plural {
            "roles" | "clusterroles" if unchanged(&["rules", "aggregationRule"]) => Ok(()),
            "roles" | "clusterroles" => self.check_role(user, resource, new, old, cluster),
            "rolebindings" | "clusterrolebindings" if unchanged(&["roleRef", "subjects"]) => Ok(()),
            "rolebindings" | "clusterrolebindings" => self.check_binding(user, resource, new, cluster),
            _ => Ok(()),
        }
    }

    fn check_role(
        &self,
        user: &User,
        resource: &Resource,
        new: &Value,
        old: Option<&Value>,
        cluster: &Cluster,
    ) -> Result<(), ApiError> {
        let name = new["metadata"]["name"].as_str().unwrap_or("");
        let namespace = new["metadata"]["namespace"].as_str().unwrap_or("");
        if self.may(user, "escalate", &resource.plural, name, namespace, cluster) {
            return Ok(());
        }
        let mut wanted = Rule::parse_all(new);
        // An aggregated role grows by itself, so only somebody with all permissions may write it.
        let aggregates = |role: Option<&Value>| role.is_some_and(|role| role["aggregationRule"].is_object());
        if aggregates(Some(new)) || aggregates(old) {
            let everything = serde_json::json!({"rules": [{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
                {"nonResourceURLs": ["*"], "verbs": ["*"]}]});
            wanted.extend(Rule::parse_all(&everything));
        }
        self.check_held(user, resource.named(name), &wanted, namespace, cluster)
    }

    fn check_binding(&self, user: &User, resource: &Resource, new: &Value, cluster: &Cluster) -> Result<(), ApiError> {
        let name = new["metadata"]["name"].as_str().unwrap_or("");
        let namespace = new["metadata"]["namespace"].as_str().unwrap_or("");
        let role = new["roleRef"]["name"].as_str().unwrap_or("");
        let (plural, role_namespace) = match new["roleRef"]["kind"].as_str() {
            Some("ClusterRole") => ("clusterroles", ""),
            _ => ("roles", namespace),
        };
        if self.may(user, "bind", plural, role, namespace, cluster) {
            return Ok(());
        }
        let found = cluster.store.get(&format!("{plural}.{GROUP}"), &ObjectKey::new(role_namespace, role));
        let Some(found) = found else {
            return Err(ApiError::not_found(Named { group: GROUP, what: plural, name: role }));
        };
        self.check_held(user, resource.named(name), &Rule::parse_all(&found.value()), namespace, cluster)
    }

    fn may(&self, user: &User, verb: &str, plural: &str, name: &str, namespace: &str, cluster: &Cluster) -> bool {
        let attributes = Attributes {
            verb: verb.into(),
            group: GROUP.into(),
            version: "v1".into(),
            resource: plural.into(),
            name: name.into(),
            namespace: namespace.into(),
            ..Attributes::default()
        };
        self.allows(user, &attributes, cluster).is_ok()
    }

    fn check_held(
        &self,
        user: &User,
        named: Named<'_>,
        wanted: &[Rule],
        namespace: &str,
        cluster: &Cluster,
    ) -> Result<(), ApiError> {
        let held = self.rbac_rules.rules_of(user, namespace, &cluster.store);
        let missing = uncovered(&held, wanted);
        if missing.is_empty() {
            return Ok(());
        }
        let groups: Vec<String> = user.groups.iter().map(|group| format!("{group:?}")).collect();
        let lines: Vec<String> = missing.iter().map(ToString::to_string).collect();
        let why = format!(
            "user {:?} (groups=[{}]) is attempting to grant RBAC permissions not currently held:\n{}",
            user.name,
            groups.join(" "),
            lines.join("\n")
        );
        Err(ApiError::forbidden(named, &why))
    }
}
