//! JSON merge patch (RFC 7396).

use serde_json::Value;

use super::PatchError;
use crate::schema::decode::go_kind;

/// Merges a patch into an object: null removes, objects merge, all else replaces.
pub fn merge_patch(mut object: Value, patch: &Value) -> Result<Value, PatchError> {
    if patch.is_null() {
        return Err(PatchError::Malformed("Invalid JSON Patch".to_owned()));
    }
    if !patch.is_object() {
        return Err(PatchError::Malformed(format!(
            "error decoding patch: json: cannot unmarshal {} into Go value of type map[string]interface {{}}",
            go_kind(patch)
        )));
    }
    merge(&mut object, patch);
    Ok(object)
}

fn merge(target: &mut Value, patch: &Value) {
    let Value::Object(changes) = patch else {
        *target = patch.clone();
        return;
    };
    if !target.is_object() {
        *target = Value::Object(serde_json::Map::new());
    }
    let Value::Object(fields) = target else { return };
    for (key, change) in changes {
        if change.is_null() {
            fields.remove(key);
        } else {
            merge(fields.entry(key.clone()).or_insert(Value::Null), change);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn null_removes_and_the_rest_merges() {
        let check = |object: Value, patch: Value, expect: Value| {
            assert_eq!(merge_patch(object, &patch).unwrap(), expect, "{patch}");
        };
        check(json!({"a": 1, "b": {"c": 1}}), json!({"a": null, "b": {"d": 2}}), json!({"b": {"c": 1, "d": 2}}));
        check(json!({"a": [1]}), json!({"a": [2]}), json!({"a": [2]}));
        check(json!({"a": 1}), json!({"a": {"b": null, "c": 1}}), json!({"a": {"c": 1}}));
        assert!(merge_patch(json!({}), &json!([])).is_err());
    }
}
