//! What objects say, as JSON.

use serde_json::Value;

/// Returns a text, empty if there is none.
pub(crate) fn text(value: &Value) -> String {
    value.as_str().unwrap_or_default().to_owned()
}

pub(crate) fn name(object: &Value) -> String {
    text(&object["metadata"]["name"])
}

pub(crate) fn uid(object: &Value) -> String {
    text(&object["metadata"]["uid"])
}

pub(crate) fn label(object: &Value, key: &str) -> String {
    text(&object["metadata"]["labels"][key])
}

pub(crate) fn generation(object: &Value) -> i64 {
    object["metadata"]["generation"].as_i64().unwrap_or_default()
}

/// Returns the reference to the object that controls this one.
pub(crate) fn controller(object: &Value) -> Option<&Value> {
    object["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

/// Returns the UID of the object that controls this one.
pub(crate) fn owner(object: &Value) -> Option<String> {
    controller(object).map(|owner| text(&owner["uid"]))
}

/// Returns whether an object of this UID is among the owners.
pub(crate) fn is_owned_by(object: &Value, uid: &str) -> bool {
    let owners = object["metadata"]["ownerReferences"].as_array();
    owners.into_iter().flatten().any(|owner| owner["uid"] == uid)
}

pub(crate) fn is_deleting(object: &Value) -> bool {
    !object["metadata"]["deletionTimestamp"].is_null()
}

/// Returns whether a Pod has neither ended nor is about to.
pub(crate) fn is_alive(pod: &Value) -> bool {
    let over = matches!(pod["status"]["phase"].as_str(), Some("Failed" | "Succeeded"));
    !is_deleting(pod) && !over
}

/// Returns whether a condition of an object is true.
pub(crate) fn condition(object: &Value, kind: &str) -> bool {
    let conditions = object["status"]["conditions"].as_array().into_iter().flatten();
    conditions.into_iter().any(|condition| condition["type"] == kind && condition["status"] == "True")
}
