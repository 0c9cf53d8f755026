//! Validation of autoscalers.

use serde_json::Value;

use crate::schema::FieldError;

/// Validates autoscalers, in their stored form.
pub(in crate::registry) fn autoscaler(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    for key in ["kind", "name"] {
        if spec["scaleTargetRef"][key].as_str().unwrap_or("").is_empty() {
            errors.push(FieldError::required(format!("spec.scaleTargetRef.{key}"), ""));
        }
    }
    let (least, most) = (&spec["minReplicas"], &spec["maxReplicas"]);
    if least.as_i64().is_some_and(|least| least < 1) {
        errors.push(FieldError::invalid("spec.minReplicas", least, "must be greater than or equal to 1"));
    }
    if most.as_i64().unwrap_or(0) < 1 {
        errors.push(FieldError::invalid("spec.maxReplicas", most, "must be greater than 0"));
    }
    if most.as_i64().unwrap_or(0) < least.as_i64().unwrap_or(1) {
        let why = "must be greater than or equal to `minReplicas`";
        errors.push(FieldError::invalid("spec.maxReplicas", most, why));
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn replicas_have_an_order_and_a_target() {
        let target = json!({"kind": "Deployment", "name": "d"});
        let check = |spec: Value, expect: &[&str]| {
            let mut errors = Vec::new();
            autoscaler(&json!({"spec": spec}), None, &mut errors);
            assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), expect, "{spec}");
        };
        check(json!({"scaleTargetRef": target, "minReplicas": 1, "maxReplicas": 2}), &[]);
        check(json!({"scaleTargetRef": target, "minReplicas": 3, "maxReplicas": 2}), &["spec.maxReplicas"]);
        check(json!({"scaleTargetRef": target, "minReplicas": 0, "maxReplicas": 2}), &["spec.minReplicas"]);
        check(json!({"maxReplicas": 2}), &["spec.scaleTargetRef.kind", "spec.scaleTargetRef.name"]);
    }
}
