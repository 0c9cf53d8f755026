//! Whether JSON decodes into a built-in type, and what Go's decoder says if not.
//!
//! The server stores JSON as it comes, so this is where a number in place of a string is caught.

use std::sync::LazyLock;

use base64::Engine;
use regex::Regex;
use serde_json::Value;

use super::builtin::{Definition, FieldType, Scalar, definition};
use super::go_text;

#[allow(clippy::unwrap_used, reason = "the pattern is a constant, and a test compiles it")]
static QUANTITY: LazyLock<Regex> = LazyLock::new(|| {
    Regex::new(r"^[+-]?([0-9]+(\.[0-9]*)?|\.[0-9]+)([KMGTPE]i|[numkMGTPE]|[eE][+-]?[0-9]+)?$").unwrap()
});

/// Returns the first thing that does not decode; none if everything does.
pub(crate) fn decode_error(object: &Value, root: &'static Definition) -> Option<String> {
    check_struct(object, root, &FieldContext { owner: go_name(root.name), path: String::new() }).err()
}

/// The struct that a field belongs to, and the path of fields to it.
struct FieldContext {
    owner: &'static str,
    path: String,
}

impl FieldContext {
    fn mismatch(&self, found: &str, wanted: &str) -> String {
        if self.path.is_empty() {
            return format!("json: cannot unmarshal {found} into Go value of type {wanted}");
        }
        format!("json: cannot unmarshal {found} into Go struct field {}.{} of type {wanted}", self.owner, self.path)
    }
}

fn check_struct(value: &Value, of: &'static Definition, place: &FieldContext) -> Result<(), String> {
    let map = match value {
        Value::Null => return Ok(()),
        Value::Object(map) => map,
        other => return Err(place.mismatch(go_kind(other), &go_package_name(of.name))),
    };
    for (key, child) in map {
        let Some(field) = of.field(key) else { continue };
        let dot = if place.path.is_empty() { "" } else { "." };
        let inside = FieldContext { owner: go_name(of.name), path: format!("{}{dot}{key}", place.path) };
        check(child, &field.field_type, &inside)?;
    }
    Ok(())
}

fn check(value: &Value, field_type: &'static FieldType, place: &FieldContext) -> Result<(), String> {
    if value.is_null() {
        return Ok(());
    }
    match (field_type, value) {
        (FieldType::Any, _) => Ok(()),
        (FieldType::Definition(index), _) => check_struct(value, definition(*index), place),
        (FieldType::List(items), Value::Array(values)) => values.iter().try_for_each(|v| check(v, items, place)),
        (FieldType::Map(values), Value::Object(map)) => map.values().try_for_each(|v| check(v, values, place)),
        (FieldType::Scalar(scalar), _) => check_scalar(value, *scalar, place),
        _ => Err(place.mismatch(go_kind(value), &go_type(field_type))),
    }
}

fn check_scalar(value: &Value, scalar: Scalar, place: &FieldContext) -> Result<(), String> {
    let mismatch = |wanted: &str| Err(place.mismatch(go_kind(value), wanted));
    match (scalar, value) {
        (Scalar::String, Value::String(_)) | (Scalar::Boolean, Value::Bool(_)) | (Scalar::Number, Value::Number(_)) => {
            Ok(())
        }
        (Scalar::Int32 | Scalar::IntOrString, Value::Number(n)) => match n.as_i64().map(i32::try_from) {
            Some(Ok(_)) => Ok(()),
            _ => Err(place.mismatch(&format!("number {n}"), "int32")),
        },
        (Scalar::Int64, Value::Number(n)) if n.is_i64() => Ok(()),
        (Scalar::Int64, Value::Number(n)) => Err(place.mismatch(&format!("number {n}"), "int64")),
        (Scalar::IntOrString, Value::String(_)) => Ok(()),
        (Scalar::Bytes, Value::String(text)) => check_base64(text),
        (Scalar::Time | Scalar::MicroTime, Value::String(text)) => check_time(text),
        (Scalar::Quantity, Value::Number(_)) => Ok(()),
        (Scalar::Quantity, Value::String(text)) if QUANTITY.is_match(text) => Ok(()),
        (Scalar::Quantity, _) => {
            Err("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"
                .to_owned())
        }
        (Scalar::String | Scalar::Time | Scalar::MicroTime, _) => mismatch("string"),
        (Scalar::Bytes, _) => mismatch("[]uint8"),
        (Scalar::Int32 | Scalar::IntOrString, _) => mismatch("int32"),
        (Scalar::Int64, _) => mismatch("int64"),
        (Scalar::Number, _) => mismatch("float64"),
        (Scalar::Boolean, _) => mismatch("bool"),
    }
}

fn check_base64(text: &str) -> Result<(), String> {
    use base64::DecodeError;
    let at = match base64::engine::general_purpose::STANDARD.decode(text.replace(['\n', '\r'], "")) {
        Ok(_) => return Ok(()),
        Err(DecodeError::InvalidByte(at, _) | DecodeError::InvalidLastSymbol(at, _)) => at,
        Err(_) => text.len(),
    };
    Err(format!("illegal base64 data at input byte {at}"))
}

fn check_time(text: &str) -> Result<(), String> {
    if text.parse::<jiff::Timestamp>().is_ok() {
        return Ok(());
    }
    let shown = go_text::quote(text);
    Err(format!("parsing time {shown} as \"2006-01-02T15:04:05Z07:00\": cannot parse {shown} as \"2006\""))
}

/// `Container` of `core.v1.Container`.
fn go_name(name: &'static str) -> &'static str {
    name.rsplit('.').next().unwrap_or(name)
}

/// `v1.Container` of `core.v1.Container`.
fn go_package_name(name: &'static str) -> String {
    let mut parts = name.rsplit('.');
    let (last, package) = (parts.next().unwrap_or(name), parts.next().unwrap_or_default());
    format!("{package}.{last}")
}

fn go_type(field_type: &'static FieldType) -> String {
    match field_type {
        FieldType::Definition(index) => go_package_name(definition(*index).name),
        FieldType::List(items) => format!("[]{}", go_type(items)),
        FieldType::Map(values) => format!("map[string]{}", go_type(values)),
        FieldType::Any => "interface {}".to_owned(),
        FieldType::Scalar(scalar) => match scalar {
            Scalar::String => "string",
            Scalar::Bytes => "[]uint8",
            Scalar::Int32 => "int32",
            Scalar::Int64 => "int64",
            Scalar::Number => "float64",
            Scalar::Boolean => "bool",
            Scalar::Time => "v1.Time",
            Scalar::MicroTime => "v1.MicroTime",
            Scalar::Quantity => "resource.Quantity",
            Scalar::IntOrString => "intstr.IntOrString",
        }
        .to_owned(),
    }
}

/// Returns what Go's decoder calls a JSON value.
pub(crate) fn go_kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "bool",
        Value::Number(_) => "number",
        Value::String(_) => "string",
        Value::Array(_) => "array",
        Value::Object(_) => "object",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::super::builtin::definition_of_kind;
    use super::*;

    #[test]
    fn wrong_types_read_as_from_the_real_server() {
        let check = |object: Value, expect: Option<&str>| {
            let root = definition_of_kind("apps", "v1", "Deployment").unwrap();
            assert_eq!(decode_error(&object, root).as_deref(), expect, "{object}");
        };
        let container = |c: Value| json!({"spec": {"template": {"spec": {"containers": [c]}}}});
        check(json!({"spec": {"replicas": 1, "unknown": {}}, "metadata": {"creationTimestamp": null}}), None);
        check(
            json!({"spec": {"replicas": "x"}}),
            Some("json: cannot unmarshal string into Go struct field DeploymentSpec.spec.replicas of type int32"),
        );
        check(
            json!({"spec": {"replicas": 1.5}}),
            Some("json: cannot unmarshal number 1.5 into Go struct field DeploymentSpec.spec.replicas of type int32"),
        );
        check(
            json!({"metadata": {"labels": {"a": 1}}}),
            Some("json: cannot unmarshal number into Go struct field ObjectMeta.metadata.labels of type string"),
        );
        check(
            json!({"metadata": {"labels": []}}),
            Some(
                "json: cannot unmarshal array into Go struct field ObjectMeta.metadata.labels of type map[string]string",
            ),
        );
        check(
            json!({"spec": {"template": {"spec": {"containers": {}}}}}),
            Some(
                "json: cannot unmarshal object into Go struct field PodSpec.spec.template.spec.containers of type []v1.Container",
            ),
        );
        check(
            container(json!({"name": 1})),
            Some(
                "json: cannot unmarshal number into Go struct field Container.spec.template.spec.containers.name of type string",
            ),
        );
        check(
            json!({"spec": "x"}),
            Some("json: cannot unmarshal string into Go struct field Deployment.spec of type v1.DeploymentSpec"),
        );
        check(
            container(json!({"resources": {"limits": {"cpu": "abc"}}})),
            Some("quantities must match the regular expression '^([+-]?[0-9.]+)([eEinumkKMGTP]*[-+]?[0-9]*)$'"),
        );
        check(container(json!({"resources": {"limits": {"cpu": 1, "memory": "1.5Gi"}}})), None);
        check(
            json!({"metadata": {"creationTimestamp": "abc"}}),
            Some(r#"parsing time "abc" as "2006-01-02T15:04:05Z07:00": cannot parse "abc" as "2006""#),
        );
    }
}
