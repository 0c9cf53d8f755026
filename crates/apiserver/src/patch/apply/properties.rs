//! What holds for every object and every configuration.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::field_set::FieldSet;
use super::*;
use crate::schema::StructuralSchema;

fn schema() -> StructuralSchema {
    let item = json!({"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "integer"}}});
    StructuralSchema::compile(&json!({
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "string"},
            "n": {"type": "object", "properties": {"x": {"type": "integer"}, "y": {"type": "integer"}}},
            "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": item},
            "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
            "atomic": {"type": "array", "items": {"type": "integer"}},
            "map": {"type": "object", "additionalProperties": {"type": "string"}},
            "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true},
        }}},
    }))
    .unwrap()
}

fn writer(manager: &str) -> Writer<'_> {
    Writer { manager, api_version: "t/v1", subresource: "", time: "2024-01-01T00:00:00Z", ignored: &[] }
}

fn object(spec: &Value) -> Value {
    json!({"apiVersion": "t/v1", "kind": "T", "metadata": {"name": "n"}, "spec": spec})
}

/// Returns a spec that fits the schema, with none, some or all of the fields.
fn any_spec() -> impl Strategy<Value = Value> {
    let word = || prop::sample::select(vec!["p", "q", "r"]);
    let number = 0_i64..3;
    let item = (prop::option::of(number.clone())).prop_map(|v| v.map_or_else(|| json!({}), |v| json!({"v": v})));
    let list = prop::collection::btree_map(word(), item, 1..3).prop_map(|items| {
        let named = items.into_iter().map(|(name, mut item)| {
            item["name"] = json!(name);
            item
        });
        Value::Array(named.collect())
    });
    let nested = prop::collection::btree_map(prop::sample::select(vec!["x", "y"]), number.clone(), 1..3);
    (
        prop::option::of(word().prop_map(|w| json!(w))),
        prop::option::of(nested.prop_map(|map| json!(map))),
        prop::option::of(list),
        prop::option::of(prop::collection::btree_set(word(), 1..3).prop_map(|set| json!(set))),
        prop::option::of(prop::collection::vec(number, 1..3).prop_map(|list| json!(list))),
        prop::option::of(prop::collection::btree_map(word(), word(), 1..3).prop_map(|map| json!(map))),
        prop::option::of(prop::collection::btree_map(word(), any_leaf(), 1..3).prop_map(|map| json!(map))),
    )
        .prop_map(|(a, n, list, set, atomic, map, free)| {
            let fields =
                [("a", a), ("n", n), ("list", list), ("set", set), ("atomic", atomic), ("map", map), ("free", free)];
            let set = fields.into_iter().filter_map(|(name, value)| Some((name.to_owned(), value?)));
            Value::Object(set.collect::<Map<_, _>>())
        })
}

fn any_leaf() -> impl Strategy<Value = Value> {
    prop_oneof![Just(json!(1)), Just(json!("s")), Just(json!([1, 2])), Just(json!({"k": 1}))]
}

/// Returns every field that the manager owns by an apply.
fn owned(object: &Value, manager: &str) -> FieldSet {
    let entries = managers::decode(object).unwrap();
    entries.into_iter().find(|entry| entry.manager == manager).map(|entry| entry.fields).unwrap_or_default()
}

proptest! {
    #[test]
    fn applying_twice_changes_nothing(first in any_spec(), second in any_spec()) {
        let schema = schema();
        let live = apply(None, &object(&first), schema.type_ref(), &writer("other"), false).unwrap();
        let once = apply(Some(&live), &object(&second), schema.type_ref(), &writer("me"), true).unwrap();
        let twice = apply(Some(&once), &object(&second), schema.type_ref(), &writer("me"), false);
        prop_assert_eq!(twice, Ok(once));
    }

    #[test]
    fn what_is_applied_is_there_and_owned(first in any_spec(), second in any_spec()) {
        let schema = schema();
        let live = apply(None, &object(&first), schema.type_ref(), &writer("other"), false).unwrap();
        let result = apply(Some(&live), &object(&second), schema.type_ref(), &writer("me"), true).unwrap();
        let wanted = typed::fields_of(&object(&second), schema.type_ref()).difference(&SERVER_FIELDS);
        prop_assert_eq!(owned(&result, "me"), wanted);
        let gone = typed::compare(&object(&second), &result, schema.type_ref());
        prop_assert!(gone.removed.is_empty() && gone.modified.is_empty(), "{:?}", gone);
    }

    #[test]
    fn a_lone_manager_leaves_only_what_it_applies(first in any_spec(), second in any_spec()) {
        let schema = schema();
        let live = apply(None, &object(&first), schema.type_ref(), &writer("me"), false).unwrap();
        let mut result = apply(Some(&live), &object(&second), schema.type_ref(), &writer("me"), false).unwrap();
        managers::clear(&mut result);
        let left = typed::fields_of(&result, schema.type_ref());
        let applied = typed::fields_of(&object(&second), schema.type_ref());
        prop_assert_eq!(left, applied);
    }

    #[test]
    fn no_two_managers_own_a_field_that_one_changed(first in any_spec(), second in any_spec()) {
        let schema = schema();
        let live = apply(None, &object(&first), schema.type_ref(), &writer("one"), false).unwrap();
        let mut new = live.clone();
        new["spec"] = second;
        track_update(Some(&live), &mut new, schema.type_ref(), &writer("two"));
        let both = owned(&new, "one").intersection(&owned(&new, "two"));
        prop_assert!(both.is_empty(), "{:?}", both);
        let mut again = new.clone();
        track_update(Some(&new), &mut again, schema.type_ref(), &writer("two"));
        prop_assert_eq!(again, new);
    }

    #[test]
    fn fields_survive_their_encoding(spec in any_spec()) {
        let set = typed::fields_of(&object(&spec), schema().type_ref());
        prop_assert_eq!(FieldSet::decode(&set.encode()), Some(set));
    }
}
