//! Comparison of an object before and after a round trip.
//!
//! Both must have the same fields with equal values, where
//! - numbers are compared by value: `1` equals `1.0`;
//! - a quantity that was written as a number may become the text of that number: `1` and `"1"`;
//! - times are equal if they are in the same second, because Kubernetes' `Time` has no fractions;
//! - a `null` is the same as a missing field if the schema allows it.

use jiff::Timestamp;
use serde_json::Value;
use std::collections::BTreeSet;

/// Returns the differences as lines of text.
pub(crate) fn differences(schema: &Value, before: &Value, after: &Value) -> Vec<String> {
    let mut found = Vec::new();
    compare("", schema, before, after, &mut found);
    found
}

fn compare(path: &str, schema: &Value, before: &Value, after: &Value, found: &mut Vec<String>) {
    match (before, after) {
        (Value::Object(a), Value::Object(b)) => {
            for name in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                let inner = match schema["properties"].get(name) {
                    Some(property) => property,
                    None => &schema["additionalProperties"],
                };
                let value = |side: &serde_json::Map<String, Value>| side.get(name).cloned().unwrap_or_default();
                compare(&format!("{path}.{name}"), inner, &value(a), &value(b), found);
            }
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            for (at, (a, b)) in a.iter().zip(b).enumerate() {
                compare(&format!("{path}[{at}]"), &schema["items"], a, b, found);
            }
        }
        _ if equal(schema, before, after) => {}
        _ => found.push(format!("{path}: {before} became {after}")),
    }
}

fn equal(schema: &Value, before: &Value, after: &Value) -> bool {
    match (before, after) {
        (Value::Number(a), Value::Number(b)) => a == b || a.as_f64() == b.as_f64(),
        (Value::Number(a), Value::String(b)) => is_quantity(schema) && a.to_string() == *b,
        (Value::String(a), Value::String(b)) if schema["format"] == "date-time" => {
            a == b
                || a.parse::<Timestamp>()
                    .ok()
                    .zip(b.parse().ok())
                    .is_some_and(|(a, b): (Timestamp, Timestamp)| a.as_second() == b.as_second())
        }
        _ => before == after,
    }
}

fn is_quantity(schema: &Value) -> bool {
    schema["x-kubernetes-int-or-string"] == true && schema["pattern"].is_string()
}

#[test]
fn equal_values_in_other_notations_are_no_differences() {
    use serde_json::json;
    let quantity = json!({"x-kubernetes-int-or-string": true, "pattern": "^[0-9]+$"});
    let int_or_string = json!({"x-kubernetes-int-or-string": true});
    let time = json!({"type": "string", "format": "date-time"});
    let check = |schema: &Value, before: Value, after: Value, same: bool| {
        let schema = json!({"properties": {"list": {"items": schema}}});
        let found = differences(&schema, &json!({"list": [before]}), &json!({"list": [after]}));
        assert_eq!(found.is_empty(), same, "{found:?}");
    };
    check(&quantity, json!(1), json!("1"), true);
    check(&quantity, json!(1), json!("2"), false);
    check(&quantity, json!("1"), json!(1), false);
    check(&int_or_string, json!(1), json!("1"), false);
    check(&time, json!("2024-01-01T02:00:00+02:00"), json!("2024-01-01T00:00:00Z"), true);
    check(&time, json!("2024-01-01T02:00:00Z"), json!("2024-01-01T00:00:00Z"), false);
    check(&json!({}), json!(1), json!(1.0), true);
    check(&json!({}), json!({}), json!(null), false);
    check(&json!({}), json!({"a": {}}), json!({}), false);
    check(&json!({}), json!({}), json!({"a": 1}), false);
    check(&json!({}), json!(null), json!(null), true);
}
