//! Reads what a browser asks.
//!
//! Names become part of paths at the API server, so only what can be a name is one: nothing that a browser sends leads to
//! another path than the page's own requests.

use super::failure::Failure;
use serde::de::DeserializeOwned;
use serde_json::Value;

/// The keys whose values are names of objects.
const NAMES: [&str; 5] = ["namespace", "name", "pod", "cluster", "container"];

/// Reads the JSON body of a request.
pub(super) fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Failure> {
    let value = serde_json::from_slice(body)
        .map_err(|error| Failure::bad_request(format!("the request is no valid JSON: {error}")))?;
    read(value).map_err(Failure::bad_request)
}

/// Reads a question in which every name can be one.
pub(super) fn read<T: DeserializeOwned>(value: Value) -> Result<T, String> {
    check_names(&value)?;
    serde_json::from_value(value).map_err(|error| format!("the request is not understood: {error}"))
}

fn check_names(value: &Value) -> Result<(), String> {
    value.as_object().into_iter().flatten().try_for_each(|(key, value)| match value {
        Value::String(text) if NAMES.contains(&key.as_str()) => check_name(text),
        nested => check_names(nested),
    })
}

/// Fails unless a text can be the name of an object.
pub(super) fn check_name(text: &str) -> Result<(), String> {
    let is_name = text.chars().all(|c| c.is_ascii_alphanumeric() || "-_.".contains(c)) && !text.starts_with('.');
    if is_name { Ok(()) } else { Err(format!("{text:?} is no name of an object")) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn names_that_lead_elsewhere_are_refused() {
        let check = |value: Value, expect: bool| {
            assert_eq!(read::<Value>(value.clone()).is_ok(), expect, "{value}");
        };
        check(json!({"kind": "RayJob", "namespace": "default", "name": "train-1.a"}), true);
        check(json!({"namespace": null, "text": "a: /b?c"}), true);
        for wrong in ["a/pods", "..", "../../secrets", "a?watch=1", "a#b", "a%2fb", "a b", "a\nb", ".", "ä"] {
            for key in NAMES {
                check(json!({"open": {"object": {key: wrong}}}), false);
                check(json!({key: wrong}), false);
            }
        }
    }
}
