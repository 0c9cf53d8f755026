//! Objects that a schema accepts, apart from its CEL rules.

use serde_json::{Map, Value, json};

/// Returns an object with every field of the schema.
pub(crate) fn full(kind: &str, schema: &Value) -> Value {
    object(kind, schema, Source { state: 1, per_mille: 1000 })
}

/// Returns an object with some fields of the schema, which depend on the seed.
pub(crate) fn random(kind: &str, schema: &Value, seed: u64) -> Value {
    // Deep fields occur only if most fields are present; a few objects are nearly empty.
    let per_mille = [0, 100, 300, 600][seed as usize % 4];
    object(kind, schema, Source { state: seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1, per_mille })
}

/// Returns the number of scalars in an object.
pub(crate) fn count(value: &Value) -> usize {
    match value {
        Value::Object(fields) => fields.values().map(count).sum(),
        Value::Array(items) => items.iter().map(count).sum(),
        _ => 1,
    }
}

fn object(kind: &str, schema: &Value, mut source: Source) -> Value {
    json!({
        "apiVersion": manta_api::API_VERSION,
        "kind": kind,
        "metadata": {
            "name": "a", "namespace": "b", "generateName": "a-", "uid": "u", "resourceVersion": "7", "generation": 3,
            "labels": {"l": ""}, "annotations": {}, "finalizers": ["ray.io/f"],
            "creationTimestamp": "2024-01-01T00:00:00Z", "deletionTimestamp": "2024-01-01T00:00:01Z",
            "ownerReferences": [{"apiVersion": "v1", "kind": "K", "name": "o", "uid": "v", "controller": true}],
            "managedFields": [{"manager": "m", "operation": "Apply", "fieldsType": "FieldsV1",
                "fieldsV1": {"f:spec": {".": {}, "k:{\"name\":\"a\"}": {}}}}],
        },
        "spec": value(&schema["properties"]["spec"], &mut source),
        "status": value(&schema["properties"]["status"], &mut source),
    })
}

fn value(schema: &Value, source: &mut Source) -> Value {
    if let Some(values) = schema["enum"].as_array() {
        return source.one_of(values);
    }
    if schema["x-kubernetes-int-or-string"] == true {
        return match schema["pattern"].is_string() {
            true => {
                source.one_of(&[json!(0), json!(-1), json!(i64::MAX), json!("100m"), json!("1.50Gi"), json!("+.5e3")])
            }
            false => {
                source.one_of(&[json!(0), json!(i32::MIN), json!(i32::MAX), json!("http"), json!("25%"), json!("1")])
            }
        };
    }
    match (schema["type"].as_str().unwrap_or_default(), schema["format"].as_str()) {
        ("object", _) => fields(schema, source),
        ("array", _) => (0..source.length()).map(|_| value(&schema["items"], source)).collect(),
        ("boolean", _) => source.one_of(&[json!(true), json!(false)]),
        ("integer", Some("int32")) => source.one_of(&[json!(0), json!(1), json!(i32::MIN), json!(i32::MAX)]),
        ("integer", Some("int64")) => source.one_of(&[json!(0), json!(1), json!(i64::MIN), json!(i64::MAX)]),
        ("number", _) => source.one_of(&[json!(0), json!(1), json!(0.1), json!(-2.5), json!(1e300)]),
        ("string", Some("date-time")) => source.one_of(&[
            json!("2024-02-29T23:59:59Z"),
            json!("2024-02-29T23:59:59.123456789+05:30"),
            json!("1969-01-01T00:00:00-08:00"),
        ]),
        ("string", None) => source.one_of(&[json!(""), json!("a"), json!("1"), json!("null"), json!("ü\n\"")]),
        (kind, format) => panic!("no value for type {kind} and format {format:?}"),
    }
}

fn fields(schema: &Value, source: &mut Source) -> Value {
    let required = |name: &str| schema["required"].as_array().is_some_and(|names| names.iter().any(|n| n == name));
    let mut fields = Map::new();
    if let Some(properties) = schema["properties"].as_object() {
        for (name, property) in properties {
            if required(name) || source.wants_field() {
                fields.insert(name.clone(), value(property, source));
            }
        }
    } else {
        for key in 0..source.length() {
            fields.insert(format!("k{key}"), value(&schema["additionalProperties"], source));
        }
    }
    Value::Object(fields)
}

/// A source of choices, which are the same for the same seed.
struct Source {
    state: u64,
    /// The share of optional fields that are present, in thousandths.
    per_mille: u64,
}

impl Source {
    fn next(&mut self) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state >> 11
    }

    fn wants_field(&mut self) -> bool {
        self.next() % 1000 < self.per_mille
    }

    /// Returns the size of a list or map, which is at least one in an object with every field.
    fn length(&mut self) -> u64 {
        if self.per_mille == 1000 { 1 } else { self.next() % 3 }
    }

    fn one_of(&mut self, values: &[Value]) -> Value {
        values[self.next() as usize % values.len()].clone()
    }
}
