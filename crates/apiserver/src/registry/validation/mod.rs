//! Validation of the built-in kinds.
//!
//! The real server checks more. These are the checks whose absence would let a broken object in, or
//! whose message people and programs look for.

pub(super) mod api_service;
pub(super) mod autoscaling;
pub(super) mod batch;
mod container;
mod cron;
pub(super) mod definition;
pub(super) mod drivers;
mod fields;
pub(super) mod flow_control;
pub(super) mod limits;
pub(super) mod networking;
pub(super) mod pod;
mod pod_update;
pub(super) mod policy;
mod scheduling;
pub(super) mod volume;
pub(super) mod workload;

use serde_json::Value;

use crate::schema::FieldError;

/// The largest content of a ConfigMap or Secret, in bytes.
const MAX_DATA: usize = 1 << 20;

/// Validates nothing beyond the schema.
pub(super) fn none(_: &Value, _: Option<&Value>, _: &mut Vec<FieldError>) {}

/// Validates that a field does not change.
pub(super) fn immutable(new: &Value, old: Option<&Value>, pointer: &str, errors: &mut Vec<FieldError>) {
    let Some(old) = old else { return };
    let (new, old) = (new.pointer(pointer).unwrap_or(&Value::Null), old.pointer(pointer).unwrap_or(&Value::Null));
    if new != old {
        let field = pointer.trim_start_matches('/').replace('/', ".");
        errors.push(FieldError::invalid(field, new, "field is immutable"));
    }
}

/// Returns every reason why a text is not a key of a ConfigMap or a Secret.
fn data_key_faults(key: &str) -> Vec<String> {
    let mut faults = Vec::new();
    if key.len() > 253 {
        faults.push("must be no more than 253 characters".to_owned());
    }
    let fine = |byte: u8| byte.is_ascii_alphanumeric() || b"-_.".contains(&byte);
    if key.is_empty() || !key.bytes().all(fine) {
        let why = "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name',  or \
                   'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')";
        faults.push(why.to_owned());
    }
    match key {
        "." => faults.push("must not be '.'".to_owned()),
        ".." => faults.push("must not be '..'".to_owned()),
        key if key.starts_with("..") => faults.push("must not start with '..'".to_owned()),
        _ => {}
    }
    faults
}

/// What a Secret of a type must have, and whether all of it or one of it.
const SECRET_KEYS: &[(&str, &[&str], bool)] = &[
    ("kubernetes.io/tls", &["tls.crt", "tls.key"], true),
    ("kubernetes.io/ssh-auth", &["ssh-privatekey"], true),
    ("kubernetes.io/dockerconfigjson", &[".dockerconfigjson"], true),
    ("kubernetes.io/dockercfg", &[".dockercfg"], true),
    ("kubernetes.io/basic-auth", &["username", "password"], false),
];

fn secret_type(secret: &Value, errors: &mut Vec<FieldError>) {
    use base64::Engine;
    let kind = secret["type"].as_str().unwrap_or("");
    let Some((_, keys, all)) = SECRET_KEYS.iter().find(|(name, _, _)| *name == kind) else {
        let account = &secret["metadata"]["annotations"]["kubernetes.io/service-account.name"];
        if kind == "kubernetes.io/service-account-token" && account.as_str().unwrap_or("").is_empty() {
            let field = "metadata.annotations[kubernetes.io/service-account.name]";
            errors.push(FieldError::required(field, ""));
        }
        return;
    };
    let missing: Vec<&&str> = keys.iter().filter(|key| secret["data"][**key].is_null()).collect();
    if *all || missing.len() == keys.len() {
        errors.extend(missing.iter().map(|key| FieldError::required(format!("data[{key}]"), "")));
    }
    if kind.starts_with("kubernetes.io/docker") && missing.is_empty() {
        let encoded = secret["data"][keys[0]].as_str().unwrap_or("");
        let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap_or_default();
        if let Err(error) = serde_json::from_slice::<serde_json::Map<String, Value>>(&bytes) {
            let why = format!("not a JSON object: {error}");
            errors.push(FieldError::invalid(format!("data[{}]", keys[0]), &"<secret contents redacted>".into(), &why));
        }
    }
}

/// Validates ConfigMaps and Secrets.
pub(super) fn data(new: &Value, old: Option<&Value>, errors: &mut Vec<FieldError>) {
    for list in ["data", "binaryData"] {
        for key in new[list].as_object().into_iter().flatten().map(|(key, _)| key) {
            let faults = data_key_faults(key);
            let field = || format!("{list}[{key}]");
            errors.extend(faults.iter().map(|why| FieldError::invalid(field(), &key.as_str().into(), why)));
            if list == "data" && !new["binaryData"][key.as_str()].is_null() {
                errors.push(FieldError::invalid(
                    field(),
                    &key.as_str().into(),
                    "duplicate of key present in binaryData",
                ));
            }
        }
    }
    if new["kind"] == "Secret" {
        secret_type(new, errors);
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

/// Validates namespaces.
pub(super) fn namespace(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    for finalizer in new["spec"]["finalizers"].as_array().into_iter().flatten() {
        let name = finalizer.as_str().unwrap_or("");
        if !name.contains('/') && name != "kubernetes" {
            let why = "name is neither a standard finalizer name nor is it fully qualified";
            errors.push(FieldError::invalid("spec.finalizers", finalizer, why));
        }
    }
}

/// Validates events.
pub(super) fn event(new: &Value, _: Option<&Value>, errors: &mut Vec<FieldError>) {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let (own, about) = (text(&new["metadata"]["namespace"]), text(&new["involvedObject"]["namespace"]));
    let fits = if about.is_empty() { matches!(own.as_str(), "default" | "kube-system") } else { about == own };
    if !fits {
        let field = "involvedObject.namespace";
        errors.push(FieldError::invalid(field, &new["involvedObject"]["namespace"], "does not match event.namespace"));
    }
    // Events of the new API have the time of the event, and then name their reporter.
    if new["eventTime"].is_null() {
        return;
    }
    fields::label_name(&new["reportingComponent"], "reportingComponent", errors);
    for key in ["reportingInstance", "action", "reason"] {
        if text(&new[key]).is_empty() {
            errors.push(FieldError::required(key, ""));
        }
    }
    fields::one_of(&new["type"], "type", &["Normal", "Warning"], errors);
}
