//! Decodes request bodies into the stored form.

use serde_json::{Value, json};

use super::{FieldValidation, WriteOptions, conversion};
use crate::error::ApiError;
use crate::registry::{Behaviour, Resource, shape};

/// Decodes a body into the stored form of its kind, with defaults; returns warnings.
pub(super) fn normalize(
    resource: &Resource,
    value: &mut Value,
    options: &WriteOptions,
) -> Result<Vec<String>, ApiError> {
    if conversion::is_left_alone(resource, value, options) {
        decode_metadata(resource, value)?;
        return Ok(Vec::new());
    }
    let validation = options.validation;
    check_type(resource, value)?;
    let mut unknown: Vec<String> = match &resource.behaviour {
        Behaviour::Builtin(builtin) => {
            let decoded = shape::decode(builtin.describe, &(builtin.definition)(), value)
                .map_err(|why| unhandled(resource, &why))?;
            decoded.unknown.iter().map(|path| format!("unknown field \"{path}\"")).collect()
        }
        Behaviour::Custom(custom) => {
            let unknown = match custom.schema() {
                Some(schema) if !custom.preserve_unknown => {
                    let unknown =
                        if validation == FieldValidation::Ignore { Vec::new() } else { schema.unknown_fields(value) };
                    schema.prune(value);
                    unknown
                }
                _ => Vec::new(),
            };
            decode_metadata(resource, value)?;
            if let Some(schema) = custom.schema() {
                schema.default(value);
            }
            unknown
        }
    };
    unknown.extend(options.duplicates.iter().cloned());
    if validation == FieldValidation::Strict && !unknown.is_empty() {
        let text = format!("strict decoding error: {}", unknown.join(", "));
        return Err(ApiError::bad_request(unhandled_text(resource, &text)));
    }
    resource.to_stored(value);
    if let Some(builtin) = resource.builtin() {
        (builtin.default)(value);
    }
    Ok(if validation == FieldValidation::Warn { unknown } else { Vec::new() })
}

/// Checks that a value decodes as its built-in kind.
pub(super) fn check_shape(resource: &Resource, value: &Value) -> Result<(), String> {
    match resource.builtin() {
        Some(builtin) => shape::decode(builtin.describe, &(builtin.definition)(), &mut value.clone()).map(|_| ()),
        None => Ok(()),
    }
}

/// Returns the fields of a body, which must be an object.
pub(super) fn fields<'a>(
    resource: &Resource,
    value: &'a mut Value,
) -> Result<&'a mut serde_json::Map<String, Value>, ApiError> {
    let why = "json: cannot unmarshal into Go value: the body must be an object";
    value.as_object_mut().ok_or_else(|| unhandled(resource, why))
}

fn check_type(resource: &Resource, value: &mut Value) -> Result<(), ApiError> {
    let object = fields(resource, value)?;
    if resource.custom().is_some() && !object.get("kind").is_some_and(Value::is_string) {
        let text = serde_json::to_string(object).unwrap_or_default();
        return Err(ApiError::bad_request(format!(
            "the object provided is unrecognized (must be of type {}): Object 'Kind' is missing in '{text}'",
            resource.kind
        )));
    }
    let given = |key: &str| object.get(key).and_then(Value::as_str).unwrap_or("").to_owned();
    let (version, kind) = (given("apiVersion"), given("kind"));
    if (!version.is_empty() && version != *resource.api_version) || (!kind.is_empty() && kind != *resource.kind) {
        return Err(ApiError::bad_request(format!(
            "the API version in the data ({version}, Kind={kind}) does not match the expected API version ({}, Kind={})",
            resource.api_version, resource.kind
        )));
    }
    object.insert("apiVersion".into(), (*resource.api_version).into());
    object.insert("kind".into(), (*resource.kind).into());
    let metadata = object.entry("metadata").or_insert_with(|| json!({}));
    if metadata.is_null() {
        *metadata = json!({});
    }
    if !metadata.is_object() {
        return Err(unhandled(resource, "metadata must be an object"));
    }
    Ok(())
}

/// Decodes the metadata of a custom object.
fn decode_metadata(resource: &Resource, value: &mut Value) -> Result<(), ApiError> {
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
    use schemars::JsonSchema;
    let describe: shape::Describe = |generator| generator.subschema_for::<ObjectMeta>();
    shape::decode(describe, &ObjectMeta::schema_name(), &mut value["metadata"])
        .map(|_| ())
        .map_err(|why| unhandled(resource, &why))
}

fn unhandled(resource: &Resource, why: &str) -> ApiError {
    if resource.custom().is_some() {
        return ApiError::bad_request(why);
    }
    ApiError::bad_request(unhandled_text(resource, why))
}

fn unhandled_text(resource: &Resource, why: &str) -> String {
    format!("{} in version {:?} cannot be handled as a {}: {why}", resource.kind, resource.version, resource.kind)
}
