//! Every cause, made in evidence, and the first line that names it.

mod causes;
mod rarer_causes;

use super::evidence::{Event, Evidence, Log, LogSource, Unreadable};
use super::*;
use serde_json::{Value, json};

/// The time at which all evidence is gathered.
const NOW: &str = "2026-01-01T01:00:00Z";

/// Evidence in the making.
#[derive(Clone)]
struct Given(Value);

fn given(kind: &str) -> Given {
    Given(json!({"subject": {"kind": kind, "namespace": "ns", "name": "a"}, "at": NOW}))
}

fn meta(name: &str) -> Value {
    json!({"name": name, "creationTimestamp": "2026-01-01T00:50:00Z", "generation": 1})
}

/// A RayCluster `a` that is not ready.
fn cluster() -> Given {
    given("RayCluster").cluster("a", json!({}), json!({"desiredWorkerReplicas": 1, "observedGeneration": 1}))
}

/// A RayJob `a` whose cluster is `a-x`.
fn job(status: Value) -> Given {
    job_with(json!({}), status)
}

fn job_with(spec: Value, status: Value) -> Given {
    given("RayJob").set("job", json!({"metadata": meta("a"), "spec": spec, "status": status})).cluster(
        "a-x",
        json!({}),
        json!({"state": "ready", "observedGeneration": 1}),
    )
}

fn failed_job(reason: &str, message: &str) -> Given {
    let job_status = if reason == "AppFailed" { "FAILED" } else { "RUNNING" };
    job(json!({"jobDeploymentStatus": "Failed", "jobStatus": job_status, "reason": reason, "message": message,
        "rayClusterName": "a-x"}))
}

fn service(status: Value) -> Given {
    given("RayService").set("service", json!({"metadata": meta("a"), "spec": {}, "status": status}))
}

/// A RayService whose application `app` is in a state.
fn application(status: &str, message: &str) -> Given {
    let app = json!({"status": status, "message": message});
    service(json!({"activeServiceStatus": {"rayClusterName": "a-x", "applicationStatuses": {"app": app}}}))
}

fn cron_job(spec: Value) -> Given {
    given("RayCronJob").set("cronJob", json!({"metadata": meta("a"), "spec": spec}))
}

impl Given {
    fn set(mut self, key: &str, value: Value) -> Self {
        self.0[key] = value;
        self
    }

    fn push(mut self, key: &str, value: Value) -> Self {
        match self.0[key].as_array_mut() {
            Some(list) => list.push(value),
            None => self.0[key] = json!([value]),
        }
        self
    }

    fn cluster(self, name: &str, spec: Value, status: Value) -> Self {
        self.push("clusters", json!({"metadata": meta(name), "spec": spec, "status": status}))
    }

    /// Changes the first cluster.
    fn first_cluster(mut self, pointer: &str, value: Value) -> Self {
        let cluster = &mut self.0["clusters"][0];
        let (parent, key) = pointer.rsplit_once('/').unwrap();
        cluster.pointer_mut(parent).unwrap()[key] = value;
        self
    }

    /// Adds a Pod called `head`, `worker` or otherwise.
    fn pod(self, name: &str, status: Value) -> Self {
        self.pod_with(name, json!({}), status)
    }

    fn pod_with(self, name: &str, spec: Value, status: Value) -> Self {
        let cluster = if self.0["subject"]["kind"] == "RayCluster" { "a" } else { "a-x" };
        let group = if name == "worker" { "small" } else { "headgroup" };
        let mut metadata = meta(name);
        if ["head", "worker"].contains(&name) {
            metadata["labels"] = json!({"ray.io/node-type": name, "ray.io/group": group, "ray.io/cluster": cluster});
        }
        self.push("pods", json!({"metadata": metadata, "spec": spec, "status": status}))
    }

    fn ready_pod(self, name: &str) -> Self {
        self.pod(name, json!({"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]}))
    }

    fn unscheduled(self, name: &str, message: &str) -> Self {
        let condition =
            json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": message});
        self.pod(name, json!({"phase": "Pending", "conditions": [condition]}))
    }

    fn waiting(self, name: &str, reason: &str, message: &str) -> Self {
        let status = json!({"name": "ray", "state": {"waiting": {"reason": reason, "message": message}}});
        let spec = json!({"containers": [{"name": "ray", "image": "corp/ray:1"}]});
        self.pod_with(name, spec, json!({"phase": "Pending", "containerStatuses": [status]}))
    }

    /// A container that ended and waits to be started again.
    fn ended(self, name: &str, terminated: Value) -> Self {
        let status = json!({"name": "ray", "restartCount": 1, "lastState": {"terminated": terminated},
            "state": {"waiting": {"reason": "CrashLoopBackOff"}}});
        let spec = json!({"containers": [{"name": "ray", "resources": {"limits": {"memory": "2Gi"}}}]});
        self.pod_with(name, spec, json!({"phase": "Running", "containerStatuses": [status]}))
    }

    fn log(self, source: LogSource, pod: &str, name: &str, text: &str) -> Self {
        let lines = text.lines().map(str::to_owned).collect();
        let log = Log { source, pod: pod.to_owned(), name: name.to_owned(), is_previous: false, lines };
        self.push("logs", serde_json::to_value(log).unwrap())
    }

    fn head_log(self, text: &str) -> Self {
        self.log(LogSource::Head, "head", "ray", text)
    }

    fn event(self, kind: &str, name: &str, reason: &str, message: &str) -> Self {
        let is_warning = !reason.starts_with("Created") && !reason.starts_with("Updated");
        let at = Some("2026-01-01T00:55:00Z".parse().unwrap());
        let event = Event {
            kind: kind.to_owned(),
            name: name.to_owned(),
            uid: String::new(),
            is_warning,
            reason: reason.to_owned(),
            message: message.to_owned(),
            count: 1,
            first: at,
            last: at,
        };
        self.push("events", serde_json::to_value(event).unwrap())
    }

    fn workload(self, conditions: Value, checks: Value) -> Self {
        self.push(
            "workloads",
            json!({"metadata": {"name": "w"}, "spec": {"queueName": "team"},
                "status": {"conditions": conditions, "admissionChecks": checks}}),
        )
    }

    fn unreadable(self, what: &str) -> Self {
        self.push("unreadable", json!({"what": what, "why": "forbidden"}))
    }

    fn evidence(&self) -> Evidence {
        serde_json::from_value(self.0.clone()).unwrap_or_else(|error| panic!("{error}: {}", self.0))
    }
}

/// Every cause: how it shows, its reason, and the first line.
fn all_causes() -> Vec<(Given, &'static str, &'static str)> {
    [causes::all(), rarer_causes::all()].concat()
}

/// The rules themselves, whose texts name every reason.
const RULES: &[&str] = &[
    include_str!("../rules/creation.rs"),
    include_str!("../rules/cronjob.rs"),
    include_str!("../rules/demand.rs"),
    include_str!("../rules/exits.rs"),
    include_str!("../rules/job.rs"),
    include_str!("../rules/kueue.rs"),
    include_str!("../rules/lifecycle.rs"),
    include_str!("../rules/nodes.rs"),
    include_str!("../rules/ready.rs"),
    include_str!("../rules/scheduling.rs"),
    include_str!("../rules/serve.rs"),
    include_str!("../rules/start.rs"),
    include_str!("../rules/upgrade.rs"),
];

/// Words in the rules that they read and never answer.
const READ: &[&str] = &[
    "Admitted",
    "AppFailed",
    "AttributeError",
    "Complete",
    "ContainerCannotRun",
    "CreateContainerConfigError",
    "CreateContainerError",
    "Created",
    "DEPLOYING",
    "DeletionByTaintManager",
    "DisruptionTarget",
    "ErrImageNeverPull",
    "ErrImagePull",
    "EvictionByEvictionAPI",
    "FAILED",
    "Failed",
    "FailedAttachVolume",
    "FailedCreate",
    "FailedCreatePodSandBox",
    "FailedMount",
    "FailedToCreate",
    "False",
    "Finished",
    "HEALTHY",
    "ImageInspectError",
    "ImagePullBackOff",
    "ImportError",
    "Inadmissible",
    "Initializing",
    "JobDeploymentStatusTransitionGracePeriodExceeded",
    "JobStatusCheckTimeoutExceeded",
    "Killing",
    "Liveness",
    "ModuleNotFoundError",
    "New",
    "NodeShutdown",
    "NothingRecorded",
    "OOMKilled",
    "OutOf",
    "OutOfMemoryError",
    "Pending",
    "Pod",
    "PodScheduled",
    "PreemptionByScheduler",
    "QuotaReserved",
    "RUNNING",
    "RayCluster",
    "RayCronJob",
    "RayJob",
    "RayService",
    "Ready",
    "Retrying",
    "RunContainerError",
    "Running",
    "STOPPED",
    "SUCCEEDED",
    "Shutdown",
    "StartError",
    "Startup",
    "Succeeded",
    "Suspending",
    "Traceback",
    "True",
    "UNHEALTHY",
    "UnexpectedAdmissionError",
    "Unhealthy",
    "ValidationFailed",
    "Waiting",
    "Warning",
];

#[test]
fn every_reason_of_the_rules_has_a_row() {
    let rows: std::collections::BTreeSet<&str> = all_causes().iter().map(|(_, reason, _)| *reason).collect();
    let is_word = |text: &&str| {
        text.len() > 2
            && text.starts_with(|c: char| c.is_ascii_uppercase())
            && text.bytes().all(|c| c.is_ascii_alphanumeric())
    };
    let literals = RULES.iter().flat_map(|text| text.split('"').skip(1).step_by(2)).filter(is_word);
    let words: std::collections::BTreeSet<&str> = literals.collect();
    let known = |word: &&&str| rows.contains(**word) || READ.contains(*word);
    let missing: Vec<&&str> = words.iter().filter(|word| !known(word)).collect();
    assert!(missing.is_empty(), "without a row in the tables of causes: {missing:?}");
    let unread: Vec<&&str> = READ.iter().filter(|word| !words.contains(**word)).collect();
    assert!(unread.is_empty(), "no rule reads these any more: {unread:?}");
    assert!(words.len() > 150, "the rules were not read: {words:?}");
}

#[test]
fn every_cause_is_named_first() {
    let all = all_causes();
    let mut wrong = Vec::new();
    for (given, reason, first_line) in &all {
        let cause = explain(&given.evidence()).cause;
        if (cause.reason.as_str(), cause.summary.as_str()) != (*reason, *first_line) {
            wrong.push(format!("expected {reason}: {first_line}\n     got {}: {}", cause.reason, cause.summary));
        }
        assert_eq!(cause.advice.is_empty(), cause.is_well, "{reason}: only what is wrong needs advice");
        assert!(!cause.summary.contains('\n') && cause.summary.ends_with('.'), "{}", cause.summary);
        assert!(!["NothingRecorded", "Warning"].contains(&cause.reason.as_str()), "{}", cause.summary);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    let reasons: std::collections::BTreeSet<&str> = all.iter().map(|(_, reason, _)| *reason).collect();
    assert!(reasons.len() >= 40, "{} causes: {reasons:?}", reasons.len());
}

#[test]
fn any_evidence_has_a_cause() {
    for kind in ["RayCluster", "RayJob", "RayService", "RayCronJob"] {
        let cause = explain(&given(kind).evidence()).cause;
        assert!(cause.summary.starts_with(kind), "{cause:?}");
    }
}

#[test]
fn evidence_survives_being_stored() {
    for (given, ..) in all_causes() {
        let evidence = given.evidence();
        let stored = serde_json::to_string(&evidence).unwrap();
        assert_eq!(serde_json::from_str::<Evidence>(&stored).unwrap(), evidence);
    }
}

#[test]
fn objects_leave_their_environment_and_foreign_labels_behind() {
    let pod = json!({
        "metadata": {"name": "p", "labels": {"ray.io/node-type": "head", "other": "marker-label"}, "annotations": {"a": "marker-annotation"}},
        "spec": {"containers": [{"name": "c", "image": "i", "env": [{"name": "A", "value": "marker-env"}], "args": ["marker-args"]}]},
        "status": {"phase": "Running"},
    });
    let read: evidence::Pod = serde_json::from_value(pod).unwrap();
    let stored = serde_json::to_string(&read).unwrap();
    assert!(stored.contains("ray.io/node-type") && !stored.contains("marker"), "{stored}");
    let job = json!({
        "metadata": {"name": "j"},
        "spec": {"entrypoint": "marker", "runtimeEnvYAML": "env_vars: {A: marker}", "rayClusterSpec": {"headGroupSpec": {"marker": 1}}},
    });
    let read: evidence::Job = serde_json::from_value(job).unwrap();
    assert!(!serde_json::to_string(&read).unwrap().contains("marker"));
}

#[test]
fn timelines_are_in_the_order_of_time() {
    let given = cluster()
        .first_cluster(
            "/metadata/managedFields",
            json!([
                {"manager": "kubectl", "time": "2026-01-01T00:52:00Z"},
                {"manager": "operator", "subresource": "status", "time": "2026-01-01T00:53:00Z"},
            ]),
        )
        .ended("head", json!({"reason": "Error", "exitCode": 1, "finishedAt": "2026-01-01T00:51:00Z"}))
        .event("Pod", "head", "BackOff", "Back-off restarting failed container");
    let timeline = explain(&given.evidence()).timeline;
    let lines: Vec<String> =
        timeline.iter().map(|entry| format!("{} {}: {}", entry.at, entry.object, entry.text)).collect();
    assert_eq!(
        lines,
        [
            "2026-01-01T00:50:00Z RayCluster a: created",
            "2026-01-01T00:50:00Z Pod head: created",
            "2026-01-01T00:51:00Z Pod head: container ray: Error, exit code 1",
            "2026-01-01T00:52:00Z RayCluster a: spec or metadata changed by kubectl",
            "2026-01-01T00:55:00Z Pod head: BackOff: Back-off restarting failed container",
        ]
    );
    assert_eq!(timeline.iter().map(|entry| entry.is_warning).collect::<Vec<_>>(), [false, false, true, false, true]);
}

#[test]
fn timelines_are_bounded() {
    let many = (0..500).fold(cluster(), |given, number| given.event("Pod", &format!("p{number}"), "BackOff", "again"));
    assert_eq!(explain(&many.evidence()).timeline.len(), 200);
}

#[test]
fn the_log_of_the_pod_to_blame_is_shown() {
    let given = cluster()
        .ended("head", json!({"reason": "Error", "exitCode": 1}))
        .head_log("why")
        .log(LogSource::Worker, "worker", "ray", "other")
        .set("unreadable", json!([{"what": "list events", "why": "forbidden"}]));
    let explanation = explain(&given.evidence());
    assert_eq!(explanation.logs.iter().map(|log| log.pod.as_str()).collect::<Vec<_>>(), ["head"]);
    assert_eq!(explanation.unreadable, [Unreadable { what: "list events".to_owned(), why: "forbidden".to_owned() }]);
}

#[test]
fn both_apis_of_events_are_read() {
    let check = |event: Value, expect: (i32, &str)| {
        let read = Event::of(&event);
        assert_eq!((read.count, read.last.map(|at| at.to_string()).unwrap_or_default().as_str()), expect, "{event}");
    };
    check(
        json!({"count": 3, "firstTimestamp": "2026-01-01T00:00:00Z", "lastTimestamp": "2026-01-01T00:00:09Z"}),
        (3, "2026-01-01T00:00:09Z"),
    );
    check(json!({"eventTime": "2026-01-01T00:00:01.5Z"}), (1, "2026-01-01T00:00:01.5Z"));
    let series = json!({"count": 7, "lastObservedTime": "2026-01-01T00:00:08Z"});
    check(json!({"eventTime": "2026-01-01T00:00:01Z", "series": series}), (7, "2026-01-01T00:00:08Z"));
    check(
        json!({"eventTime": null, "metadata": {"creationTimestamp": "2026-01-01T00:00:02Z"}}),
        (1, "2026-01-01T00:00:02Z"),
    );
}
