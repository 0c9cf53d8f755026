//! Compares the table of merge markers with the OpenAPI document of the real kube-apiserver.

#![allow(clippy::unwrap_used)]

use manta_api::markers::{Marker, TABLE};
use manta_testkit::ControlPlane;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Prefixes of the type names that the table covers.
const GROUPS: &[&str] = &[
    "io.k8s.api.core.v1.",
    "io.k8s.api.networking.v1.",
    // Nothing else of meta/v1 is ever merged: it describes API groups and errors.
    "io.k8s.apimachinery.pkg.apis.meta.v1.LabelSelector",
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta",
    "io.k8s.apimachinery.pkg.apis.meta.v1.OwnerReference",
];

#[test]
fn the_table_equals_the_markers_of_the_server() {
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

/// Returns the OpenAPI extensions of the table by type, or by type and field.
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

/// The `x-kubernetes-*` extensions of a type or field, or null.
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

/// Returns the OpenAPI extensions of the server in the groups of the table.
fn published(definitions: &BTreeMap<String, Value>) -> BTreeMap<String, Extensions> {
    let read = |schema: &Value| Extensions {
        list_type: schema["x-kubernetes-list-type"].clone(),
        list_map_keys: schema["x-kubernetes-list-map-keys"].clone(),
        // Maps without a marker are "granular".
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

/// Returns the definitions of all types of the server.
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
