//! What holds for every schema and every object.

use proptest::prelude::*;
use serde_json::{Map, Value, json};

use super::StructuralSchema;

const NAMES: [&str; 4] = ["a", "b", "c", "metadata"];

/// Returns a schema that is structural, or nearly.
fn any_schema() -> impl Strategy<Value = Value> {
    let scalar = prop_oneof![
        Just(json!({"type": "string", "minLength": 1, "default": "d"})),
        Just(json!({"type": "string", "nullable": true, "enum": ["x", "y"]})),
        Just(json!({"type": "string", "pattern": "^[a-z\\d]+$", "format": "date-time"})),
        Just(json!({"type": "integer", "minimum": 0, "maximum": 5, "multipleOf": 2})),
        Just(json!({"type": "number", "exclusiveMinimum": true, "minimum": 0.5})),
        Just(json!({"type": "boolean", "default": true})),
        Just(json!({"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]})),
        Just(json!({"x-kubernetes-preserve-unknown-fields": true})),
        Just(json!({"type": "string", "x-kubernetes-validations": [{"rule": "self == oldSelf || self.size() > 1"}]})),
        Just(json!({"type": "wrong"})),
    ];
    scalar.prop_recursive(4, 24, 4, |inner| {
        let list_type = prop::sample::select(vec!["atomic", "set", "map"]);
        prop_oneof![
            prop::collection::btree_map(prop::sample::select(NAMES.to_vec()), inner.clone(), 0..4)
                .prop_map(|properties| { json!({"type": "object", "required": ["a"], "properties": properties}) }),
            inner
                .clone()
                .prop_map(|values| json!({"type": "object", "maxProperties": 2, "additionalProperties": values})),
            (inner.clone(), list_type).prop_map(|(items, list_type)| json!({
                "type": "array", "items": items, "maxItems": 3, "x-kubernetes-list-type": list_type,
                "x-kubernetes-list-map-keys": if list_type == "map" { json!(["a"]) } else { json!([]) },
            })),
            inner.prop_map(|spec| json!({
                "type": "object", "x-kubernetes-preserve-unknown-fields": true, "properties": {"a": spec},
                "x-kubernetes-validations": [{"rule": "has(self.a) || self.b[0] > 1", "messageExpression": "self.c"}],
            })),
        ]
    })
}

fn any_value() -> impl Strategy<Value = Value> {
    let leaf = prop_oneof![
        Just(json!(null)),
        any::<bool>().prop_map(Value::from),
        any::<i64>().prop_map(Value::from),
        (-3_i64..7).prop_map(Value::from),
        any::<f64>().prop_map(Value::from),
        prop::sample::select(vec!["x", "", "2024-01-01T00:00:00Z", "é"]).prop_map(Value::from),
    ];
    leaf.prop_recursive(5, 40, 4, |inner| {
        prop_oneof![
            prop::collection::vec(inner.clone(), 0..4).prop_map(Value::from),
            prop::collection::btree_map(prop::sample::select(NAMES.to_vec()), inner, 0..4).prop_map(|map| json!(map)),
        ]
    })
}

fn root(spec: &Value) -> Value {
    json!({"type": "object", "properties": {"spec": spec}})
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn pruning_and_defaulting_come_to_rest(spec in any_schema(), value in any_value()) {
        let Ok(schema) = StructuralSchema::compile(&root(&spec)) else { return Ok(()) };
        let mut object = json!({"spec": value});
        schema.prune(&mut object);
        prop_assert_eq!(schema.unknown_fields(&object), Vec::<String>::new());
        schema.default(&mut object);
        let mut again = object.clone();
        schema.prune(&mut again);
        schema.default(&mut again);
        prop_assert_eq!(again, object);
    }

    #[test]
    fn an_unchanged_object_is_never_refused_by_its_schema(spec in any_schema(), value in any_value()) {
        let Ok(schema) = StructuralSchema::compile(&root(&spec)) else { return Ok(()) };
        let object = json!({"spec": value});
        let _ = schema.validate(&object, None);
        let rules = |error: &&super::FieldError| error.body.contains("rule") || error.body.contains("oldSelf");
        let errors = schema.validate(&object, Some(&object));
        prop_assert!(errors.iter().all(|error| rules(&error)), "{:?}", errors);
    }

    #[test]
    fn nothing_that_is_called_a_schema_panics(schema in any_value(), spec in any_schema()) {
        let _ = StructuralSchema::compile(&schema);
        let mut mixed = Map::new();
        for key in ["properties", "items", "additionalProperties", "anyOf", "x-kubernetes-validations", "default", "enum"] {
            mixed.insert(key.to_owned(), schema.clone());
        }
        mixed.insert("type".to_owned(), json!("object"));
        let _ = StructuralSchema::compile(&Value::Object(mixed));
        let _ = StructuralSchema::compile(&spec);
    }
}
