//! The conditions of a pod, with the kubelet's reasons and messages.

use k8s_openapi::api::core::v1::{ContainerStatus, PodCondition};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::{Observed, Phase, PodContainers, Record, Sandbox, is_sidecar};

/// Types written here; conditions of other types belong to others and are kept.
const OURS: [&str; 5] = ["PodReadyToStartContainers", "Initialized", "Ready", "ContainersReady", "PodScheduled"];

struct Verdict {
    ok: bool,
    reason: Option<&'static str>,
    message: Option<String>,
}

impl Verdict {
    const TRUE: Self = Self { ok: true, reason: None, message: None };

    fn no(reason: &'static str, message: Option<String>) -> Self {
        Self { ok: false, reason: Some(reason), message }
    }
}

pub(super) fn write(
    seen: &Observed<'_>,
    parts: &PodContainers<'_>,
    phase: Phase,
    initialized: bool,
    statuses: &[ContainerStatus],
    init_statuses: &[ContainerStatus],
) -> Vec<PodCondition> {
    let has_network = matches!(seen.sandbox, Sandbox::Ready { .. });
    let containers = containers_ready(parts, phase, statuses, init_statuses);
    let ready = pod_ready(seen, &containers);
    let verdicts = [
        Verdict { ok: has_network, reason: None, message: None },
        initialised(seen, parts, phase, initialized),
        ready,
        containers,
        Verdict::TRUE,
    ];
    let old = seen.pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let find = |kind: &str| old.into_iter().flatten().find(|c| c.type_ == kind);
    let foreign = old.into_iter().flatten().filter(|c| !OURS.contains(&&*c.type_)).cloned();
    let ours = OURS.into_iter().zip(verdicts).map(|(kind, verdict)| {
        let status = if verdict.ok { "True" } else { "False" };
        let since = find(kind).filter(|c| c.status == status).and_then(|c| c.last_transition_time.clone());
        PodCondition {
            type_: kind.to_owned(),
            status: status.to_owned(),
            reason: verdict.reason.map(str::to_owned),
            message: verdict.message,
            last_transition_time: Some(since.unwrap_or(Time(seen.now))),
            observed_generation: seen.pod.metadata.generation,
            ..PodCondition::default()
        }
    });
    ours.chain(foreign).collect()
}

fn initialised(seen: &Observed<'_>, parts: &PodContainers<'_>, phase: Phase, initialized: bool) -> Verdict {
    if phase == Phase::Succeeded {
        return Verdict { reason: Some("PodCompleted"), ..Verdict::TRUE };
    }
    if initialized {
        return Verdict::TRUE;
    }
    let incomplete = parts.init.iter().filter(|c| {
        let record = seen.records.get(&c.name);
        let done = if is_sidecar(c) {
            record.is_some_and(|r| r.is_running() && r.started)
        } else {
            record.and_then(Record::exit).is_some_and(|e| e.code == 0)
        };
        !done
    });
    let message = format!("containers with incomplete status: {}", names(incomplete.map(|c| &*c.name)));
    Verdict::no("ContainersNotInitialized", Some(message))
}

fn containers_ready(
    parts: &PodContainers<'_>,
    phase: Phase,
    statuses: &[ContainerStatus],
    init_statuses: &[ContainerStatus],
) -> Verdict {
    match phase {
        Phase::Succeeded => return Verdict::no("PodCompleted", None),
        Phase::Failed => return Verdict::no("PodFailed", None),
        Phase::Pending | Phase::Running => {}
    }
    let is_ready = |name: &str| statuses.iter().chain(init_statuses).any(|s| s.name == name && s.ready);
    let counted = parts.init.iter().filter(|c| is_sidecar(c)).chain(&parts.main);
    let unready: Vec<&str> = counted.map(|c| &*c.name).filter(|name| !is_ready(name)).collect();
    if unready.is_empty() {
        return Verdict::TRUE;
    }
    let message = format!("containers with unready status: {}", names(unready.into_iter()));
    Verdict::no("ContainersNotReady", Some(message))
}

fn pod_ready(seen: &Observed<'_>, containers: &Verdict) -> Verdict {
    if !containers.ok {
        return Verdict { ok: false, reason: containers.reason, message: containers.message.clone() };
    }
    let conditions = seen.pod.status.as_ref().and_then(|s| s.conditions.as_ref());
    let holds = |kind: &str| conditions.into_iter().flatten().any(|c| c.type_ == kind && c.status == "True");
    let gates = seen.pod.spec.as_ref().and_then(|s| s.readiness_gates.as_ref());
    let missing: Vec<String> = gates
        .into_iter()
        .flatten()
        .filter(|gate| !holds(&gate.condition_type))
        .map(|gate| {
            format!("corresponding condition of pod readiness gate \"{}\" does not exist.", gate.condition_type)
        })
        .collect();
    if missing.is_empty() { Verdict::TRUE } else { Verdict::no("ReadinessGatesNotReady", Some(missing.join(", "))) }
}

/// A list as Go prints it.
fn names<'a>(names: impl Iterator<Item = &'a str>) -> String {
    format!("[{}]", names.collect::<Vec<_>>().join(" "))
}
