//! Small specs as JSON that tests change by path.

use crate::config::{Config, FeatureGates, Platform};
use serde_json::{Value, json};

/// A change: a JSON pointer, whose missing parents are created, and the new value.
pub(crate) type Edit<'a> = (&'a str, Value);

/// Returns a config with all features enabled.
pub(crate) fn everything() -> Config {
    let platform = Platform { cert_manager: true, ..Platform::default() };
    Config { gates: FeatureGates::default(), platform, ..Config::default() }
}

/// Returns a valid cluster spec with one group `small`, as the API server stores it.
pub(crate) fn cluster_spec() -> Value {
    let template = |name: &str| json!({"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.55.0"}]}});
    json!({
        "rayVersion": "2.55.0",
        "headGroupSpec": {"rayStartParams": {}, "template": template("ray-head")},
        "workerGroupSpecs": [{
            "groupName": "small", "replicas": 1, "minReplicas": 0, "maxReplicas": 5, "numOfHosts": 1,
            "rayStartParams": {}, "template": template("ray-worker"),
        }],
    })
}

/// Applies edits; `null` removes a field.
pub(crate) fn edited(mut value: Value, edits: &[Edit<'_>]) -> Value {
    for (pointer, new) in edits {
        set(&mut value, pointer, new.clone());
    }
    value
}

fn set(value: &mut Value, pointer: &str, new: Value) {
    let (parents, last) = pointer.rsplit_once('/').unwrap_or_else(|| panic!("not a JSON pointer: {pointer}"));
    let mut target = value;
    for part in parents.split('/').skip(1) {
        target = match target {
            Value::Array(items) => &mut items[part.parse::<usize>().unwrap()],
            object => &mut object[unescape(part)],
        };
    }
    match target {
        Value::Array(items) => items[last.parse::<usize>().unwrap()] = new,
        Value::Object(fields) if new.is_null() => {
            fields.remove(&unescape(last));
        }
        object => object[unescape(last)] = new,
    }
}

fn unescape(part: &str) -> String {
    part.replace("~1", "/").replace("~0", "~")
}
