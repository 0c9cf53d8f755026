//! What holds for every patch, also for nonsense.

use proptest::prelude::*;
use serde_json::{Value, json};

use super::apply::{Writer, apply, track_update};
use super::{json_patch, merge_patch, strategic_merge_patch};
use crate::schema::{StructuralSchema, TypeRef};

/// Keys and values that mean something to patches and pods.
fn any_value() -> impl Strategy<Value = Value> {
    let key = || {
        prop::sample::select(vec![
            "spec",
            "metadata",
            "containers",
            "name",
            "env",
            "labels",
            "finalizers",
            "volumes",
            "ports",
            "containerPort",
            "$patch",
            "$retainKeys",
            "$setElementOrder/containers",
            "$deleteFromPrimitiveList/finalizers",
            "a",
            "managedFields",
            "fieldsV1",
        ])
    };
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        (-2_i64..3).prop_map(Value::from),
        key().prop_map(Value::from),
        prop::sample::select(vec!["delete", "replace", "merge", "x", ""]).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 5, move |inner| {
        prop_oneof![
            1 => prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            2 => prop::collection::btree_map(key().prop_map(str::to_owned), inner, 0..5).prop_map(|map| json!(map)),
        ]
    })
}

fn any_operation() -> impl Strategy<Value = Value> {
    let op = prop::sample::select(vec!["add", "remove", "replace", "move", "copy", "test", "frob"]);
    let path = || {
        prop::collection::vec(prop::sample::select(vec!["spec", "a", "0", "-", "-1", "metadata", "~1", ""]), 0..4)
            .prop_map(|steps| steps.iter().map(|step| format!("/{step}")).collect::<String>())
    };
    (op, path(), path(), any_value())
        .prop_map(|(op, path, from, value)| json!({"op": op, "path": path, "from": from, "value": value}))
}

proptest! {
    #[test]
    fn json_patches_never_panic(object in any_value(), patch in prop::collection::vec(any_operation(), 0..5)) {
        let _ = json_patch(object.clone(), &json!(patch));
        let _ = json_patch(object.clone(), &object);
    }

    #[test]
    fn merging_twice_changes_nothing(object in any_value(), patch in any_value()) {
        if let Ok(once) = merge_patch(object, &patch) {
            prop_assert_eq!(merge_patch(once.clone(), &patch), Ok(once));
        }
    }

    #[test]
    fn strategic_patches_never_panic_and_nothing_changes_nothing(object in any_value(), patch in any_value()) {
        let pod = TypeRef::of_kind("", "v1", "Pod").unwrap();
        let _ = strategic_merge_patch(object.clone(), &patch, pod);
        if object.is_object() {
            prop_assert_eq!(strategic_merge_patch(object.clone(), &json!({}), pod), Ok(object));
        }
    }

    #[test]
    fn applying_nonsense_never_panics(live in any_value(), config in any_value(), force in any::<bool>()) {
        let schema = StructuralSchema::compile(&json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})).unwrap();
        let writer = Writer { manager: "m", api_version: "v1", subresource: "", time: "2024-01-01T00:00:00Z", ignored: &[&["status"]] };
        for type_ref in [TypeRef::of_kind("", "v1", "Pod").unwrap(), schema.type_ref(), TypeRef::unknown()] {
            let _ = apply(Some(&live), &config, type_ref, &writer, force);
            let mut new = config.clone();
            track_update(Some(&live), &mut new, type_ref, &writer);
            let _ = type_ref.decode_error(&live);
            let _ = type_ref.unknown_fields(&live);
        }
    }
}
