//! Defaults, and what becomes of nulls.
//!
//! A null where null is not allowed means "not set": it makes way for the default if there is one, and is dropped
//! otherwise. Where null is allowed it is a value like any other.

use serde_json::Value;

use super::node::Node;

/// Drops nulls that mean nothing, then fills in the defaults.
pub(crate) fn apply(object: &mut Value, root: &Node) {
    drop_nulls(object, root);
    fill(object, root);
}

/// Drops nulls of fields that are not nullable and have no default.
pub(crate) fn drop_nulls(value: &mut Value, node: &Node) {
    match value {
        Value::Object(map) => map.retain(|key, child| match node.child(key) {
            Some(schema) if child.is_null() => schema.nullable || schema.default.is_some(),
            Some(schema) => {
                drop_nulls(child, schema);
                true
            }
            None => true,
        }),
        Value::Array(items) => {
            if let Some(schema) = &node.items {
                items.iter_mut().for_each(|item| drop_nulls(item, schema));
            }
        }
        _ => {}
    }
}

fn fill(value: &mut Value, node: &Node) {
    match value {
        Value::Object(map) => {
            for (name, property) in &node.properties {
                let Some(default) = &property.default else { continue };
                let missing = map.get(name.as_ref()).is_none_or(|v| v.is_null() && !property.nullable);
                if missing {
                    map.insert(name.to_string(), default.as_ref().clone());
                }
            }
            for (key, child) in map.iter_mut() {
                let Some(schema) = node.child(key) else { continue };
                fill_null(child, schema);
                fill(child, schema);
            }
        }
        Value::Array(items) => {
            let Some(schema) = &node.items else { return };
            for item in items {
                fill_null(item, schema);
                fill(item, schema);
            }
        }
        _ => {}
    }
}

fn fill_null(value: &mut Value, schema: &Node) {
    if let (true, false, Some(default)) = (value.is_null(), schema.nullable, &schema.default) {
        *value = default.as_ref().clone();
    }
}
