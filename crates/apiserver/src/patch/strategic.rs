//! Strategic merge patch: a merge patch that knows which lists are maps.
//!
//! Lists of objects merge by the merge key of their type, lists of scalars as sets, and directives in the patch say
//! the rest: `$patch` (replace, delete, merge), `$setElementOrder/list`, `$deleteFromPrimitiveList/list`, `$retainKeys`.
//! Only built-in types know merge keys, so custom resources do not take such patches.

use std::collections::HashSet;

use serde_json::{Map, Value};

use super::PatchError;
use crate::schema::builtin::Strategy;
use crate::schema::decode::go_kind;
use crate::schema::{TypeRef, go_text};

const DIRECTIVE: &str = "$patch";
const RETAIN_KEYS: &str = "$retainKeys";
const ORDER_PREFIX: &str = "$setElementOrder/";
const DELETE_PREFIX: &str = "$deleteFromPrimitiveList/";

/// The one complaint that is the client's fault in the real server's eyes.
const BAD_RETAIN_KEYS: &str = "invalid patch format of retainKeys";

type Object = Map<String, Value>;

/// Merges a patch into an object of a built-in type.
pub fn strategic_merge_patch(object: Value, patch: &Value, type_ref: TypeRef<'_>) -> Result<Value, PatchError> {
    if patch.is_null() {
        return Ok(object);
    }
    let Value::Object(patch) = patch else {
        return Err(PatchError::Malformed(format!(
            "json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_kind(patch)
        )));
    };
    let Value::Object(object) = object else {
        return Err(PatchError::Malformed("invalid JSON document".to_owned()));
    };
    merge_map(object, patch.clone(), type_ref).map(Value::Object).map_err(|message| match message.as_str() {
        BAD_RETAIN_KEYS => PatchError::Malformed(message),
        _ => PatchError::Failed(message),
    })
}

fn merge_map(mut original: Object, mut patch: Object, type_ref: TypeRef<'_>) -> Result<Object, String> {
    if let Some(directive) = patch.get(DIRECTIVE).cloned() {
        return match directive.as_str() {
            Some("replace") => {
                patch.remove(DIRECTIVE);
                Ok(patch)
            }
            Some("delete") => Ok(Object::new()),
            _ => Err(format!(
                "unknown patch type: {} in map: {}",
                go_text::plain(&directive),
                go_text::plain_map(&patch)
            )),
        };
    }
    retain_keys(&mut original, &mut patch)?;
    merge_ordered_lists(&mut original, &mut patch, type_ref)?;
    for (key, change) in patch {
        let (key, deletes_items) = match key.strip_prefix(DELETE_PREFIX) {
            Some(list) => (list.to_owned(), true),
            None => (key, false),
        };
        if change.is_null() {
            original.remove(&key);
            continue;
        }
        merge_field(&mut original, key, change, deletes_items, type_ref)?;
    }
    Ok(original)
}

fn merge_field(
    original: &mut Object,
    key: String,
    change: Value,
    deletes_items: bool,
    type_ref: TypeRef<'_>,
) -> Result<(), String> {
    let child = type_ref.child(&key).map_or_else(TypeRef::unknown, |(child, _)| child);
    let merged = match (original.remove(&key), change) {
        (Some(Value::Object(old)), Value::Object(change)) => Some(Value::Object(merge_map(old, change, child)?)),
        (Some(Value::Array(old)), Value::Array(change)) => {
            let strategy = type_ref.strategy_of(&key);
            Some(Value::Array(merge_list(old, change, strategy, deletes_items, child, &key)?))
        }
        (old, _) if deletes_items => old,
        (_, mut change) => {
            drop_nulls(&mut change);
            without_directives(change)
        }
    };
    if let Some(merged) = merged {
        original.insert(key, merged);
    }
    Ok(())
}

/// Keeps only the keys that the patch names, where it names any.
fn retain_keys(original: &mut Object, patch: &mut Object) -> Result<(), String> {
    let Some(retained) = patch.remove(RETAIN_KEYS) else { return Ok(()) };
    let wrong = || BAD_RETAIN_KEYS.to_owned();
    let retained: HashSet<&str> = retained.as_array().ok_or_else(wrong)?.iter().filter_map(Value::as_str).collect();
    let is_directive = |key: &str| key.starts_with(DELETE_PREFIX) || key.starts_with(ORDER_PREFIX);
    if patch.iter().any(|(key, value)| !value.is_null() && !is_directive(key) && !retained.contains(key.as_str())) {
        return Err(wrong());
    }
    original.retain(|key, _| retained.contains(key.as_str()));
    Ok(())
}

/// Merges the lists for which the patch gives an order.
fn merge_ordered_lists(original: &mut Object, patch: &mut Object, type_ref: TypeRef<'_>) -> Result<(), String> {
    let orders: Vec<String> = patch.keys().filter(|key| key.starts_with(ORDER_PREFIX)).cloned().collect();
    for directive in orders {
        let order = match patch.remove(&directive) {
            Some(Value::Array(order)) => order,
            Some(other) => {
                return Err(format!("expected a []interface {{}}, but received a {}", go_text::type_name(&other)));
            }
            None => continue,
        };
        let key = directive[ORDER_PREFIX.len()..].to_owned();
        let list = |value: Option<Value>| match value {
            None => Ok(None),
            Some(Value::Array(items)) => Ok(Some(items)),
            Some(other) => Err(format!("expected a []interface {{}}, but received a {}", go_text::type_name(&other))),
        };
        let old = list(original.get(&key).cloned())?;
        let change = list(patch.remove(&key))?;
        let strategy = type_ref.strategy_of(&key);
        let merge_key = strategy.and_then(|strategy| strategy.merge_key);
        check_order(change.as_deref().unwrap_or_default(), &order, merge_key)?;
        let child = type_ref.child(&key).map_or_else(TypeRef::unknown, |(child, _)| child);
        let merged = match (old.clone(), change) {
            (Some(old), None) => old,
            (None, Some(change)) => match without_directives(Value::Array(change)) {
                Some(Value::Array(items)) => items,
                _ => continue,
            },
            (Some(old), Some(change)) => merge_list(old, change, strategy, false, child, &key)?,
            (None, None) => continue,
        };
        let ordered = in_order(merged, &order, old.as_deref().unwrap_or_default(), merge_key)?;
        original.insert(key, Value::Array(ordered));
    }
    Ok(())
}

/// Returns the items of the patch must come in the order that the patch itself gives.
fn check_order(change: &[Value], order: &[Value], merge_key: Option<&str>) -> Result<(), String> {
    if order.is_empty() {
        return Ok(());
    }
    let mut rest = order.iter();
    for item in change.iter().filter(|item| item.get(DIRECTIVE).is_none()) {
        let wanted = identity(item, merge_key)?;
        if !rest.any(|candidate| identity(candidate, merge_key).is_ok_and(|found| found == wanted)) {
            return Err(format!(
                "The order in patch list:\n{}\n doesn't match $setElementOrder list:\n{}\n",
                go_text::plain(&Value::Array(change.to_vec())),
                go_text::plain(&Value::Array(order.to_vec()))
            ));
        }
    }
    Ok(())
}

fn merge_list(
    original: Vec<Value>,
    patch: Vec<Value>,
    strategy: Option<&'static Strategy>,
    deletes_items: bool,
    type_ref: TypeRef<'_>,
    name: &str,
) -> Result<Vec<Value>, String> {
    if deletes_items {
        let gone: HashSet<String> = patch.iter().map(Value::to_string).collect();
        return Ok(original.into_iter().filter(|item| !gone.contains(&item.to_string())).collect());
    }
    if !strategy.is_some_and(|strategy| strategy.merge) {
        return Ok(patch);
    }
    if original.is_empty() && patch.is_empty() {
        return Ok(original);
    }
    let of_objects = original.first().or_else(|| patch.first()).is_some_and(Value::is_object);
    if original.iter().chain(&patch).any(|item| item.is_object() != of_objects || item.is_array()) {
        return Err("list element types are not identical".to_owned());
    }
    if !of_objects {
        let mut seen = HashSet::new();
        let both: Vec<Value> =
            original.iter().chain(&patch).filter(|item| seen.insert(item.to_string())).cloned().collect();
        return in_order(both, &patch, &original, None);
    }
    let Some(merge_key) = strategy.and_then(|strategy| strategy.merge_key) else {
        return Err(format!("cannot merge lists without merge key for {name}"));
    };
    merge_objects(original, patch, merge_key, type_ref)
}

fn merge_objects(
    mut original: Vec<Value>,
    patch: Vec<Value>,
    merge_key: &str,
    type_ref: TypeRef<'_>,
) -> Result<Vec<Value>, String> {
    let mut changes = Vec::new();
    let mut replace = false;
    for item in patch {
        match item.get(DIRECTIVE) {
            None => changes.push(item),
            Some(directive) => match directive.as_str() {
                Some("delete") => {
                    let gone = identity(&item, Some(merge_key))?;
                    original.retain(|old| old.get(merge_key) != Some(&gone));
                }
                Some("replace") => replace = true,
                Some("merge") => return Err("merging lists cannot yet be specified in the patch".to_owned()),
                _ => {
                    return Err(format!(
                        "unknown patch type: {} in map: {}",
                        go_text::plain(directive),
                        go_text::plain(&item)
                    ));
                }
            },
        }
    }
    if replace {
        return Ok(changes);
    }
    let server_order = original.clone();
    let mut merged = original;
    let order = changes.clone();
    for change in changes {
        let key = identity(&change, Some(merge_key))?;
        let Value::Object(change) = change else { continue };
        match merged.iter_mut().find(|old| old.get(merge_key) == Some(&key)) {
            Some(slot) => {
                let Value::Object(old) = std::mem::take(slot) else { continue };
                *slot = Value::Object(merge_map(old, change, type_ref.items())?);
            }
            None => merged.push(Value::Object(change)),
        }
    }
    in_order(merged, &order, &server_order, Some(merge_key))
}

/// Items of the patch in the patch's order, the others where the server had them.
fn in_order(
    merged: Vec<Value>,
    patch_order: &[Value],
    server_order: &[Value],
    merge_key: Option<&str>,
) -> Result<Vec<Value>, String> {
    let place_in = |order: &[Value], item: &Value| -> Result<Option<usize>, String> {
        let wanted = identity(item, merge_key)?;
        Ok(order.iter().position(|candidate| identity(candidate, merge_key).is_ok_and(|found| found == wanted)))
    };
    let mut of_patch = Vec::new();
    let mut of_server = Vec::new();
    for item in merged {
        match place_in(patch_order, &item)? {
            Some(place) => of_patch.push((place, item)),
            None => of_server.push((place_in(server_order, &item)?.unwrap_or(usize::MAX), item)),
        }
    }
    of_patch.sort_by_key(|(place, _)| *place);
    of_server.sort_by_key(|(place, _)| *place);
    let mut out = Vec::with_capacity(of_patch.len() + of_server.len());
    let mut left = of_server.into_iter().peekable();
    let mut right = of_patch.into_iter().peekable();
    while let Some((_, next)) = right.peek() {
        let place = place_in(server_order, next)?;
        match (left.peek(), place) {
            (Some((server_place, _)), Some(place)) if *server_place < place => out.extend(left.next()),
            _ => out.extend(right.next()),
        }
    }
    out.extend(left);
    Ok(out.into_iter().map(|(_, item)| item).collect())
}

/// Returns the identity of an item: its merge key, or itself.
fn identity(item: &Value, merge_key: Option<&str>) -> Result<Value, String> {
    let Some(merge_key) = merge_key else { return Ok(item.clone()) };
    let Value::Object(map) = item else {
        return Err(format!("expected a map[string]interface {{}}, but received a {}", go_text::type_name(item)));
    };
    map.get(merge_key)
        .cloned()
        .ok_or_else(|| format!("map: {} does not contain declared merge key: {merge_key}", go_text::plain_map(map)))
}

fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, child| !child.is_null());
            map.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Returns a value without patch directives; `None` if it is only a directive.
fn without_directives(value: Value) -> Option<Value> {
    match value {
        Value::Object(map) if map.contains_key(DIRECTIVE) => None,
        Value::Object(map) => {
            let kept = map.into_iter().filter_map(|(key, child)| Some((key, without_directives(child)?)));
            Some(Value::Object(kept.collect()))
        }
        Value::Array(items) => Some(Value::Array(items.into_iter().filter_map(without_directives).collect())),
        other => Some(other),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(object: Value, patch: Value, expect: Result<Value, &str>) {
        let pod = TypeRef::of_kind("", "v1", "Pod").unwrap();
        let result = strategic_merge_patch(object, &patch, pod).map_err(|error| error.to_string());
        assert_eq!(result, expect.map_err(str::to_owned), "{patch}");
    }

    fn containers(items: Value) -> Value {
        json!({"spec": {"containers": items}})
    }

    #[test]
    fn lists_merge_by_their_key() {
        check(
            containers(json!([{"name": "a", "image": "1"}, {"name": "b"}])),
            containers(json!([{"name": "a", "image": "2"}, {"name": "c"}])),
            Ok(containers(json!([{"name": "a", "image": "2"}, {"name": "c"}, {"name": "b"}]))),
        );
        check(
            containers(json!([{"name": "a"}, {"name": "b"}])),
            containers(json!([{"name": "a", "$patch": "delete"}])),
            Ok(containers(json!([{"name": "b"}]))),
        );
        check(
            containers(json!([{"name": "a"}, {"name": "b"}])),
            containers(json!([{"$patch": "replace"}, {"name": "c"}])),
            Ok(containers(json!([{"name": "c"}]))),
        );
        check(
            containers(json!([{"name": "a"}])),
            containers(json!([{"image": "x"}])),
            Err("map: map[image:x] does not contain declared merge key: name"),
        );
        check(
            containers(json!([{"name": "a", "args": ["x", "y"]}])),
            containers(json!([{"name": "a", "args": ["z"]}])),
            Ok(containers(json!([{"name": "a", "args": ["z"]}]))),
        );
    }

    #[test]
    fn sets_and_orders() {
        let finalizers = |items: Value| json!({"metadata": {"finalizers": items}});
        check(finalizers(json!(["a"])), finalizers(json!(["b", "a"])), Ok(finalizers(json!(["b", "a"]))));
        check(
            finalizers(json!(["a", "b"])),
            json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["a"]}}),
            Ok(finalizers(json!(["b"]))),
        );
        check(
            containers(json!([{"name": "a"}, {"name": "b"}])),
            json!({"spec": {"$setElementOrder/containers": [{"name": "b"}, {"name": "a"}], "containers": [{"name": "b", "image": "i"}]}}),
            Ok(containers(json!([{"name": "b", "image": "i"}, {"name": "a"}]))),
        );
    }

    #[test]
    fn keys_are_retained_replaced_and_deleted() {
        let volume = |source: Value| json!({"spec": {"volumes": [source]}});
        check(
            volume(json!({"name": "v", "emptyDir": {}})),
            volume(json!({"name": "v", "$retainKeys": ["name", "hostPath"], "hostPath": {"path": "/"}})),
            Ok(volume(json!({"name": "v", "hostPath": {"path": "/"}}))),
        );
        check(
            json!({"metadata": {"labels": {"a": "1", "b": "2"}}}),
            json!({"metadata": {"labels": {"a": null, "c": "3"}}}),
            Ok(json!({"metadata": {"labels": {"b": "2", "c": "3"}}})),
        );
        check(
            json!({"metadata": {"labels": {"a": "1"}}}),
            json!({"metadata": {"labels": {"$patch": "replace", "b": "2"}}}),
            Ok(json!({"metadata": {"labels": {"b": "2"}}})),
        );
    }
}
