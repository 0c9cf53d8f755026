//! Rules that few worlds put to the test.

use super::{Checker, Seen};
use crate::ray::Ray;
use crate::rng::Rng;
use crate::transcript::Transcript;
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::{Instant, advance};

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

fn run(checker: &Checker, minute: &str) {
    let owner = json!([{"kind": "RayCronJob", "name": "cron0", "uid": "cron0", "controller": true}]);
    let scheduled = json!({"ray.io/cronjob-scheduled-timestamp": format!("2026-01-01T00:{minute}:00Z")});
    show(checker, "RayJob", minute, json!({"metadata": {"annotations": scheduled, "ownerReferences": owner}}));
}

fn report_run(checker: &Checker, minute: &str) {
    show(
        checker,
        "RayCronJob",
        "cron0",
        json!({"status": {"lastScheduleTime": format!("2026-01-01T00:{minute}:00Z")}}),
    );
}

#[tokio::test(start_paused = true)]
async fn a_schedule_makes_every_run_and_reports_it() {
    let checker = checker();
    show(&checker, "RayCronJob", "cron0", json!({}));
    run(&checker, "01");
    let since = checker.last_runs();
    run(&checker, "02");
    report_run(&checker, "02");
    assert!(checker.behind_schedule(&since).is_some(), "one run is not two in a row");
    run(&checker, "04");
    report_run(&checker, "04");
    assert!(checker.behind_schedule(&since).is_some(), "one was left out");
    run(&checker, "05");
    assert!(checker.behind_schedule(&since).is_some(), "the last was not reported");
    report_run(&checker, "05");
    assert_eq!(checker.behind_schedule(&since), None);
    assert_eq!(checker.unsettled().filter(|wrong| wrong.contains("RayCronJob")), None);
    report_run(&checker, "06");
    assert!(checker.unsettled().is_some_and(|wrong| wrong.contains("RayCronJob")), "no RayJob was made for it");
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
    assert_eq!(checker.lock().deleted_without_need("c0-head", Instant::now()), None);
    advance(Duration::from_secs(121)).await;
    assert!(checker.lock().deleted_without_need("c0-head", Instant::now()).is_some());
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

#[tokio::test(start_paused = true)]
async fn the_services_of_a_settled_service_lead_to_its_active_cluster() {
    let checker = checker();
    let service = json!({"metadata": {"name": "s0"}});
    let selector =
        |cluster: &str, key: &str, value: &str| json!({"spec": {"selector": {"ray.io/cluster": cluster, key: value}}});
    let wrong = |checker: &Checker| Seen::led_elsewhere(&checker.lock(), &service, "s0-a", false);
    show(&checker, "Pod", "pod", json!({"metadata": {"labels": {"ray.io/cluster": "s0-a"}}}));
    for name in ["s0-head-svc", "s0-serve-svc"] {
        assert!(wrong(&checker).is_some_and(|wrong| wrong.contains(name)));
        let endpoint = json!({"conditions": {"ready": true}, "targetRef": {"name": "pod"}});
        let labels = json!({"kubernetes.io/service-name": name});
        show(&checker, "EndpointSlice", name, json!({"metadata": {"labels": labels}, "endpoints": [endpoint]}));
        let (key, value) = if name == "s0-head-svc" { ("ray.io/node-type", "head") } else { ("ray.io/serve", "true") };
        show(&checker, "Service", name, selector("s0-b", key, value));
        assert!(wrong(&checker).is_some_and(|wrong| wrong.contains("selects")));
        show(&checker, "Service", name, selector("s0-a", key, value));
    }
    assert_eq!(wrong(&checker), None);
    show(&checker, "EndpointSlice", "s0-serve-svc", json!({}));
    assert!(wrong(&checker).is_some_and(|wrong| wrong.contains("leads to")));
}
