//! Defaults of the built-in kinds.
//!
//! One file per family of kinds; every function runs on every write, so it must be idempotent.

pub(super) mod other;
pub(super) mod pod;
pub(super) mod service;
pub(super) mod workload;

use serde_json::{Map, Value, json};

/// Sets a field unless it is present.
fn set(object: &mut Value, key: &str, value: impl Into<Value>) {
    if let Some(map) = object.as_object_mut() {
        map.entry(key).or_insert_with(|| value.into());
    }
}

/// Returns an object field, creating it if absent.
fn object<'a>(parent: &'a mut Value, key: &str) -> &'a mut Value {
    if !parent.is_object() {
        *parent = Value::Object(Map::new());
    }
    let field = &mut parent[key];
    if field.is_null() {
        *field = json!({});
    }
    field
}

/// Returns the items of a list field, if there are any.
fn items<'a>(parent: &'a mut Value, key: &str) -> impl Iterator<Item = &'a mut Value> {
    parent.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten()
}

/// Returns an object field, if it is there.
fn field<'a>(parent: &'a mut Value, key: &str) -> Option<&'a mut Value> {
    parent.get_mut(key).filter(|value| value.is_object())
}

/// Sets no defaults.
pub(super) fn none(_: &mut Value) {}

/// Sets an empty status.
pub(super) fn empty_status(value: &mut Value) {
    object(value, "status");
}
