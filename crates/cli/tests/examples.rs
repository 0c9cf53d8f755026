//! Every file in `examples/` lints, fits a small machine, and is applied by a test.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use manta_quantity::Quantity;
use serde_json::Value;

const LARGEST: i64 = 4 << 30;

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn examples() -> Vec<PathBuf> {
    let mut all: Vec<PathBuf> = fs::read_dir(root().join("examples")).unwrap().map(|e| e.unwrap().path()).collect();
    all.retain(|path| path.extension().is_some_and(|e| e == "yaml"));
    all.sort();
    assert!(all.len() > 3, "there are examples");
    all
}

#[test]
fn examples_lint() {
    let output = Command::new(env!("CARGO_BIN_EXE_manta")).arg("lint").args(examples()).output().unwrap();
    let printed = String::from_utf8_lossy(&output.stdout);
    // Kubernetes' own kinds are skipped with a note.
    let findings: Vec<&str> = printed.lines().filter(|line| !line.contains(": note: ")).collect();
    assert_eq!((output.status.code(), findings), (Some(0), Vec::new()));
}

#[test]
fn examples_fit_a_small_machine() {
    for path in examples() {
        let documents: Vec<Value> = serde_saphyr::from_multiple(&fs::read_to_string(&path).unwrap()).unwrap();
        let bytes: i64 = documents.iter().map(memory).sum();
        assert!(bytes <= LARGEST, "{} may use {bytes} bytes", path.display());
    }
}

#[test]
fn examples_are_tested() {
    let sources: String = fs::read_dir(root().join("tests/e2e"))
        .unwrap()
        .map(|entry| fs::read_to_string(entry.unwrap().path()).unwrap())
        .collect();
    for path in examples() {
        let name = path.file_name().unwrap().to_str().unwrap();
        assert!(sources.contains(name), "no test in tests/e2e applies {name}");
    }
}

/// Returns the sum of all memory limits below a value, with every worker group at its largest size.
fn memory(value: &Value) -> i64 {
    let below = |value: &Value| -> i64 {
        let inner = value.as_object().into_iter().flat_map(|map| map.values());
        inner.chain(value.as_array().into_iter().flatten()).map(memory).sum()
    };
    let limit = value.pointer("/limits/memory").and_then(Value::as_str);
    let own = limit.map_or(0, |text| Quantity::parse(text).unwrap().value());
    let grows = value.get("enableInTreeAutoscaling").is_some();
    let groups = value.get("workerGroupSpecs").and_then(Value::as_array).into_iter().flatten();
    let more: i64 = groups
        .map(|group| {
            let count = |key: &str| group.get(key).and_then(Value::as_i64);
            let replicas = count(if grows { "maxReplicas" } else { "replicas" }).unwrap();
            // `below` already counts one of them.
            below(group) * (replicas * count("numOfHosts").unwrap_or(1) - 1)
        })
        .sum();
    own + more + below(value)
}
