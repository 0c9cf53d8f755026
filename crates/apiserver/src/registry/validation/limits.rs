//! Validation of quotas, limits, budgets, priorities, roles and leases.

use manta_quantity::Quantity;
use serde_json::{Value, json};

use super::fields::{indexed, named, non_negative, number_or_percent, one_of, quantity, required, selector, text};
use super::immutable;
use crate::names;
use crate::schema::FieldError;

/// The resources that a quota may limit besides those with a prefix.
const QUOTA_RESOURCES: &[&str] = &[
    "configmaps",
    "cpu",
    "ephemeral-storage",
    "limits.cpu",
    "limits.ephemeral-storage",
    "limits.memory",
    "memory",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "requests.cpu",
    "requests.ephemeral-storage",
    "requests.memory",
    "requests.storage",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
/// Those that are counted, so that fractions make no sense.
const WHOLE: &[&str] = &[
    "configmaps",
    "persistentvolumeclaims",
    "pods",
    "replicationcontrollers",
    "resourcequotas",
    "secrets",
    "services",
    "services.loadbalancers",
    "services.nodeports",
];
const SCOPES: &[&str] = &[
    "BestEffort",
    "CrossNamespacePodAffinity",
    "NotBestEffort",
    "NotTerminating",
    "PriorityClass",
    "Terminating",
    "VolumeAttributesClass",
];

/// Validates resource quotas.
pub(in crate::registry) fn quota(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    for (name, value) in spec["hard"].as_object().into_iter().flatten() {
        let field = format!("spec.hard[{name}]");
        let faults = names::label_key_faults(name);
        errors.extend(faults.iter().map(|why| FieldError::invalid(field.as_str(), &json!(name), why)));
        let prefixed =
            name.contains('/') || ["hugepages-", "requests.hugepages-"].iter().any(|prefix| name.starts_with(prefix));
        if faults.is_empty() && !prefixed && !QUOTA_RESOURCES.contains(&name.as_str()) {
            let why = "must be a standard resource for quota";
            errors.push(FieldError::invalid(field.as_str(), &json!(name), why));
        }
        let Some(amount) = quantity(value) else { continue };
        if amount.is_negative() {
            errors.push(FieldError::invalid(field.as_str(), value, "must be greater than or equal to 0"));
        }
        if (WHOLE.contains(&name.as_str()) || name.starts_with("count/")) && amount.milli_value() % 1000 != 0 {
            errors.push(FieldError::invalid(field, value, "must be an integer"));
        }
    }
    let hard: Vec<&str> = spec["hard"].as_object().into_iter().flatten().map(|(name, _)| name.as_str()).collect();
    for (_, scope) in indexed(&spec["scopes"]) {
        if !SCOPES.contains(&text(scope)) {
            errors.push(FieldError::invalid("spec.scopes", &spec["scopes"], "unsupported scope"));
        } else if scope == "BestEffort" && hard.iter().any(|name| *name != "pods") {
            errors.push(FieldError::invalid("spec.scopes", &spec["scopes"], "unsupported scope applied to resource"));
        }
    }
    let opposite = [("BestEffort", "NotBestEffort"), ("Terminating", "NotTerminating")];
    let has = |wanted: &str| spec["scopes"].as_array().into_iter().flatten().any(|scope| scope == wanted);
    for (one, other) in opposite {
        if has(one) && has(other) {
            errors.push(FieldError::invalid("spec.scopes", &spec["scopes"], "conflicting scopes"));
        }
    }
    for (_, term) in indexed(&spec["scopeSelector"]["matchExpressions"]) {
        let field = "spec.scopeSelector.matchExpressions";
        if !SCOPES.contains(&text(&term["scopeName"])) {
            errors.push(FieldError::invalid(format!("{field}.scopeName"), &term["scopeName"], "unsupported scope"));
        }
        let values = term["values"].as_array().map_or(0, Vec::len);
        match text(&term["operator"]) {
            "In" | "NotIn" if values == 0 => {
                let why = "must be atleast one value when `operator` is 'In' or 'NotIn' for scope selector";
                errors.push(FieldError::required(format!("{field}.values"), why));
            }
            "Exists" | "DoesNotExist" if values > 0 => {
                let why = "must be no value when `operator` is 'Exist' or 'DoesNotExist' for scope selector";
                errors.push(FieldError::invalid(format!("{field}.values"), &term["values"], why));
            }
            "In" | "NotIn" | "Exists" | "DoesNotExist" => {}
            _ => errors.push(FieldError::invalid(
                format!("{field}.operator"),
                &term["operator"],
                "not a valid selector operator",
            )),
        }
    }
    immutable(new, old, "/spec/scopes", errors);
}

/// Validates limit ranges.
pub(in crate::registry) fn limit_range(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let mut seen: Vec<&str> = Vec::new();
    for (index, limit) in indexed(&new["spec"]["limits"]) {
        let path = format!("spec.limits[{index}]");
        let kind = text(&limit["type"]);
        if !matches!(kind, "Container" | "Pod" | "PersistentVolumeClaim") {
            if let Some(why) = names::label_key(kind) {
                errors.push(FieldError::invalid(format!("{path}.type"), &limit["type"], &why));
            } else if !kind.contains('/') {
                let why = "must be a standard limit type or fully qualified";
                errors.push(FieldError::invalid(format!("{path}.type"), &limit["type"], why));
            }
        }
        if seen.contains(&kind) {
            errors.push(FieldError::duplicate(format!("{path}.type"), &limit["type"]));
        }
        seen.push(kind);
        if kind == "Pod" {
            for key in ["default", "defaultRequest"] {
                if limit[key].as_object().is_some_and(|map| !map.is_empty()) {
                    let why = "may not be specified when `type` is 'Pod'";
                    errors.push(FieldError::forbidden(format!("{path}.{key}"), why));
                }
            }
        }
        bounds(limit, &path, errors);
    }
}

fn bounds(limit: &Value, path: &str, errors: &mut Vec<FieldError>) {
    let lists = ["min", "max", "default", "defaultRequest", "maxLimitRequestRatio"];
    let mut names: Vec<&str> = lists
        .iter()
        .flat_map(|list| limit[*list].as_object().into_iter().flatten())
        .map(|(name, _)| name.as_str())
        .collect();
    names.sort_unstable();
    names.dedup();
    for name in names {
        let of = |list: &str| quantity(&limit[list][name]);
        let mut compare = |low: (&str, &str), high: (&str, &str)| {
            if let (Some(less), Some(more)) = (of(low.0), of(high.0))
                && less > more
            {
                let bound = if low.0 == "defaultRequest" && high.0 == "default" { "default limit" } else { high.1 };
                let why = format!("{} value {less} is greater than {bound} value {more}", low.1);
                errors.push(FieldError::invalid(format!("{path}.{}[{name}]", low.0), &limit[low.0][name], &why));
            }
        };
        let (min, max) = (("min", "min"), ("max", "max"));
        let (default, request) = (("default", "default"), ("defaultRequest", "default request"));
        compare(min, max);
        compare(min, request);
        compare(request, max);
        compare(request, default);
        compare(min, default);
        compare(default, max);
        if of("maxLimitRequestRatio").is_some_and(|ratio| ratio < Quantity::from(1)) {
            let why = format!("ratio {} is less than 1", text(&limit["maxLimitRequestRatio"][name]));
            let field = format!("{path}.maxLimitRequestRatio[{name}]");
            errors.push(FieldError::invalid(field, &limit["maxLimitRequestRatio"][name], &why));
        }
    }
}

/// Validates disruption budgets.
pub(in crate::registry) fn disruption_budget(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    if !spec["minAvailable"].is_null() && !spec["maxUnavailable"].is_null() {
        let why = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid("spec", spec, why));
    }
    for key in ["minAvailable", "maxUnavailable"] {
        number_or_percent(&spec[key], &format!("spec.{key}"), Some(100), errors);
    }
    selector(&spec["selector"], "spec.selector", errors);
    let policies = ["AlwaysAllow", "IfHealthyBudget"];
    one_of(&spec["unhealthyPodEvictionPolicy"], "spec.unhealthyPodEvictionPolicy", &policies, errors);
}

/// Validates priority classes.
pub(in crate::registry) fn priority_class(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let name = text(&new["metadata"]["name"]);
    if name.starts_with("system-") && !matches!(name, "system-node-critical" | "system-cluster-critical") {
        let why = format!(
            "priority class names with 'system-' prefix are reserved for system use only. error: {name} is not a known \
             system priority class"
        );
        errors.push(FieldError::forbidden("metadata.name", &why));
    }
    if new["value"].as_i64().is_some_and(|value| value > 1_000_000_000) && !name.starts_with("system-") {
        let why = "maximum allowed value of a user defined priority is 1000000000";
        errors.push(FieldError::forbidden("value", why));
    }
    one_of(&new["preemptionPolicy"], "preemptionPolicy", &["PreemptLowerPriority", "Never"], errors);
    let Some(old) = old else { return };
    if old["value"] != new["value"] {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    immutable(new, Some(old), "/preemptionPolicy", errors);
}

/// Validates leases.
pub(in crate::registry) fn lease(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let seconds = &new["spec"]["leaseDurationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
    non_negative(&new["spec"], &["leaseTransitions"], "spec", errors);
}

/// Validates roles.
pub(in crate::registry) fn role(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let namespaced = new["kind"] == "Role";
    for (index, rule) in indexed(&new["rules"]) {
        let path = format!("rules[{index}]");
        let none = |key: &str| rule[key].as_array().is_none_or(Vec::is_empty);
        if none("verbs") {
            errors.push(FieldError::required(format!("{path}.verbs"), "verbs must contain at least one value"));
        }
        if !none("nonResourceURLs") {
            if namespaced {
                let why = "namespaced rules cannot apply to non-resource URLs";
                errors.push(FieldError::invalid(format!("{path}.nonResourceURLs"), &rule["nonResourceURLs"], why));
            }
            if !none("apiGroups") || !none("resources") || !none("resourceNames") {
                let why = "rules cannot apply to both regular resources and non-resource URLs";
                errors.push(FieldError::invalid(format!("{path}.nonResourceURLs"), &rule["nonResourceURLs"], why));
            }
            continue;
        }
        if none("apiGroups") {
            let why = "resource rules must supply at least one api group";
            errors.push(FieldError::required(format!("{path}.apiGroups"), why));
        }
        if none("resources") {
            let why = "resource rules must supply at least one resource";
            errors.push(FieldError::required(format!("{path}.resources"), why));
        }
    }
}

/// Validates role bindings.
pub(in crate::registry) fn binding(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    const GROUP: &str = "rbac.authorization.k8s.io";
    let role = &new["roleRef"];
    if old.is_some_and(|old| old["roleRef"] != *role) {
        let shown = json!({"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]});
        errors.push(FieldError::invalid("roleRef", &shown, "cannot change roleRef"));
    }
    if text(&role["apiGroup"]) != GROUP {
        errors.push(FieldError::not_supported("roleRef.apiGroup", &role["apiGroup"], &[GROUP]));
    }
    let kinds: &[&str] = if new["kind"] == "RoleBinding" { &["Role", "ClusterRole"] } else { &["ClusterRole"] };
    if !kinds.contains(&text(&role["kind"])) {
        errors.push(FieldError::not_supported("roleRef.kind", &json!(text(&role["kind"])), kinds));
    }
    match text(&role["name"]) {
        "" => errors.push(FieldError::required("roleRef.name", "")),
        name => {
            if let Some(why) = names::NameRule::Path.refuse(name) {
                errors.push(FieldError::invalid("roleRef.name", &role["name"], &why));
            }
        }
    }
    for (index, subject) in indexed(&new["subjects"]) {
        let path = format!("subjects[{index}]");
        required(&subject["name"], format!("{path}.name"), errors);
        match text(&subject["kind"]) {
            "ServiceAccount" => {
                named(&subject["name"], format!("{path}.name"), names::subdomain, errors);
                if !text(&subject["apiGroup"]).is_empty() {
                    errors.push(FieldError::not_supported(format!("{path}.apiGroup"), &subject["apiGroup"], &[""]));
                }
                // In a RoleBinding the account may be one of the binding's own namespace.
                if text(&subject["namespace"]).is_empty() && new["kind"] != "RoleBinding" {
                    errors.push(FieldError::required(format!("{path}.namespace"), ""));
                }
            }
            "User" | "Group" => {
                if text(&subject["apiGroup"]) != GROUP {
                    errors.push(FieldError::not_supported(format!("{path}.apiGroup"), &subject["apiGroup"], &[GROUP]));
                }
            }
            _ => {
                let known = ["ServiceAccount", "User", "Group"];
                errors.push(FieldError::not_supported(format!("{path}.kind"), &subject["kind"], &known));
            }
        }
    }
}

/// Validates storage classes.
pub(in crate::registry) fn storage_class(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    let provisioner = &new["provisioner"];
    match text(provisioner) {
        "" => errors.push(FieldError::required("provisioner", "")),
        name => {
            let faults = names::label_key_faults(&name.to_lowercase());
            errors.extend(faults.iter().map(|why| FieldError::invalid("provisioner", provisioner, why)));
        }
    }
    if new["parameters"].as_object().is_some_and(|map| map.contains_key("")) {
        errors.push(FieldError::invalid("parameters", &json!(""), "field can not be empty."));
    }
    one_of(&new["reclaimPolicy"], "reclaimPolicy", &["Delete", "Retain"], errors);
    one_of(&new["volumeBindingMode"], "volumeBindingMode", &["Immediate", "WaitForFirstConsumer"], errors);
    let Some(old) = old else { return };
    for (key, why) in [
        ("parameters", "updates to parameters are forbidden."),
        ("provisioner", "updates to provisioner are forbidden."),
        ("reclaimPolicy", "updates to reclaimPolicy are forbidden."),
    ] {
        if old[key] != new[key] {
            errors.push(FieldError::forbidden(key, why));
        }
    }
    immutable(new, Some(old), "/volumeBindingMode", errors);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_must_not_contradict_each_other() {
        let range = json!({"spec": {"limits": [{"type": "Container", "min": {"cpu": "2"}, "max": {"cpu": "1"}}]}});
        let mut errors = Vec::new();
        limit_range(&range, None, &mut errors);
        assert_eq!(
            errors.iter().map(ToString::to_string).collect::<Vec<_>>(),
            [r#"spec.limits[0].min[cpu]: Invalid value: "2": min value 2 is greater than max value 1"#]
        );
    }

    #[test]
    fn quotas_limit_what_exists() {
        let fields = |hard: Value| {
            let mut errors = Vec::new();
            quota(&json!({"spec": {"hard": hard}}), None, &mut errors);
            errors.into_iter().map(|error| error.field).collect::<Vec<_>>()
        };
        assert!(fields(json!({"pods": "5", "count/deployments.apps": "1", "requests.nvidia.com/gpu": "1"})).is_empty());
        assert_eq!(fields(json!({"odd": "1"})), ["spec.hard[odd]"]);
        assert_eq!(fields(json!({"pods": "1.5"})), ["spec.hard[pods]"]);
    }
}
