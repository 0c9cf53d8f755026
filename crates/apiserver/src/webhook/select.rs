//! Which webhooks care about a write.

use serde_json::Value;

use super::review::AdmissionRequest;
use crate::schema::condition_holds;
use crate::selector::{LabelRule, map_matches};

/// Returns whether a webhook matches a request; the error is a match condition that failed to evaluate.
pub(super) fn concerns(
    hook: &Value,
    request: &AdmissionRequest<'_>,
    object: &Value,
    old: &Value,
) -> Result<bool, String> {
    let named = names(&hook["rules"], hook["matchPolicy"] != "Exact", request);
    if !named || !selects(hook, request, object, old) {
        return Ok(false);
    }
    let conditions = hook["matchConditions"].as_array().into_iter().flatten();
    let request = request.review(&Value::Null, &Value::Null)["request"].take();
    let mut failure = None;
    for condition in conditions {
        let variables = [("object", object), ("oldObject", old), ("request", &request)];
        match condition_holds(condition["expression"].as_str().unwrap_or(""), &variables) {
            // A condition that is false outweighs others that fail to evaluate.
            Ok(false) => return Ok(false),
            Ok(true) => {}
            Err(why) => {
                failure =
                    Some(format!("matchCondition {} of webhook {} failed: {why}", condition["name"], hook["name"]));
            }
        }
    }
    failure.map_or(Ok(true), Err)
}

/// Returns whether one of some rules names the resource and operation of a request; an equivalent one in another version
/// of the same kind counts if `equivalent`.
pub(super) fn names(rules: &Value, equivalent: bool, request: &AdmissionRequest<'_>) -> bool {
    let resource = request.target.resource;
    rules.as_array().into_iter().flatten().any(|rule| {
        let version = has(&rule["apiVersions"], &resource.version)
            || (equivalent && request.versions.iter().any(|version| has(&rule["apiVersions"], version)));
        let named = rule["resourceNames"].as_array().filter(|names| !names.is_empty());
        has(&rule["operations"], request.operation.name())
            && has(&rule["apiGroups"], &resource.group)
            && version
            && has_resource(&rule["resources"], &resource.plural, request.subresource)
            && in_scope(&rule["scope"], resource.namespaced)
            && named.is_none_or(|names| names.iter().any(|name| name == request.target.name))
    })
}

/// Returns whether the selectors of a webhook or policy match the namespace and the labels of an object.
pub(super) fn selects(selectors: &Value, request: &AdmissionRequest<'_>, object: &Value, old: &Value) -> bool {
    namespace_matches(selectors, request, object, old) && labels_match(selectors, object, old)
}

fn has(list: &Value, wanted: &str) -> bool {
    list.as_array().into_iter().flatten().any(|one| one == "*" || one == wanted)
}

/// `pods`, `pods/status`, `pods/*`, `*/status`, `*`, `*/*`.
fn has_resource(list: &Value, plural: &str, subresource: Option<&str>) -> bool {
    list.as_array().into_iter().flatten().filter_map(Value::as_str).any(|one| {
        let (resource, below) = one.split_once('/').map_or((one, None), |(resource, below)| (resource, Some(below)));
        let below_matches = match (below, subresource) {
            (Some("*"), _) | (None, None) => true,
            (below, subresource) => below == subresource,
        };
        (resource == "*" || resource == plural) && below_matches
    })
}

fn in_scope(scope: &Value, namespaced: bool) -> bool {
    match scope.as_str() {
        Some("Namespaced") => namespaced,
        Some("Cluster") => !namespaced,
        _ => true,
    }
}

fn namespace_matches(hook: &Value, request: &AdmissionRequest<'_>, object: &Value, old: &Value) -> bool {
    let rules = LabelRule::from_object(&hook["namespaceSelector"]);
    let resource = request.target.resource;
    if &*resource.table == "namespaces" {
        let object = if object.is_null() { old } else { object };
        return map_matches(&rules, &object["metadata"]["labels"]);
    }
    // What is in no namespace is in none that a selector could leave out.
    !resource.namespaced || map_matches(&rules, &request.namespace_labels)
}

fn labels_match(hook: &Value, object: &Value, old: &Value) -> bool {
    let rules = LabelRule::from_object(&hook["objectSelector"]);
    rules.is_empty()
        || [object, old].iter().any(|one| !one.is_null() && map_matches(&rules, &one["metadata"]["labels"]))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn resources_are_named_with_their_subresources() {
        for (listed, subresource, expect) in [
            ("pods", None, true),
            ("pods", Some("status"), false),
            ("pods/status", Some("status"), true),
            ("pods/*", Some("status"), true),
            ("pods/*", None, true),
            ("*/status", Some("status"), true),
            ("*/status", None, false),
            ("*", None, true),
            ("*", Some("status"), false),
            ("*/*", Some("status"), true),
            ("nodes", None, false),
        ] {
            assert_eq!(has_resource(&json!([listed]), "pods", subresource), expect, "{listed} {subresource:?}");
        }
    }
}
