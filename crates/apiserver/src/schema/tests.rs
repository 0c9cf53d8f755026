//! Tables over small schemas; the same cases run against the real kube-apiserver in `tests/schema_parity.rs`.

use serde_json::{Value, json};

use super::StructuralSchema;

fn schema(properties: Value) -> StructuralSchema {
    StructuralSchema::compile(&json!({
        "type": "object",
        "properties": {"spec": {"type": "object", "properties": properties}},
    }))
    .unwrap()
}

fn check(properties: Value, spec: Value, expect: &[&str]) {
    let errors = schema(properties).validate(&json!({"spec": spec}), None);
    let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(shown, expect);
}

fn check_update(properties: Value, old: Value, new: Value, expect: &[&str]) {
    let errors = schema(properties).validate(&json!({"spec": new}), Some(&json!({"spec": old})));
    let shown: Vec<String> = errors.iter().map(ToString::to_string).collect();
    assert_eq!(shown, expect);
}

#[test]
fn wrong_types_are_named() {
    let a = |t: &str| json!({"a": {"type": t}});
    check(a("integer"), json!({"a": 1}), &[]);
    check(a("integer"), json!({"a": 1.0}), &[]);
    check(a("number"), json!({"a": 1}), &[]);
    check(
        a("integer"),
        json!({"a": "x"}),
        &[r#"spec.a: Invalid value: "string": spec.a in body must be of type integer: "string""#],
    );
    check(
        a("string"),
        json!({"a": null}),
        &[r#"spec.a: Invalid value: "null": spec.a in body must be of type string: "null""#],
    );
    check(json!({"a": {"type": "string", "nullable": true}}), json!({"a": null}), &[]);
    let int_or_string =
        json!({"a": {"x-kubernetes-int-or-string": true, "anyOf": [{"type": "integer"}, {"type": "string"}]}});
    check(int_or_string.clone(), json!({"a": 1}), &[]);
    check(int_or_string.clone(), json!({"a": "1"}), &[]);
    check(
        int_or_string,
        json!({"a": true}),
        &[
            r#"spec.a: Invalid value: "boolean": spec.a in body must be of type integer,string: "boolean""#,
            r#"<nil>: Invalid value: "": "spec.a" must validate at least one schema (anyOf)"#,
            r#"spec.a: Invalid value: "boolean": spec.a in body must be of type integer: "boolean""#,
        ],
    );
}

#[test]
fn bounds_are_named() {
    check(
        json!({"a": {"type": "integer", "minimum": 0}}),
        json!({"a": -1}),
        &["spec.a: Invalid value: -1: spec.a in body should be greater than or equal to 0"],
    );
    check(
        json!({"a": {"type": "number", "maximum": 1.5, "exclusiveMaximum": true}}),
        json!({"a": 1.5}),
        &["spec.a: Invalid value: 1.5: spec.a in body should be less than 1.5"],
    );
    check(
        json!({"a": {"type": "string", "maxLength": 2}}),
        json!({"a": "abc"}),
        &["spec.a: Too long: may not be more than 2 bytes"],
    );
    check(
        json!({"a": {"type": "string", "pattern": "^[a-z]+$"}}),
        json!({"a": "A"}),
        &[r#"spec.a: Invalid value: "A": spec.a in body should match '^[a-z]+$'"#],
    );
    check(
        json!({"a": {"type": "array", "items": {"type": "string"}, "maxItems": 1}}),
        json!({"a": ["x", "y"]}),
        &["spec.a: Too many: 2: must have at most 1 item"],
    );
    check(
        json!({"a": {"type": "string", "enum": ["x", "y"]}}),
        json!({"a": "z"}),
        &[r#"spec.a: Unsupported value: "z": supported values: "x", "y""#],
    );
    check(
        json!({"a": {"type": "object", "required": ["b"], "properties": {"b": {"type": "string"}}}}),
        json!({"a": {}}),
        &["spec.a.b: Required value"],
    );
    check(
        json!({"a": {"type": "string", "format": "date-time"}}),
        json!({"a": "yesterday"}),
        &[r#"spec.a: Invalid value: "yesterday": spec.a in body must be of type date-time: "yesterday""#],
    );
}

#[test]
fn repeated_keys_and_items_are_found() {
    let list = json!({"a": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "integer"}}},
    }});
    let twice = json!({"a": [{"name": "x", "v": 1}, {"name": "y"}, {"name": "x", "v": 2}, {"name": "x"}]});
    check(list.clone(), twice.clone(), &[r#"spec.a[2]: Duplicate value: {"name":"x"}"#]);
    check_update(list, twice.clone(), twice, &[]);
    let set = json!({"a": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}}});
    check(set, json!({"a": ["x", "x"]}), &[r#"spec.a[1]: Duplicate value: "x""#]);
}

#[test]
fn ratcheting_tolerates_unchanged_errors() {
    let a = json!({"a": {"type": "integer", "minimum": 5}, "b": {"type": "integer"}});
    check_update(a.clone(), json!({"a": 1, "b": 1}), json!({"a": 1, "b": 2}), &[]);
    check_update(
        a,
        json!({"a": 1}),
        json!({"a": 2}),
        &["spec.a: Invalid value: 2: spec.a in body should be greater than or equal to 5"],
    );
}

#[test]
fn rules_see_old_and_new() {
    let immutable = json!({"a": {"type": "string", "x-kubernetes-validations": [
        {"rule": "self == oldSelf", "message": "a is immutable"},
        {"rule": "self in ['x', 'y']", "messageExpression": "'not ' + self"},
    ]}});
    check(immutable.clone(), json!({"a": "x"}), &[]);
    check(immutable.clone(), json!({"a": "z"}), &[r#"spec.a: Invalid value: "string": not z"#]);
    check_update(
        immutable,
        json!({"a": "x"}),
        json!({"a": "y"}),
        &[r#"spec.a: Invalid value: "string": a is immutable"#],
    );
    let by_key = json!({"a": {
        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"],
        "items": {"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "integer"}},
                  "x-kubernetes-validations": [{"rule": "self.v >= oldSelf.v", "fieldPath": ".v", "reason": "FieldValueForbidden"}]},
    }});
    check_update(
        by_key,
        json!({"a": [{"name": "x", "v": 1}, {"name": "y", "v": 2}]}),
        json!({"a": [{"name": "y", "v": 1}, {"name": "x", "v": 1}]}),
        &["spec.a[0].v: Forbidden: failed rule: self.v >= oldSelf.v"],
    );
    let optional = json!({"a": {"type": "integer", "x-kubernetes-validations": [
        {"rule": "!oldSelf.hasValue() || self > oldSelf.value()", "optionalOldSelf": true, "message": "must grow"},
    ]}});
    check(optional.clone(), json!({"a": 1}), &[]);
    check_update(optional, json!({"a": 1}), json!({"a": 1}), &[r#"spec.a: Invalid value: "integer": must grow"#]);
}

#[test]
fn rules_are_not_run_on_a_broken_object() {
    check(
        json!({
            "a": {"type": "string", "x-kubernetes-validations": [{"rule": "self == 'x'"}]},
            "b": {"type": "string"},
        }),
        json!({"a": "y", "b": 1}),
        &[
            r#"spec.b: Invalid value: "integer": spec.b in body must be of type string: "integer""#,
            "<nil>: Invalid value: null: some validation rules were not checked because the object was invalid; \
             correct the existing errors to complete validation",
        ],
    );
}

#[test]
fn unknown_fields_are_pruned_and_named() {
    let schema = StructuralSchema::compile(&json!({
        "type": "object",
        "properties": {
            "spec": {"type": "object", "properties": {
                "known": {"type": "string"},
                "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": true,
                         "properties": {"inner": {"type": "object", "properties": {"a": {"type": "string"}}}}},
                "map": {"type": "object", "additionalProperties": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "list": {"type": "array", "items": {"type": "object", "properties": {"a": {"type": "string"}}}},
                "pod": {"type": "object", "x-kubernetes-embedded-resource": true, "x-kubernetes-preserve-unknown-fields": true},
            }},
        },
    }))
    .unwrap();
    let mut object = json!({
        "apiVersion": "v1", "kind": "K", "metadata": {"name": "n", "oops": 1},
        "extra": true,
        "spec": {
            "known": "k", "b": 1, "a": 2,
            "free": {"anything": {"goes": 1}, "inner": {"a": "x", "gone": 1}},
            "map": {"k": {"a": "x", "gone": 1}},
            "list": [{"a": "x"}, {"gone": 1}],
            "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n", "oops": 1}, "spec": {"kept": 1}},
        },
    });
    assert_eq!(
        schema.unknown_fields(&object),
        [
            r#"unknown field "metadata.oops""#,
            r#"unknown field "extra""#,
            r#"unknown field "spec.a""#,
            r#"unknown field "spec.b""#,
            r#"unknown field "spec.free.inner.gone""#,
            r#"unknown field "spec.list[1].gone""#,
            r#"unknown field "spec.map.k.gone""#,
            r#"unknown field "spec.pod.metadata.oops""#,
        ]
    );
    schema.prune(&mut object);
    assert_eq!(
        object,
        json!({
            "apiVersion": "v1", "kind": "K", "metadata": {"name": "n"},
            "spec": {
                "known": "k",
                "free": {"anything": {"goes": 1}, "inner": {"a": "x"}},
                "map": {"k": {"a": "x"}},
                "list": [{"a": "x"}, {}],
                "pod": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}, "spec": {"kept": 1}},
            },
        })
    );
    assert!(schema.unknown_fields(&object).is_empty());
}

#[test]
fn defaults_fill_and_nulls_vanish() {
    let schema = schema(json!({
        "a": {"type": "integer", "default": 1},
        "b": {"type": "object", "default": {}, "properties": {"c": {"type": "string", "default": "x"}}},
        "n": {"type": "string", "nullable": true, "default": "d"},
        "gone": {"type": "string"},
        "items": {"type": "array", "items": {"type": "object", "properties": {"p": {"type": "string", "default": "TCP"}}}},
    }));
    let mut object = json!({"spec": {"a": null, "n": null, "gone": null, "items": [{}, {"p": "UDP"}]}});
    schema.default(&mut object);
    let expect = json!({"spec": {"a": 1, "b": {"c": "x"}, "n": null, "items": [{"p": "TCP"}, {"p": "UDP"}]}});
    assert_eq!(object, expect);
}

#[test]
fn a_schema_must_be_structural() {
    let check = |schema: Value, expect: &[&str]| {
        assert_eq!(StructuralSchema::compile(&schema).err().unwrap_or_default(), expect);
    };
    check(json!({"type": "object"}), &[]);
    check(
        json!({"properties": {"spec": {"properties": {"a": {"type": "array"}}}}}),
        &[
            "spec.validation.openAPIV3Schema.properties[spec].properties[a].items: Required value: must be specified",
            "spec.validation.openAPIV3Schema.properties[spec].type: Required value: must not be empty for specified object fields",
            "spec.validation.openAPIV3Schema.type: Required value: must not be empty at the root",
        ],
    );
    check(
        json!({"type": "object", "properties": {"a": {"type": "string", "anyOf": [{"type": "string"}]}}}),
        &["spec.validation.openAPIV3Schema.properties[a].anyOf[0].type: Forbidden: must be empty to be structural"],
    );
    check(
        json!({"type": "object", "anyOf": [{"properties": {"b": {"minLength": 1}}}]}),
        &["spec.validation.openAPIV3Schema.properties[b]: Required value: because it is defined in \
           spec.validation.openAPIV3Schema.anyOf[0].properties[b]"],
    );
}

#[test]
fn nesting_is_bounded() {
    let mut deep = json!({"type": "object"});
    for _ in 0..1000 {
        deep = json!({"type": "object", "properties": {"a": deep}});
    }
    assert!(StructuralSchema::compile(&deep).is_err());
}

#[test]
fn rules_have_a_cost_budget() {
    let schema = |rule: &str| {
        StructuralSchema::compile(&json!({"type": "object", "properties": {"spec": {"type": "object",
            "properties": {"list": {"type": "array", "items": {"type": "integer"}}},
            "x-kubernetes-validations": [{"rule": rule}, {"rule": "true"}]}}}))
        .expect("structural")
    };
    let object = |length: usize| json!({"spec": {"list": vec![1; length]}});
    let quadratic = schema("self.list.all(x, self.list.all(y, x == y))");
    assert!(quadratic.validate(&object(300), None).is_empty(), "90 000 iterations are within the budget");
    let start = std::time::Instant::now();
    let errors = quadratic.validate(&object(3_000), None);
    assert_eq!(errors.len(), 1, "{errors:?}");
    assert!(errors[0].to_string().contains("running out of cost budget"), "{}", errors[0]);
    let absorbed = schema("self.list.exists(x, self.list.all(y, self.list.all(z, z > 1 || y == x))) || true");
    absorbed.validate(&object(1_000), None);
    let copying = schema("size(self.list.map(x, x + 1).map(x, x + 1).map(x, x + 1)) > 0");
    copying.validate(&object(30_000), None);
    assert!(start.elapsed() < std::time::Duration::from_secs(30), "took {:?}", start.elapsed());
    assert!(quadratic.validate(&object(3), None).is_empty(), "every object has a budget of its own");
}

#[test]
fn optional_fields_may_be_missing() {
    let object = json!({"spec": {"a": "x", "deep": {"b": 1}}});
    for (expression, expect) in [
        ("object.spec.?missing.orValue('d') == 'd'", true),
        ("object.spec.?a.orValue('d') == 'x'", true),
        ("object.spec.?missing.?b.orValue(7) == 7", true),
        ("object.spec.?deep.?b.orValue(7) == 1", true),
        ("object.spec.?missing.hasValue()", false),
        ("object.?metadata.?annotations != object.spec.?a", true),
    ] {
        let held = super::condition_holds(expression, &[("object", &object)]);
        assert_eq!(held, Ok(expect), "{expression}");
    }
}
