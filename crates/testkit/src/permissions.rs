//! What roles permit, in words.

use std::collections::BTreeSet;

use serde_json::Value;

/// Everything that a Role or ClusterRole permits, as [`permission`] says it.
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

/// One permission in words: `list pods`, `patch rayclusters/status.ray.io`.
pub fn permission(verb: &str, group: &str, resource: &str) -> String {
    if group.is_empty() { format!("{verb} {resource}") } else { format!("{verb} {resource}.{group}") }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn rules_are_told_one_by_one() {
        let role = json!({"rules": [
            {"apiGroups": [""], "resources": ["pods", "pods/status"], "verbs": ["get"]},
            {"apiGroups": ["ray.io"], "resources": ["rayjobs"], "verbs": ["list", "watch"]},
        ]});
        let expect = ["get pods", "get pods/status", "list rayjobs.ray.io", "watch rayjobs.ray.io"];
        assert_eq!(permissions(&role), expect.map(str::to_owned).into());
    }
}
