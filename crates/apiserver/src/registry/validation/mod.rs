//! Validation of the built-in kinds.
//!
//! The real server checks more. These are the checks whose absence would let a broken object in, or
//! whose message people and programs look for.

mod cron;
pub(super) mod pod;
pub(super) mod service;
pub(super) mod volume;
pub(super) mod workload;

use serde_json::Value;

use crate::schema::FieldError;

/// The largest content of a ConfigMap or Secret, in bytes.
const MAX_DATA: usize = 1 << 20;

/// Validates nothing beyond the schema.
pub(super) fn none(_: &Value, _: Option<&Value>, _: &mut Vec<FieldError>) {}

/// Validates that a field does not change.
fn immutable(new: &Value, old: Option<&Value>, pointer: &str, errors: &mut Vec<FieldError>) {
    let Some(old) = old else { return };
    let (new, old) = (new.pointer(pointer).unwrap_or(&Value::Null), old.pointer(pointer).unwrap_or(&Value::Null));
    if new != old {
        let field = pointer.trim_start_matches('/').replace('/', ".");
        errors.push(FieldError::invalid(field, new, "field is immutable"));
    }
}

/// Validates ConfigMaps and Secrets.
pub(super) fn data(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    for list in ["data", "binaryData"] {
        for key in new[list].as_object().into_iter().flatten().map(|(key, _)| key) {
            let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
            if key.is_empty() || key.len() > 253 || !key.bytes().all(fine) {
                let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. \
                           'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
                errors.push(FieldError::invalid(format!("{list}[{key}]"), &key.as_str().into(), why));
            }
        }
    }
    let sizes = ["data", "binaryData"].iter().flat_map(|list| new[*list].as_object().into_iter().flatten());
    let size: usize = sizes.map(|(_, value)| value.as_str().map_or(0, str::len)).sum();
    // Base64 takes four bytes for three.
    let limit = if new["kind"] == "Secret" { MAX_DATA.div_ceil(3) * 4 } else { MAX_DATA };
    if size > limit {
        errors.push(FieldError::too_long("[]", MAX_DATA as i64));
    }
    let Some(old) = old else { return };
    if old["immutable"] == true {
        for list in ["immutable", "data", "binaryData"] {
            if new[list] != old[list] {
                let why = "field is immutable when `immutable` is set";
                errors.push(FieldError::forbidden(list, why));
            }
        }
    }
    if old["type"] != new["type"] {
        errors.push(FieldError::invalid("type", &new["type"], "field is immutable"));
    }
}

/// Validates role bindings.
pub(super) fn binding(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if old.is_some_and(|old| old["roleRef"] != new["roleRef"]) {
        let role = &new["roleRef"];
        let shown = serde_json::json!({"APIGroup": role["apiGroup"], "Kind": role["kind"], "Name": role["name"]});
        errors.push(FieldError::invalid("roleRef", &shown, "cannot change roleRef"));
    }
    for key in ["kind", "name"] {
        if new["roleRef"][key].as_str().unwrap_or("").is_empty() {
            errors.push(FieldError::required(format!("roleRef.{key}"), ""));
        }
    }
}

/// Validates leases.
pub(super) fn lease(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let seconds = &new["spec"]["leaseDurationSeconds"];
    if seconds.as_i64().is_some_and(|seconds| seconds <= 0) {
        errors.push(FieldError::invalid("spec.leaseDurationSeconds", seconds, "must be greater than 0"));
    }
}

/// Validates disruption budgets.
pub(super) fn disruption_budget(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    if !new["spec"]["minAvailable"].is_null() && !new["spec"]["maxUnavailable"].is_null() {
        let why = "minAvailable and maxUnavailable cannot be both set";
        errors.push(FieldError::invalid("spec", &new["spec"], why));
    }
}

/// Validates priority classes.
pub(super) fn priority_class(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    if old.is_some_and(|old| old["value"] != new["value"]) {
        errors.push(FieldError::forbidden("value", "may not be changed in an update."));
    }
    let name = new["metadata"]["name"].as_str().unwrap_or("");
    if new["value"].as_i64().is_some_and(|value| value > 1_000_000_000) && !name.starts_with("system-") {
        let why = "maximum allowed value of a user defined priority is 1000000000";
        errors.push(FieldError::forbidden("value", why));
    }
}

/// Validates ingresses.
pub(super) fn ingress(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let spec = &new["spec"];
    if spec["defaultBackend"].is_null() && spec["rules"].as_array().is_none_or(Vec::is_empty) {
        let why = "either `defaultBackend` or `rules` must be specified";
        errors.push(FieldError::invalid("spec", &Value::Null, why));
    }
    for (index, rule) in spec["rules"].as_array().into_iter().flatten().enumerate() {
        for (number, path) in rule["http"]["paths"].as_array().into_iter().flatten().enumerate() {
            if path["pathType"].as_str().unwrap_or("").is_empty() {
                let field = format!("spec.rules[{index}].http.paths[{number}].pathType");
                errors.push(FieldError::required(field, "pathType must be specified"));
            }
        }
    }
}
