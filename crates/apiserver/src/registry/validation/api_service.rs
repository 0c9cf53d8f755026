//! Validation of APIServices.

use serde_json::Value;

use crate::schema::FieldError;

/// Validates APIServices.
pub(in crate::registry) fn api_service(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    let text = |key: &str| spec[key].as_str().unwrap_or("");
    let wanted = format!("{}.{}", text("version"), text("group"));
    if new["metadata"]["name"] != wanted.as_str() {
        let why = format!("must be `spec.version+\".\"+spec.group`: {wanted:?}");
        errors.push(FieldError::invalid("metadata.name", &new["metadata"]["name"], &why));
    }
    if text("version").is_empty() {
        errors.push(FieldError::required("spec.version", ""));
    }
    for (key, most) in [("groupPriorityMinimum", 20_000), ("versionPriority", 1_000)] {
        if !spec[key].as_i64().is_some_and(|priority| priority > 0 && priority <= most) {
            let why = format!("must be positive and less than {most}");
            errors.push(FieldError::invalid(format!("spec.{key}"), &spec[key], &why));
        }
    }
    let service = &spec["service"];
    if service.is_object() {
        for key in ["namespace", "name"] {
            if service[key].as_str().unwrap_or("").is_empty() {
                errors.push(FieldError::required(format!("spec.service.{key}"), ""));
            }
        }
        if spec["insecureSkipTLSVerify"] == true && !text("caBundle").is_empty() {
            let why = "may not be true if caBundle is present";
            errors.push(FieldError::invalid("spec.insecureSkipTLSVerify", &true.into(), why));
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn names_and_priorities_are_checked() {
        let spec = json!({"group": "x.io", "version": "v1", "groupPriorityMinimum": 10, "versionPriority": 10});
        let check = |name: &str, change: Value, expect: &[&str]| {
            let mut spec = spec.clone();
            for (key, value) in change.as_object().into_iter().flatten() {
                spec[key] = value.clone();
            }
            let mut errors = Vec::new();
            api_service(&json!({"metadata": {"name": name}, "spec": spec}), None, &mut errors);
            assert_eq!(errors.iter().map(|error| error.field.as_str()).collect::<Vec<_>>(), expect, "{name} {change}");
        };
        check("v1.x.io", json!({}), &[]);
        check("x.io", json!({}), &["metadata.name"]);
        check("v1.x.io", json!({"versionPriority": 1001}), &["spec.versionPriority"]);
        check("v1.x.io", json!({"service": {"name": "s"}}), &["spec.service.namespace"]);
    }
}
