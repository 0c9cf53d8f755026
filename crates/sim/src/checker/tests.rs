//! Rules that few worlds put to the test.

use super::Checker;
use crate::ray::Ray;
use crate::rng::Rng;
use crate::transcript::Transcript;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::advance;

fn checker() -> Checker {
    let transcript = Transcript::new();
    Checker::new(Ray::new(Rng::new(1), transcript.clone()), transcript)
}

/// Shows objects to a checker, each with its name as its UID.
fn show(checker: &Checker, kind: &'static str, name: &str, mut object: Value) {
    object["metadata"]["name"] = json!(name);
    object["metadata"]["uid"] = json!(name);
    let json = object.to_string();
    checker.see(kind, Arc::new(object), json.as_bytes());
}

#[tokio::test(start_paused = true)]
async fn a_suspension_excuses_deletions_for_two_minutes() {
    let checker = checker();
    let head = json!({
        "metadata": {
            "labels": {"ray.io/cluster": "c0", "ray.io/node-type": "head", "ray.io/group": "headgroup"},
            "ownerReferences": [{"kind": "RayCluster", "name": "c0", "uid": "c0", "controller": true}],
        },
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    });
    show(&checker, "RayCluster", "c0", json!({"spec": {}}));
    show(&checker, "RayCluster", "c0", json!({"spec": {"suspend": true}}));
    advance(Duration::from_secs(600)).await;
    show(&checker, "RayCluster", "c0", json!({"spec": {}}));
    show(&checker, "Pod", "c0-head", head);
    assert_eq!(checker.lock().deleted_without_need("c0-head"), None);
    advance(Duration::from_secs(121)).await;
    assert!(checker.lock().deleted_without_need("c0-head").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_submission_has_one_job() {
    let job = json!({"spec": {"template": {"spec": {"containers": [
        {"env": [{"name": "RAY_JOB_SUBMISSION_ID", "value": "j0-bcdfg"}]},
    ]}}}});
    let checker = checker();
    show(&checker, "Job", "first", job.clone());
    show(&checker, "Job", "first", job.clone());
    assert_eq!(checker.violation(), None);
    show(&checker, "Job", "second", job);
    assert!(checker.violation().is_some());
}
