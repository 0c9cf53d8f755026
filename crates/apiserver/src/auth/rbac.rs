//! Role-based access control: bindings lead to roles, roles to rules.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Attributes, User};
use crate::store::{Entry, ObjectKey, Span, Store};

const GROUP: &str = "rbac.authorization.k8s.io";

/// Why a user may, or why not.
pub(super) fn allows(user: &User, asked: &Attributes, store: &Store) -> Result<String, String> {
    for (binding, rules) in granted(user, &asked.namespace, store) {
        if rules.iter().any(|rule| permits(rule, asked)) {
            return Ok(format!("RBAC: allowed by {binding}"));
        }
    }
    Err(String::new())
}

/// The rules that apply to a user in a namespace, as a SelfSubjectRulesReview shows them.
pub(super) fn rules_of(user: &User, namespace: &str, store: &Store) -> Value {
    let rules: Vec<Value> = granted(user, namespace, store).into_iter().flat_map(|(_, rules)| rules).collect();
    let (paths, resources): (Vec<Value>, Vec<Value>) =
        rules.into_iter().partition(|rule| rule["nonResourceURLs"].is_array());
    json!({"resourceRules": resources, "nonResourceRules": paths, "incomplete": false})
}

fn granted(user: &User, namespace: &str, store: &Store) -> Vec<(String, Vec<Value>)> {
    let list = |table: &str, namespace: Option<&str>| -> Vec<Arc<Entry>> {
        let span = Span { namespace, ..Span::default() };
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

fn permits(rule: &Value, asked: &Attributes) -> bool {
    let has = |key: &str, wanted: &str| {
        rule[key].as_array().into_iter().flatten().any(|value| value == "*" || value == wanted)
    };
    if !has("verbs", &asked.verb) {
        return false;
    }
    if asked.resource.is_empty() {
        return rule["nonResourceURLs"].as_array().into_iter().flatten().filter_map(Value::as_str).any(|pattern| {
            pattern == asked.path || pattern.strip_suffix('*').is_some_and(|prefix| asked.path.starts_with(prefix))
        });
    }
    let resource = match asked.subresource.as_str() {
        "" => asked.resource.clone(),
        below => format!("{}/{below}", asked.resource),
    };
    let any_with_sub = !asked.subresource.is_empty() && has("resources", &format!("*/{}", asked.subresource));
    let names = rule["resourceNames"].as_array();
    has("apiGroups", &asked.group)
        && (has("resources", &resource) || any_with_sub)
        && names.is_none_or(|names| names.is_empty() || names.iter().any(|name| *name == asked.name.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rules_permit_what_they_name() {
        let asked = |verb: &str, resource: &str, subresource: &str, name: &str| Attributes {
            verb: verb.into(),
            resource: resource.into(),
            subresource: subresource.into(),
            name: name.into(),
            ..Attributes::default()
        };
        let rule = json!({"verbs": ["get"], "apiGroups": [""], "resources": ["pods", "pods/log"]});
        assert!(permits(&rule, &asked("get", "pods", "", "a")));
        assert!(permits(&rule, &asked("get", "pods", "log", "a")));
        assert!(!permits(&rule, &asked("list", "pods", "", "")));
        assert!(!permits(&rule, &asked("get", "pods", "status", "a")));
        let named = json!({"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"], "resourceNames": ["b"]});
        assert!(!permits(&named, &asked("get", "pods", "", "a")));
        assert!(permits(&named, &asked("get", "pods", "", "b")));
        let path = json!({"verbs": ["get"], "nonResourceURLs": ["/metrics*"]});
        let plain = Attributes { verb: "get".into(), path: "/metrics/x".into(), ..Attributes::default() };
        assert!(permits(&path, &plain));
    }
}
