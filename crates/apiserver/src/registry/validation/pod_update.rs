//! What may change of a pod: images, fewer scheduling gates, more tolerations, an earlier deadline.

use serde_json::Value;

use super::fields::indexed;
use crate::schema::FieldError;

/// Validates that only the mutable fields of a pod's spec change, and each only as it may.
pub(super) fn changes(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let (new, old) = (&new["spec"], &old["spec"]);
    let count = errors.len();
    deadline(&new["activeDeadlineSeconds"], &old["activeDeadlineSeconds"], errors);
    if errors.len() > count {
        return;
    }
    tolerations(&new["tolerations"], &old["tolerations"], errors);
    gates(&new["schedulingGates"], &old["schedulingGates"], errors);
    let gated = old["schedulingGates"].as_array().is_some_and(|gates| !gates.is_empty());
    if gated {
        node_selector(&new["nodeSelector"], &old["nodeSelector"], errors);
    }
    if errors.len() > count {
        return;
    }
    if frozen(new, old, gated) != frozen(old, old, gated) {
        let why = "pod updates may not change fields other than `spec.containers[*].image`,\
                   `spec.initContainers[*].image`,`spec.activeDeadlineSeconds`,`spec.tolerations` (only additions to \
                   existing tolerations),`spec.terminationGracePeriodSeconds` (allow it to be set to 1 if it was \
                   previously negative)";
        errors.push(FieldError::forbidden("spec", why));
    }
}

/// Returns a spec without the fields that may differ from `old`.
fn frozen(spec: &Value, old: &Value, gated: bool) -> Value {
    let mut spec = spec.clone();
    for list in ["containers", "initContainers"] {
        for container in spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            container.as_object_mut().map(|container| container.remove("image"));
        }
    }
    let Some(fields) = spec.as_object_mut() else { return spec };
    for key in ["activeDeadlineSeconds", "tolerations", "schedulingGates"] {
        fields.remove(key);
    }
    let grace = |spec: &Value| spec["terminationGracePeriodSeconds"].as_i64().unwrap_or(0);
    if grace(old) < 0 && fields.get("terminationGracePeriodSeconds").is_some_and(|seconds| *seconds == 1) {
        fields.insert("terminationGracePeriodSeconds".into(), old["terminationGracePeriodSeconds"].clone());
    }
    if gated {
        fields.remove("nodeSelector");
        if let Some(affinity) = fields.get_mut("affinity").and_then(Value::as_object_mut) {
            affinity.remove("nodeAffinity");
        }
        fields.retain(|key, value| key != "affinity" || value.as_object().is_some_and(|some| !some.is_empty()));
    }
    spec
}

fn deadline(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    const FIELD: &str = "spec.activeDeadlineSeconds";
    match (new.as_i64(), old.as_i64()) {
        (Some(seconds), Some(before)) if seconds > before => {
            errors.push(FieldError::invalid(FIELD, new, "must be less than or equal to previous value"));
        }
        (None, Some(_)) => {
            errors.push(FieldError::invalid(FIELD, new, "must not update from a positive integer to nil value"));
        }
        _ => {}
    }
}

/// Validates that every toleration stays; only how long it tolerates may change.
fn tolerations(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let but_seconds = |toleration: &Value| {
        let mut toleration = toleration.clone();
        toleration.as_object_mut().map(|fields| fields.remove("tolerationSeconds"));
        toleration
    };
    for (_, before) in indexed(old) {
        if !indexed(new).any(|(_, one)| but_seconds(one) == but_seconds(before)) {
            let why = "existing toleration can not be modified except its tolerationSeconds";
            errors.push(FieldError::forbidden("spec.tolerations", why));
        }
    }
}

fn gates(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    for (_, gate) in indexed(new) {
        if !indexed(old).any(|(_, known)| known["name"] == gate["name"]) {
            let name = gate["name"].as_str().unwrap_or("");
            let why = format!("only deletion is allowed, but found new scheduling gate '{name}'");
            errors.push(FieldError::forbidden("spec.schedulingGates", &why));
        }
    }
}

fn node_selector(new: &Value, old: &Value, errors: &mut Vec<FieldError>) {
    let mut labels = old.as_object().into_iter().flatten();
    if labels.any(|(key, value)| new[key.as_str()] != *value) {
        let why = "only additions are allowed (no mutations or deletions)";
        errors.push(FieldError::invalid("spec.nodeSelector", new, why));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn pods_change_only_in_some_ways() {
        let old = json!({"containers": [{"name": "a", "image": "b"}], "activeDeadlineSeconds": 10,
            "terminationGracePeriodSeconds": 30,
            "tolerations": [{"key": "k", "operator": "Exists", "tolerationSeconds": 5}],
            "schedulingGates": [{"name": "g"}], "nodeSelector": {"a": "b"}});
        let check = |key: &str, value: Value, expect: &str| {
            let mut new = old.clone();
            new[key] = value;
            new.as_object_mut().unwrap().retain(|_, value| !value.is_null());
            let mut errors = Vec::new();
            changes(&json!({"spec": new}), &json!({"spec": old}), &mut errors);
            assert!(errors.len() <= 1, "{errors:?}");
            let got = errors.first().map(ToString::to_string).unwrap_or_default();
            assert!(got.starts_with(expect) && got.is_empty() == expect.is_empty(), "{key}: {got}");
        };
        check("containers", json!([{"name": "a", "image": "c"}]), "");
        check("containers", json!([{"name": "c", "image": "b"}]), "spec: Forbidden: pod updates may not change");
        check("activeDeadlineSeconds", json!(9), "");
        check("activeDeadlineSeconds", json!(11), "spec.activeDeadlineSeconds: Invalid value: 11: must be less than");
        check("activeDeadlineSeconds", Value::Null, "spec.activeDeadlineSeconds: Invalid value: ");
        check("terminationGracePeriodSeconds", json!(1), "spec: Forbidden: pod updates may not change");
        check("tolerations", json!([]), "spec.tolerations: Forbidden: existing toleration");
        check("tolerations", json!([{"key": "l", "operator": "Exists"}]), "spec.tolerations: Forbidden: existing");
        check(
            "tolerations",
            json!([{"key": "l", "operator": "Exists"}, {"key": "k", "operator": "Exists", "tolerationSeconds": 1}]),
            "",
        );
        check("schedulingGates", json!([]), "");
        check(
            "schedulingGates",
            json!([{"name": "g"}, {"name": "h"}]),
            "spec.schedulingGates: Forbidden: only deletion is allowed, but found new scheduling gate 'h'",
        );
        check("nodeSelector", json!({"a": "b", "c": "d"}), "");
        check("nodeSelector", json!({"a": "c"}), "spec.nodeSelector: Invalid value: ");
        check("affinity", json!({"nodeAffinity": {}}), "");
        check("affinity", json!({"podAffinity": {"x": 1}}), "spec: Forbidden: pod updates may not change");
    }
}
