use super::*;
use crate::action::{Kind, ObjectKey, Stage, Step};
use crate::explain::{Evidence, explain};
use crate::view::PodView;
use jiff::Timestamp;
use manta_api::RayJobStatus;
use serde_json::{Value, json};

/// A failed RayJob whose driver printed its environment.
fn evidence() -> Evidence {
    let trace = "Job entrypoint command failed with exit code 1, last available logs:\nTraceback (most recent call last):\n  x\nValueError: marker-env-1 is wrong\n";
    serde_json::from_value(json!({
        "subject": {"kind": "RayJob", "namespace": "ns", "name": "train", "uid": "u1"}, "at": "2026-01-01T01:00:00Z",
        "clusters": [{"metadata": {"name": "train-x"}}],
        "job": {"metadata": {"name": "train"}, "status": {
            "jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "AppFailed", "message": trace}},
        "logs": [{"source": "driver", "name": "id", "lines": [
            "A=marker-env-1", "B=marker-env-2", "C=marker-env-3", "PASS marker-redis", "Authorization: Bearer marker-bearer",
            "password=marker-password", "plain"]}],
        "events": [{"kind": "Pod", "name": "p", "reason": "Failed", "message": "token: marker-token-in-event"}],
    }))
    .unwrap()
}

fn object() -> Value {
    let template = |value: &str| json!({"spec": {"containers": [{"name": "c", "env": [{"name": "A", "value": value}, {"name": "S", "value": "1"}]}]}});
    json!({"spec": {
        "runtimeEnvYAML": "env_vars:\n  C: marker-env-3\n  N: '1'\n",
        "rayClusterSpec": {
            "headGroupSpec": {"template": template("marker-env-1"), "rayStartParams": {"redis-password": "marker-param"}},
            "workerGroupSpecs": [{"template": template("marker-env-2")}],
            "gcsFaultToleranceOptions": {"redisPassword": {"value": "marker-redis"}},
        },
    }})
}

#[test]
fn records_hold_no_environment_value_and_no_credential() {
    let secrets = secrets_in(&object());
    assert_eq!(secrets, ["marker-env-1", "marker-env-2", "marker-env-3", "marker-param", "marker-redis"]);
    let kept = redact(&evidence(), &secrets);
    let text = serde_json::to_string(&kept).unwrap();
    assert!(!text.contains("marker"), "{text}");
    assert!(text.contains("plain") && text.contains("Traceback"), "{text}");
    let map = config_map(&kept, Occasion::Ended, &Limits::default());
    assert!(!map.to_string().contains("marker"), "{map}");
}

#[test]
fn credentials_are_recognized_in_what_programs_print() {
    let env = |value: &str| json!({"spec": {"template": {"containers": [{"env": [{"name": "A", "value": value}]}]}}});
    let check = |secret: &str, printed: &str, expect: &str| {
        let log = json!({"source": "driver", "name": "id", "lines": [printed]});
        let evidence = serde_json::from_value(json!({"at": "2026-01-01T01:00:00Z", "logs": [log]})).unwrap();
        assert_eq!(redact(&evidence, &secrets_in(&env(secret))).logs[0].lines, [expect], "{secret}");
    };
    check("-----BEGIN KEY-----\nMIIabcdef\n-----END KEY-----\n", "  MIIabcdef", "  [redacted]");
    check("", "Authorization: Basic dXNlcjpwYXNz", "Authorization: Basic [redacted]");
    check("", "{'Authorization': 'Basic dXNlcjpwYXNz'}", "{'Authorization': 'Basic [redacted]'}");
    check("", "Proxy-Authorization: dXNlcjpwYXNz", "Proxy-Authorization: [redacted]");
    check("", "GET redis://user:p@ss@redis:6379/0 failed", "GET redis://[redacted]@redis:6379/0 failed");
    check("", "pip install git+https://ghp_abc@github.com/x", "pip install git+https://[redacted]@github.com/x");
    check(
        "",
        "see https://example.com/a?mail=b@c and http://a:1/ d@e",
        "see https://example.com/a?mail=b@c and http://a:1/ d@e",
    );
    check("", "curl -H 'authorization: Bearer abcdefgh'", "curl -H 'authorization: Bearer [redacted]'");
}

#[test]
fn nothing_that_programs_print_is_kept_where_secrets_are_not_known() {
    let unreadable = crate::explain::Unreadable { what: "get rayjobs".to_owned(), why: "forbidden".to_owned() };
    let mut all = evidence();
    all.pods = cluster_at("2026-01-01T00:55:00Z", "a-head", true).pods;
    all.pods[0].status.container_statuses[0].state.terminated.as_mut().unwrap().message = "marker".to_owned();
    let kept = withhold(&all, &unreadable);
    let text = serde_json::to_string(&kept).unwrap();
    assert!(!text.contains("marker"), "{text}");
    assert_eq!(explain(&kept).cause.reason, "OutOfMemory", "what Kubernetes reports stays: {text}");
    assert!(kept.unreadable[0].why.starts_with("forbidden; logs and messages are left out"), "{text}");
}

#[test]
fn records_are_read_as_they_were_written() {
    let kept = redact(&evidence(), &secrets_in(&object()));
    let map = config_map(&kept, Occasion::Ended, &Limits::default());
    assert_eq!(map["metadata"]["namespace"], "ns");
    assert_eq!(map["metadata"]["ownerReferences"], Value::Null, "a record outlives its object");
    let record = Record::of(&map).unwrap();
    assert_eq!(record.evidence, kept);
    assert_eq!((record.summary.kind.as_str(), record.summary.name.as_str()), ("RayJob", "train"));
    assert_eq!((record.summary.cluster.as_str(), record.summary.occasion.as_str()), ("train-x", "ended"));
    assert_eq!(record.summary.cause, explain(&kept).cause.summary);
    assert_eq!(record.summary.cause, "RayJob train failed because its program raised ValueError: [redacted] is wrong.");
}

#[test]
fn records_complete_what_an_object_has_lost() {
    let map = config_map(&evidence(), Occasion::Ended, &Limits::default());
    let kept = Kept { end: Some(Record::of(&map).unwrap()), ..Kept::default() };
    let live = Evidence { logs: Vec::new(), clusters: Vec::new(), ..evidence() };
    assert_eq!(kept.complete(Some(live.clone())), Some(evidence()));
    let other = Evidence { subject: crate::explain::Subject { uid: "u2".to_owned(), ..live.subject.clone() }, ..live };
    assert_eq!(kept.complete(Some(other.clone())), Some(other), "an object of the same name has another story");
    assert_eq!(kept.complete(None), Some(evidence()));
    assert_eq!(Kept::default().complete(None), None);
}

#[test]
fn the_pods_of_a_job_come_from_its_record_while_its_submitter_exists() {
    let pod =
        |name: &str, node_type: &str| json!({"metadata": {"name": name, "labels": {"ray.io/node-type": node_type}}});
    let mut at_end = evidence();
    at_end.pods = serde_json::from_value(json!([pod("train-x-head", "head"), pod("train-abcde", "")])).unwrap();
    let kept = Kept { end: Some(record(&at_end, Occasion::Ended)), ..Kept::default() };
    let mut live = evidence();
    live.pods = serde_json::from_value(json!([pod("train-abcde", "")])).unwrap();
    let names = |evidence: Evidence| evidence.pods.into_iter().map(|pod| pod.metadata.name).collect::<Vec<_>>();
    assert_eq!(names(kept.complete(Some(live)).unwrap()), ["train-abcde", "train-x-head"]);
    let mut retried = evidence();
    retried.pods = serde_json::from_value(json!([pod("train-y-head", "head")])).unwrap();
    assert_eq!(names(kept.complete(Some(retried)).unwrap()), ["train-y-head"], "they are those of another attempt");
}

fn record(evidence: &Evidence, occasion: Occasion) -> Record {
    Record::of(&config_map(evidence, occasion, &Limits::default())).unwrap()
}

/// A RayCluster whose Pods are ready but for one container that was killed, if any.
fn cluster_at(at: &str, head: &str, killed: bool) -> Evidence {
    let state = match killed {
        true => json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}}),
        false => json!({"running": {}}),
    };
    serde_json::from_value(json!({
        "subject": {"kind": "RayCluster", "namespace": "ns", "name": "a", "uid": "u1"}, "at": at,
        "clusters": [{"metadata": {"name": "a", "uid": "u1"}, "status": {"state": "ready"}}],
        "pods": [{
            "metadata": {"name": head, "labels": {"ray.io/cluster": "a", "ray.io/node-type": "head"}},
            "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": if killed { "False" } else { "True" }}],
                "containerStatuses": [{"name": "ray", "ready": !killed, "state": state}]},
        }],
        "logs": [{"source": "head", "pod": head, "name": "ray", "lines": [format!("of {head}")]}],
    }))
    .unwrap()
}

#[test]
fn a_pod_that_was_replaced_is_explained_while_its_cluster_lives_and_afterwards() {
    let failed = record(&cluster_at("2026-01-01T00:55:00Z", "a-head-one", true), Occasion::PodFailed);
    let live = cluster_at("2026-01-01T01:00:00Z", "a-head-two", false);
    let deleted = Evidence { is_deleted: true, ..cluster_at("2026-01-01T02:00:00Z", "a-head-two", false) };
    let check = |live: Option<&Evidence>, end: Option<&Evidence>, first_line: &str| {
        let end = end.map(|end| record(end, Occasion::Deleted));
        let kept = Kept { end, failures: vec![failed.clone()] };
        let explanation = explain(&kept.complete(live.cloned()).unwrap());
        let why =
            "The container ray of the head Pod a-head-one was killed because it needed more memory than its node has.";
        assert_eq!(
            explanation.cause.summary,
            format!("{first_line} {why} The Pod was replaced at 2026-01-01 00:55:00Z.")
        );
        assert_eq!(explanation.logs.len(), 1, "the log of the Pod that failed");
        assert_eq!(explanation.logs[0].lines, ["of a-head-one"]);
        let told = explanation
            .timeline
            .iter()
            .any(|entry| entry.object == "Pod a-head-one" && entry.text.starts_with("was replaced: "));
        assert!(told, "{:?}", explanation.timeline);
    };
    check(Some(&live), None, "RayCluster a is ready again.");
    check(None, Some(&deleted), "RayCluster a was deleted while it was in use. Before that:");

    let being_replaced = cluster_at("2026-01-01T00:55:01Z", "a-head-one", true);
    let kept = Kept { end: None, failures: vec![failed.clone()] };
    assert_eq!(kept.complete(Some(being_replaced.clone())), Some(being_replaced), "it is still there");
}

#[test]
fn every_pod_that_failed_has_a_record_of_its_own() {
    let name = |at: &str, head: &str| record(&cluster_at(at, head, true), Occasion::PodFailed).summary.record;
    let first = name("2026-01-01T00:55:00Z", "a-head-one");
    assert_ne!(first, name("2026-01-01T00:56:00Z", "a-head-two"));
    assert_eq!(first, name("2026-01-01T00:56:00Z", "a-head-one"), "its deletion was tried again");
}

#[test]
fn pods_that_fail_again_and_again_leave_the_records_of_others_alone() {
    let now: Timestamp = "2026-01-01T01:00:00Z".parse().unwrap();
    let record = |name: String, age: i64| (name, String::new(), Some(now - jiff::SignedDuration::from_mins(age)));
    let mut records: Vec<_> = (0..8).map(|index| record(format!("ray-post-mortem-1-failed-{index}"), index)).collect();
    records.push(record("ray-post-mortem-2-failed-0".to_owned(), 50));
    records.push(record("ray-post-mortem-1-ended".to_owned(), 51));
    let limits = Limits { count: 7, ..Limits::default() };
    let mut names: Vec<String> = expired(&records, now, &limits).into_iter().map(|(name, _)| name).collect();
    names.sort();
    assert_eq!(names, ["ray-post-mortem-1-failed-5", "ray-post-mortem-1-failed-6", "ray-post-mortem-1-failed-7"]);
}

#[test]
fn a_job_that_failed_with_its_head_names_why() {
    let failed = record(&cluster_at("2026-01-01T00:55:00Z", "a-head-one", true), Occasion::PodFailed);
    let status = json!({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "rayClusterName": "a",
        "message": "Unexpected error occurred: The actor died unexpectedly before finishing this task."});
    let live: Evidence = serde_json::from_value(json!({
        "subject": {"kind": "RayJob", "namespace": "ns", "name": "train"}, "at": "2026-01-01T01:00:00Z",
        "job": {"metadata": {"name": "train"}, "status": status},
    }))
    .unwrap();
    let cause = explain(&Kept { end: None, failures: vec![failed] }.complete(Some(live)).unwrap()).cause;
    assert_eq!(cause.reason, "OutOfMemory", "{}", cause.summary);
}

#[test]
fn records_about_an_object_are_told_apart_by_its_uid() {
    let summary = |record: &str, kind: &str, name: &str, uid: &str, cluster: &str, occasion: &str| Summary {
        record: record.to_owned(),
        kind: kind.to_owned(),
        name: name.to_owned(),
        uid: uid.to_owned(),
        cluster: cluster.to_owned(),
        occasion: occasion.to_owned(),
        ..Summary::default()
    };
    // The newest first.
    let all = [
        summary("deleted", "RayCluster", "a", "u2", "a", "deleted"),
        summary("failed", "RayCluster", "a", "u2", "a", "failed"),
        summary("job", "RayJob", "train", "j1", "train-x", "ended"),
        summary("of-job", "RayCluster", "train-x", "u3", "train-x", "failed"),
        summary("earlier", "RayCluster", "a", "u1", "a", "deleted"),
        summary("earlier-failed", "RayCluster", "a", "u1", "a", "failed"),
        summary("lost", "RayCluster", "lost", "u4", "lost", "failed"),
    ];
    let check = |kind: &str, name: &str, uid: &str, clusters: &[&str], expect: (&str, &[&str])| {
        let text = |text: &str| text.to_owned();
        let subject =
            crate::explain::Subject { kind: text(kind), namespace: text("ns"), name: text(name), uid: text(uid) };
        let clusters: Vec<String> = clusters.iter().map(|it| text(it)).collect();
        let kept = kept_about(&all, &subject, &clusters);
        let failures: Vec<&str> = kept.failures.iter().map(|it| it.record.as_str()).collect();
        let end = kept.end.as_ref().map(|it| it.record.as_str()).unwrap_or_default();
        assert_eq!((end, failures.as_slice()), expect, "{kind} {name} {uid}");
    };
    check("RayCluster", "a", "", &[], ("deleted", &["failed"]));
    check("RayCluster", "a", "u2", &[], ("deleted", &["failed"]));
    check("RayCluster", "a", "u9", &[], ("", &[]));
    check("RayJob", "train", "j1", &["train-x"], ("job", &["of-job"]));
    check("RayJob", "train", "", &[], ("job", &["of-job"]));
    check("RayCluster", "train-x", "", &[], ("job", &["of-job"]));
    check("RayCluster", "lost", "", &[], ("lost", &[]));
    check("RayCluster", "lost", "u4", &[], ("", &["lost"]));
}

#[test]
fn records_are_bounded() {
    let mut large = evidence();
    // Text that does not compress well.
    let mut number: u64 = 1;
    let mut line = || {
        number = number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        format!("{number:016x}").repeat(20)
    };
    for log in 0..40 {
        let lines = (0..60).map(|_| line()).collect();
        large.logs.push(crate::explain::Log { name: format!("c{log}"), lines, ..Default::default() });
    }
    let limits = Limits { bytes: 16 << 10, ..Limits::default() };
    let map = config_map(&large, Occasion::Ended, &limits);
    assert!(map.to_string().len() < (16 << 10) * 2, "{}", map.to_string().len());
    let record = Record::of(&map).unwrap();
    assert_eq!(record.evidence.job, large.job, "the status survives");
    assert!(record.evidence.logs.iter().all(|log| log.lines.len() <= 10));
}

#[test]
fn foreign_config_maps_are_refused() {
    let check = |map: Value, expect: &str| assert!(Record::of(&map).unwrap_err().contains(expect), "{map}");
    check(json!({}), "lacks the annotations");
    let mut map = config_map(&evidence(), Occasion::Ended, &Limits::default());
    map["binaryData"] = json!({"record.json.z": "%"});
    check(map.clone(), "not base64");
    map["binaryData"] = json!({"record.json.z": "AAAA"});
    check(map.clone(), "record.json.z");
    map["binaryData"] = Value::Null;
    check(map, "has no record.json.z");
}

#[test]
fn old_and_surplus_records_expire() {
    let at = |text: &str| Some(text.parse::<Timestamp>().unwrap());
    let record = |name: &str, created| (name.to_owned(), format!("uid-{name}"), created);
    let records = [
        record("old", at("2026-01-01T00:00:00Z")),
        record("new", at("2026-01-09T00:00:00Z")),
        record("newer", at("2026-01-09T01:00:00Z")),
        record("newest", at("2026-01-09T02:00:00Z")),
    ];
    let check = |count: usize, expect: &[&str]| {
        let limits = Limits { count, ..Limits::default() };
        let gone = expired(&records, "2026-01-09T03:00:00Z".parse().unwrap(), &limits);
        assert_eq!(gone.iter().map(|(name, _)| name.as_str()).collect::<Vec<_>>(), expect);
        assert!(gone.iter().all(|(name, uid)| *uid == format!("uid-{name}")));
    };
    check(50, &["old"]);
    check(2, &["new", "old"]);
}

#[test]
fn the_end_of_a_job_is_recorded_once() {
    let status = |text: &str| RayJobStatus { job_deployment_status: Some(text.to_owned()), ..RayJobStatus::default() };
    let check = |before: Option<&str>, after: &str, expect: bool| {
        assert_eq!(job_ended(before.map(status).as_ref(), &status(after)), expect, "{before:?} {after}");
    };
    check(Some("Running"), "Failed", true);
    check(Some("Running"), "Complete", true);
    check(Some("Running"), "Retrying", true);
    check(None, "Failed", true);
    check(Some("Failed"), "Failed", false);
    check(Some("Initializing"), "Running", false);
    check(Some("Running"), "ValidationFailed", false);
}

#[test]
fn what_destroys_evidence_is_recorded_first() {
    let pod: PodView = serde_json::from_value(json!({"status": {"phase": "Failed"}})).unwrap();
    let well: PodView = serde_json::from_value(json!({"status": {"phase": "Running"}})).unwrap();
    let check = |owner: Kind, deleted: Kind, name: &str, expect: Option<(&str, Occasion)>| {
        let owner = ObjectKey::new(owner, "ns", "owner");
        let stage = Stage::new("c", vec![Step::delete(ObjectKey::new(deleted, "ns", name), "uid", "test")]);
        let got = before_stage(&owner, &stage, |name| has_failed(if name == "failed" { &pod } else { &well }));
        assert_eq!(got.as_ref().map(|(key, occasion)| (key.name.as_str(), *occasion)), expect);
    };
    check(Kind::RayCluster, Kind::Pod, "failed", Some(("owner", Occasion::PodFailed)));
    check(Kind::RayCluster, Kind::Pod, "well", None);
    check(Kind::RayService, Kind::RayCluster, "old", Some(("old", Occasion::Deleted)));
    check(Kind::RayJob, Kind::RayCluster, "old", None);
    check(Kind::RayCluster, Kind::Service, "s", None);
}

#[test]
fn deletions_by_others_are_recorded_unless_the_end_was() {
    let status = |text: &str| RayJobStatus { job_deployment_status: Some(text.to_owned()), ..RayJobStatus::default() };
    assert!(on_deletion(Kind::RayCluster, false, None));
    assert!(!on_deletion(Kind::RayCluster, true, None), "part of the record of its owner");
    assert!(on_deletion(Kind::RayJob, false, Some(&status("Running"))));
    assert!(!on_deletion(Kind::RayJob, false, Some(&status("Failed"))));
    assert!(!on_deletion(Kind::RayCronJob, false, None));
}
