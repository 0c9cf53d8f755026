//! Validation of the kinds that keep a number of pods.

use serde_json::{Value, json};

use super::fields::{indexed, is_empty_selector, join, named, non_negative, number_or_percent, selector, text};
use super::{immutable, pod};
use crate::names;
use crate::schema::FieldError;
use crate::selector::{LabelRule, labels_match};
use crate::store::{Entry, ObjectKey};

/// Validates Deployments.
pub(in crate::registry) fn deployment(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    non_negative(spec, &["replicas"], "spec", errors);
    selected_template(spec, old, new, errors);
    let (strategy, field) = (&spec["strategy"], "spec.strategy");
    match text(&strategy["type"]) {
        "Recreate" if !strategy["rollingUpdate"].is_null() => {
            let why = "may not be specified when strategy `type` is 'Recreate'";
            errors.push(FieldError::forbidden(format!("{field}.rollingUpdate"), why));
        }
        "RollingUpdate" => rolling_update(&strategy["rollingUpdate"], &format!("{field}.rollingUpdate"), errors),
        "Recreate" => {}
        _ => {
            let supported = ["Recreate", "RollingUpdate"];
            errors.push(FieldError::not_supported(field, &strategy["type"], &supported));
        }
    }
    non_negative(spec, &["minReadySeconds", "revisionHistoryLimit"], "spec", errors);
    let deadline = &spec["progressDeadlineSeconds"];
    non_negative(spec, &["progressDeadlineSeconds"], "spec", errors);
    if let Some(seconds) = deadline.as_i64()
        && seconds <= spec["minReadySeconds"].as_i64().unwrap_or(0)
    {
        errors.push(FieldError::invalid(
            "spec.progressDeadlineSeconds",
            deadline,
            "must be greater than minReadySeconds",
        ));
    }
}

fn rolling_update(rolling: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let (unavailable, surge) = (&rolling["maxUnavailable"], &rolling["maxSurge"]);
    number_or_percent(unavailable, &format!("{path}.maxUnavailable"), None, errors);
    number_or_percent(surge, &format!("{path}.maxSurge"), None, errors);
    if is_zero(unavailable) && is_zero(surge) {
        let why = "may not be 0 when `maxSurge` is 0";
        errors.push(FieldError::invalid(format!("{path}.maxUnavailable"), unavailable, why));
    }
    let over =
        unavailable.as_str().and_then(|share| share.strip_suffix('%')).and_then(|share| share.parse::<i64>().ok());
    if over.is_some_and(|share| share > 100) {
        errors.push(FieldError::invalid(
            format!("{path}.maxUnavailable"),
            unavailable,
            "must not be greater than 100%",
        ));
    }
}

fn is_zero(value: &Value) -> bool {
    *value == 0 || value == "0%" || value.is_null()
}

/// Validates the selector and the template, which must fit.
fn selected_template(spec: &Value, old: Option<&Value>, new: &Value, errors: &mut Vec<FieldError>) {
    if spec["selector"].is_null() {
        errors.push(FieldError::required("spec.selector", ""));
    } else {
        selector(&spec["selector"], "spec.selector", errors);
        if is_empty_selector(&spec["selector"]) {
            let shown = &spec["selector"];
            errors.push(FieldError::invalid("spec.selector", shown, "empty selector is invalid for deployment"));
        }
    }
    let unfit =
        || spec["selector"].is_null() || !selects(&LabelRule::from_object(&spec["selector"]), &spec["template"]);
    if unfit() {
        let why = "`selector` does not match template `labels`";
        let labels = &spec["template"]["metadata"]["labels"];
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, why));
    }
    template(&spec["template"], "spec.template", errors);
    immutable(new, old, "/spec/selector", errors);
}

/// Validates a template whose pods run for good.
fn template(template: &Value, path: &str, errors: &mut Vec<FieldError>) {
    any_template(template, path, errors);
    let policy = &template["spec"]["restartPolicy"];
    if policy != "Always" {
        errors.push(FieldError::not_supported(format!("{path}.spec.restartPolicy"), policy, &["Always"]));
    }
    if !template["spec"]["activeDeadlineSeconds"].is_null() {
        let why = "activeDeadlineSeconds in ReplicaSet is not Supported";
        errors.push(FieldError::forbidden(format!("{path}.spec.activeDeadlineSeconds"), why));
    }
}

/// Validates what holds for the template of whatever makes pods.
pub(super) fn any_template(template: &Value, path: &str, errors: &mut Vec<FieldError>) {
    template_metadata(template, path, errors);
    pod::spec(&template["spec"], &format!("{path}.spec"), errors);
    if template["spec"]["ephemeralContainers"].as_array().is_some_and(|list| !list.is_empty()) {
        let why = "ephemeral containers not allowed in pod template";
        errors.push(FieldError::forbidden(format!("{path}.spec.ephemeralContainers"), why));
    }
}

/// Validates labels and annotations of a template.
fn template_metadata(template: &Value, path: &str, errors: &mut Vec<FieldError>) {
    if let Some(labels) = template["metadata"]["labels"].as_object() {
        names::check_labels(labels, &join(path, "labels"), errors);
    }
    for key in template["metadata"]["annotations"].as_object().into_iter().flatten().map(|(key, _)| key) {
        let faults = names::label_key_faults(&key.to_lowercase());
        errors.extend(faults.iter().map(|why| FieldError::invalid(join(path, "annotations"), &json!(key), why)));
    }
}

fn selects(rules: &[LabelRule], template: &Value) -> bool {
    let entry = Entry::new(0, ObjectKey::new("", "").into(), template.clone());
    labels_match(rules, &entry)
}

/// Validates ReplicaSets.
pub(in crate::registry) fn replica_set(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    non_negative(&new["spec"], &["replicas", "minReadySeconds"], "spec", errors);
    selected_template(&new["spec"], old, new, errors);
}

/// Validates StatefulSets.
pub(in crate::registry) fn stateful_set(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    if !matches!(text(&spec["podManagementPolicy"]), "OrderedReady" | "Parallel") {
        let why = "must be 'OrderedReady' or 'Parallel'";
        errors.push(FieldError::invalid("spec.podManagementPolicy", &spec["podManagementPolicy"], why));
    }
    let strategy = &spec["updateStrategy"];
    match text(&strategy["type"]) {
        "OnDelete" => {
            if !strategy["rollingUpdate"].is_null() {
                let why = "only allowed for updateStrategy 'RollingUpdate'";
                errors.push(FieldError::invalid("spec.updateStrategy.rollingUpdate", &strategy["rollingUpdate"], why));
            }
        }
        "RollingUpdate" => {
            non_negative(&strategy["rollingUpdate"], &["partition"], "spec.updateStrategy.rollingUpdate", errors)
        }
        _ => {
            let why = "must be 'RollingUpdate' or 'OnDelete'";
            errors.push(FieldError::invalid("spec.updateStrategy", strategy, why));
        }
    }
    for key in ["whenDeleted", "whenScaled"] {
        let policy = &spec["persistentVolumeClaimRetentionPolicy"][key];
        if !policy.is_null() && !["Delete", "Retain"].contains(&text(policy)) {
            let field = format!("spec.persistentVolumeClaimRetentionPolicy.{key}");
            errors.push(FieldError::not_supported(field, policy, &["Retain", "Delete"]));
        }
    }
    non_negative(&spec["ordinals"], &["start"], "spec.ordinals", errors);
    named(&spec["serviceName"], "spec.serviceName", names::label, errors);
    non_negative(spec, &["replicas", "minReadySeconds", "revisionHistoryLimit"], "spec", errors);
    selected_template(spec, None, new, errors);
    let Some(old) = old else { return };
    let frozen = |set: &Value| {
        let mut spec = set["spec"].clone();
        for key in [
            "replicas",
            "ordinals",
            "template",
            "updateStrategy",
            "revisionHistoryLimit",
            "persistentVolumeClaimRetentionPolicy",
            "minReadySeconds",
        ] {
            spec.as_object_mut().map(|spec| spec.remove(key));
        }
        spec
    };
    if frozen(new) != frozen(old) {
        let why = "updates to statefulset spec for fields other than 'replicas', 'ordinals', 'template', \
                   'updateStrategy', 'revisionHistoryLimit', 'persistentVolumeClaimRetentionPolicy' and \
                   'minReadySeconds' are forbidden";
        errors.push(FieldError::forbidden("spec", why));
    }
}

/// Validates DaemonSets.
pub(in crate::registry) fn daemon_set(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    selected_template(spec, old, new, errors);
    non_negative(spec, &["minReadySeconds", "revisionHistoryLimit"], "spec", errors);
    let strategy = &spec["updateStrategy"];
    match text(&strategy["type"]) {
        "OnDelete" => {}
        "RollingUpdate" => {
            let (rolling, path) = (&strategy["rollingUpdate"], "spec.updateStrategy.rollingUpdate");
            number_or_percent(&rolling["maxUnavailable"], &format!("{path}.maxUnavailable"), Some(100), errors);
            number_or_percent(&rolling["maxSurge"], &format!("{path}.maxSurge"), Some(100), errors);
            match (is_zero(&rolling["maxUnavailable"]), is_zero(&rolling["maxSurge"])) {
                (true, true) => {
                    errors
                        .push(FieldError::required(format!("{path}.maxUnavailable"), "cannot be 0 when maxSurge is 0"));
                }
                (false, false) => {
                    let why = "may not be set when maxUnavailable is non-zero";
                    errors.push(FieldError::invalid(format!("{path}.maxSurge"), &rolling["maxSurge"], why));
                }
                _ => {}
            }
        }
        _ => {
            let supported = ["OnDelete", "RollingUpdate"];
            errors.push(FieldError::not_supported("spec.updateStrategy.type", &strategy["type"], &supported));
        }
    }
}

/// Validates ReplicationControllers.
pub(in crate::registry) fn replication_controller(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    non_negative(spec, &["minReadySeconds"], "spec", errors);
    let selected = spec["selector"].as_object().is_some_and(|labels| !labels.is_empty());
    if !selected {
        errors.push(FieldError::required("spec.selector", ""));
    }
    non_negative(spec, &["replicas"], "spec", errors);
    if spec["template"].is_null() {
        return errors.push(FieldError::required("spec.template", ""));
    }
    if selected && !selects(&LabelRule::from_map(&spec["selector"]), &spec["template"]) {
        let why = "`selector` does not match template `labels`";
        let labels = &spec["template"]["metadata"]["labels"];
        errors.push(FieldError::invalid("spec.template.metadata.labels", labels, why));
    }
    template(&spec["template"], "spec.template", errors);
}

/// Validates PodTemplates.
pub(in crate::registry) fn pod_template(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    any_template(&new["template"], "template", errors);
}

/// Validates ControllerRevisions.
pub(in crate::registry) fn controller_revision(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    non_negative(new, &["revision"], "", errors);
    if new["data"].is_null() {
        errors.push(FieldError::required("data", "data is mandatory"));
    }
    immutable(new, old, "/data", errors);
}

/// Validates the numbers in the status of a Deployment, a ReplicaSet or a ReplicationController.
pub(in crate::registry) fn replicas_status(new: &Value, _: &Value, errors: &mut Vec<FieldError>) {
    let status = &new["status"];
    let numbers = [
        "observedGeneration",
        "replicas",
        "updatedReplicas",
        "fullyLabeledReplicas",
        "readyReplicas",
        "availableReplicas",
        "unavailableReplicas",
        "collisionCount",
    ];
    non_negative(status, &numbers, "status", errors);
    let number = |key: &str| status[key].as_i64().unwrap_or(0);
    for key in ["updatedReplicas", "fullyLabeledReplicas", "readyReplicas", "availableReplicas"] {
        if number(key) > number("replicas") {
            errors.push(FieldError::invalid(
                format!("status.{key}"),
                &status[key],
                "cannot be greater than status.replicas",
            ));
        }
    }
    if number("availableReplicas") > number("readyReplicas") {
        let why = "cannot be greater than readyReplicas";
        errors.push(FieldError::invalid("status.availableReplicas", &status["availableReplicas"], why));
    }
}

/// Validates the replicas that a scale asks for.
pub(crate) fn scale(scale: &Value, errors: &mut Vec<FieldError>) {
    non_negative(&scale["spec"], &["replicas"], "spec", errors);
}

/// Validates nodes.
pub(in crate::registry) fn node(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    // The real server names the wrong parent.
    super::scheduling::taints(&new["spec"]["taints"], "metadata.taints", errors);
    let single = &new["spec"]["podCIDR"];
    for (index, range) in indexed(&new["spec"]["podCIDRs"]) {
        super::fields::cidr(range, &format!("spec.podCIDRs[{index}]"), errors);
    }
    if !text(single).is_empty() && new["spec"]["podCIDRs"].is_null() {
        super::fields::cidr(single, "spec.podCIDRs[0]", errors);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn set(policy: &str) -> Value {
        json!({"spec": {"selector": {"matchLabels": {"a": "b"}}, "template": {
            "metadata": {"labels": {"a": "b"}}, "spec": {"restartPolicy": policy, "dnsPolicy": "Default",
                "containers": [{"name": "c", "image": "i", "imagePullPolicy": "Always"}]}}}})
    }

    #[test]
    fn replicated_pods_always_restart() {
        let mut errors = Vec::new();
        replica_set(&set("Never"), None, &mut errors);
        let texts: Vec<String> = errors.iter().map(ToString::to_string).collect();
        assert_eq!(
            texts,
            ["spec.template.spec.restartPolicy: Unsupported value: \"Never\": supported values: \"Always\""]
        );
    }

    #[test]
    fn a_rollout_must_be_able_to_move() {
        let mut deployment = set("Always");
        deployment["spec"]["strategy"] =
            json!({"type": "RollingUpdate", "rollingUpdate": {"maxSurge": 0, "maxUnavailable": 0}});
        let mut errors = Vec::new();
        super::deployment(&deployment, None, &mut errors);
        assert_eq!(errors.len(), 1, "{errors:?}");
        assert_eq!(errors[0].field, "spec.strategy.rollingUpdate.maxUnavailable");
    }

    #[test]
    fn more_pods_cannot_be_ready_than_there_are() {
        let mut errors = Vec::new();
        replicas_status(&json!({"status": {"replicas": 1, "readyReplicas": 2}}), &Value::Null, &mut errors);
        assert_eq!(errors.len(), 1, "{errors:?}");
    }
}
