//! JSON patch (RFC 6902) as the real server does it.
//!
//! It is laxer than the standard: replacing a key that is not there adds it, negative indices count from the end, and
//! testing a missing key for null succeeds. Clients rely on all three.

use serde_json::Value;

use super::PatchError;
use crate::schema::decode::go_kind;
use crate::store::nests_deeper_than;

/// More operations than this are refused.
const MAX_OPERATIONS: usize = 10_000;

/// What all copies of one patch may add up to, in bytes: each may double the document otherwise.
const MAX_COPIED: usize = 3 * 1024 * 1024;

/// The deepest nesting that a patch may produce: more than can be stored, and far less than exhausts a stack.
const MAX_DEPTH: usize = 256;

/// Applies the operations in order.
pub fn json_patch(mut object: Value, patch: &Value) -> Result<Value, PatchError> {
    let operations = match patch {
        Value::Array(operations) => operations,
        Value::Null => return Ok(object),
        other => return Err(undecodable(other, "value of type []handlers.jsonPatchOp")),
    };
    for operation in operations {
        check_operation(operation)?;
    }
    if operations.len() > MAX_OPERATIONS {
        return Err(PatchError::TooLarge(format!(
            "The allowed maximum operations in a JSON patch is {MAX_OPERATIONS}, got {}",
            operations.len()
        )));
    }
    let mut copied = 0;
    for operation in operations {
        run(&mut object, operation, &mut copied).map_err(PatchError::Inapplicable)?;
    }
    Ok(object)
}

fn undecodable(found: &Value, place: &str) -> PatchError {
    PatchError::Malformed(format!("error decoding patch: json: cannot unmarshal {} into Go {place}", go_kind(found)))
}

fn check_operation(operation: &Value) -> Result<(), PatchError> {
    let fields = match operation {
        Value::Object(fields) => fields,
        Value::Null => return Ok(()),
        other => return Err(undecodable(other, "value of type handlers.jsonPatchOp")),
    };
    for key in ["op", "path", "from"] {
        if let Some(wrong) = fields.get(key).filter(|value| !value.is_string() && !value.is_null()) {
            return Err(undecodable(wrong, &format!("struct field jsonPatchOp.{key} of type string")));
        }
    }
    Ok(())
}

fn run(object: &mut Value, operation: &Value, copied: &mut usize) -> Result<(), String> {
    let text = |key: &str| operation.get(key).and_then(Value::as_str);
    let value = || operation.get("value").cloned().unwrap_or_default();
    let kind = text("op").unwrap_or("unknown");
    let path =
        |what: &str| text("path").ok_or_else(|| format!("{kind} operation failed to decode {what}: missing value"));
    match kind {
        "add" => add(object, path("path")?, value()),
        "remove" => remove(object, path("path")?),
        "replace" => replace(object, path("path")?, value()),
        "move" => {
            let from = text("from").ok_or("move operation failed to decode from: missing value")?;
            let moved = take(object, from)?;
            add_to(object, path("path")?, moved, "move operation does not apply: doc is missing destination path: ")
                .map_err(|e| e.placed(|p| format!("error in move for path: '{p}'")))
        }
        "copy" => {
            let from = text("from").ok_or("copy operation failed to decode from: missing value")?;
            let source = copy_of(object, from)?;
            *copied += source.to_string().len();
            if *copied > MAX_COPIED {
                return Err(format!(
                    "Unable to complete the copy, the accumulated size increase of copy is {copied}, exceeding the limit {MAX_COPIED}"
                ));
            }
            add_to(object, path("path")?, source, "copy operation does not apply: doc is missing destination path: ")
                .map_err(|e| e.placed(|_| "error while adding value during copy".to_owned()))
        }
        "test" => test(object, path("path")?, &value()),
        other => Err(format!("Unexpected kind: {other}")),
    }
}

/// Why a step failed: there was nothing to step into, or the last step was wrong.
enum AddError<'a> {
    NoContainer(String),
    Wrong { path: &'a str, cause: String },
}

impl AddError<'_> {
    fn placed(self, wrap: impl FnOnce(&str) -> String) -> String {
        match self {
            Self::NoContainer(message) => message,
            Self::Wrong { path, cause } => format!("{}: {cause}", wrap(path)),
        }
    }
}

/// Refuses a value that would nest too deeply at a path: copies into copies double the depth each time.
fn check_depth(path: &str, value: &Value) -> Result<(), String> {
    let steps = path.matches('/').count();
    match steps > MAX_DEPTH || nests_deeper_than(value, MAX_DEPTH - steps) {
        true => Err(format!("the value at {path} nests deeper than {MAX_DEPTH} levels")),
        false => Ok(()),
    }
}

fn add(object: &mut Value, path: &str, value: Value) -> Result<(), String> {
    check_depth(path, &value)?;
    let Some((container, key)) = find(object, path) else {
        return Err(format!("add operation does not apply: doc is missing path: \"{path}\": missing value"));
    };
    insert(container, &key, value).map_err(|cause| format!("error in add for path: '{path}': {cause}"))
}

fn add_to<'a>(object: &mut Value, path: &'a str, value: Value, missing: &str) -> Result<(), AddError<'a>> {
    if let Err(cause) = check_depth(path, &value) {
        return Err(AddError::Wrong { path, cause });
    }
    match find(object, path) {
        None => Err(AddError::NoContainer(format!("{missing}{path}: missing value"))),
        Some((container, key)) => insert(container, &key, value).map_err(|cause| AddError::Wrong { path, cause }),
    }
}

fn insert(container: &mut Value, key: &str, value: Value) -> Result<(), String> {
    match container {
        Value::Object(map) => {
            map.insert(key.to_owned(), value);
            Ok(())
        }
        Value::Array(items) => {
            if key == "-" {
                items.push(value);
                return Ok(());
            }
            let index = parse_index(key).map_err(|e| format!("value was not a proper array index: '{key}': {e}"))?;
            let at = resolve(index, items.len() + 1)?;
            items.insert(at, value);
            Ok(())
        }
        _ => Err("missing value".to_owned()),
    }
}

fn remove(object: &mut Value, path: &str) -> Result<(), String> {
    let Some((container, key)) = find(object, path) else {
        return Err(format!("remove operation does not apply: doc is missing path: \"{path}\": missing value"));
    };
    remove_from(container, &key).map(drop).map_err(|cause| format!("error in remove for path: '{path}': {cause}"))
}

fn remove_from(container: &mut Value, key: &str) -> Result<Value, String> {
    match container {
        Value::Object(map) => {
            map.remove(key).ok_or_else(|| format!("Unable to remove nonexistent key: {key}: missing value"))
        }
        Value::Array(items) => {
            let at = resolve(parse_index(key)?, items.len())?;
            Ok(items.remove(at))
        }
        _ => Err("missing value".to_owned()),
    }
}

fn replace(object: &mut Value, path: &str, value: Value) -> Result<(), String> {
    check_depth(path, &value)?;
    if path.is_empty() {
        if !value.is_object() && !value.is_array() {
            return Err("replace operation value must be object or array".to_owned());
        }
        *object = value;
        return Ok(());
    }
    let Some((container, key)) = find(object, path) else {
        return Err(format!("replace operation does not apply: doc is missing path: {path}: missing value"));
    };
    match container {
        Value::Array(items) => {
            let at = parse_index(&key).and_then(|index| resolve(index, items.len()));
            let at =
                at.map_err(|_| format!("replace operation does not apply: doc is missing key: {path}: missing value"))?;
            items[at] = value;
            Ok(())
        }
        other => insert(other, &key, value),
    }
}

fn take(object: &mut Value, from: &str) -> Result<Value, String> {
    let Some((container, key)) = find(object, from) else {
        return Err(format!("move operation does not apply: doc is missing from path: {from}: missing value"));
    };
    remove_from(container, &key).map_err(|cause| format!("error in move for path: '{key}': {cause}"))
}

fn copy_of(object: &mut Value, from: &str) -> Result<Value, String> {
    let Some((container, key)) = find(object, from) else {
        return Err(format!("copy operation does not apply: doc is missing from path: {from}: missing value"));
    };
    get(container, &key)
        .map(|found| found.cloned().unwrap_or_default())
        .map_err(|cause| format!("error in copy for from: '{from}': {cause}"))
}

fn test(object: &mut Value, path: &str, expected: &Value) -> Result<(), String> {
    let failed = || Err(format!("testing value {path} failed: test failed"));
    if path.is_empty() {
        return if object == expected { Ok(()) } else { failed() };
    }
    let Some((container, key)) = find(object, path) else {
        return Err(format!("test operation does not apply: is missing path: {path}: missing value"));
    };
    let found = get(container, &key).map_err(|cause| format!("error in test for path: '{path}': {cause}"))?;
    if found.unwrap_or(&Value::Null) == expected { Ok(()) } else { failed() }
}

fn get<'a>(container: &'a Value, key: &str) -> Result<Option<&'a Value>, String> {
    match container {
        Value::Object(map) => Ok(map.get(key)),
        Value::Array(items) => Ok(items.get(resolve(parse_index(key)?, items.len())?)),
        _ => Ok(None),
    }
}

/// Returns the object or list that the last step of a path leads into, and that step.
fn find<'a>(object: &'a mut Value, path: &str) -> Option<(&'a mut Value, String)> {
    let (parents, last) = path.rsplit_once('/')?;
    let mut here = object;
    for step in parents.split('/').skip(1) {
        let step = unescape(step);
        here = match here {
            Value::Object(map) => map.get_mut(&step)?,
            Value::Array(items) => {
                let at = parse_index(&step).ok().and_then(|index| resolve(index, items.len()).ok())?;
                items.get_mut(at)?
            }
            _ => return None,
        };
    }
    (here.is_object() || here.is_array()).then(|| (here, unescape(last)))
}

fn unescape(step: &str) -> String {
    step.replace("~1", "/").replace("~0", "~")
}

fn parse_index(key: &str) -> Result<i64, String> {
    key.parse().map_err(|_| format!("strconv.Atoi: parsing {}: invalid syntax", crate::schema::go_text::quote(key)))
}

fn resolve(index: i64, length: usize) -> Result<usize, String> {
    let wrong = || format!("Unable to access invalid index: {index}: invalid index referenced");
    let length = i64::try_from(length).map_err(|_| wrong())?;
    let at = if index < 0 { index + length } else { index };
    if at < 0 || at >= length {
        return Err(wrong());
    }
    usize::try_from(at).map_err(|_| wrong())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn check(object: Value, patch: Value, expect: Result<Value, &str>) {
        let result = json_patch(object, &patch).map_err(|error| error.to_string());
        assert_eq!(result, expect.map_err(str::to_owned), "{patch}");
    }

    #[test]
    fn operations_follow_rfc_6902() {
        check(json!({"a": 1}), json!([{"op": "add", "path": "/b", "value": 2}]), Ok(json!({"a": 1, "b": 2})));
        check(json!({"a": [1, 2]}), json!([{"op": "add", "path": "/a/1", "value": 9}]), Ok(json!({"a": [1, 9, 2]})));
        check(json!({"a": [1]}), json!([{"op": "add", "path": "/a/-", "value": 2}]), Ok(json!({"a": [1, 2]})));
        check(json!({"a": [1, 2]}), json!([{"op": "remove", "path": "/a/-1"}]), Ok(json!({"a": [1]})));
        check(json!({}), json!([{"op": "replace", "path": "/a", "value": 1}]), Ok(json!({"a": 1})));
        check(json!({"a/b": 1}), json!([{"op": "remove", "path": "/a~1b"}]), Ok(json!({})));
        check(json!({"a": 1}), json!([{"op": "move", "from": "/a", "path": "/b"}]), Ok(json!({"b": 1})));
        check(json!({"a": 1}), json!([{"op": "copy", "from": "/a", "path": "/b"}]), Ok(json!({"a": 1, "b": 1})));
        check(json!({"a": 1}), json!([{"op": "test", "path": "/b", "value": null}]), Ok(json!({"a": 1})));
    }

    #[test]
    fn failures_say_where() {
        check(
            json!({}),
            json!([{"op": "remove", "path": "/a"}]),
            Err("error in remove for path: '/a': Unable to remove nonexistent key: a: missing value"),
        );
        check(
            json!({}),
            json!([{"op": "add", "path": "/a/b", "value": 1}]),
            Err("add operation does not apply: doc is missing path: \"/a/b\": missing value"),
        );
        check(
            json!({"a": 1}),
            json!([{"op": "test", "path": "/a", "value": 2}]),
            Err("testing value /a failed: test failed"),
        );
        check(
            json!({"a": []}),
            json!([{"op": "add", "path": "/a/x", "value": 2}]),
            Err(
                "error in add for path: '/a/x': value was not a proper array index: 'x': strconv.Atoi: parsing \"x\": invalid syntax",
            ),
        );
        check(json!({}), json!([{"op": "frob", "path": "/a"}]), Err("Unexpected kind: frob"));
        assert!(matches!(json_patch(json!({}), &json!({})), Err(PatchError::Malformed(_))));
    }

    #[test]
    fn copies_cannot_nest_without_bound() {
        let copies: Vec<Value> = (0..12)
            .map(|depth| json!({"op": "copy", "from": "/a", "path": format!("/a{}/b", "/b".repeat((1 << depth) - 1))}))
            .collect();
        let patched = json_patch(json!({"a": {"x": 1}}), &Value::from(copies));
        assert!(matches!(patched, Err(PatchError::Inapplicable(why)) if why.contains("nests deeper")), "refused");
    }

    #[test]
    fn copies_cannot_grow_without_bound() {
        let doubling: Vec<Value> = (0..60).map(|_| json!({"op": "copy", "from": "/a", "path": "/a/-"})).collect();
        assert!(matches!(json_patch(json!({"a": ["x"]}), &json!(doubling)), Err(PatchError::Inapplicable(_))));
    }
}
