//! Objects as the API server stores them: without unknown fields and nulls, and with defaults.
//!
//! [`on_a_server`](crate::on_a_server) checks this against the real one.

use serde_json::{Map, Value};

/// Converts an object to its stored form, except for its metadata, whose type is built into the server.
pub(crate) fn as_stored(schema: &Value, mut object: Value) -> Value {
    let metadata = object["metadata"].take();
    store(schema, &mut object);
    object["metadata"] = metadata;
    object
}

fn store(schema: &Value, value: &mut Value) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| store(&schema["items"], item)),
        Value::Object(fields) => match (&schema["properties"], &schema["additionalProperties"]) {
            (Value::Object(properties), _) => store_fields(properties, fields),
            (_, Value::Null) => fields.clear(),
            (_, values) => {
                fields.retain(|_, value| !value.is_null() || values["nullable"] == true);
                fields.iter_mut().for_each(|(_, value)| store(values, value));
            }
        },
        _ => {}
    }
}

fn store_fields(properties: &Map<String, Value>, fields: &mut Map<String, Value>) {
    fields.retain(|name, value| match properties.get(name) {
        Some(property) => !value.is_null() || property["nullable"] == true,
        None => false,
    });
    for (name, property) in properties {
        if let Some(default) = property.get("default") {
            fields.entry(name).or_insert_with(|| default.clone());
        }
        if let Some(value) = fields.get_mut(name) {
            store(property, value);
        }
    }
}
