//! The permissions of roles as text.

use std::collections::BTreeSet;

use serde_json::Value;

/// Returns every permission of a Role or ClusterRole in the form of [`permission`].
pub fn permissions(role: &Value) -> BTreeSet<String> {
    let texts = |list: &Value| -> Vec<String> {
        list.as_array().into_iter().flatten().filter_map(|text| text.as_str().map(str::to_owned)).collect()
    };
    let mut permissions = BTreeSet::new();
    for rule in role["rules"].as_array().into_iter().flatten() {
        for group in texts(&rule["apiGroups"]) {
            for resource in texts(&rule["resources"]) {
                permissions.extend(texts(&rule["verbs"]).iter().map(|verb| permission(verb, &group, &resource)));
            }
        }
    }
    permissions
}

/// Returns one permission as text: `list pods`, `patch rayclusters/status.ray.io`.
pub fn permission(verb: &str, group: &str, resource: &str) -> String {
    if group.is_empty() { format!("{verb} {resource}") } else { format!("{verb} {resource}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_expand_to_single_permissions() {
        let role = json!({"rules": [
            {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get"]},
            {"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["list", "watch"]},
        ]});
        let expect = ["get pods", "get pods/status", "list rayjobs.ray.io", "watch rayjobs.ray.io"];
        assert_eq!(permissions(&role), expect.map(str::to_owned).into());
    }
}
