//! Role-based access control: bindings lead to roles, roles to rules.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Attributes, User};
use crate::store::{Entry, ListRange, ObjectKey, Store};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Authorizes a request against the bindings of a user.
pub(super) fn allows(user: &User, attributes: &Attributes, store: &Store) -> Result<String, String> {
    for (binding, rules) in granted(user, &attributes.namespace, store) {
        if rules.iter().any(|rule| permits(rule, attributes)) {
            return Ok(format!("RBAC: allowed by {binding}"));
        }
    }
    Err(String::new())
}

/// Returns the rules that apply to a user in a namespace, as a SelfSubjectRulesReview shows them.
pub(super) fn rules_of(user: &User, namespace: &str, store: &Store) -> Value {
    let rules: Vec<Value> = granted(user, namespace, store).into_iter().flat_map(|(_, rules)| rules).collect();
    let (paths, resources): (Vec<Value>, Vec<Value>) =
        rules.into_iter().partition(|rule| rule["nonResourceURLs"].is_array());
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}

fn granted(user: &User, namespace: &str, store: &Store) -> Vec<(String, Vec<Value>)> {
    let list = |table: &str, namespace: Option<&str>| -> Vec<Arc<Entry>> {
        let span = ListRange { namespace, ..ListRange::default() };
        store.list(table, &span, |_| true).map(|page| page.entries).unwrap_or_default()
    };
    let everywhere = list(&format!("clusterrolebindings.{GROUP}"), None);
    let here = if namespace.is_empty() { Vec::new() } else { list(&format!("rolebindings.{GROUP}"), Some(namespace)) };
    let mut found = Vec::new();
    for (kind, binding) in
        everywhere.iter().map(|one| ("ClusterRoleBinding", one)).chain(here.iter().map(|one| ("RoleBinding", one)))
    {
        let value = binding.value();
        let subjects = value["subjects"].as_array().into_iter().flatten();
        if !subjects.clone().any(|subject| is_subject(subject, user, &binding.key.namespace)) {
            continue;
        }
        let role = &value["roleRef"];
        let name = role["name"].as_str().unwrap_or("");
        let (table, key) = match role["kind"].as_str() {
            Some("ClusterRole") => (format!("clusterroles.{GROUP}"), ObjectKey::new("", name)),
            _ => (format!("roles.{GROUP}"), ObjectKey::new(&binding.key.namespace, name)),
        };
        if let Some(role) = store.get(&table, &key) {
            let rules = role.value()["rules"].as_array().cloned().unwrap_or_default();
            found.push((format!("{kind} {:?}", binding.key.name), rules));
        }
    }
    found
}

fn is_subject(subject: &Value, user: &User, namespace: &str) -> bool {
    let name = subject["name"].as_str().unwrap_or("");
    match subject["kind"].as_str() {
        Some("User") => name == "*" || name == user.name,
        Some("Group") => user.groups.iter().any(|group| group == name),
        Some("ServiceAccount") => {
            let namespace = subject["namespace"].as_str().unwrap_or(namespace);
            user.name == format!("system:serviceaccount:{namespace}:{name}")
        }
        _ => false,
    }
}

fn permits(rule: &Value, attributes: &Attributes) -> bool {
    let has = |key: &str, wanted: &str| {
        rule[key].as_array().into_iter().flatten().any(|value| value == "*" || value == wanted)
    };
    if !has("verbs", &attributes.verb) {
        return false;
    }
    if attributes.resource.is_empty() {
        return rule["nonResourceURLs"].as_array().into_iter().flatten().filter_map(Value::as_str).any(|pattern| {
            pattern == attributes.path
                || pattern.strip_suffix('*').is_some_and(|prefix| attributes.path.starts_with(prefix))
        });
    }
    let resource = match attributes.subresource.as_str() {
        "" => attributes.resource.clone(),
        below => format!("{}/{below}", attributes.resource),
    };
    let any_with_sub = !attributes.subresource.is_empty() && has("resources", &format!("*/{}", attributes.subresource));
    let names = rule["resourceNames"].as_array();
    has("apiGroups", &attributes.group)
        && (has("resources", &resource) || any_with_sub)
        && names.is_none_or(|names| names.is_empty() || names.iter().any(|name| *name == attributes.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_permit_what_they_name() {
        let attributes = |verb: &str, resource: &str, subresource: &str, name: &str| Attributes {
            verb: verb.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            name: name.into(),
            ..Attributes::default()
        };
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/log"]});
        assert!(permits(&rule, &attributes("get", "pods", "", "a")));
        assert!(permits(&rule, &attributes("get", "pods", "log", "a")));
        assert!(!permits(&rule, &attributes("list", "pods", "", "")));
        assert!(!permits(&rule, &attributes("get", "pods", "status", "a")));
        let named = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["b"]});
        assert!(!permits(&named, &attributes("get", "pods", "", "a")));
        assert!(permits(&named, &attributes("get", "pods", "", "b")));
        let path = json!({"verbs": ["get"], "nonResourceURLs": ["/metrics*"]});
        let plain = Attributes { verb: "get".into(), path: "/metrics/x".into(), ..Attributes::default() };
        assert!(permits(&path, &plain));
    }
}
