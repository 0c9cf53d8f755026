//! `/openapi/v2`: definitions only, and of CRDs only what kubectl understands in this version.

use std::sync::{Arc, OnceLock};

use serde_json::{Map, Value, json};

use super::{Version, schemas};
use crate::registry::{Resource, Snapshot};

const PRESERVE: &str = "x-kubernetes-preserve-unknown-fields";

/// Returns the document.
pub(crate) fn version_two(now: &Snapshot) -> Value {
    let all: Vec<&Arc<Resource>> = now.resources.iter().collect();
    let definitions = schemas(&all, Version::Two);
    json!({"swagger": "2.0", "info": {"title": "Kubernetes", "version": "v1.34.4"}, "paths": {}, "definitions": definitions})
}

/// Returns the document as JSON.
///
/// The definitions of the built-in kinds never change, so their text is kept from the first time that somebody asks: clients
/// that wait for their CRDs ask again and again.
pub(crate) fn version_two_json(now: &Snapshot) -> String {
    static BUILTIN: OnceLock<String> = OnceLock::new();
    let (builtin, custom): (Vec<_>, Vec<_>) = now.resources.iter().partition(|resource| resource.builtin().is_some());
    let builtin = BUILTIN.get_or_init(|| fields(schemas(&builtin, Version::Two)));
    // Those that every document has are among the built-in ones.
    let custom = fields(
        schemas(&custom, Version::Two)
            .into_iter()
            .filter(|(name, _)| !name.starts_with("io.k8s.apimachinery."))
            .collect(),
    );
    let between = if custom.is_empty() { "" } else { "," };
    format!(
        "{{\"swagger\":\"2.0\",\"info\":{},\"paths\":{{}},\"definitions\":{{{builtin}{between}{custom}}}}}",
        json!({"title": "Kubernetes", "version": "v1.34.4"})
    )
}

/// Returns the JSON of an object without its braces.
fn fields(object: Map<String, Value>) -> String {
    let text = Value::Object(object).to_string();
    text[1..text.len() - 1].to_owned()
}

/// Returns whether any object is valid: with fields in its schema, kubectl would refuse all others.
pub(super) fn accepts_anything(schema: &Value) -> bool {
    schema[PRESERVE] == true
}

/// Removes from a schema, and from those below, what this version cannot say.
pub(super) fn simplify(schema: &mut Value) {
    let Some(fields) = schema.as_object_mut() else { return };
    for junctor in ["allOf", "oneOf", "anyOf", "not"] {
        fields.remove(junctor);
    }
    let nullable = fields.remove("nullable") == Some(Value::Bool(true));
    let open = fields.get(PRESERVE) == Some(&Value::Bool(true));
    if nullable || open {
        fields.remove("items");
        fields.remove("properties");
    }
    let kind = fields.get("type").and_then(Value::as_str).unwrap_or("");
    let untyped = nullable || (open && kind == "object") || (kind == "array" && !fields.contains_key("items"));
    if untyped {
        fields.remove("type");
    }
    drop_nullable_requirements(fields);
    for below in ["items", "additionalProperties"] {
        if let Some(below) = fields.get_mut(below) {
            simplify(below);
        }
    }
    for (_, below) in fields.get_mut("properties").and_then(Value::as_object_mut).into_iter().flatten() {
        simplify(below);
    }
}

/// A required field that may be null is not required: this version knows no null.
fn drop_nullable_requirements(fields: &mut Map<String, Value>) {
    let nullable = |schema: Option<&Value>| schema.is_some_and(|schema| schema["nullable"] == true);
    let Some(Value::Array(mut required)) = fields.remove("required") else { return };
    let properties = fields.get("properties").and_then(Value::as_object);
    required.retain(|name| {
        let name = name.as_str().unwrap_or("");
        !nullable(properties.and_then(|properties| properties.get(name)))
    });
    if !required.is_empty() && !nullable(fields.get("additionalProperties")) {
        fields.insert("required".into(), required.into());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::registry::Registry;

    #[test]
    fn both_forms_of_the_document_say_the_same() {
        let registry = Registry::default();
        let text = |now: &Snapshot| serde_json::from_str::<Value>(&version_two_json(now)).expect("JSON");
        let now = registry.now();
        assert!(text(&now) == version_two(&now), "of the built-in kinds");
        registry.define(&[json!({"metadata": {"name": "things.example.com"}, "spec": {
            "group": "example.com", "names": {"kind": "Thing", "listKind": "ThingList", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {"type": "object"}}}]}})]);
        let now = registry.now();
        assert!(text(&now)["definitions"]["com.example.v1.Thing"].is_object());
        assert!(text(&now) == version_two(&now), "with a custom kind");
    }

    #[test]
    fn schemas_are_reduced_to_what_kubectl_understands() {
        let check = |mut schema: Value, expect: Value| {
            simplify(&mut schema);
            assert_eq!(schema, expect);
        };
        check(
            json!({"type": "string", "anyOf": [{"minLength": 1}], "pattern": "a"}),
            json!({"type": "string", "pattern": "a"}),
        );
        check(json!({"type": "object", "nullable": true, "properties": {"a": {"type": "string"}}}), json!({}));
        check(
            json!({"type": "object", "properties": {"a": {"type": "object", PRESERVE: true, "properties": {"b": {}}}}}),
            json!({"type": "object", "properties": {"a": {PRESERVE: true}}}),
        );
        check(
            json!({"type": "object", "required": ["a", "b"], "properties": {"a": {"type": "string", "nullable": true}, "b": {"type": "string"}}}),
            json!({"type": "object", "required": ["b"], "properties": {"a": {}, "b": {"type": "string"}}}),
        );
        check(
            json!({"type": "array", "items": {"type": "array", "items": {"not": {"type": "string"}, "type": "integer"}}}),
            json!({"type": "array", "items": {"type": "array", "items": {"type": "integer"}}}),
        );
    }
}
