//! JSON in the format of Go structs: fields in declaration order, zero values unless `omitempty` is set, quantities and
//! times in canonical form, HTML characters escaped.

use super::types::{Field, Omit, Root, Shape, fields};
use jiff::Timestamp;
use manta_api::{RayClusterSpec, RayJobSpec};
use manta_quantity::Quantity;
use serde_json::{Map, Value, json};
use std::borrow::Cow;

/// Returns a RayCluster's spec as KubeRay writes it.
pub fn cluster_spec(spec: &RayClusterSpec) -> Value {
    to_go_value(&json!(spec), Root::RayClusterSpec)
}

/// Returns a RayJob's spec as KubeRay writes it.
pub fn job_spec(spec: &RayJobSpec) -> Value {
    to_go_value(&json!(spec), Root::RayJobSpec)
}

/// Returns the object after a Go program has read and written it: unknown and empty fields are gone, and
/// fields that are never omitted have appeared. Nulls are gone too, because the API server drops them.
pub fn to_go_value(value: &Value, root: Root) -> Value {
    GoValue::object(value, root.fields()).into_value()
}

/// Returns the text that Go writes for the object, byte for byte.
pub fn to_go_json(value: &Value, root: Root) -> String {
    let mut text = String::new();
    GoValue::object(value, root.fields()).write(&mut text);
    text
}

/// A JSON value with ordered fields.
enum GoValue<'a> {
    Leaf(Cow<'a, Value>),
    List(Vec<GoValue<'a>>),
    Object(Vec<(&'a str, GoValue<'a>)>),
}

impl<'a> GoValue<'a> {
    const NULL: Self = GoValue::Leaf(Cow::Owned(Value::Null));

    fn leaf(value: impl Into<Value>) -> Self {
        GoValue::Leaf(Cow::Owned(value.into()))
    }

    fn object(value: &'a Value, fields: &'a [Field]) -> Self {
        let entry = |field: &'a Field| {
            let given = value.get(field.name).unwrap_or(&Value::Null);
            let omitted = match field.omit {
                Omit::Never => false,
                Omit::Empty => is_empty(given, &field.shape),
                Omit::Zero => given.is_null(),
            };
            (!omitted).then(|| (field.name, GoValue::typed(given, &field.shape)))
        };
        GoValue::Object(fields.iter().filter_map(entry).collect())
    }

    /// Converts a value to a type; a value of another type, which Go would refuse, stays unchanged.
    fn typed(value: &'a Value, shape: &'a Shape) -> Self {
        match (shape, value) {
            (Shape::Pointer(inner), given) => {
                if given.is_null() {
                    GoValue::NULL
                } else {
                    GoValue::typed(given, inner)
                }
            }
            (Shape::Struct(name), given @ (Value::Object(_) | Value::Null)) => GoValue::object(given, fields(name)),
            (Shape::List(inner), Value::Array(items)) => {
                GoValue::List(items.iter().map(|item| GoValue::typed(item, inner)).collect())
            }
            (Shape::Map(inner), Value::Object(entries)) => GoValue::map(entries, |item| GoValue::typed(item, inner)),
            (Shape::Quantity, given) => canonical_quantity(given),
            (Shape::Time, Value::String(text)) => canonical_time(text),
            (Shape::String, Value::Null) => GoValue::leaf(""),
            (Shape::Bool, Value::Null) => GoValue::leaf(false),
            (Shape::Int | Shape::Float | Shape::IntOrString, Value::Null) => GoValue::leaf(0),
            (Shape::Float, Value::Number(number)) => match number.as_f64() {
                Some(whole) if whole.fract() == 0.0 && whole.abs() < 1e15 => GoValue::leaf(whole as i64),
                _ => GoValue::Leaf(Cow::Borrowed(value)),
            },
            _ => GoValue::untyped(value),
        }
    }

    /// Converts a value without a type.
    fn untyped(value: &'a Value) -> Self {
        match value {
            Value::Array(items) => GoValue::List(items.iter().map(GoValue::untyped).collect()),
            Value::Object(entries) => GoValue::map(entries, GoValue::untyped),
            scalar => GoValue::Leaf(Cow::Borrowed(scalar)),
        }
    }

    /// Converts a map, whose keys are sorted.
    fn map(entries: &'a Map<String, Value>, convert: impl Fn(&'a Value) -> Self) -> Self {
        let mut entries: Vec<_> = entries.iter().collect();
        entries.sort_by_key(|(key, _)| *key);
        GoValue::Object(entries.into_iter().map(|(key, item)| (key.as_str(), convert(item))).collect())
    }

    fn into_value(self) -> Value {
        match self {
            GoValue::Leaf(value) => value.into_owned(),
            GoValue::List(items) => Value::Array(items.into_iter().map(GoValue::into_value).collect()),
            GoValue::Object(entries) => {
                let entries = entries.into_iter().map(|(key, node)| (key.to_owned(), node.into_value()));
                Value::Object(entries.filter(|(_, value)| !value.is_null()).collect())
            }
        }
    }

    fn write(&self, out: &mut String) {
        match self {
            GoValue::Leaf(value) => match value.as_str() {
                Some(text) => write_string(out, text),
                None => out.push_str(&value.to_string()),
            },
            GoValue::List(items) => {
                out.push('[');
                for (index, item) in items.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    item.write(out);
                }
                out.push(']');
            }
            GoValue::Object(entries) => {
                out.push('{');
                for (index, (key, node)) in entries.iter().enumerate() {
                    if index > 0 {
                        out.push(',');
                    }
                    write_string(out, key);
                    out.push(':');
                    node.write(out);
                }
                out.push('}');
            }
        }
    }
}

/// Returns whether `omitempty` omits a value, which it never does for structs, quantities and times.
fn is_empty(value: &Value, shape: &Shape) -> bool {
    match (shape, value) {
        (Shape::Struct(_) | Shape::Quantity | Shape::Time | Shape::IntOrString, _) => false,
        (_, Value::Null) => true,
        (Shape::Pointer(_), _) => false,
        (Shape::List(_), Value::Array(items)) => items.is_empty(),
        (Shape::Map(_), Value::Object(entries)) => entries.is_empty(),
        (Shape::String, Value::String(text)) => text.is_empty(),
        (Shape::Bool, Value::Bool(flag)) => !flag,
        (Shape::Int | Shape::Float, Value::Number(number)) => number.as_f64() == Some(0.0),
        _ => false,
    }
}

fn canonical_quantity<'a>(value: &'a Value) -> GoValue<'a> {
    let text = match value {
        Value::Null => return GoValue::leaf("0"),
        Value::String(text) => text.trim().to_owned(),
        Value::Number(number) => number.to_string(),
        _ => return GoValue::untyped(value),
    };
    match Quantity::parse(&text) {
        Ok(quantity) => GoValue::leaf(quantity.to_string()),
        Err(_) => GoValue::untyped(value),
    }
}

/// Returns a time in UTC with whole seconds.
fn canonical_time(text: &str) -> GoValue<'_> {
    match text.parse::<Timestamp>() {
        Ok(time) => GoValue::leaf(time.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()),
        Err(_) => GoValue::leaf(text),
    }
}

/// Writes a string; Go also escapes the characters that could end an HTML script element.
fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\x08' => out.push_str("\\b"),
            '\x0c' => out.push_str("\\f"),
            '<' | '>' | '&' | '\u{2028}' | '\u{2029}' | '\0'..'\x20' => {
                out.push_str(&format!("\\u{:04x}", u32::from(c)));
            }
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn zero_values_are_added_and_empty_ones_omitted() {
        let check = |root: Root, given: Value, expect: &str| assert_eq!(to_go_json(&given, root), expect);
        check(
            Root::RayClusterSpec,
            json!({}),
            r#"{"headGroupSpec":{"template":{"metadata":{},"spec":{"containers":null}},"rayStartParams":null}}"#,
        );
        check(
            Root::RayClusterSpec,
            json!({
                "unknown": 1,
                "rayVersion": "",
                "suspend": false,
                "workerGroupSpecs": [],
                "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [{"resources": {
                    "limits": {"memory": "2048Mi", "cpu": 0.5},
                }}]}}},
            }),
            concat!(
                r#"{"suspend":false,"headGroupSpec":{"template":{"metadata":{},"spec":{"containers":[{"name":"","#,
                r#""resources":{"limits":{"cpu":"500m","memory":"2Gi"}}}]}},"rayStartParams":{}}}"#
            ),
        );
        check(
            Root::RayCluster,
            json!({"metadata": {"name": "a", "creationTimestamp": "2024-01-01T01:00:00.5+01:00"}}),
            concat!(
                r#"{"metadata":{"name":"a","creationTimestamp":"2024-01-01T00:00:00Z"},"spec":{"headGroupSpec":"#,
                r#"{"template":{"metadata":{},"spec":{"containers":null}},"rayStartParams":null}},"status":{"#,
                r#""desiredCPU":"0","desiredMemory":"0","desiredGPU":"0","desiredTPU":"0","head":{}}}"#
            ),
        );
    }

    #[test]
    fn empty_structs_appear_where_go_prints_them() {
        let spec: RayJobSpec = serde_json::from_value(json!({
            "rayClusterSpec": {
                "headGroupSpec": {
                    "headService": {"metadata": {"name": "custom"}},
                    "template": {"spec": {"containers": [{"name": "ray"}]}},
                },
                "workerGroupSpecs": [{"groupName": "a", "template": {"spec": {"containers": []}}}],
            },
            "submitterPodTemplate": {"spec": {"containers": [{"name": "mine", "resources": {"limits": {"cpu": "1"}}}]}},
            "shutdownAfterJobFinishes": false,
            "jobId": "",
            "suspend": true,
        }))
        .unwrap();
        assert_eq!(
            job_spec(&spec),
            json!({
                "rayClusterSpec": {
                    "headGroupSpec": {
                        "headService": {"metadata": {"name": "custom"}, "spec": {}, "status": {"loadBalancer": {}}},
                        "template": {"metadata": {}, "spec": {"containers": [{"name": "ray", "resources": {}}]}},
                    },
                    "workerGroupSpecs": [
                        {"groupName": "a", "scaleStrategy": {}, "template": {"metadata": {}, "spec": {"containers": []}}},
                    ],
                },
                "suspend": true,
                "submitterPodTemplate": {
                    "metadata": {},
                    "spec": {"containers": [{"name": "mine", "resources": {"limits": {"cpu": "1"}}}]},
                },
            })
        );
    }

    #[test]
    fn text_is_escaped_as_in_go() {
        let given = json!({"rayVersion": "<a&b> \"\\\n\r\t\u{8}\u{c}\u{1}\u{7f}\u{2028}\u{2029} grün 日本"});
        let text = to_go_json(&given, Root::RayClusterSpec);
        let expect =
            "\"rayVersion\":\"\\u003ca\\u0026b\\u003e \\\"\\\\\\n\\r\\t\\b\\f\\u0001\u{7f}\\u2028\\u2029 grün 日本\"";
        assert!(text.contains(expect), "{text}");
    }

    #[test]
    fn a_second_conversion_changes_nothing() {
        let given = json!({
            "headGroupSpec": {
                "template": {"spec": {"containers": [{"name": "ray", "ports": [{"containerPort": 1}]}]}},
                "headService": {"spec": {"ports": [{"port": 80}]}},
            },
            "workerGroupSpecs": [{"template": {}, "numOfHosts": 0}],
        });
        let once = to_go_value(&given, Root::RayClusterSpec);
        assert_eq!(to_go_value(&once, Root::RayClusterSpec), once);
        let service = &once["headGroupSpec"]["headService"];
        assert_eq!(
            *service,
            json!({"metadata": {}, "spec": {"ports": [{"port": 80, "targetPort": 0}]}, "status": {"loadBalancer": {}}})
        );
        let group = &once["workerGroupSpecs"][0];
        assert_eq!((group.get("minReplicas"), group.get("numOfHosts")), (None, None));
    }
}
