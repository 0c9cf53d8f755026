//! What the kinds that make pods must look like.

use serde_json::Value;

use super::{immutable, pod};
use crate::schema::FieldError;
use crate::selector::{LabelRule, labels_match};
use crate::store::{Entry, ObjectKey};

/// Validates Deployments, ReplicaSets, StatefulSets and DaemonSets.
pub(in crate::registry) fn replicated(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    if spec["replicas"].as_i64().is_some_and(|replicas| replicas < 0) {
        let why = "must be greater than or equal to 0";
        errors.push(FieldError::invalid("spec.replicas", &spec["replicas"], why));
    }
    if spec["selector"].is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    }
    if spec["selector"].is_null() || !selects(&spec["selector"], &spec["template"]) {
        let why = "`selector` does not match template `labels`";
        let labels = &spec["template"]["metadata"]["labels"];
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, why));
    }
    pod::spec(&spec["template"]["spec"], "spec.template.spec", errors);
    immutable(new, old, "/spec/selector", errors);
}

fn selects(selector: &Value, template: &Value) -> bool {
    let entry = Entry::new(0, ObjectKey::new("", "").into(), template.clone());
    labels_match(&LabelRule::from_object(selector), &entry)
}

/// Validates Jobs.
pub(in crate::registry) fn job(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    for key in ["parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"] {
        if spec[key].as_i64().is_some_and(|number| number < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("spec.{key}"), &spec[key], why));
        }
    }
    pod::spec(&spec["template"]["spec"], "spec.template.spec", errors);
    let supported = ["OnFailure", "Never"];
    let policy = &spec["template"]["spec"]["restartPolicy"];
    if !supported.contains(&policy.as_str().unwrap_or("")) {
        let path = "spec.template.spec.restartPolicy";
        let why = "valid values: \"OnFailure\", \"Never\"";
        match policy.as_str() {
            Some("Always") | None => errors.push(FieldError::required(path, why)),
            Some(_) => errors.push(FieldError::not_supported(path, policy, &supported)),
        }
    }
    if new["spec"]["completionMode"] != "Indexed" {
        immutable(new, old, "/spec/completions", errors);
    }
    immutable(new, old, "/spec/selector", errors);
    immutable(new, old, "/spec/completionMode", errors);
    // A suspended job that has not started may still have its pods placed elsewhere.
    let movable = |value: &Value| value["spec"]["suspend"] == true && value["status"]["startTime"].is_null();
    if !old.is_some_and(movable) {
        immutable(new, old, "/spec/template", errors);
    }
}
