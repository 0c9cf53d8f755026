//! Recorded objects that KubeRay has read and written back, compared with our conversion to Go's JSON.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use manta_api::RayClusterSpec;
use manta_logic::go::{Root, to_go_value};
use manta_logic::hash::service_hash;
use serde_json::{Map, Value};
use std::path::{Path, PathBuf};

#[test]
#[cfg_attr(not(has_shared), ignore = "needs ../shared")]
fn objects_with_a_finalizer_are_converted_as_recorded() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    let mut count = 0;
    let kinds = [
        ("RayCluster", Root::RayCluster, "rayclusters"),
        ("RayJob", Root::RayJob, "rayjobs"),
        ("RayService", Root::RayService, "rayservices"),
    ];
    for (kind, root, crd) in kinds {
        let schema = schema(&shared.join(format!("crds/{crd}.ray.io.json")));
        for file in recordings(&shared) {
            let case: Value = serde_json::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
            for given in case["docs"].as_array().unwrap().iter().filter(|object| object["kind"] == kind) {
                let Some(recorded) = first_recorded(&case, given) else { continue };
                let mut ours = given.clone();
                add_defaults(&mut ours, &schema);
                let mut ours = to_go_value(&ours, root);
                add_defaults(&mut ours, &schema);
                drop_nulls(&mut ours);
                if recorded["spec"]["jobId"] == "<id>" {
                    ours["spec"]["jobId"] = "<id>".into();
                }
                let mut recorded = recorded.clone();
                sort_lists(&mut ours);
                sort_lists(&mut recorded);
                assert_eq!(ours["spec"], recorded["spec"], "{}", file.display());
                count += 1;
            }
        }
    }
    println!("{count} recorded objects are what Go makes of their input");
    assert!(count > 40, "{count}");
}

#[test]
#[cfg_attr(not(has_shared), ignore = "needs ../shared")]
fn sample_services_have_the_hashes_of_kuberay() {
    let shared = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared");
    for (sample, expect) in [
        ("sample-ray-service.sample", "Q1055GBNIO0AH4T77DF02RUTJ6K23ASF"),
        ("sample-ray-service.incremental-upgrade", "8KCPNG21DG7BNQSKV0AEJPAIFB1EP70P"),
    ] {
        let text = std::fs::read_to_string(shared.join(format!("parity/cases/{sample}.json"))).unwrap();
        let case: Value = serde_json::from_str(&text).unwrap();
        let mut service =
            case["docs"].as_array().unwrap().iter().find(|object| object["kind"] == "RayService").unwrap().clone();
        add_defaults(&mut service, &schema(&shared.join("crds/rayservices.ray.io.json")));
        let spec: RayClusterSpec = serde_json::from_value(service["spec"]["rayClusterConfig"].take()).unwrap();
        assert_eq!(service_hash(&spec), expect, "{sample}");
    }
}

fn recordings(shared: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(shared.join("parity/cases")).unwrap().map(|entry| entry.unwrap().path());
    let mut files: Vec<_> = entries.filter(|path| path.extension().is_some_and(|e| e == "json")).collect();
    files.sort();
    files
}

/// Returns the object right after its creation if the operator had added its finalizer.
fn first_recorded<'a>(case: &'a Value, given: &Value) -> Option<&'a Value> {
    let objects = case["expect"]["created"]["objects"].as_array()?;
    let same =
        |object: &&Value| object["kind"] == given["kind"] && object["metadata"]["name"] == given["metadata"]["name"];
    objects.iter().find(same).filter(|object| object["metadata"]["finalizers"].is_array())
}

fn schema(file: &Path) -> Value {
    let crd: Value = serde_json::from_str(&std::fs::read_to_string(file).unwrap()).unwrap();
    let versions = crd["spec"]["versions"].as_array().unwrap();
    versions.iter().find(|version| version["name"] == "v1").unwrap()["schema"]["openAPIV3Schema"].clone()
}

/// Sets the defaults of the CRD like the API server.
fn add_defaults(value: &mut Value, schema: &Value) {
    match value {
        Value::Object(fields) => {
            for (name, property) in schema["properties"].as_object().unwrap_or(&Map::new()) {
                if let Some(default) = property.get("default") {
                    fields.entry(name).or_insert_with(|| default.clone());
                }
                if let Some(field) = fields.get_mut(name) {
                    add_defaults(field, property);
                }
            }
            if schema["additionalProperties"].is_object() {
                fields.values_mut().for_each(|field| add_defaults(field, &schema["additionalProperties"]));
            }
        }
        Value::Array(items) => items.iter_mut().for_each(|item| add_defaults(item, &schema["items"])),
        _ => {}
    }
}

/// Removes nulls like the API server.
fn drop_nulls(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|_, field| !field.is_null());
            fields.values_mut().for_each(drop_nulls);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_nulls),
        _ => {}
    }
}

/// Sorts lists of objects like the recorder.
fn sort_lists(value: &mut Value) {
    match value {
        Value::Object(fields) => fields.values_mut().for_each(sort_lists),
        Value::Array(items) => {
            items.iter_mut().for_each(sort_lists);
            items.sort_by_key(Value::to_string);
        }
        _ => {}
    }
}
