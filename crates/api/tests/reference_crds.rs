//! Compares our `v1` CRDs with those of KubeRay v1.7.0, path by path.
//!
//! A path points into the schema (`v1.spec.managedBy`, `[]` for list items, `{}` for map values) or to another part of the
//! CRD: names, scope, printer columns, subresources. At each path every keyword is compared: type, format, required, enum,
//! default, pattern, bounds, CEL rules with their messages, and `x-kubernetes-*` markers. Numbers are compared by value (0
//! equals 0.0), and the order of `required` and `enum` is ignored.

#![allow(clippy::unwrap_used)]

use manta_api::crd::{self, Versions};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

/// Intended differences: end of a path, keyword, reason.
const DIFFERENCES: &[(&str, &str, &str)] = &[];

#[test]
#[cfg_attr(not(has_shared), ignore = "needs ../shared")]
fn v1_crds_equal_the_reference_except_for_listed_differences() {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/crds");
    let mut paths = 0;
    let mut unlisted = Vec::new();
    let mut met = BTreeSet::new();
    for ours in crd::all(Versions::V1) {
        let name = ours.metadata.name.clone().unwrap();
        let text = std::fs::read_to_string(folder.join(format!("{name}.json"))).unwrap();
        let theirs = keywords_by_path(&serde_json::from_str(&text).unwrap());
        let ours = keywords_by_path(&serde_json::to_value(&ours).unwrap());
        let all: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        paths += all.len();
        for path in all {
            for (keyword, ours, theirs) in differences(ours.get(path), theirs.get(path)) {
                match DIFFERENCES.iter().position(|(end, listed, _)| path.ends_with(end) && keyword == *listed) {
                    Some(at) => _ = met.insert(at),
                    None => unlisted.push(format!("{name} {path} {keyword}: ours {ours}, theirs {theirs}")),
                }
            }
        }
    }
    println!("compared {paths} paths of 4 CRDs; {} listed differences", DIFFERENCES.len());
    assert!(unlisted.is_empty(), "{} unlisted differences:\n{}", unlisted.len(), unlisted.join("\n"));
    let gone: Vec<_> = (0..DIFFERENCES.len()).filter(|at| !met.contains(at)).map(|at| DIFFERENCES[at]).collect();
    assert!(gone.is_empty(), "listed differences that no longer exist: {gone:#?}");
}

/// Returns the keywords at every path of a CRD.
fn keywords_by_path(crd: &Value) -> BTreeMap<String, Map<String, Value>> {
    let mut keywords = BTreeMap::new();
    keywords.insert("names".to_owned(), crd["spec"]["names"].as_object().unwrap().clone());
    let mut shell = crd["spec"].as_object().unwrap().clone();
    shell.retain(|key, _| key != "names" && key != "versions");
    shell.insert("apiVersion".to_owned(), crd["apiVersion"].clone());
    shell.insert("metadata".to_owned(), crd["metadata"].clone());
    keywords.insert("shell".to_owned(), shell);
    for version in crd["spec"]["versions"].as_array().unwrap() {
        let name = version["name"].as_str().unwrap();
        let mut version = version.as_object().unwrap().clone();
        let schema = version.remove("schema").unwrap();
        keywords.insert(name.to_owned(), version);
        collect(name, &schema["openAPIV3Schema"], &mut keywords);
    }
    keywords
}

fn collect(path: &str, schema: &Value, by_path: &mut BTreeMap<String, Map<String, Value>>) {
    let mut keywords = schema.as_object().unwrap_or_else(|| panic!("no object at {path}")).clone();
    if let Some(Value::Object(properties)) = keywords.remove("properties") {
        for (name, property) in &properties {
            collect(&format!("{path}.{name}"), property, by_path);
        }
    }
    if let Some(items) = keywords.remove("items") {
        collect(&format!("{path}[]"), &items, by_path);
    }
    if let Some(values) = keywords.remove("additionalProperties") {
        collect(&format!("{path}{{}}"), &values, by_path);
    }
    for unordered in ["required", "enum"] {
        if let Some(Value::Array(values)) = keywords.get_mut(unordered) {
            values.sort_by_key(Value::to_string);
        }
    }
    by_path.entry(path.to_owned()).or_default().extend(keywords);
}

/// Returns the differences at one path: keyword, our value, their value.
fn differences(ours: Option<&Map<String, Value>>, theirs: Option<&Map<String, Value>>) -> Vec<(String, Value, Value)> {
    let (Some(ours), Some(theirs)) = (ours, theirs) else {
        return vec![("property".to_owned(), ours.is_some().into(), theirs.is_some().into())];
    };
    let value = |side: &Map<String, Value>, key: &String| side.get(key).cloned().unwrap_or_default();
    let keywords: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    keywords
        .into_iter()
        .filter(|key| !same(&value(ours, key), &value(theirs, key)))
        .map(|key| (key.clone(), value(ours, key), value(theirs, key)))
        .collect()
}

fn same(a: &Value, b: &Value) -> bool {
    match (a, b) {
        (Value::Number(a), Value::Number(b)) => a.as_f64() == b.as_f64(),
        _ => a == b,
    }
}

#[test]
fn differences_are_found() {
    let check = |ours: Value, theirs: Value, expect: &[&str]| {
        let crd = |schema: Value| {
            keywords_by_path(&json!({
                "apiVersion": "v1", "metadata": {}, "spec": {"names": {}, "versions": [
                    {"name": "v1", "schema": {"openAPIV3Schema": schema}},
                ]},
            }))
        };
        let (ours, theirs) = (crd(ours), crd(theirs));
        let all: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
        let seen: Vec<_> = all
            .into_iter()
            .flat_map(|path| {
                let found = differences(ours.get(path), theirs.get(path));
                found.into_iter().map(move |(keyword, _, _)| format!("{path} {keyword}"))
            })
            .collect();
        assert_eq!(seen, expect);
    };
    let list = |item: Value| json!({"properties": {"a": {"items": item}}});
    check(list(json!({"minimum": 0.0})), list(json!({"minimum": 0})), &[]);
    check(list(json!({"required": ["a", "b"]})), list(json!({"required": ["b", "a"]})), &[]);
    check(list(json!({"type": "string"})), list(json!({"type": "integer"})), &["v1.a[] type"]);
    check(list(json!({"default": 0})), list(json!({})), &["v1.a[] default"]);
    check(json!({"properties": {"a": {}}}), json!({"properties": {"b": {}}}), &["v1.a property", "v1.b property"]);
    check(
        json!({"additionalProperties": {"x-kubernetes-validations": [{"rule": "r", "message": "m"}]}}),
        json!({"additionalProperties": {"x-kubernetes-validations": [{"rule": "r", "message": "n"}]}}),
        &["v1{} x-kubernetes-validations"],
    );
}
