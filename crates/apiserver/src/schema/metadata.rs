//! Metadata of resources: at the root, and of resources embedded in others.
//!
//! Schemas do not describe metadata, so its fields are known here.

use serde_json::{Value, json};

use super::field_error::FieldError;
use super::node::Node;
use super::path::Path;

/// The fields of ObjectMeta.
const FIELDS: &[&str] = &[
    "annotations",
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "labels",
    "managedFields",
    "name",
    "namespace",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
];
const OWNER_FIELDS: &[&str] = &["apiVersion", "blockOwnerDeletion", "controller", "kind", "name", "uid"];
const MANAGED_FIELDS: &[&str] =
    &["apiVersion", "fieldsType", "fieldsV1", "manager", "operation", "subresource", "time"];

/// Returns the names of the fields of metadata.
pub(crate) fn field_names() -> Vec<String> {
    FIELDS.iter().map(|name| (*name).to_owned()).collect()
}

/// Returns the unknown fields in the metadata of the object.
pub(crate) fn unknown_fields(object: &Value) -> Vec<String> {
    let mut found = Vec::new();
    if let Some(metadata) = object.get("metadata") {
        visit_unknown(metadata, &Path::Root.field("metadata"), &mut |path| found.push(path.show()));
    }
    found
}

/// Returns the unknown fields in the metadata of resources embedded in the object.
pub(crate) fn unknown_embedded_fields(object: &Value, root: &Node) -> Vec<String> {
    let mut found = Vec::new();
    visit_embedded(object, root, &Path::Root, &mut |resource, path| {
        if let Some(metadata) = resource.get("metadata") {
            visit_unknown(metadata, &path.field("metadata"), &mut |path| found.push(path.show()));
        }
    });
    found
}

fn visit_unknown(metadata: &Value, path: &Path<'_>, report: &mut dyn FnMut(&Path<'_>)) {
    for key in metadata.as_object().into_iter().flat_map(|map| map.keys()) {
        if !FIELDS.contains(&key.as_str()) {
            report(&path.field(key));
        }
    }
    for (list, known) in [("ownerReferences", OWNER_FIELDS), ("managedFields", MANAGED_FIELDS)] {
        let items = metadata.get(list).and_then(Value::as_array).into_iter().flatten();
        for (i, item) in items.enumerate() {
            for key in item.as_object().into_iter().flat_map(|map| map.keys()) {
                if !known.contains(&key.as_str()) {
                    report(&path.field(list).index(i).field(key));
                }
            }
        }
    }
}

/// Drops unknown metadata fields, of the object and of the resources embedded in it.
pub(crate) fn prune_embedded(object: &mut Value, root: &Node) {
    prune_metadata(object);
    prune_below(object, root);
}

fn prune_metadata(resource: &mut Value) {
    let Some(metadata) = resource.get_mut("metadata") else { return };
    if let Some(map) = metadata.as_object_mut() {
        map.retain(|key, value| FIELDS.contains(&key.as_str()) && !is_empty(value));
    }
    for (list, known) in [("ownerReferences", OWNER_FIELDS), ("managedFields", MANAGED_FIELDS)] {
        for item in metadata.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
            if let Some(map) = item.as_object_mut() {
                map.retain(|key, _| known.contains(&key.as_str()));
            }
        }
    }
}

/// Returns whether Go omits a metadata value because it is empty.
fn is_empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Array(items) => items.is_empty(),
        Value::Object(map) => map.is_empty(),
        _ => false,
    }
}

fn prune_below(value: &mut Value, node: &Node) {
    match value {
        Value::Object(map) => {
            for (key, child) in map.iter_mut() {
                let Some(schema) = node.child(key) else { continue };
                if schema.embedded {
                    prune_metadata(child);
                }
                prune_below(child, schema);
            }
        }
        Value::Array(items) => {
            let Some(schema) = &node.items else { return };
            for item in items {
                if schema.embedded {
                    prune_metadata(item);
                }
                prune_below(item, schema);
            }
        }
        _ => {}
    }
}

/// Calls `visit` with every resource embedded in the value.
fn visit_embedded(value: &Value, node: &Node, path: &Path<'_>, visit: &mut dyn FnMut(&Value, &Path<'_>)) {
    match value {
        Value::Object(map) => {
            for (key, child) in map {
                let (schema, here) = match (node.property(key), node.additional_schema()) {
                    (Some(property), _) => (property, path.field(key)),
                    (None, Some(values)) => (values, path.key(key)),
                    (None, None) => continue,
                };
                if schema.embedded && child.is_object() {
                    visit(child, &here);
                }
                visit_embedded(child, schema, &here, visit);
            }
        }
        Value::Array(items) => {
            let Some(schema) = &node.items else { return };
            for (i, item) in items.iter().enumerate() {
                let here = path.index(i);
                if schema.embedded && item.is_object() {
                    visit(item, &here);
                }
                visit_embedded(item, schema, &here, visit);
            }
        }
        _ => {}
    }
}

/// Validates that embedded resources carry apiVersion and kind.
pub(crate) fn validate_embedded(object: &Value, root: &Node, path: &Path<'_>, errors: &mut Vec<FieldError>) {
    visit_embedded(object, root, path, &mut |resource, path| {
        for key in ["apiVersion", "kind"] {
            let field = path.field(key).show();
            match resource.get(key) {
                None => errors.push(FieldError::required(field, "")),
                Some(Value::String(text)) if text.is_empty() => {
                    errors.push(FieldError::invalid(field, &json!(""), "must not be empty"));
                }
                Some(Value::String(_)) => {}
                Some(other) => errors.push(FieldError::invalid(field, other, "must be a string")),
            }
        }
    });
}
