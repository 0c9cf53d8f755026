//! Which old value a new value came from.
//!
//! Fields and map entries correlate by name and items of list maps by their keys; items of other lists do not at all.
//! Transition rules see the old value, and an error in a part that did not change is forgiven (ratcheting), so that
//! a schema that became stricter does not block every update.

use serde_json::Value;

use super::node::{ListType, Node};

/// The old value of the place we are at, if any.
#[derive(Clone, Copy)]
pub(crate) struct Old<'a> {
    value: Option<&'a Value>,
    /// The old and new value of this place, or of the nearest one around it that had an old value.
    nearest: Option<(&'a Value, &'a Value)>,
}

impl<'a> Old<'a> {
    pub(crate) fn new(old: Option<&'a Value>, new: &'a Value) -> Self {
        Self { value: old, nearest: old.map(|old| (old, new)) }
    }

    pub(crate) fn value(self) -> Option<&'a Value> {
        self.value
    }

    /// Returns whether this place, or else the nearest one around it that had an old value, is as before.
    pub(crate) fn is_unchanged(self) -> bool {
        self.nearest.is_some_and(|(old, new)| old == new)
    }

    /// Returns the old value of a field of an object.
    pub(crate) fn field(self, key: &str, new: &'a Value) -> Self {
        self.below(self.value.and_then(|old| old.get(key)), new)
    }

    /// Returns the old value of an item of a list.
    pub(crate) fn item(self, list: &Node, index: usize, new: &'a Value) -> Self {
        let (ListType::Map(keys), Some(olds)) = (&list.list_type, self.value.and_then(Value::as_array)) else {
            return self.below(None, new);
        };
        let same = |old: &&Value| same_keys(list, keys, old, new);
        // Items rarely move, so the same position is tried first.
        let found = olds.get(index).filter(same).or_else(|| olds.iter().find(same));
        self.below(found, new)
    }

    fn below(self, old: Option<&'a Value>, new: &'a Value) -> Self {
        Self { value: old, nearest: old.map(|old| (old, new)).or(self.nearest) }
    }
}

/// Returns whether two items have the same keys; a key that is not set has its default.
fn same_keys(list: &Node, keys: &[String], a: &Value, b: &Value) -> bool {
    let key_of = |item: &'_ Value, key: &str| -> Option<Value> {
        item.get(key).cloned().or_else(|| {
            let default = list.items.as_ref()?.property(key)?.default.as_ref()?;
            Some(default.as_ref().clone())
        })
    };
    a.is_object() && b.is_object() && keys.iter().all(|key| key_of(a, key) == key_of(b, key))
}
