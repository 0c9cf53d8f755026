//! Ownership told as small stories; `tests/patch_parity.rs` tells the same ones to the real server.

use serde_json::{Value, json};

use super::*;
use crate::schema::StructuralSchema;

/// An object under way, and who writes to it.
struct Story {
    schema: StructuralSchema,
    object: Option<Value>,
    clock: u32,
}

impl Story {
    fn new(spec: Value) -> Self {
        let schema = StructuralSchema::compile(&json!({
            "type": "object",
            "properties": {"spec": {"type": "object", "properties": spec}, "status": {"type": "object"}},
        }))
        .unwrap();
        Self { schema, object: None, clock: 0 }
    }

    fn apply(&mut self, manager: &str, spec: Value) -> Result<(), ApplyError> {
        self.apply_with(manager, spec, false)
    }

    fn apply_with(&mut self, manager: &str, spec: Value, force: bool) -> Result<(), ApplyError> {
        self.clock += 1;
        let time = format!("2024-01-01T00:00:{:02}Z", self.clock);
        let writer = Writer { manager, api_version: "t/v1", subresource: "", time: &time, ignored: &[&["status"]] };
        let config = json!({"apiVersion": "t/v1", "kind": "T", "metadata": {"name": "n"}, "spec": spec});
        self.object = Some(apply(self.object.as_ref(), &config, self.schema.type_ref(), &writer, force)?);
        Ok(())
    }

    fn update(&mut self, manager: &str, change: impl FnOnce(&mut Value)) {
        self.clock += 1;
        let time = format!("2024-01-01T00:00:{:02}Z", self.clock);
        let writer = Writer { manager, api_version: "t/v1", subresource: "", time: &time, ignored: &[&["status"]] };
        let mut new = self
            .object
            .clone()
            .unwrap_or_else(|| json!({"apiVersion": "t/v1", "kind": "T", "metadata": {"name": "n"}}));
        change(&mut new);
        track_update(self.object.as_ref(), &mut new, self.schema.type_ref(), &writer);
        self.object = Some(new);
    }

    fn spec(&self) -> &Value {
        &self.object.as_ref().unwrap()["spec"]
    }

    /// Returns what a manager owns of the spec.
    fn owned(&self, manager: &str) -> Value {
        let entries =
            self.object.as_ref().unwrap()["metadata"]["managedFields"].as_array().cloned().unwrap_or_default();
        let entry = entries.iter().find(|entry| entry["manager"] == manager);
        entry.map_or(Value::Null, |entry| entry["fieldsV1"]["f:spec"].clone())
    }
}

#[test]
fn fields_no_longer_applied_go_unless_others_own_them() {
    let mut story = Story::new(json!({"a": {"type": "string"}, "b": {"type": "string"}, "c": {"type": "string"}}));
    story.apply("one", json!({"a": "1", "b": "1"})).unwrap();
    story.apply("two", json!({"b": "1", "c": "2"})).unwrap();
    story.apply("one", json!({})).unwrap();
    assert_eq!(*story.spec(), json!({"b": "1", "c": "2"}));
    assert_eq!(story.owned("one"), json!({}));
    assert_eq!(story.owned("two"), json!({"f:b": {}, "f:c": {}}));
}

#[test]
fn a_changed_field_of_another_is_a_conflict() {
    let mut story = Story::new(json!({"a": {"type": "string"}, "b": {"type": "string"}}));
    story.apply("one", json!({"a": "1", "b": "1"})).unwrap();
    story.update("editor", |object| object["spec"]["b"] = json!("2"));
    assert_eq!(story.owned("one"), json!({"f:a": {}}));
    assert_eq!(story.owned("editor"), json!({"f:b": {}}));
    let error = story.apply("two", json!({"a": "9", "b": "9"})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 2 conflicts: conflicts with \"editor\" using t/v1:\n- .spec.b\nconflicts with \"one\":\n- .spec.a"
    );
    let error = story.apply("two", json!({"a": "9"})).unwrap_err();
    assert_eq!(error.to_string(), "Apply failed with 1 conflict: conflict with \"one\": .spec.a");
    story.apply_with("two", json!({"a": "9", "b": "9"}), true).unwrap();
    assert_eq!(story.owned("two"), json!({"f:a": {}, "f:b": {}}));
    assert_eq!(story.owned("editor"), Value::Null);
}

#[test]
fn list_maps_merge_by_key_and_sets_by_value() {
    let items = json!({"type": "object", "properties": {"name": {"type": "string"}, "v": {"type": "integer"}}});
    let mut story = Story::new(json!({
        "list": {"type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["name"], "items": items},
        "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
        "atomic": {"type": "array", "items": {"type": "string"}},
    }));
    story
        .apply("one", json!({"list": [{"name": "a", "v": 1}, {"name": "b"}], "set": ["x", "y"], "atomic": ["p"]}))
        .unwrap();
    story.apply("two", json!({"list": [{"name": "c", "v": 3}], "set": ["z"]})).unwrap();
    assert_eq!(
        *story.spec(),
        json!({"list": [{"name": "a", "v": 1}, {"name": "b"}, {"name": "c", "v": 3}], "set": ["x", "y", "z"], "atomic": ["p"]})
    );
    assert_eq!(
        story.owned("two"),
        json!({"f:list": {"k:{\"name\":\"c\"}": {".": {}, "f:name": {}, "f:v": {}}}, "f:set": {"v:\"z\"": {}}})
    );
    story.apply("one", json!({"list": [{"name": "b"}], "set": ["y"]})).unwrap();
    assert_eq!(*story.spec(), json!({"list": [{"name": "b"}, {"name": "c", "v": 3}], "set": ["y", "z"]}));
    assert!(story.apply("two", json!({"atomic": ["q"]})).is_ok());
    let error = story.apply("one", json!({"list": [{"name": "b"}, {"name": "b"}]})).unwrap_err();
    assert!(error.to_string().ends_with("duplicate entries for key [name=\"b\"]"), "{error}");
}

#[test]
fn the_first_apply_finds_the_fields_of_before() {
    let mut story = Story::new(json!({"a": {"type": "string"}}));
    story.object =
        Some(json!({"apiVersion": "t/v1", "kind": "T", "metadata": {"name": "n", "uid": "u"}, "spec": {"a": "1"}}));
    let error = story.apply("one", json!({"a": "2"})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "Apply failed with 1 conflict: conflict with \"before-first-apply\" using t/v1: .spec.a"
    );
    story.update("editor", |object| object["spec"]["a"] = json!("3"));
    assert_eq!(story.object.as_ref().unwrap()["metadata"].get("managedFields"), None, "untracked stays untracked");
}

#[test]
fn an_unknown_field_cannot_be_applied() {
    let mut story = Story::new(json!({"a": {"type": "string"}}));
    let error = story.apply("one", json!({"b": 1})).unwrap_err();
    assert_eq!(
        error.to_string(),
        "failed to create typed patch object (/n; t/v1, Kind=T): .spec.b: field not declared in schema"
    );
}

#[test]
fn managers_can_be_reset_and_many_are_folded() {
    let mut story = Story::new(json!({"a": {"type": "object", "additionalProperties": {"type": "string"}}}));
    for i in 0..15 {
        story.update(&format!("m{i:02}"), |object| object["spec"]["a"][format!("k{i}")] = json!("v"));
    }
    let entries = story.object.as_ref().unwrap()["metadata"]["managedFields"].as_array().unwrap().clone();
    assert_eq!(entries.len(), 10);
    assert_eq!(entries[0]["manager"], "ancient-changes");
    story.update("x", |object| object["metadata"]["managedFields"] = json!([{}]));
    assert_eq!(story.object.as_ref().unwrap()["metadata"].get("managedFields"), None);
}
