//! Conversion of a Rust type to a structural schema, the form of JSON Schema that a CRD needs.
//!
//! schemars generates references, `null`s and documentation. References are replaced by the schema of their type, which
//! [`kubernetes`] completes. `null` is removed, because the API server drops nulls of fields with a default and refuses
//! others. Documentation is removed to keep the CRDs small, or kept for the types of this crate.

use super::kubernetes;
use schemars::JsonSchema;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// What becomes of the documentation of fields.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Descriptions {
    /// For CRDs that are as small as possible.
    Removed,
    /// Those of this crate's own types; the texts of Kubernetes' types would be ten times as long as the rest.
    Own,
}

/// Returns the structural schema of a type.
pub(super) fn schema_of<T: JsonSchema>(descriptions: Descriptions) -> Value {
    let mut root = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<T>().to_value();
    let definitions = match root.as_object_mut().and_then(|root| root.remove("$defs")) {
        Some(Value::Object(definitions)) => definitions,
        _ => Map::new(),
    };
    structural(root, &definitions, descriptions)
}

fn structural(schema: Value, definitions: &Map<String, Value>, descriptions: Descriptions) -> Value {
    let Value::Object(schema) = schema else { return schema };
    let schema = without_null(schema);
    let is_of_kubernetes = schema.get("$ref").and_then(Value::as_str).is_some_and(|target| target.contains("io.k8s."));
    let own = schema.get("description").cloned();
    let mut schema = resolved(schema, definitions);
    schema.retain(|keyword, _| !matches!(keyword.as_str(), "$schema" | "title"));
    if descriptions == Descriptions::Removed || is_of_kubernetes {
        schema.remove("description");
    }
    if let Some(own) = own.filter(|_| descriptions == Descriptions::Own) {
        // What a field says about itself, not what its type says.
        schema.insert("description".to_owned(), own);
    }
    let descriptions = if is_of_kubernetes { Descriptions::Removed } else { descriptions };
    // Floats have no format in the original CRDs.
    if schema.get("type").is_some_and(|kind| kind == "number") {
        schema.remove("format");
    }
    for keyword in ["items", "additionalProperties"] {
        if let Some(inner) = schema.get_mut(keyword) {
            *inner = structural(inner.take(), definitions, descriptions);
        }
    }
    if let Some(Value::Object(properties)) = schema.get_mut("properties") {
        for (_, property) in properties.iter_mut() {
            *property = structural(property.take(), definitions, descriptions);
        }
    }
    Value::Object(schema)
}

/// Removes the `null` that schemars generates for an `Option`: as one of two schemas, types or values.
fn without_null(mut schema: Map<String, Value>) -> Map<String, Value> {
    if let Some(Value::Array(mut choices)) = schema.remove("anyOf") {
        choices.retain(|choice| choice.get("type").is_none_or(|kind| kind != "null"));
        if let [Value::Object(only)] = choices.as_mut_slice() {
            let mut only = std::mem::take(only);
            only.append(&mut schema);
            return without_null(only);
        }
        schema.insert("anyOf".to_owned(), choices.into());
    }
    if let Some(Value::Array(types)) = schema.get_mut("type") {
        types.retain(|kind| kind != "null");
        if let [only] = types.as_mut_slice() {
            let only = only.take();
            schema.insert("type".to_owned(), only);
        }
    }
    if let Some(Value::Array(values)) = schema.get_mut("enum") {
        values.retain(|value| !value.is_null());
    }
    schema
}

/// Replaces a reference by its schema; keywords beside the reference override it.
fn resolved(mut schema: Map<String, Value>, definitions: &Map<String, Value>) -> Map<String, Value> {
    let Some(Value::String(reference)) = schema.remove("$ref") else { return schema };
    let name = reference.trim_start_matches("#/$defs/");
    let mut target = match definitions.get(name) {
        Some(Value::Object(target)) => target.clone(),
        _ => Map::new(),
    };
    kubernetes::amend(name, &mut target);
    target.append(&mut schema);
    target
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
    use serde_json::json;

    /// Not the documentation of the schema.
    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Outer {
        optional: Option<Inner>,
        #[schemars(extend("default" = 2))]
        number: Option<i32>,
        float: f64,
        ports: Vec<IntOrString>,
        map: Option<std::collections::BTreeMap<String, Inner>>,
    }

    #[derive(JsonSchema)]
    #[allow(dead_code)]
    struct Inner {
        /// Not this either.
        text: String,
    }

    #[test]
    fn references_nulls_and_documentation_are_removed() {
        let inner = json!({"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]});
        let expected = json!({
            "type": "object",
            "properties": {
                "optional": inner,
                "number": {"type": "integer", "format": "int32", "default": 2},
                "float": {"type": "number"},
                "ports": {"type": "array", "items": {
                    "anyOf": [{"type": "integer"}, {"type": "string"}], "x-kubernetes-int-or-string": true,
                }},
                "map": {"type": "object", "additionalProperties": inner},
            },
            "required": ["float", "ports"],
        });
        assert_eq!(schema_of::<Outer>(Descriptions::Removed), expected);
    }
}
