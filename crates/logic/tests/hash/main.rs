//! Spec hashes computed by a Go program: each file has a spec, its JSON and its hashes.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use manta_api::RayClusterSpec;
use manta_logic::go::{Root, to_go_json};
use manta_logic::hash;
use serde::Deserialize;
use serde_json::Value;
use std::path::Path;

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Golden {
    what: String,
    spec: Value,
    expect: Expect,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Expect {
    json: String,
    cluster: String,
    service: String,
    /// The hash with only the first worker group, if there is one.
    first_group: Option<String>,
}

#[test]
fn hashes_are_those_of_go() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/hash");
    let mut count = 0;
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "json") {
            continue;
        }
        let golden: Golden = serde_json::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let (what, expect) = (golden.what, golden.expect);
        let spec: RayClusterSpec = serde_json::from_value(golden.spec).unwrap();
        // Converted through the types, like in the operator.
        let value = serde_json::to_value(&spec).unwrap();
        assert_eq!(to_go_json(&value, Root::RayClusterSpec), expect.json, "{what}");
        assert_eq!(hash::cluster_hash(&spec), expect.cluster, "{what}: RayCluster");
        assert_eq!(hash::service_hash(&spec), expect.service, "{what}: RayService");
        assert_eq!(hash::service_hash_of_groups(&spec, 1), expect.first_group, "{what}: first group");
        count += 1;
    }
    println!("{count} specs hash as in Go");
    assert!(count > 20, "{count}");
}
