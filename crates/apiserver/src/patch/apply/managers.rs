//! Who owns what: `metadata.managedFields`, read and written.

use serde_json::{Map, Value, json};

use super::field_set::FieldSet;

/// More updaters than this are folded into one entry, oldest first.
const MAX_UPDATERS: usize = 10;

/// The manager of folded entries.
const FOLDED: &str = "ancient-changes";

/// How a manager got its fields.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Operation {
    Apply,
    Update,
}

/// One entry of `managedFields`.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Entry {
    pub(crate) manager: String,
    pub(crate) operation: Operation,
    pub(crate) api_version: String,
    pub(crate) subresource: String,
    pub(crate) time: Option<String>,
    pub(crate) fields: FieldSet,
}

impl Entry {
    /// Returns whether both entries are of one manager. An applier is the same in every version, an updater is not.
    pub(crate) fn is_same_manager(&self, other: &Self) -> bool {
        self.manager == other.manager
            && self.operation == other.operation
            && self.subresource == other.subresource
            && (self.operation == Operation::Apply || self.api_version == other.api_version)
    }

    fn decode(entry: &Value) -> Option<Self> {
        let text = |key: &str| entry.get(key).and_then(Value::as_str).unwrap_or_default().to_owned();
        let operation = match text("operation").as_str() {
            "Apply" => Operation::Apply,
            "Update" => Operation::Update,
            _ => return None,
        };
        if text("apiVersion").is_empty() || text("fieldsType") != "FieldsV1" {
            return None;
        }
        Some(Self {
            manager: text("manager"),
            operation,
            api_version: text("apiVersion"),
            subresource: text("subresource"),
            time: entry.get("time").and_then(Value::as_str).map(str::to_owned),
            fields: FieldSet::decode(entry.get("fieldsV1").unwrap_or(&json!({})))?,
        })
    }

    fn encode(&self) -> Value {
        let mut out = Map::new();
        let mut put = |key: &str, value: Value| out.insert(key.to_owned(), value);
        put("apiVersion", json!(self.api_version));
        put("fieldsType", json!("FieldsV1"));
        put("fieldsV1", self.fields.encode());
        put("manager", json!(self.manager));
        put("operation", json!(if self.operation == Operation::Apply { "Apply" } else { "Update" }));
        if !self.subresource.is_empty() {
            put("subresource", json!(self.subresource));
        }
        if let Some(time) = &self.time {
            put("time", json!(time));
        }
        Value::Object(out)
    }
}

/// Returns the entries of an object; none if any of them cannot be understood.
pub(crate) fn decode(object: &Value) -> Option<Vec<Entry>> {
    let entries = object.pointer("/metadata/managedFields").and_then(Value::as_array);
    entries.into_iter().flatten().map(Entry::decode).collect()
}

/// Returns whether a client asks to forget all managers: an empty list, or one empty entry.
pub(crate) fn is_reset(object: &Value) -> bool {
    match object.pointer("/metadata/managedFields").and_then(Value::as_array).map(Vec::as_slice) {
        Some([]) => true,
        Some([only]) => only.as_object().is_some_and(Map::is_empty),
        _ => false,
    }
}

/// Writes the entries into an object, appliers first, then by age and name.
pub(crate) fn encode(object: &mut Value, mut entries: Vec<Entry>) {
    entries.sort_by(|a, b| {
        let key =
            |e: &Entry| (e.operation, e.time.clone(), e.manager.clone(), e.api_version.clone(), e.subresource.clone());
        key(a).cmp(&key(b))
    });
    clear(object);
    if entries.is_empty() {
        return;
    }
    let encoded: Vec<Value> = entries.iter().map(Entry::encode).collect();
    if let Some(object) = object.as_object_mut() {
        let metadata = object.entry("metadata").or_insert_with(|| json!({}));
        if let Some(metadata) = metadata.as_object_mut() {
            metadata.insert("managedFields".to_owned(), Value::Array(encoded));
        }
    }
}

/// Takes the entries out of an object.
pub(crate) fn clear(object: &mut Value) {
    if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.remove("managedFields");
    }
}

/// Folds the oldest updaters of a version into one until few enough are left.
pub(crate) fn fold_old_updaters(entries: &mut Vec<Entry>) {
    let mut updaters = entries.iter().filter(|entry| entry.operation == Operation::Update).count();
    if updaters <= MAX_UPDATERS {
        return;
    }
    entries.sort_by(|a, b| (&a.time, &a.manager).cmp(&(&b.time, &b.manager)));
    let mut kept: Vec<Entry> = Vec::with_capacity(entries.len());
    for entry in std::mem::take(entries) {
        let first = kept
            .iter_mut()
            .find(|first| first.operation == Operation::Update && first.api_version == entry.api_version);
        match first {
            Some(bucket) if entry.operation == Operation::Update && updaters > MAX_UPDATERS => {
                bucket.manager = FOLDED.to_owned();
                bucket.subresource = String::new();
                bucket.fields = bucket.fields.union(&entry.fields);
                bucket.time = entry.time;
                updaters -= 1;
            }
            _ => kept.push(entry),
        }
    }
    *entries = kept;
}
