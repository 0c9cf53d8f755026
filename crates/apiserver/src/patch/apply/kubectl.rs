//! The way from client-side to server-side apply.
//!
//! `kubectl apply` keeps what it applied in an annotation. When kubectl applies on the server, it may take over fields
//! that are still as the annotation says, and the annotation is kept fresh for those who go back.

use serde_json::{Value, json};

use super::field_set::Element;
use super::typed;
use super::{TypeRef, Writer};

const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// Returns whether all conflicts are over fields that kubectl itself applied last.
pub(super) fn may_take_over(
    live: Option<&Value>,
    paths: &[Vec<Element>],
    type_ref: TypeRef<'_>,
    writer: &Writer<'_>,
) -> bool {
    if writer.manager != "kubectl" {
        return false;
    }
    let Some((live, last)) = live.and_then(|live| Some((live, last_applied(live)?))) else { return false };
    if last.get("apiVersion").and_then(Value::as_str) != Some(writer.api_version) {
        return false;
    }
    let comparison = typed::compare(&last, live, type_ref);
    let still_set = typed::fields_of(&last, type_ref)
        .difference(&comparison.modified)
        .difference(&comparison.added)
        .difference(&comparison.removed);
    paths.iter().all(|path| still_set.has_path(path))
}

/// Writes what kubectl applied into its annotation, where there is one.
pub(super) fn refresh_annotation(object: &mut Value, config: &Value, writer: &Writer<'_>) {
    if writer.manager != "kubectl" || last_applied(object).is_none() {
        return;
    }
    let mut config = config.clone();
    if let Some(annotations) = config.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.remove(LAST_APPLIED);
    }
    if let Some(annotations) = object.pointer_mut("/metadata/annotations").and_then(Value::as_object_mut) {
        annotations.insert(LAST_APPLIED.to_owned(), json!(format!("{config}\n")));
    }
}

fn last_applied(object: &Value) -> Option<Value> {
    let text = object.pointer("/metadata/annotations")?.get(LAST_APPLIED)?.as_str()?;
    serde_json::from_str(text).ok()
}
