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
    let policy = &spec["template"]["spec"]["restartPolicy"];
    if policy != "Always" {
        errors.push(FieldError::not_supported("spec.template.spec.restartPolicy", policy, &["Always"]));
    }
    immutable(new, old, "/spec/selector", errors);
}

/// Validates CronJobs.
pub(in crate::registry) fn cron_job(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let schedule = &new["spec"]["schedule"];
    match schedule.as_str().unwrap_or("") {
        "" => errors.push(FieldError::required("spec.schedule", "")),
        text => {
            if let Some(why) = super::cron::error_of(text) {
                errors.push(FieldError::invalid("spec.schedule", schedule, &why));
            }
        }
    }
    job_spec(&new["spec"]["jobTemplate"]["spec"], "spec.jobTemplate.spec", errors);
}

/// What a Job may ask for that its controller does not do here, and must not silently ignore.
const UNSUPPORTED: &[&str] =
    &["podFailurePolicy", "successPolicy", "backoffLimitPerIndex", "maxFailedIndexes", "managedBy"];

fn job_spec(spec: &Value, path: &str, errors: &mut Vec<FieldError>) {
    for key in ["parallelism", "completions", "backoffLimit", "activeDeadlineSeconds", "ttlSecondsAfterFinished"] {
        if spec[key].as_i64().is_some_and(|number| number < 0) {
            let why = "must be greater than or equal to 0";
            errors.push(FieldError::invalid(format!("{path}.{key}"), &spec[key], why));
        }
    }
    for key in UNSUPPORTED.iter().filter(|key| !spec[**key].is_null()) {
        errors.push(FieldError::forbidden(format!("{path}.{key}"), "this server does not support it; leave it out"));
    }
    let mode = &spec["completionMode"];
    if !mode.is_null() && mode != "NonIndexed" {
        errors.push(FieldError::not_supported(format!("{path}.completionMode"), mode, &["NonIndexed"]));
    }
    pod::spec(&spec["template"]["spec"], &format!("{path}.template.spec"), errors);
    let supported = ["OnFailure", "Never"];
    let policy = &spec["template"]["spec"]["restartPolicy"];
    if !supported.contains(&policy.as_str().unwrap_or("")) {
        let path = format!("{path}.template.spec.restartPolicy");
        let why = "valid values: \"OnFailure\", \"Never\"";
        match policy.as_str() {
            Some("Always") | None => errors.push(FieldError::required(path, why)),
            Some(_) => errors.push(FieldError::not_supported(path, policy, &supported)),
        }
    }
}

fn selects(selector: &Value, template: &Value) -> bool {
    let entry = Entry::new(0, ObjectKey::new("", "").into(), template.clone());
    labels_match(&LabelRule::from_object(selector), &entry)
}

/// Validates Jobs.
pub(in crate::registry) fn job(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    job_spec(&new["spec"], "spec", errors);
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

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_the_job_controller_does_not_do_is_refused() {
        let fields = |extra: Value| {
            let mut job = json!({"spec": {"completionMode": "NonIndexed", "template": {"spec": {
                "restartPolicy": "Never", "dnsPolicy": "Default",
                "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always"}]}}}});
            for (key, value) in extra.as_object().into_iter().flatten() {
                job["spec"][key.as_str()] = value.clone();
            }
            let mut errors = Vec::new();
            super::job(&job, None, &mut errors);
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert!(fields(json!({})).is_empty());
        assert_eq!(fields(json!({"completionMode": "Indexed"})), ["spec.completionMode"]);
        assert_eq!(fields(json!({"podFailurePolicy": {"rules": []}})), ["spec.podFailurePolicy"]);
        assert_eq!(fields(json!({"successPolicy": {"rules": []}})), ["spec.successPolicy"]);
        assert_eq!(fields(json!({"backoffLimitPerIndex": 1})), ["spec.backoffLimitPerIndex"]);
    }

    #[test]
    fn replicated_pods_always_restart() {
        let set = json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": "Never", "dnsPolicy": "Default",
                "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always"}]}}}});
        let mut errors = Vec::new();
        replicated(&set, None, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""]
        );
    }
}
