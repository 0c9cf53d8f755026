//! A round trip through the Rust types neither loses nor changes anything that the CRDs accept.
//!
//! Objects are first converted to the form in which the API server stores them ([`stored`]), then deserialized, serialized
//! and compared by schema ([`equality`]). They come from the parity cases and from the schemas ([`generate`]): one object
//! with every field, and random ones.

#![allow(clippy::print_stdout, clippy::unwrap_used)]

mod equality;
mod generate;
mod on_a_server;
mod stored;

use manta_api::crd::{self, Versions};
use manta_api::{RayCluster, RayCronJob, RayJob, RayService};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::path::PathBuf;

/// Returns the `v1` schema of each kind.
fn schemas() -> BTreeMap<String, Value> {
    let schema = |crd: &Value| crd["spec"]["versions"][0]["schema"]["openAPIV3Schema"].clone();
    crd::all(Versions::V1)
        .into_iter()
        .map(|crd| (crd.spec.names.kind.clone(), serde_json::to_value(crd).unwrap()))
        .map(|(kind, crd)| (kind, schema(&crd)))
        .collect()
}

/// Deserializes an object into its Rust type and serializes it again.
fn read_and_write(kind: &str, object: &Value) -> Result<Value, serde_json::Error> {
    fn through<T: DeserializeOwned + Serialize>(object: &Value) -> Result<Value, serde_json::Error> {
        // From text, as from a server; values are deserialized by other code.
        let object: T = serde_json::from_str(&object.to_string())?;
        serde_json::to_value(object)
    }
    match kind {
        RayCluster::KIND => through::<RayCluster>(object),
        RayCronJob::KIND => through::<RayCronJob>(object),
        RayJob::KIND => through::<RayJob>(object),
        RayService::KIND => through::<RayService>(object),
        other => panic!("no Rust type for {other}"),
    }
}

fn check(kind: &str, schema: &Value, given: Value, origin: &str) {
    let before = stored::as_stored(schema, given);
    let after = read_and_write(kind, &before).unwrap_or_else(|error| panic!("{origin}: {error}\n{before:#}"));
    let differences = equality::differences(schema, &before, &after);
    assert!(differences.is_empty(), "{origin}:\n{}", differences.join("\n"));
}

/// Returns the Ray objects of the parity cases: name of the case, kind and object.
fn parity_objects() -> Vec<(String, String, Value)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/parity/cases");
    let mut objects = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        let case: Value = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let name = path.file_stem().unwrap().to_str().unwrap();
        let ours = case["docs"].as_array().unwrap().iter().filter(|doc| doc["apiVersion"] == manta_api::API_VERSION);
        objects.extend(ours.map(|doc| (name.to_owned(), doc["kind"].as_str().unwrap().to_owned(), doc.clone())));
    }
    assert_ne!(objects.len(), 0, "the parity cases have no Ray objects");
    objects
}

#[test]
#[cfg_attr(not(has_shared), ignore = "needs ../shared")]
fn parity_cases_round_trip() {
    let schemas = schemas();
    let objects = parity_objects();
    let count = objects.len();
    for (case, kind, object) in objects {
        check(&kind, &schemas[&kind], object, &case);
    }
    println!("{count} objects of the parity cases round-trip");
}

#[test]
fn an_object_with_every_field_round_trips() {
    for (kind, schema) in schemas() {
        let object = generate::full(&kind, &schema);
        let given = generate::count(&object);
        check(&kind, &schema, object, &format!("{kind} with every field"));
        println!("{kind}: {given} values");
    }
}

#[test]
fn random_objects_round_trip() {
    const EACH: u64 = 150;
    for (kind, schema) in schemas() {
        for seed in 0..EACH {
            check(&kind, &schema, generate::random(&kind, &schema, seed), &format!("{kind} of seed {seed}"));
        }
    }
    println!("{} random objects round-trip", 4 * EACH);
}

#[test]
fn a_missing_spec_is_an_empty_one() {
    let check = |kind: &str, expect: Value| {
        let object = json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": "a"}});
        assert_eq!(read_and_write(kind, &object).unwrap()["spec"], expect);
    };
    check("RayCluster", json!({"headGroupSpec": {"template": {}}}));
    check("RayCronJob", json!({"jobTemplate": {}, "schedule": ""}));
    check("RayJob", json!({}));
    check("RayService", json!({"rayClusterConfig": {"headGroupSpec": {"template": {}}}}));
}
