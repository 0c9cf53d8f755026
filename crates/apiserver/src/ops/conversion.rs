//! Conversion between the versions of a custom kind whose CRD names a webhook.
//!
//! Webhooks answer in their own time, and the verbs do not wait. A verb that needs a conversion notes it and fails; its
//! caller asks the webhook and runs the verb again, which then finds the conversion among those that are known.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, PoisonError};

use serde_json::{Value, json};

use super::WriteOptions;
use crate::error::ApiError;
use crate::registry::Resource;

/// The conversions of one request.
#[derive(Clone, Debug, Default)]
pub struct Conversions(Arc<Mutex<Known>>);

#[derive(Debug, Default)]
struct Known {
    /// By the wanted apiVersion and what the object has beside its metadata.
    done: HashMap<(String, String), Value>,
    wanted: Option<(String, Value)>,
}

impl Conversions {
    /// Takes the conversion that a verb failed for: the wanted apiVersion and the object.
    pub(crate) fn take_wanted(&self) -> Option<(String, Value)> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).wanted.take()
    }

    /// Adds what a webhook made of an object.
    pub(crate) fn add(&self, wanted: &str, from: &Value, to: Value) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).done.insert((wanted.to_owned(), content(from)), to);
    }

    fn find(&self, wanted: &str, from: &Value) -> Option<Value> {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let found = known.done.get(&(wanted.to_owned(), content(from))).cloned();
        if found.is_none() {
            known.wanted = Some((wanted.to_owned(), from.clone()));
        }
        found
    }
}

/// Returns what a webhook decides by. A verb that runs again draws another uid, and notes another time.
fn content(object: &Value) -> String {
    let mut object = object.clone();
    let metadata = object["metadata"].take();
    object["metadata"] = json!({"labels": metadata["labels"], "annotations": metadata["annotations"]});
    object.to_string()
}

/// Returns a converted object with the metadata of the one before; a webhook may only change labels and annotations.
pub(crate) fn with_metadata_of(before: &Value, mut converted: Value) -> Value {
    let changed = converted["metadata"].take();
    let mut metadata = before["metadata"].clone();
    for key in ["labels", "annotations"] {
        match (changed[key].is_object(), metadata.as_object_mut()) {
            (true, Some(metadata)) => {
                metadata.insert(key.into(), changed[key].clone());
            }
            (false, Some(metadata)) => {
                metadata.remove(key);
            }
            (_, None) => {}
        }
    }
    converted["metadata"] = metadata;
    converted
}

/// Returns a stored object at the version of a resource.
pub(super) fn served(resource: &Resource, mut value: Value, options: &WriteOptions) -> Result<Value, ApiError> {
    resource.to_served(&mut value);
    convert(resource, value, &resource.api_version, options)
}

/// Returns an object as it is stored.
pub(super) fn stored(resource: &Resource, value: Value, options: &WriteOptions) -> Result<Value, ApiError> {
    match resource.conversion() {
        Some(_) => convert(resource, value, &resource.stored_api_version(), options),
        None => Ok(value),
    }
}

/// Whether the server itself writes an object at the version in which it is stored, which is not that of the resource.
pub(super) fn is_left_alone(resource: &Resource, value: &Value, options: &WriteOptions) -> bool {
    resource.conversion().is_some() && options.user.is_none() && value["apiVersion"] != *resource.api_version
}

/// Controllers of this server only change metadata, which has no versions: they convert nothing.
fn convert(resource: &Resource, value: Value, wanted: &str, options: &WriteOptions) -> Result<Value, ApiError> {
    if resource.conversion().is_none() || options.user.is_none() || value["apiVersion"] == wanted {
        return Ok(value);
    }
    match options.conversions.find(wanted, &value) {
        Some(found) => Ok(with_metadata_of(&value, found)),
        None => Err(ApiError::internal("the object has not been converted yet")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_conversion_is_found_again_whatever_the_uid() {
        let object = |uid: &str, label: &str| {
            json!({"apiVersion": "x.io/v1", "a": 1,
            "metadata": {"name": "n", "uid": uid, "labels": {"l": label}}})
        };
        let conversions = Conversions::default();
        assert_eq!(conversions.find("x.io/v2", &object("1", "a")), None);
        let (wanted, from) = conversions.take_wanted().expect("wanted");
        assert_eq!((wanted.as_str(), &from), ("x.io/v2", &object("1", "a")));
        conversions.add(&wanted, &from, json!({"apiVersion": "x.io/v2", "b": 1}));
        assert!(conversions.find("x.io/v2", &object("2", "a")).is_some());
        assert_eq!(conversions.find("x.io/v2", &object("1", "b")), None, "webhooks may read labels");
        assert_eq!(conversions.find("x.io/v3", &object("1", "a")), None);
    }

    #[test]
    fn webhooks_change_labels_and_annotations_only() {
        let before =
            json!({"a": 1, "metadata": {"name": "n", "uid": "u", "labels": {"l": "1"}, "annotations": {"x": "y"}}});
        let converted = json!({"b": 1, "metadata": {"name": "other", "labels": {"l": "2"}}});
        let expect = json!({"b": 1, "metadata": {"name": "n", "uid": "u", "labels": {"l": "2"}}});
        assert_eq!(with_metadata_of(&before, converted), expect);
    }
}
