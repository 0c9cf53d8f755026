//! What a Job's `podFailurePolicy` says about a failed pod.

use serde_json::Value;

/// The action of the first rule that matches.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Action {
    /// The failure counts towards the limits, as without a policy.
    Count,
    /// The failure does not count.
    Ignore,
    /// The index of the pod has failed.
    FailIndex,
    /// The whole Job has failed, for this reason.
    FailJob(String),
}

/// Returns what a policy says about a failed pod.
pub(super) fn action(policy: &Value, pod: &Value) -> Action {
    for (index, rule) in policy["rules"].as_array().into_iter().flatten().enumerate() {
        let Some(matched) = matched(rule, pod) else { continue };
        return match rule["action"].as_str() {
            Some("Ignore") => Action::Ignore,
            Some("FailIndex") => Action::FailIndex,
            Some("FailJob") => Action::FailJob(format!("{matched} matching FailJob rule at index {index}")),
            _ => Action::Count,
        };
    }
    Action::Count
}

/// Returns what a rule matches, in words.
fn matched(rule: &Value, pod: &Value) -> Option<String> {
    let metadata = &pod["metadata"];
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let pod_name = format!("{}/{}", text(&metadata["namespace"]), text(&metadata["name"]));
    if rule["onExitCodes"].is_object() {
        let wanted = &rule["onExitCodes"];
        let lists = ["containerStatuses", "initContainerStatuses"];
        let statuses = lists.iter().flat_map(|list| pod["status"][*list].as_array().into_iter().flatten());
        let found = statuses
            .filter(|status| wanted["containerName"].is_null() || wanted["containerName"] == status["name"])
            .filter_map(|status| Some((text(&status["name"]), status["state"]["terminated"]["exitCode"].as_i64()?)))
            .find(|(_, code)| {
                let listed = wanted["values"].as_array().into_iter().flatten().any(|value| *value == *code);
                *code != 0 && listed == (wanted["operator"] == "In")
            });
        return found.map(|(name, code)| format!("Container {name} for pod {pod_name} failed with exit code {code}"));
    }
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    let patterns = || rule["onPodConditions"].as_array().into_iter().flatten();
    let fits = |condition: &&Value| {
        patterns().any(|pattern| {
            let status = pattern["status"].as_str().unwrap_or("True");
            pattern["type"] == condition["type"] && condition["status"] == status
        })
    };
    let found = conditions.into_iter().find(fits)?;
    Some(format!("Pod {pod_name} has condition {}", text(&found["type"])))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_first_matching_rule_decides() {
        let pod = |code: i64| {
            json!({"metadata": {"namespace": "n", "name": "p"}, "status": {
                "conditions": [{"type": "DisruptionTarget", "status": "True"}],
                "containerStatuses": [{"name": "c", "state": {"terminated": {"exitCode": code}}}]}})
        };
        let check = |rules: Value, code: i64, expect: Action| {
            assert_eq!(action(&json!({"rules": rules}), &pod(code)), expect, "{rules}");
        };
        let codes = |action: &str, operator: &str| json!({"action": action, "onExitCodes": {"operator": operator, "values": [3]}});
        let why = "Container c for pod n/p failed with exit code 3 matching FailJob rule at index 0".to_owned();
        check(json!([codes("FailJob", "In")]), 3, Action::FailJob(why));
        check(json!([codes("FailJob", "In")]), 4, Action::Count);
        check(json!([codes("FailIndex", "NotIn")]), 4, Action::FailIndex);
        check(json!([codes("FailIndex", "NotIn")]), 0, Action::Count);
        let disrupted = json!({"action": "Ignore", "onPodConditions": [{"type": "DisruptionTarget"}]});
        check(json!([codes("FailJob", "In"), disrupted]), 4, Action::Ignore);
    }
}
