//! Validation of every recorded input gives the recorded events.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use manta_api::{RayCluster, RayCronJob, RayJob, RayService};
use manta_logic::action::Event;
use manta_logic::config::{Config, FeatureGates, Platform};
use manta_logic::validate::{ValidCluster, ValidCronJob, validate_job, validate_service};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::path::{Path, PathBuf};

#[test]
#[cfg_attr(not(has_shared), ignore = "needs ../shared")]
fn recorded_inputs_cause_the_recorded_events() {
    let (mut valid, mut invalid, mut rejected) = (0, 0, 0);
    for file in recordings() {
        let text = std::fs::read_to_string(&file).unwrap();
        let case: Value = serde_json::from_str(&text).unwrap();
        if case["expect"]["rejected"].as_array().is_some_and(|list| !list.is_empty()) {
            rejected += 1;
            continue;
        }
        let mut ours: Vec<_> = case["docs"].as_array().into_iter().flatten().filter_map(judge).collect();
        let mut recorded = recorded_events(&case);
        ours.sort();
        recorded.sort();
        recorded.dedup();
        assert_eq!(ours, recorded, "{}", file.display());
        if recorded.is_empty() { valid += 1 } else { invalid += 1 }
    }
    println!("recorded cases: {valid} valid, {invalid} invalid, {rejected} rejected by the API server");
    assert!(valid > 0 && invalid > 0);
}

fn recordings() -> Vec<PathBuf> {
    let parity = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/parity");
    let mut files = Vec::new();
    for folder in ["cases", "life", "schedulers"] {
        let entries = std::fs::read_dir(parity.join(folder)).unwrap().map(|entry| entry.unwrap().path());
        files.extend(entries.filter(|path| path.extension().is_some_and(|extension| extension == "json")));
    }
    files.sort();
    files
}

/// Returns the recorded events about the input in any stage.
fn recorded_events(case: &Value) -> Vec<(String, String)> {
    let stages = case["expect"].as_object().into_iter().flat_map(|stages| stages.values());
    let events = stages.flat_map(|stage| stage["events"].as_array().into_iter().flatten());
    events
        .filter(|event| event[2].as_str().is_some_and(|reason| reason.starts_with("InvalidRay")))
        .map(|event| (event[2].as_str().unwrap().to_owned(), event[3].as_str().unwrap().to_owned()))
        .collect()
}

/// Returns our event about an object if it is an invalid Ray object.
fn judge(object: &Value) -> Option<(String, String)> {
    // Besides the defaults, these feature gates were enabled in the recordings.
    let gates = FeatureGates {
        ray_cron_job: true,
        ray_cluster_network_policy: true,
        gcs_fault_tolerance_embedded_storage: true,
        ray_cluster_mtls: true,
        ..FeatureGates::KUBERAY
    };
    let config =
        Config { gates, platform: Platform { cert_manager: true, ..Platform::default() }, ..Config::default() };
    let config = &config;
    let name = object["metadata"]["name"].as_str().unwrap_or_default();
    let stored = |path: &str| defaulted(object.clone(), path);
    let event: Event = match object["kind"].as_str()? {
        "RayCluster" => {
            let cluster: RayCluster = read(stored("/spec"));
            ValidCluster::check(&cluster, config).err()?.event("<ns>", name)
        }
        "RayJob" => {
            let job: RayJob = read(stored("/spec/rayClusterSpec"));
            validate_job(&job, config).err()?.event("<ns>", name)
        }
        "RayService" => {
            let service: RayService = read(stored("/spec/rayClusterConfig"));
            validate_service(&service, config).err()?.event("<ns>", name)
        }
        "RayCronJob" => {
            let cron: RayCronJob = read(stored("/spec/jobTemplate/rayClusterSpec"));
            ValidCronJob::check(&cron, config).err()?.event("<ns>", name)
        }
        _ => return None,
    };
    Some((event.reason.to_owned(), event.note))
}

fn read<T: DeserializeOwned>(object: Value) -> T {
    serde_json::from_value(object).unwrap()
}

/// Sets the defaults of worker groups like the API server.
fn defaulted(mut object: Value, cluster_spec: &str) -> Value {
    let defaults = json!({"replicas": 0, "minReplicas": 0, "maxReplicas": i32::MAX, "numOfHosts": 1, "priority": 0});
    let groups = object.pointer_mut(cluster_spec).and_then(|spec| spec["workerGroupSpecs"].as_array_mut());
    for group in groups.into_iter().flatten() {
        for (key, value) in defaults.as_object().into_iter().flatten() {
            if group[key].is_null() {
                group[key] = value.clone();
            }
        }
    }
    object
}
