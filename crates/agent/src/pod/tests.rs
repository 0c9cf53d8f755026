//! Tables and properties of the pod life cycle.

use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use proptest::prelude::*;
use serde_json::{Value, json};

use super::*;

const T0: i64 = 1_700_000_000;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(T0 + seconds).unwrap()
}

fn pod(spec: Value) -> Pod {
    serde_json::from_value(json!({
        "metadata": {"name": "p", "namespace": "n", "uid": "u"},
        "spec": spec,
    }))
    .unwrap()
}

fn running(since: i64) -> Record {
    Record {
        state: RunState::Running { id: "manta://1".into(), since: at(since) },
        ready: true,
        started: true,
        ..Record::default()
    }
}

fn exited(code: i32, from: i64, to: i64) -> Record {
    let mut record = running(from);
    record.end(Exit {
        id: "manta://1".into(),
        code,
        reason: if code == 0 { "Completed" } else { "Error" }.into(),
        message: None,
        started: at(from),
        finished: at(to),
    });
    record
}

fn ready_sandbox() -> Sandbox {
    Sandbox::Ready { ip: "10.244.0.5".into() }
}

struct Given {
    spec: Value,
    records: Vec<(&'static str, Record)>,
    sandbox: Sandbox,
    deletion: Deletion,
    now: i64,
}

impl Given {
    fn new(spec: Value, records: Vec<(&'static str, Record)>) -> Self {
        Self { spec, records, sandbox: ready_sandbox(), deletion: Deletion::None, now: 0 }
    }

    fn now(mut self, now: i64) -> Self {
        self.now = now;
        self
    }

    fn deleted(mut self, seconds: i64) -> Self {
        self.deletion = Deletion::Graceful { seconds };
        self
    }

    fn sandbox(mut self, sandbox: Sandbox) -> Self {
        self.sandbox = sandbox;
        self
    }

    fn next(self) -> Next {
        let pod = pod(self.spec);
        let records = self.records.into_iter().map(|(n, r)| (n.to_owned(), r)).collect();
        next(&Observed {
            pod: &pod,
            records: &records,
            sandbox: &self.sandbox,
            deletion: self.deletion,
            accepted: at(0),
            host_ip: "10.244.0.1",
            backoff: Backoff::KUBELET,
            now: at(self.now),
        })
    }
}

/// The actions in short: `start a`, `stop a 30`, `+net`, `-net`, `finish`.
fn actions(next: &Next) -> String {
    let one = |action: &Action| match action {
        Action::CreateSandbox => "+net".to_owned(),
        Action::RemoveSandbox => "-net".to_owned(),
        Action::Finish => "finish".to_owned(),
        Action::Start { container } => format!("start {container}"),
        Action::Stop { container, grace, .. } => format!("stop {container} {grace}"),
    };
    next.actions.iter().map(one).collect::<Vec<_>>().join(", ")
}

fn check(given: Given, expect_actions: &str, expect_phase: &str) -> Next {
    let next = given.next();
    assert_eq!((&*actions(&next), next.status.phase.as_deref()), (expect_actions, Some(expect_phase)));
    next
}

fn two(policy: &str) -> Value {
    json!({"restartPolicy": policy, "containers": [{"name": "b"}, {"name": "a"}]})
}

fn with_init(policy: &str) -> Value {
    json!({"restartPolicy": policy, "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
           "containers": [{"name": "a"}]})
}

#[test]
fn a_pod_gets_a_network_then_its_containers() {
    check(Given::new(two("Always"), vec![]).sandbox(Sandbox::Absent), "+net", "Pending");
    check(Given::new(two("Always"), vec![]).sandbox(Sandbox::Creating), "", "Pending");
    check(Given::new(two("Always"), vec![]), "start b, start a", "Pending");
    let next = check(Given::new(two("Always"), vec![("a", running(0)), ("b", running(0))]), "", "Running");
    let names: Vec<_> = next.status.container_statuses.iter().flatten().map(|s| &*s.name).collect();
    assert_eq!(names, ["a", "b"], "sorted by name");
    assert!(next.status.conditions.iter().flatten().all(|c| c.status == "True"));
}

#[test]
fn init_containers_run_in_order_and_sidecars_only_have_to_start() {
    let up = |started| Record { started, ..running(0) };
    check(Given::new(with_init("Always"), vec![]), "start i", "Pending");
    check(Given::new(with_init("Always"), vec![("i", running(0))]), "", "Pending");
    check(Given::new(with_init("Always"), vec![("i", exited(0, 0, 1))]), "start s", "Pending");
    check(Given::new(with_init("Always"), vec![("i", exited(0, 0, 1)), ("s", up(false))]), "", "Pending");
    check(Given::new(with_init("Always"), vec![("i", exited(0, 0, 1)), ("s", up(true))]), "start a", "Pending");
    let all = vec![("i", exited(0, 0, 1)), ("s", up(true)), ("a", running(2))];
    check(Given::new(with_init("Always"), all), "", "Running");
    let sidecar_died = vec![("i", exited(0, 0, 1)), ("s", exited(1, 0, 3)), ("a", running(2))];
    check(Given::new(with_init("Never"), sidecar_died).now(3), "start s", "Running");
}

#[test]
fn a_failed_init_container_ends_or_delays_the_pod() {
    check(Given::new(with_init("Never"), vec![("i", exited(3, 0, 1))]), "-net", "Failed");
    check(Given::new(with_init("Always"), vec![("i", exited(3, 0, 1))]).now(1), "start i", "Pending");
    let again = Record { streak: 1, ..exited(3, 0, 1) };
    let next = check(Given::new(with_init("Always"), vec![("i", again)]).now(1), "", "Pending");
    assert_eq!(next.wake, Some(at(11)));
    let state = next.status.init_container_statuses.unwrap()[0].state.clone().unwrap();
    assert_eq!(
        state.waiting.map(|w| (w.reason, w.message)),
        Some((Some("CrashLoopBackOff".into()), Some("back-off 10s restarting failed container=i pod=p_n(u)".into())))
    );
}

#[test]
fn restart_policies_decide_what_an_exit_means() {
    let pair = |a, b| vec![("a", a), ("b", b)];
    check(Given::new(two("Never"), pair(exited(0, 0, 1), exited(0, 0, 1))).now(9), "-net", "Succeeded");
    check(Given::new(two("Never"), pair(exited(1, 0, 1), exited(0, 0, 1))).now(9), "-net", "Failed");
    check(Given::new(two("Never"), pair(exited(1, 0, 1), running(0))).now(9), "", "Running");
    check(Given::new(two("OnFailure"), pair(exited(0, 0, 1), exited(0, 0, 1))).now(9), "-net", "Succeeded");
    check(Given::new(two("OnFailure"), pair(exited(1, 0, 1), exited(0, 0, 1))).now(9), "start a", "Running");
    check(Given::new(two("Always"), pair(exited(0, 0, 1), running(0))).now(9), "start a", "Running");
}

#[test]
fn an_unhealthy_container_is_stopped_once() {
    let sick = Record { unhealthy: Some("liveness".into()), ..running(0) };
    let stopping = Record { stopping: true, ..sick.clone() };
    check(Given::new(two("Always"), vec![("a", sick), ("b", running(0))]), "stop a 30", "Running");
    check(Given::new(two("Always"), vec![("a", stopping), ("b", running(0))]), "", "Running");
}

#[test]
fn deletion_stops_containers_then_sidecars_then_the_network_then_the_object() {
    let done = exited(0, 0, 1);
    let all = |a: Record, s: Record| vec![("i", done.clone()), ("s", s), ("a", a)];
    check(Given::new(with_init("Always"), all(running(2), running(1))).deleted(7), "stop a 7", "Running");
    let stopping = Record { stopping: true, ..running(2) };
    check(Given::new(with_init("Always"), all(stopping, running(1))).deleted(7), "", "Running");
    check(Given::new(with_init("Always"), all(exited(143, 2, 3), running(1))).deleted(7), "stop s 7", "Running");
    check(Given::new(with_init("Always"), all(exited(143, 2, 3), exited(0, 1, 4))).deleted(7), "-net", "Failed");
    let gone = Sandbox::Removed { ip: Some("10.244.0.5".into()) };
    let next = check(
        Given::new(with_init("Always"), all(exited(0, 2, 3), exited(0, 1, 4))).deleted(7).sandbox(gone),
        "finish",
        "Succeeded",
    );
    assert_eq!(next.status.pod_ip.as_deref(), Some("10.244.0.5"));
    check(Given::new(two("Always"), vec![]).sandbox(Sandbox::Absent).deleted(0), "finish", "Failed");
}

#[test]
fn an_active_deadline_fails_the_pod() {
    let spec = json!({"activeDeadlineSeconds": 10, "restartPolicy": "Never", "containers": [{"name": "a"}]});
    assert_eq!(Given::new(spec.clone(), vec![("a", running(0))]).now(9).next().wake, Some(at(10)));
    check(Given::new(spec.clone(), vec![("a", running(0))]).now(10), "stop a 30", "Running");
    let next = check(Given::new(spec, vec![("a", exited(137, 0, 11))]).now(11), "-net", "Failed");
    assert_eq!(next.status.reason.as_deref(), Some("DeadlineExceeded"));
}

#[test]
fn unready_containers_are_named_in_the_conditions() {
    let unready = Record { ready: false, ..running(0) };
    let next = Given::new(two("Always"), vec![("a", unready.clone()), ("b", unready)]).next();
    let ready = next.status.conditions.iter().flatten().find(|c| c.type_ == "Ready").unwrap();
    assert_eq!(
        (&*ready.status, ready.reason.as_deref(), ready.message.as_deref()),
        ("False", Some("ContainersNotReady"), Some("containers with unready status: [b a]"))
    );
    let next = Given::new(with_init("Always"), vec![]).next();
    let condition = next.status.conditions.iter().flatten().find(|c| c.type_ == "Initialized").unwrap();
    assert_eq!(condition.message.as_deref(), Some("containers with incomplete status: [i s]"));
    let main = &next.status.container_statuses.unwrap()[0];
    assert_eq!(main.state.as_ref().unwrap().waiting.as_ref().unwrap().reason.as_deref(), Some("PodInitializing"));
}

#[test]
fn conditions_of_others_and_old_transition_times_are_kept() {
    let mut pod = pod(two("Always"));
    let records: Records = [("a", running(0)), ("b", running(0))].map(|(n, r)| (n.to_owned(), r)).into();
    let sandbox = ready_sandbox();
    let observe = |pod: &Pod, now| {
        let seen = Observed {
            pod,
            records: &records,
            sandbox: &sandbox,
            deletion: Deletion::None,
            accepted: at(0),
            host_ip: "h",
            backoff: Backoff::KUBELET,
            now: at(now),
        };
        next(&seen).status
    };
    let mut first = observe(&pod, 5);
    let foreign = serde_json::from_value(json!({"type": "Mine", "status": "True"})).unwrap();
    first.conditions.as_mut().unwrap().push(foreign);
    pod.status = Some(first.clone());
    assert_eq!(observe(&pod, 60), first, "the same observation has the same status");
}

#[test]
fn backoff_doubles_up_to_its_cap() {
    let delays: Vec<i64> = [0, 1, 2, 3, 5, 6, 99].map(|n| Backoff::KUBELET.delay(n).as_secs()).into();
    assert_eq!(delays, [0, 10, 20, 40, 160, 300, 300]);
}

#[test]
fn a_start_that_is_tried_again_keeps_its_reason() {
    let reasons = |record: &Record| {
        let status = Given::new(two("Always"), vec![("a", record.clone())]).next().status;
        let state = status.container_statuses.unwrap().remove(0).state.unwrap();
        let waiting = state.waiting.unwrap();
        (waiting.reason.unwrap(), waiting.message)
    };
    let mut record = Record::default();
    record.begin(Backoff::KUBELET.reset);
    assert_eq!(reasons(&record), ("ContainerCreating".to_owned(), None));
    let wait = Wait { reason: "ErrImagePull".to_owned(), message: Some("unknown".to_owned()) };
    let blocked = ("ErrImagePull".to_owned(), Some("unknown".to_owned()));
    for _ in 0..2 {
        record.state = RunState::Blocked { wait: wait.clone(), retry: at(10) };
        assert_eq!(reasons(&record), blocked);
        record.begin(Backoff::KUBELET.reset);
        assert_eq!(reasons(&record), blocked, "while the start is tried again");
    }
}

#[test]
fn a_long_run_resets_the_backoff() {
    let mut record = Record { streak: 4, ..exited(1, 0, 600) };
    check(
        Given::new(json!({"containers": [{"name": "a"}]}), vec![("a", record.clone())]).now(600),
        "start a",
        "Running",
    );
    record.begin(Backoff::KUBELET.reset);
    assert_eq!((record.streak, record.restarts), (1, 1));
}

#[test]
fn processes_of_a_dead_agent_count_as_killed() {
    let mut pod = pod(with_init("Always"));
    let records: Records =
        [("i", exited(0, 0, 1)), ("s", running(1)), ("a", running(2))].map(|(n, r)| (n.to_owned(), r)).into();
    let seen = Observed {
        pod: &pod,
        records: &records,
        sandbox: &ready_sandbox(),
        deletion: Deletion::None,
        accepted: at(0),
        host_ip: "h",
        backoff: Backoff::KUBELET,
        now: at(9),
    };
    pod.status = Some(next(&seen).status);
    let found = recover(&pod, at(50));
    assert_eq!(found["a"].exit().map(|e| (e.code, &*e.reason)), Some((137, "ContainerStatusUnknown")));
    assert_eq!(found["i"].state, RunState::New, "a new sandbox is initialised again");
}

#[test]
fn a_pod_that_runs_again_is_initialised_again() {
    let mut pod = pod(with_init("Always"));
    let observe = |pod: &Pod, records: &Records, now: i64| {
        next(&Observed {
            pod,
            records,
            sandbox: &ready_sandbox(),
            deletion: Deletion::None,
            accepted: at(50),
            host_ip: "h",
            backoff: Backoff::KUBELET,
            now: at(now),
        })
    };
    let records: Records =
        [("i", exited(0, 0, 1)), ("s", running(1)), ("a", running(2))].map(|(n, r)| (n.to_owned(), r)).into();
    pod.status = Some(observe(&pod, &records, 9).status);
    let mut records = recover(&pod, at(50));
    assert_eq!(observe(&pod, &records, 90).actions, [Action::Start { container: "i".into() }]);
    for (name, record) in [("i", exited(0, 91, 92)), ("s", running(92))] {
        records.insert(name.to_owned(), record);
    }
    assert_eq!(observe(&pod, &records, 93).actions, [Action::Start { container: "a".into() }]);
    records.get_mut("a").unwrap().begin(Backoff::KUBELET.reset);
    let status = observe(&pod, &records, 94).status;
    let done = &status.init_container_statuses.unwrap()[0];
    assert_eq!(done.state.as_ref().unwrap().terminated.as_ref().map(|t| t.exit_code), Some(0));
}

#[test]
fn ephemeral_containers_are_started_once() {
    let mut spec = two("Always");
    spec["ephemeralContainers"] = json!([{"name": "debug", "targetContainerName": "a", "image": "x"}]);
    let both = || vec![("a", running(0)), ("b", running(0))];
    let next = check(Given::new(spec.clone(), both()), "start debug", "Running");
    assert_eq!(next.status.ephemeral_container_statuses.unwrap()[0].name, "debug");
    let with = |record: Record| both().into_iter().chain([("debug", record)]).collect();
    check(Given::new(spec.clone(), with(running(1))), "", "Running");
    let ended = check(Given::new(spec.clone(), with(exited(1, 1, 2))), "", "Running");
    let state = ended.status.ephemeral_container_statuses.unwrap()[0].state.clone().unwrap();
    assert_eq!(state.terminated.map(|t| t.exit_code), Some(1));
    let mut pod = pod(spec);
    pod.status = serde_json::from_value(json!({"phase": "Running", "ephemeralContainerStatuses": [
        {"name": "debug", "image": "", "imageID": "", "ready": false, "restartCount": 0,
         "state": {"running": {"startedAt": at(2).to_string()}}},
    ]}))
    .unwrap();
    assert!(recover(&pod, at(50))["debug"].exit().is_some(), "not started again by the next agent");
}

#[test]
fn a_pod_that_is_over_is_not_initialised_again() {
    let mut pod = pod(with_init("Never"));
    pod.status = serde_json::from_value(json!({"phase": "Running", "containerStatuses": [
        {"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": 0,
         "state": {"running": {"startedAt": at(2).to_string()}}},
    ]}))
    .unwrap();
    let records = recover(&pod, at(50));
    let sandbox = Sandbox::Absent;
    let seen = Observed {
        pod: &pod,
        records: &records,
        sandbox: &sandbox,
        deletion: Deletion::None,
        accepted: at(50),
        host_ip: "h",
        backoff: Backoff::KUBELET,
        now: at(51),
    };
    let next = next(&seen);
    assert_eq!((next.actions, next.status.phase.as_deref()), (vec![], Some("Failed")));
}

/// A toy node: carries out the actions, containers exit with the given codes.
fn simulate(spec: Value, codes: Vec<i32>, delete_at: Option<i64>) -> (Phase, Vec<String>) {
    let pod = pod(spec);
    let (mut records, mut sandbox, mut now) = (Records::new(), Sandbox::Absent, 0);
    let mut codes = codes.into_iter().cycle();
    let mut transcript = Vec::new();
    for _ in 0..400 {
        let deletion = match delete_at {
            Some(at) if now >= at => Deletion::Graceful { seconds: 5 },
            _ => Deletion::None,
        };
        let seen = Observed {
            pod: &pod,
            records: &records,
            sandbox: &sandbox,
            deletion,
            accepted: at(0),
            host_ip: "h",
            backoff: Backoff::LOCAL,
            now: at(now),
        };
        let next = next(&seen);
        let phase = Phase::parse(next.status.phase.as_deref().unwrap()).unwrap();
        assert!(next.wake.is_none_or(|wake| wake > at(now)), "wake lies in the future");
        for action in next.actions {
            transcript.push(format!("{action:?}"));
            match action {
                Action::CreateSandbox => sandbox = ready_sandbox(),
                Action::RemoveSandbox => {
                    assert!(!records.values().any(Record::is_alive), "the network outlives the containers");
                    sandbox = Sandbox::Removed { ip: None };
                }
                Action::Start { container } => {
                    assert_eq!(deletion, Deletion::None, "nothing starts in a pod that is leaving");
                    let record = records.entry(container).or_default();
                    assert!(!record.is_alive(), "never two at once");
                    record.begin(Backoff::LOCAL.reset);
                    record.state = RunState::Running { id: "x".into(), since: at(now) };
                    (record.ready, record.started) = (true, true);
                }
                Action::Stop { container, .. } => {
                    let exit = exited(143, now, now + 1).exit().cloned().unwrap();
                    records.get_mut(&container).unwrap().end(exit);
                }
                Action::Finish => return (phase, transcript),
            }
        }
        if delete_at.is_none() && phase.is_terminal() && sandbox == (Sandbox::Removed { ip: None }) {
            return (phase, transcript);
        }
        now += 1;
        let running: Vec<String> = records.iter().filter(|(_, r)| r.is_running()).map(|(n, _)| n.clone()).collect();
        for name in running {
            let code = codes.next().unwrap_or(0);
            if code >= 0 && name != "s" {
                let exit = exited(code, now - 1, now).exit().cloned().unwrap();
                records.get_mut(&name).unwrap().end(exit);
            }
        }
    }
    panic!("the pod never came to rest: {transcript:#?}");
}

proptest! {
    #[test]
    fn no_number_panics(
        numbers in prop::array::uniform3(prop::sample::select(vec![i64::MIN, -1, 0, 1, 1_000_000_000_000, i64::MAX])),
        counts in prop::array::uniform3(prop::sample::select(vec![i32::MIN, -1, 0, 1, i32::MAX])),
        deleting in any::<bool>(),
    ) {
        let [grace, deadline, seconds] = numbers;
        let mut spec = two("Always");
        (spec["terminationGracePeriodSeconds"], spec["activeDeadlineSeconds"]) = (json!(grace), json!(deadline));
        spec["containers"][0]["livenessProbe"] = json!({
            "periodSeconds": counts[0], "initialDelaySeconds": counts[1], "timeoutSeconds": counts[2],
            "failureThreshold": counts[0], "successThreshold": counts[1], "terminationGracePeriodSeconds": grace,
        });
        let mut pod = pod(spec);
        let status = json!({"phase": "Running", "containerStatuses": [
            {"name": "a", "image": "", "imageID": "", "ready": true, "restartCount": counts[2],
             "lastState": {"terminated": {"exitCode": counts[0], "startedAt": "0001-01-01T00:00:00Z",
                                          "finishedAt": "9999-12-30T22:00:00Z"}}, "state": {"waiting": {}}},
        ]});
        pod.status = serde_json::from_value(status).unwrap();
        let mut records = recover(&pod, at(0));
        for record in records.values_mut() {
            record.streak = counts[0].unsigned_abs();
        }
        let probe = pod.spec.as_ref().unwrap().containers[0].liveness_probe.as_ref().unwrap();
        let mut counter = probe::Counter::new(probe::ProbeKind::Liveness, probe, Timestamp::MAX, false);
        counter.record(false, Timestamp::MAX);
        for now in [at(0), Timestamp::MIN, Timestamp::MAX] {
            let deletion = if deleting { Deletion::Graceful { seconds } } else { Deletion::None };
            let _ = next(&Observed {
                pod: &pod,
                records: &records,
                sandbox: &ready_sandbox(),
                deletion,
                accepted: now,
                host_ip: "h",
                backoff: Backoff::LOCAL,
                now,
            });
        }
    }

    #[test]
    fn every_deleted_pod_goes_away(
        policy in prop::sample::select(vec!["Always", "OnFailure", "Never"]),
        codes in prop::collection::vec(-1..3i32, 1..6),
        delete_at in 0..40i64,
        init in any::<bool>(),
    ) {
        let spec = if init { with_init(policy) } else { two(policy) };
        let (phase, _) = simulate(spec, codes, Some(delete_at));
        prop_assert!(phase.is_terminal());
    }

    #[test]
    fn a_pod_that_is_not_restarted_ends_by_itself(codes in prop::collection::vec(0..3i32, 1..6)) {
        let (phase, _) = simulate(two("Never"), codes.clone(), None);
        let failed = [0, 1].iter().any(|i| codes[i % codes.len()] != 0);
        prop_assert_eq!(phase == Phase::Failed, failed);
    }
}
