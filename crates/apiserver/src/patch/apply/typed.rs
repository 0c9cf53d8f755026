//! Objects seen through their type: which fields they set, how two differ, how two merge.

use std::collections::{BTreeMap, BTreeSet};

use serde_json::{Map, Value};

use super::field_set::{Element, Entry, FieldSet};
use crate::schema::{Expectation, ListType, TypeRef, go_text};

/// How a value is taken apart.
enum Shape<'a> {
    /// Not at all.
    Leaf,
    /// By item.
    List(&'a ListType),
    /// By key.
    Map,
}

fn shape<'a>(type_ref: TypeRef<'a>, value: &Value) -> Shape<'a> {
    let as_list = || match type_ref.list_type() {
        ListType::Atomic => Shape::Leaf,
        list_type => Shape::List(list_type),
    };
    let as_map = || if type_ref.is_atomic_map() { Shape::Leaf } else { Shape::Map };
    match value {
        Value::Array(_) => as_list(),
        Value::Object(_) => as_map(),
        Value::Null => match type_ref.expectation() {
            Some(Expectation::List) => as_list(),
            Some(Expectation::Map) => as_map(),
            _ => Shape::Leaf,
        },
        _ => Shape::Leaf,
    }
}

fn child<'a>(type_ref: TypeRef<'a>, key: &str) -> (TypeRef<'a>, bool) {
    type_ref.child(key).unwrap_or_else(|| (TypeRef::unknown(), false))
}

/// Returns the path element that identifies an item of a list.
fn element_of(list: TypeRef<'_>, list_type: &ListType, item: &Value) -> Result<Element, String> {
    match (list_type, item) {
        (ListType::Map(_), Value::Null) => Err("associative list with keys may not have a null element".to_owned()),
        (ListType::Map(keys), Value::Object(map)) => {
            let items = list.items();
            let set: Map<String, Value> = keys
                .iter()
                .filter_map(|key| Some((key.clone(), map.get(key).or_else(|| items.default_of(key))?.clone())))
                .collect();
            if set.is_empty() {
                let names: Vec<String> = keys.iter().map(|key| go_text::quote(key)).collect();
                return Err(format!(
                    "associative list with keys has an element that omits all key fields [{}] (and doesn't have default values for any key fields)",
                    names.join(" ")
                ));
            }
            Ok(Element::key(set))
        }
        (ListType::Map(_), _) => Err("associative list with keys may not have non-map elements".to_owned()),
        (_, Value::Object(_)) => Err("associative list without keys has an element that's a map type".to_owned()),
        (_, Value::Array(_)) => Err("not supported: associative list with lists as elements".to_owned()),
        (_, Value::Null) => Err("associative list without keys has an element that's an explicit null".to_owned()),
        (_, scalar) => Ok(Element::value(scalar)),
    }
}

/// Returns what is wrong with an applied object, in its type's terms; empty if nothing.
pub(crate) fn check(value: &Value, type_ref: TypeRef<'_>) -> Vec<String> {
    let mut errors = Vec::new();
    check_at(value, type_ref, "", &mut errors);
    errors
}

fn check_at(value: &Value, type_ref: TypeRef<'_>, path: &str, errors: &mut Vec<String>) {
    let mut fail = |message: String| {
        errors.push(if path.is_empty() { message } else { format!("{path}: {message}") });
    };
    match (type_ref.expectation(), value) {
        (_, Value::Null) => {}
        (Some(Expectation::Map) | None, Value::Object(map)) => {
            for (key, value) in map {
                let here = format!("{path}.{key}");
                match type_ref.child(key) {
                    Some((child, _)) => check_at(value, child, &here, errors),
                    None => errors.push(format!("{here}: field not declared in schema")),
                }
            }
        }
        (Some(Expectation::List) | None, Value::Array(items)) => check_list(items, type_ref, path, errors),
        (Some(Expectation::Map), other) => fail(format!("expected map, got &{{{}}}", go_text::plain(other))),
        (Some(Expectation::List), other) => fail(format!("expected list, got &{{{}}}", go_text::plain(other))),
        (Some(Expectation::String), Value::String(_)) => {}
        (Some(Expectation::String), other) => {
            fail(format!("expected string, got &value.valueUnstructured{{Value:{}}}", go_text::plain(other)));
        }
        (Some(Expectation::Numeric), Value::Number(_)) => {}
        (Some(Expectation::Numeric), other) => {
            fail(format!("expected numeric (int or float), got {}", go_text::type_name(other)));
        }
        (Some(Expectation::Boolean), Value::Bool(_)) => {}
        (Some(Expectation::Boolean), other) => fail(format!("expected boolean, got &{{{}}}", go_text::plain(other))),
        (None, _) => {}
    }
}

fn check_list(items: &[Value], type_ref: TypeRef<'_>, path: &str, errors: &mut Vec<String>) {
    let mut seen = BTreeSet::new();
    for (i, item) in items.iter().enumerate() {
        let element = match type_ref.list_type() {
            ListType::Atomic => Element::Index(i64::try_from(i).unwrap_or(i64::MAX)),
            list_type => match element_of(type_ref, list_type, item) {
                Ok(element) => element,
                Err(cause) => {
                    errors.push(format!("{path}: element {i}: {cause}"));
                    return;
                }
            },
        };
        let here = format!("{path}{element}");
        if seen.contains(&element) {
            errors.push(format!("{path}: duplicate entries for key {element}"));
        }
        seen.insert(element);
        check_at(item, type_ref.items(), &here, errors);
    }
}

/// Returns the fields that an object sets.
pub(crate) fn fields_of(value: &Value, type_ref: TypeRef<'_>) -> FieldSet {
    entry_of(value, type_ref).below
}

fn entry_of(value: &Value, type_ref: TypeRef<'_>) -> Entry {
    let mut entry = Entry::default();
    match (shape(type_ref, value), value) {
        (Shape::Map, Value::Object(map)) => {
            for (key, value) in map {
                let (child_type, named) = child(type_ref, key);
                let mut inner = entry_of(value, child_type);
                let empty = value.is_null() || value.as_object().is_some_and(Map::is_empty);
                inner.member |= empty || !named;
                entry.below.put(Element::Field(key.clone()), inner);
            }
        }
        (Shape::List(list_type), Value::Array(items)) => {
            for item in items {
                let Ok(element) = element_of(type_ref, list_type, item) else { continue };
                let inner = entry_of(item, type_ref.items());
                entry.below.put(element, Entry { member: true, ..inner });
            }
        }
        (Shape::Leaf, _) => entry.member = true,
        _ => {}
    }
    entry
}

/// How one object differs from another.
#[derive(Debug, Default)]
pub(crate) struct Comparison {
    pub(crate) removed: FieldSet,
    pub(crate) modified: FieldSet,
    pub(crate) added: FieldSet,
}

impl Comparison {
    /// Returns the value without the fields that do not count.
    pub(crate) fn without(self, ignored: &FieldSet) -> Self {
        if ignored.is_empty() {
            return self;
        }
        Self {
            removed: self.removed.recursive_difference(ignored),
            modified: self.modified.recursive_difference(ignored),
            added: self.added.recursive_difference(ignored),
        }
    }
}

/// Compares two objects of one type.
pub(crate) fn compare(old: &Value, new: &Value, type_ref: TypeRef<'_>) -> Comparison {
    let difference = compare_at(Some(old), Some(new), type_ref);
    Comparison { removed: difference.removed.below, modified: difference.modified.below, added: difference.added.below }
}

/// How one place differs, itself and below.
#[derive(Default)]
struct Difference {
    removed: Entry,
    modified: Entry,
    added: Entry,
}

impl Difference {
    /// Takes over the difference of what is below.
    fn put(&mut self, element: &Element, inner: Difference) {
        self.removed.below.put(element.clone(), inner.removed);
        self.modified.below.put(element.clone(), inner.modified);
        self.added.below.put(element.clone(), inner.added);
    }
}

fn compare_at(old: Option<&Value>, new: Option<&Value>, type_ref: TypeRef<'_>) -> Difference {
    let mut out = Difference::default();
    if old == new {
        return out;
    }
    let same_kind =
        |a: &Value, b: &Value| std::mem::discriminant(a) == std::mem::discriminant(b) || a.is_null() || b.is_null();
    if let (Some(old), Some(new)) = (old, new)
        && !same_kind(old, new)
    {
        // A map that became a scalar, or the like: what was inside is gone, and the place itself changed.
        compare_as(shape(type_ref, old), Some(old), Some(&Value::Null), type_ref, &mut out);
    }
    let Some(shown) = new.filter(|new| !new.is_null()).or(old).or(new) else { return out };
    compare_as(shape(type_ref, shown), old, new, type_ref, &mut out);
    out
}

fn compare_as(shape: Shape<'_>, old: Option<&Value>, new: Option<&Value>, type_ref: TypeRef<'_>, out: &mut Difference) {
    let (old_map, new_map) = (non_empty_map(old), non_empty_map(new));
    let (old_list, new_list) = (items_of(old), items_of(new));
    match shape {
        Shape::Map if old_map.is_some() || new_map.is_some() => {
            let keys: BTreeSet<&String> = old_map.into_iter().chain(new_map).flat_map(Map::keys).collect();
            for key in keys {
                let (before, after) = (old_map.and_then(|map| map.get(key)), new_map.and_then(|map| map.get(key)));
                let inner = compare_at(before, after, child(type_ref, key).0);
                out.put(&Element::Field(key.clone()), inner);
            }
        }
        Shape::List(list_type) if !old_list.is_empty() || !new_list.is_empty() => {
            compare_items(old_list, new_list, type_ref, list_type, out);
        }
        _ if old.is_some() && new.is_some() => out.modified.member = true,
        _ => {}
    }
    out.added.member |= old.is_none();
    out.removed.member |= new.is_none();
}

fn non_empty_map(value: Option<&Value>) -> Option<&Map<String, Value>> {
    value.and_then(Value::as_object).filter(|map| !map.is_empty())
}

fn items_of(value: Option<&Value>) -> &[Value] {
    value.and_then(Value::as_array).map_or(&[], Vec::as_slice)
}

fn compare_items(olds: &[Value], news: &[Value], type_ref: TypeRef<'_>, list_type: &ListType, out: &mut Difference) {
    let old_items = by_element(olds, type_ref, list_type);
    let new_items = by_element(news, type_ref, list_type);
    let elements: BTreeSet<&Element> = old_items.keys().chain(new_items.keys()).collect();
    for element in elements {
        let before = old_items.get(element).map_or(&[][..], Vec::as_slice);
        let after = new_items.get(element).map_or(&[][..], Vec::as_slice);
        let compare_one = |old: Option<&Value>, new: Option<&Value>| compare_at(old, new, type_ref.items());
        let mut inner = match (before, after) {
            ([] | [_], [] | [_]) => compare_one(before.first().copied(), after.first().copied()),
            // Items with the same keys are ambiguous: they are compared as a whole.
            ([_, _, ..], [_, _, ..]) => Difference::default(),
            ([_, _, ..], _) => compare_one(None, after.first().copied()),
            (_, _) => compare_one(before.first().copied(), None),
        };
        match (before.len() > 1, after.len() > 1) {
            (true, true) => inner.modified.member = before != after,
            (true, false) => inner.removed.member = true,
            (false, true) => inner.added.member = true,
            (false, false) => {}
        }
        out.put(element, inner);
    }
}

type ByElement<'a> = BTreeMap<Element, Vec<&'a Value>>;

fn by_element<'a>(items: &'a [Value], type_ref: TypeRef<'_>, list_type: &ListType) -> ByElement<'a> {
    let mut out = ByElement::new();
    for item in items {
        if let Ok(element) = element_of(type_ref, list_type, item) {
            out.entry(element).or_default().push(item);
        }
    }
    out
}

/// Merges an applied object into a live one; nothing is removed.
pub(crate) fn merge(live: &Value, applied: &Value, type_ref: TypeRef<'_>) -> Value {
    merge_at(Some(live), Some(applied), type_ref).unwrap_or_default()
}

fn merge_at(live: Option<&Value>, applied: Option<&Value>, type_ref: TypeRef<'_>) -> Option<Value> {
    let (Some(left), Some(right)) = (live, applied) else { return applied.or(live).cloned() };
    match (shape(type_ref, right), left, right) {
        (Shape::Map, Value::Object(left), Value::Object(right)) if !left.is_empty() || !right.is_empty() => {
            let keys: BTreeSet<&String> = left.keys().chain(right.keys()).collect();
            let merged = keys.into_iter().filter_map(|key| {
                let value = merge_at(left.get(key), right.get(key), child(type_ref, key).0)?;
                Some((key.clone(), value))
            });
            Some(Value::Object(merged.collect()))
        }
        (Shape::List(list_type), Value::Array(left), Value::Array(right)) if !left.is_empty() || !right.is_empty() => {
            Some(Value::Array(merge_lists(left, right, type_ref, list_type)))
        }
        _ => Some(right.clone()),
    }
}

/// Items of the applied list in its order, and the live ones that it does not name where they stood between them.
fn merge_lists(live: &[Value], applied: &[Value], type_ref: TypeRef<'_>, list_type: &ListType) -> Vec<Value> {
    let keyed = |items: &[Value]| -> Vec<(Element, usize)> {
        items
            .iter()
            .enumerate()
            .filter_map(|(i, item)| Some((element_of(type_ref, list_type, item).ok()?, i)))
            .collect()
    };
    let (lefts, rights) = (keyed(live), keyed(applied));
    let live_items = by_element(live, type_ref, list_type);
    let applied_items = by_element(applied, type_ref, list_type);
    let merged = |element: &Element| -> Option<Value> {
        // Live items with the same keys are not merged with: the match would be ambiguous.
        let left = live_items.get(element).filter(|items| items.len() == 1).map(|items| items[0]);
        merge_at(left, applied_items.get(element).map(|items| items[0]), type_ref.items())
    };
    let mut shared = rights.iter().map(|(element, _)| element).filter(|element| live_items.contains_key(*element));
    let mut next_shared = shared.next();
    let mut done = BTreeSet::new();
    let mut out = Vec::with_capacity(live.len() + applied.len());
    let (mut l, mut r) = (0, 0);
    while l < lefts.len() || r < rights.len() {
        if let (Some((left, _)), Some((right, _))) = (lefts.get(l), rights.get(r)) {
            if left == right {
                done.insert(left);
                out.extend(merged(left));
                l += 1;
                r += 1;
                next_shared = shared.next();
                continue;
            }
            if applied_items.contains_key(left) && next_shared.is_some_and(|next| next != left) {
                l += 1;
                continue;
            }
        }
        if let Some((left, at)) = lefts.get(l) {
            if !applied_items.contains_key(left) {
                out.push(live[*at].clone());
                l += 1;
                continue;
            }
            if done.contains(left) {
                l += 1;
            }
        }
        if let Some((right, _)) = rights.get(r) {
            done.insert(right);
            out.extend(merged(right));
            r += 1;
            if next_shared == Some(right) {
                next_shared = shared.next();
            }
        }
    }
    out
}

/// Returns the object without the fields and items of a set; objects and lists left empty go as well.
pub(crate) fn remove(value: &Value, gone: &FieldSet, type_ref: TypeRef<'_>) -> Option<Value> {
    match (shape(type_ref, value), value) {
        (Shape::Map, Value::Object(map)) => {
            let kept: Map<String, Value> = map
                .iter()
                .filter_map(|(key, value)| {
                    let element = Element::Field(key.clone());
                    if gone.has(&element) {
                        return None;
                    }
                    match gone.below(&element) {
                        Some(below) => Some((key.clone(), remove(value, below, child(type_ref, key).0)?)),
                        None => Some((key.clone(), value.clone())),
                    }
                })
                .collect();
            (!kept.is_empty()).then_some(Value::Object(kept))
        }
        (Shape::List(list_type), Value::Array(items)) => {
            let kept: Vec<Value> = items
                .iter()
                .filter_map(|item| {
                    let Ok(element) = element_of(type_ref, list_type, item) else { return Some(item.clone()) };
                    if gone.has(&element) {
                        return None;
                    }
                    match gone.below(&element) {
                        Some(below) => remove(item, below, type_ref.items()),
                        None => Some(item.clone()),
                    }
                })
                .collect();
            (!kept.is_empty()).then_some(Value::Array(kept))
        }
        _ => Some(value.clone()),
    }
}
