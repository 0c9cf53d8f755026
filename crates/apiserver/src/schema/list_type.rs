//! Lists that promise distinct items: sets and list maps.

use std::collections::HashMap;

use serde_json::{Map, Value};

use super::field_error::FieldError;
use super::go_text;
use super::node::{ListType, Node};
use super::path::Path;

/// Reports the first repetition of every item that occurs more than once.
pub(crate) fn validate(value: &Value, node: &Node, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                if let Some(property) = node.property(key) {
                    validate(child, property, &path.field(key), errors);
                } else if let Some(values) = node.additional_schema() {
                    validate(child, values, &path.key(key), errors);
                }
            }
        }
        Value::Array(items) => {
            match &node.list_type {
                ListType::Atomic => {}
                ListType::Set => check_distinct(items, path, errors),
                ListType::Map(keys) => check_map(items, keys, path, errors),
            }
            if let Some(schema) = &node.items {
                for (i, item) in items.iter().enumerate() {
                    validate(item, schema, &path.index(i), errors);
                }
            }
        }
        _ => {}
    }
}

fn check_map(items: &[Value], keys: &[String], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    if let Some((i, item)) = items.iter().enumerate().find(|(_, item)| !item.is_object() && !item.is_null()) {
        let detail = "must be an object for an array of list-type map";
        errors.push(FieldError::invalid(path.index(i).show(), item, detail));
        return;
    }
    let key_objects: Vec<Value> = items
        .iter()
        .map(|item| {
            let set = keys.iter().filter_map(|key| Some((key.clone(), item.get(key)?.clone())));
            Value::Object(set.collect::<Map<_, _>>())
        })
        .collect();
    check_distinct(&key_objects, path, errors);
}

fn check_distinct(items: &[Value], path: &Path<'_>, errors: &mut Vec<FieldError>) {
    let mut seen: HashMap<String, usize> = HashMap::with_capacity(items.len());
    for (i, item) in items.iter().enumerate() {
        let times = seen.entry(go_text::json(item)).or_default();
        *times += 1;
        if *times == 2 {
            errors.push(FieldError::duplicate(path.index(i).show(), item));
        }
    }
}
