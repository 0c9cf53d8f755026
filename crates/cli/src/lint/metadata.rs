//! Checks the metadata of an object, which the schemas do not describe.

use manta_apiserver::registry::metadata_errors;
use serde_json::{Value, json};

use super::yaml::{Entry, Node};
use super::{Report, locate, wording};

/// The fields that hold texts.
const TEXTS: [&str; 3] = ["name", "generateName", "namespace"];

/// The fields that hold texts by name.
const MAPS: [&str; 2] = ["annotations", "labels"];

/// Reports what the API server would refuse in the metadata; returns whether it can be decoded at all.
pub(crate) fn check(root: &Node, report: &mut Report<'_>) -> bool {
    let Some(metadata) = root.get("metadata").filter(|metadata| metadata.is_map()) else { return true };
    let wrong = wrong_types(metadata);
    for (path, line, message) in &wrong {
        report.error(*line, path, message);
    }
    if !wrong.is_empty() {
        return false;
    }
    for error in metadata_errors(&metadata.to_value()) {
        let path = path_of(&error.field, &error.body, metadata);
        report.error(locate(root, &path), &path, &error.body);
    }
    true
}

/// Makes labels and annotations without a value empty texts, as the API server does.
pub(crate) fn fill_in_empty_values(object: &mut Value) {
    for map in MAPS {
        let values = object.pointer_mut(&format!("/metadata/{map}")).and_then(Value::as_object_mut);
        for value in values.into_iter().flat_map(|values| values.values_mut()).filter(|value| value.is_null()) {
            *value = json!("");
        }
    }
}

/// Returns the values of another type than the API server decodes, with their places and what they must be.
fn wrong_types(metadata: &Node) -> Vec<(String, usize, String)> {
    let mut wrong = Vec::new();
    for entry in metadata.entries() {
        let path = format!("metadata.{}", entry.key);
        if TEXTS.contains(&entry.key.as_str()) {
            wrong.extend(unless_text(entry, path));
        } else if MAPS.contains(&entry.key.as_str()) {
            if !entry.value.is_map() && !entry.value.is_null() {
                wrong.push((path, entry.line, wording::wrong_type("object", &entry.value)));
                continue;
            }
            wrong.extend(entry.value.entries().filter_map(|own| unless_text(own, format!("{path}[{}]", own.key))));
        }
    }
    wrong
}

/// Returns the mistake in a value that is neither a text nor missing.
fn unless_text(entry: &Entry, path: String) -> Option<(String, usize, String)> {
    let is_fine = entry.value.as_str().is_some() || entry.value.is_null();
    (!is_fine).then(|| (path, entry.line, wording::wrong_type("string", &entry.value)))
}

/// Returns the path of the label or annotation that an error is about; the API server names their map only.
fn path_of(field: &str, body: &str, metadata: &Node) -> String {
    let repeats = |key: &str, entry: &Entry| {
        let one: Value = json!({key: {entry.key.as_str(): entry.value.to_value()}});
        metadata_errors(&one).iter().any(|error| error.body == body)
    };
    let map = MAPS.into_iter().find(|key| field.strip_prefix("metadata.") == Some(key));
    let entry = map.and_then(|key| metadata.get(key)?.entries().find(|entry| repeats(key, entry)));
    entry.map_or_else(|| field.to_owned(), |entry| format!("{field}[{}]", entry.key))
}
