//! Compares the table of merge markers with what the real kube-apiserver publishes in its OpenAPI document.

#![allow(clippy::unwrap_used)]

use manta_api::markers::{Marker, TABLE};
use manta_testkit::ControlPlane;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// The API groups that the table covers, as their types are named.
const GROUPS: &[&str] = &[
    "io.k8s.api.core.v1.",
    "io.k8s.api.networking.v1.",
    // Nothing else of meta/v1 is ever merged: it describes API groups and errors.
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
];

#[test]
fn the_table_says_what_the_server_says() {
    let theirs = published(&definitions(ControlPlane::shared()));
    let ours = tabled();
    println!("compared {} marked types and fields", theirs.len());
    let all: BTreeSet<_> = ours.keys().chain(theirs.keys()).collect();
    let wrong: Vec<_> = all
        .into_iter()
        .filter(|place| ours.get(*place) != theirs.get(*place))
        .map(|place| format!("{place}: table {:?}, server {:?}", ours.get(place), theirs.get(place)))
        .collect();
    assert!(wrong.is_empty(), "correct crates/api/src/markers.rs:\n{}", wrong.join("\n"));
}

/// The table as type or type and field, and what its OpenAPI extensions would be.
fn tabled() -> BTreeMap<String, Extensions> {
    let mut places = BTreeMap::new();
    for row in TABLE {
        if row.atomic {
            places.insert(row.name.to_owned(), Extensions { map_type: "atomic".into(), ..Extensions::default() });
        }
        for (field, marker) in row.fields {
            places.insert(format!("{} {field}", row.name), extensions(*marker));
        }
    }
    places
}

/// The `x-kubernetes-*` extensions of a type or field; null for none.
#[derive(Debug, Default, PartialEq)]
struct Extensions {
    list_type: Value,
    list_map_keys: Value,
    map_type: Value,
}

fn extensions(marker: Marker) -> Extensions {
    let (list_type, list_map_keys, map_type) = match marker {
        Marker::Atomic => ("atomic".into(), Value::Null, Value::Null),
        Marker::Set => ("set".into(), Value::Null, Value::Null),
        Marker::Keyed(keys) => ("map".into(), keys.into(), Value::Null),
        Marker::AtomicMap => (Value::Null, Value::Null, "atomic".into()),
    };
    Extensions { list_type, list_map_keys, map_type }
}

/// Everything that the server marks in the groups of the table.
fn published(definitions: &BTreeMap<String, Value>) -> BTreeMap<String, Extensions> {
    let read = |schema: &Value| Extensions {
        list_type: schema["x-kubernetes-list-type"].clone(),
        list_map_keys: schema["x-kubernetes-list-map-keys"].clone(),
        // "granular" is what maps are without a marker.
        map_type: if schema["x-kubernetes-map-type"] == "atomic" { "atomic".into() } else { Value::Null },
    };
    let mut places = BTreeMap::new();
    for (name, schema) in definitions.iter().filter(|(name, _)| GROUPS.iter().any(|group| name.starts_with(group))) {
        places.insert(name.clone(), read(schema));
        for (field, property) in schema["properties"].as_object().into_iter().flatten() {
            places.insert(format!("{name} {field}"), read(property));
        }
    }
    places.retain(|_, extensions| *extensions != Extensions::default());
    places
}

/// The definitions of all types that the server serves.
fn definitions(plane: &ControlPlane) -> BTreeMap<String, Value> {
    let get = |path: &str| -> Value { serde_json::from_str(&plane.kubectl(&["get", "--raw", path]).unwrap()).unwrap() };
    let index = get("/openapi/v3");
    let versions =
        index["paths"].as_object().unwrap().values().map(|entry| entry["serverRelativeURL"].as_str().unwrap());
    let mut definitions = BTreeMap::new();
    for url in versions.filter(|url| url.contains("/v1?")) {
        let document = get(url);
        definitions.extend(
            document["components"]["schemas"].as_object().into_iter().flatten().map(|(k, v)| (k.clone(), v.clone())),
        );
    }
    definitions
}
