//! One stored object: its JSON, and an index of the fields that every request needs.
//!
//! The JSON stays as bytes, so a read or a watch event copies a pointer. Labels, owners and uid are
//! indexed beside it, so selectors and garbage collection parse nothing.

use std::sync::Arc;

use bytes::Bytes;
use serde_json::Value;

/// Namespace and name; cluster-scoped objects have an empty namespace.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ObjectKey {
    /// The namespace; empty for cluster-scoped objects.
    pub namespace: Box<str>,
    /// The name.
    pub name: Box<str>,
}

impl ObjectKey {
    /// Creates a key.
    pub fn new(namespace: &str, name: &str) -> ObjectKey {
        ObjectKey { namespace: namespace.into(), name: name.into() }
    }
}

/// One version of one object.
#[derive(Debug)]
pub struct Entry {
    /// The revision of this version.
    pub revision: u64,
    /// Namespace and name.
    pub key: Arc<ObjectKey>,
    /// `metadata.uid`.
    pub uid: Uid,
    /// `metadata.labels`, sorted by key.
    pub labels: Box<[(Box<str>, Box<str>)]>,
    /// The uids in `metadata.ownerReferences`.
    pub owners: Box<[Uid]>,
    /// Whether `metadata.deletionTimestamp` is set.
    pub deleting: bool,
    /// Compact JSON with this revision as its resourceVersion.
    pub json: Bytes,
    /// The same as a value, in stores that keep it.
    pub(crate) value: Option<Arc<Value>>,
}

/// A uid as a 128-bit number; uids in another format are hashed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Uid(u128);

impl Uid {
    /// Parses a uid.
    pub fn parse(text: &str) -> Uid {
        if text.len() == 36 {
            let mut number = 0_u128;
            let digits = text.bytes().filter(|byte| *byte != b'-').try_fold(0, |count, byte| {
                let digit = char::from(byte).to_digit(16)?;
                number = number.wrapping_shl(4) | u128::from(digit);
                Some(count + 1)
            });
            if digits == Some(32) {
                return Uid(number);
            }
        }
        use std::hash::{Hash, Hasher};
        let mut hasher = std::hash::DefaultHasher::new();
        text.hash(&mut hasher);
        Uid(u128::from(hasher.finish()))
    }
}

impl Entry {
    /// Creates the entry of an object at a revision, which becomes its resourceVersion.
    pub fn new(revision: u64, key: Arc<ObjectKey>, mut value: Value) -> Entry {
        Entry::seal(revision, key, &mut value)
    }

    /// Creates the entry of an object at a revision, and keeps the value beside its JSON.
    pub(super) fn with_value(revision: u64, key: Arc<ObjectKey>, mut value: Value) -> Entry {
        let entry = Entry::seal(revision, key, &mut value);
        Entry { value: Some(Arc::new(value)), ..entry }
    }

    fn seal(revision: u64, key: Arc<ObjectKey>, value: &mut Value) -> Entry {
        if let Some(metadata) = value.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.insert("resourceVersion".into(), Value::String(revision.to_string()));
        }
        let mut json = serde_json::to_vec(value).unwrap_or_default();
        json.shrink_to_fit();
        Entry::index(revision, key, value, json.into())
    }

    /// Creates an entry from stored JSON.
    pub fn from_json(key: Arc<ObjectKey>, json: Vec<u8>) -> Result<Entry, serde_json::Error> {
        let value: Value = serde_json::from_slice(&json)?;
        let revision = value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
        Ok(Entry::index(revision, key, &value, json.into()))
    }

    fn index(revision: u64, key: Arc<ObjectKey>, value: &Value, json: Bytes) -> Entry {
        let metadata = &value["metadata"];
        let labels = metadata["labels"].as_object().map_or_else(Box::default, |labels| {
            labels.iter().map(|(key, value)| (key.as_str().into(), value.as_str().unwrap_or("").into())).collect()
        });
        let owners = metadata["ownerReferences"].as_array().map_or_else(Box::default, |owners| {
            owners.iter().filter_map(|owner| owner["uid"].as_str()).map(Uid::parse).collect()
        });
        let uid = Uid::parse(metadata["uid"].as_str().unwrap_or(""));
        let deleting = metadata["deletionTimestamp"].is_string();
        Entry { revision, key, uid, labels, owners, deleting, json, value: None }
    }

    /// Returns the object as a value; entries are only made from valid JSON.
    pub fn value(&self) -> Value {
        match &self.value {
            Some(value) => Value::clone(value),
            None => self.parse(),
        }
    }

    /// Returns the object as a value to read.
    pub fn shared_value(&self) -> Arc<Value> {
        self.value.clone().unwrap_or_else(|| Arc::new(self.parse()))
    }

    fn parse(&self) -> Value {
        serde_json::from_slice(&self.json).unwrap_or(Value::Null)
    }

    /// Returns whether the object is stored with this apiVersion; it is the first field of what this server writes.
    pub(crate) fn has_api_version(&self, api_version: &str) -> bool {
        let rest =
            self.json.strip_prefix(b"{\"apiVersion\":\"").and_then(|rest| rest.strip_prefix(api_version.as_bytes()));
        rest.is_some_and(|rest| rest.starts_with(b"\""))
    }

    /// Returns this version of the object with other content: the same object at another version of its kind.
    pub(crate) fn converted(&self, value: &Value) -> Entry {
        Entry::index(self.revision, self.key.clone(), value, serde_json::to_vec(value).unwrap_or_default().into())
    }

    /// Returns the value of one label.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.iter().find(|(name, _)| &**name == key).map(|(_, value)| &**value)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn the_stored_version_is_read_without_parsing() {
        let value = json!({"kind": "A", "apiVersion": "x.io/v1", "metadata": {"name": "a"}});
        let entry = Entry::new(7, Arc::new(ObjectKey::new("n", "a")), value);
        for (api_version, expect) in [("x.io/v1", true), ("x.io/v", false), ("x.io/v11", false), ("v1", false)] {
            assert_eq!(entry.has_api_version(api_version), expect, "{api_version}");
        }
        let other = entry.converted(&json!({"apiVersion": "x.io/v2", "metadata": {"resourceVersion": "7"}}));
        assert!(other.has_api_version("x.io/v2"));
        assert_eq!((other.revision, &other.key), (7, &entry.key));
    }

    #[test]
    fn new_entries_carry_their_revision_and_index() {
        let value = json!({"metadata": {"name": "a", "uid": "00000000-0000-4000-8000-000000000001",
            "labels": {"x": "1"}, "ownerReferences": [{"uid": "odd"}]}});
        let entry = Entry::new(7, Arc::new(ObjectKey::new("n", "a")), value);
        assert_eq!(entry.value()["metadata"]["resourceVersion"], "7");
        assert_eq!(entry.label("x"), Some("1"));
        assert_eq!(entry.owners.as_ref(), &[Uid::parse("odd")]);
        let again = Entry::from_json(entry.key.clone(), entry.json.to_vec()).expect("valid");
        assert_eq!((again.revision, again.uid), (7, entry.uid));
    }
}
