//! The default cluster roles and bindings, read from `default_roles.txt`.

use serde_json::{Map, Value, json};

const TABLE: &str = include_str!("default_roles.txt");
const RBAC_GROUP: &str = "rbac.authorization.k8s.io";

/// Returns the default ClusterRoles.
pub(crate) fn cluster_roles() -> Vec<Value> {
    let mut roles: Vec<Value> = Vec::new();
    for line in lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        let rule = match words.as_slice() {
            ["role", name, options @ ..] => {
                roles.push(role(name, options));
                continue;
            }
            ["rule", groups, resources, verbs] => {
                json!({"apiGroups": list(groups), "resources": list(resources), "verbs": list(verbs)})
            }
            ["rule", groups, resources, verbs, names] => json!({"apiGroups": list(groups),
                "resources": list(resources), "verbs": list(verbs), "resourceNames": list(names)}),
            ["url", paths, verbs] => json!({"nonResourceURLs": list(paths), "verbs": list(verbs)}),
            _ => continue,
        };
        if let Some(rules) = roles.last_mut().and_then(|role| role["rules"].as_array_mut()) {
            rules.push(rule);
        }
    }
    roles
}

/// Returns the default ClusterRoleBindings.
pub(crate) fn cluster_role_bindings() -> Vec<Value> {
    let mut bindings: Vec<Value> = lines().filter_map(binding).collect();
    // The real server authorizes nodes object by object; here the role alone decides.
    let nodes = bindings.iter_mut().find(|binding| binding["metadata"]["name"] == "system:node");
    if let Some(nodes) = nodes {
        nodes["subjects"] = json!([subject("Group:system:nodes")]);
    }
    bindings
}

fn lines() -> impl Iterator<Item = &'static str> {
    TABLE.lines().filter(|line| !line.is_empty() && !line.starts_with('#'))
}

fn list(words: &str) -> Vec<&str> {
    words.split(',').map(|word| if word == "core" { "" } else { word }).collect()
}

fn metadata(name: &str) -> Value {
    json!({"name": name, "labels": {"kubernetes.io/bootstrapping": "rbac-defaults"},
        "annotations": {"rbac.authorization.kubernetes.io/autoupdate": "true"}})
}

fn role(name: &str, options: &[&str]) -> Value {
    let mut role = json!({"metadata": metadata(name), "rules": []});
    for option in options.chunks(2) {
        match option {
            ["label", key] => role["metadata"]["labels"][*key] = "true".into(),
            ["aggregates", key] => {
                let labels: Map<String, Value> = [((*key).to_owned(), "true".into())].into_iter().collect();
                role["aggregationRule"] = json!({"clusterRoleSelectors": [{"matchLabels": labels}]});
            }
            _ => {}
        }
    }
    role
}

fn binding(line: &str) -> Option<Value> {
    let mut words = line.split_whitespace();
    let ("bind", role) = (words.next()?, words.next()?) else { return None };
    let role_ref = json!({"apiGroup": RBAC_GROUP, "kind": "ClusterRole", "name": role});
    let subjects: Vec<Value> = words.map(subject).collect();
    Some(json!({"metadata": metadata(role), "roleRef": role_ref, "subjects": subjects}))
}

fn subject(text: &str) -> Value {
    match text.split_once(':') {
        Some(("ServiceAccount", name)) => json!({"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}),
        Some((kind, name)) => json!({"apiGroup": RBAC_GROUP, "kind": kind, "name": name}),
        None => Value::Null,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_table_of_default_roles_is_well_formed() {
        for line in lines() {
            let words: Vec<&str> = line.split_whitespace().collect();
            let known = match words[0] {
                "role" => words.len().is_multiple_of(2),
                "rule" => (4..=5).contains(&words.len()),
                "url" => words.len() == 3,
                "bind" => words.len() >= 2,
                _ => false,
            };
            assert!(known, "{line}");
        }
        let roles = cluster_roles();
        let names: Vec<&str> = roles.iter().filter_map(|role| role["metadata"]["name"].as_str()).collect();
        for name in ["cluster-admin", "admin", "edit", "view", "system:basic-user", "system:node"] {
            assert!(names.contains(&name), "{name}");
        }
        for binding in cluster_role_bindings() {
            let role = binding["roleRef"]["name"].as_str().unwrap_or("");
            assert!(names.contains(&role), "{role}");
        }
    }
}
