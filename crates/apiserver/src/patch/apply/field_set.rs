//! Sets of fields, and their form in `managedFields` (FieldsV1).
//!
//! A set is a tree of path elements. A node can be a member itself, have members below, or both; in FieldsV1 a member
//! with members below says so by a `.` entry.

use std::collections::BTreeMap;
use std::fmt;

use serde_json::{Map, Value};

use crate::schema::TypeRef;
use crate::schema::go_text;

/// One step of a path into an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Element {
    /// A field, or a key of a map.
    Field(String),
    /// An item of a list map, by its keys: a JSON object with sorted keys.
    Key(String),
    /// An item of a set, as JSON.
    Value(String),
    /// An item by position.
    Index(i64),
}

impl Element {
    pub(crate) fn key(keys: Map<String, Value>) -> Self {
        Self::Key(go_text::json(&Value::Object(keys)))
    }

    pub(crate) fn value(value: &Value) -> Self {
        Self::Value(go_text::json(value))
    }

    fn encode(&self) -> String {
        match self {
            Self::Field(name) => format!("f:{name}"),
            Self::Key(keys) => format!("k:{keys}"),
            Self::Value(value) => format!("v:{value}"),
            Self::Index(index) => format!("i:{index}"),
        }
    }

    fn decode(text: &str) -> Option<Self> {
        let rest = text.get(2..)?;
        match text.get(..2)? {
            "f:" => Some(Self::Field(rest.to_owned())),
            "k:" => match serde_json::from_str(rest).ok()? {
                Value::Object(keys) => Some(Self::key(keys)),
                _ => None,
            },
            "v:" => Some(Self::value(&serde_json::from_str(rest).ok()?)),
            "i:" => Some(Self::Index(rest.parse().ok()?)),
            _ => None,
        }
    }
}

impl fmt::Display for Element {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Field(name) => write!(f, ".{name}"),
            Self::Key(keys) => {
                let keys: Map<String, Value> = serde_json::from_str(keys).unwrap_or_default();
                let shown: Vec<String> =
                    keys.iter().map(|(key, value)| format!("{key}={}", go_text::bad_value(value))).collect();
                write!(f, "[{}]", shown.join(","))
            }
            Self::Value(value) => {
                let value: Value = serde_json::from_str(value).unwrap_or_default();
                write!(f, "[={}]", go_text::bad_value(&value))
            }
            Self::Index(index) => write!(f, "[{index}]"),
        }
    }
}

/// A set of paths.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct FieldSet {
    nodes: BTreeMap<Element, Entry>,
}

/// One element of a set: whether it is a member, and the members below it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) member: bool,
    pub(crate) below: FieldSet,
}

impl Entry {
    fn is_empty(&self) -> bool {
        !self.member && self.below.is_empty()
    }
}

impl FieldSet {
    /// Returns a set of paths of plain fields.
    pub(crate) fn of_fields(paths: &[&[&str]]) -> Self {
        let mut set = Self::default();
        for path in paths {
            let path: Vec<Element> = path.iter().map(|name| Element::Field((*name).to_owned())).collect();
            set.insert(&path);
        }
        set
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.nodes.is_empty()
    }

    /// Inserts the entry of an element unless it is empty.
    pub(crate) fn put(&mut self, element: Element, entry: Entry) {
        if !entry.is_empty() {
            self.nodes.insert(element, entry);
        }
    }

    /// Adds a path, without its parents. The whole object is never owned, so an empty path is nothing.
    fn insert(&mut self, path: &[Element]) {
        let Some((first, rest)) = path.split_first() else { return };
        let entry = self.nodes.entry(first.clone()).or_default();
        if rest.is_empty() {
            entry.member = true;
        } else {
            entry.below.insert(rest);
        }
    }

    pub(crate) fn has(&self, element: &Element) -> bool {
        self.nodes.get(element).is_some_and(|entry| entry.member)
    }

    /// Returns whether a whole path is a member.
    pub(crate) fn has_path(&self, path: &[Element]) -> bool {
        match path {
            [] => false,
            [last] => self.has(last),
            [first, rest @ ..] => self.below(first).is_some_and(|below| below.has_path(rest)),
        }
    }

    pub(crate) fn below(&self, element: &Element) -> Option<&FieldSet> {
        self.nodes.get(element).map(|entry| &entry.below).filter(|below| !below.is_empty())
    }

    pub(crate) fn union(&self, other: &Self) -> Self {
        let mut out = self.clone();
        for (element, entry) in &other.nodes {
            let mine = out.nodes.entry(element.clone()).or_default();
            mine.member |= entry.member;
            if !entry.below.is_empty() {
                mine.below = mine.below.union(&entry.below);
            }
        }
        out
    }

    pub(crate) fn intersection(&self, other: &Self) -> Self {
        self.combine(|element, entry| {
            let theirs = other.nodes.get(element)?;
            Some(Entry { member: entry.member && theirs.member, below: entry.below.intersection(&theirs.below) })
        })
    }

    /// Returns the value without the members of the other set; what lies below them stays.
    pub(crate) fn difference(&self, other: &Self) -> Self {
        self.combine(|element, entry| {
            Some(match other.nodes.get(element) {
                None => entry.clone(),
                Some(theirs) => {
                    Entry { member: entry.member && !theirs.member, below: entry.below.difference(&theirs.below) }
                }
            })
        })
    }

    /// Returns the value without the members of the other set and all that lies below them.
    pub(crate) fn recursive_difference(&self, other: &Self) -> Self {
        self.combine(|element, entry| match other.nodes.get(element) {
            None => Some(entry.clone()),
            Some(theirs) if theirs.member => None,
            Some(theirs) => {
                Some(Entry { member: entry.member, below: entry.below.recursive_difference(&theirs.below) })
            }
        })
    }

    fn combine(&self, mut make: impl FnMut(&Element, &Entry) -> Option<Entry>) -> Self {
        let nodes = self.nodes.iter().filter_map(|(element, entry)| {
            let made = make(element, entry).filter(|made| !made.is_empty())?;
            Some((element.clone(), made))
        });
        Self { nodes: nodes.collect() }
    }

    /// Returns the value with the named fields on the way to members: owning `a.b` means having set `a`.
    pub(crate) fn with_named_parents(&self, type_ref: TypeRef<'_>) -> Self {
        self.combine(|element, entry| {
            let (child, named) = match element {
                Element::Field(name) => type_ref.child(name).unwrap_or_else(|| (TypeRef::unknown(), false)),
                _ => (type_ref.items(), false),
            };
            Some(Entry {
                member: entry.member || (named && !entry.below.is_empty()),
                below: entry.below.with_named_parents(child),
            })
        })
    }

    /// Returns every path of the set: the members of a level before what is below them.
    pub(crate) fn paths(&self) -> Vec<Vec<Element>> {
        let mut out = Vec::new();
        self.collect(&mut Vec::new(), &mut out);
        out
    }

    fn collect(&self, prefix: &mut Vec<Element>, out: &mut Vec<Vec<Element>>) {
        for (element, entry) in &self.nodes {
            if entry.member {
                out.push(prefix.iter().chain([element]).cloned().collect());
            }
        }
        for (element, entry) in &self.nodes {
            prefix.push(element.clone());
            entry.below.collect(prefix, out);
            prefix.pop();
        }
    }

    /// Returns the set as FieldsV1.
    pub(crate) fn encode(&self) -> Value {
        let entries = self.nodes.iter().map(|(element, entry)| {
            let mut below = entry.below.encode();
            if let (true, false, Value::Object(map)) = (entry.member, entry.below.is_empty(), &mut below) {
                map.insert(".".to_owned(), Value::Object(Map::new()));
            }
            (element.encode(), below)
        });
        Value::Object(entries.collect())
    }

    /// Returns a set from FieldsV1; none if it is not that.
    pub(crate) fn decode(fields: &Value) -> Option<Self> {
        let mut set = Self::default();
        for (key, below) in fields.as_object()? {
            if key == "." {
                continue;
            }
            let map = below.as_object()?;
            let entry = Entry { member: map.is_empty() || map.contains_key("."), below: Self::decode(below)? };
            set.nodes.insert(Element::decode(key)?, entry);
        }
        Some(set)
    }
}

/// Returns a path as conflicts print it.
pub(crate) fn show_path(path: &[Element]) -> String {
    path.iter().map(Element::to_string).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn set(fields: Value) -> FieldSet {
        FieldSet::decode(&fields).unwrap()
    }

    #[test]
    fn fields_v1_reads_back() {
        let fields = json!({
            "f:metadata": {"f:labels": {".": {}, "f:app": {}}},
            "f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {".": {}, "f:port": {}}}, "f:x": {"v:\"a\"": {}, "i:0": {}}},
        });
        assert_eq!(set(fields.clone()).encode(), fields);
        assert_eq!(FieldSet::decode(&json!({"x": {}})), None);
        assert_eq!(FieldSet::decode(&json!({"f:a": 1})), None);
    }

    #[test]
    fn differences() {
        let all = set(json!({"f:a": {".": {}, "f:b": {}}, "f:c": {}}));
        assert_eq!(all.difference(&set(json!({"f:a": {}}))).encode(), json!({"f:a": {"f:b": {}}, "f:c": {}}));
        assert_eq!(all.recursive_difference(&set(json!({"f:a": {}}))).encode(), json!({"f:c": {}}));
        assert_eq!(all.intersection(&set(json!({"f:a": {"f:b": {}}}))).encode(), json!({"f:a": {"f:b": {}}}));
    }

    #[test]
    fn paths_print_as_conflicts_do() {
        let paths =
            set(json!({"f:spec": {"f:ports": {"k:{\"port\":80,\"protocol\":\"TCP\"}": {}, "v:\"x\"": {}}}})).paths();
        let shown: Vec<String> = paths.iter().map(|path| show_path(path)).collect();
        assert_eq!(shown, [r#".spec.ports[port=80,protocol="TCP"]"#, r#".spec.ports[="x"]"#]);
    }
}
