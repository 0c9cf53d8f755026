//! The `PodStatus` the kubelet would write for what is observed.

use k8s_openapi::api::core::v1::{
    Container, ContainerState, ContainerStateRunning, ContainerStateTerminated, ContainerStateWaiting, ContainerStatus,
    HostIP, Pod, PodIP, PodSpec, PodStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manta_quantity::Quantity;

use super::restart::Steps;
use super::{Exit, Observed, PodContainers, Record, RestartPolicy, RunState, Sandbox, conditions, is_sidecar, phase};

pub(super) fn write(seen: &Observed<'_>, parts: &PodContainers<'_>, steps: &Steps, expired: bool) -> PodStatus {
    let fresh = Record::default();
    let record = |c: &Container| seen.records.get(&c.name).unwrap_or(&fresh);
    let alive = seen.records.values().any(Record::is_alive);
    let leaving = seen.deletion != super::Deletion::None || expired;
    let ending = !alive && (leaving || steps.finished) && *seen.sandbox != Sandbox::Creating;
    let phase = phase::phase(seen, parts, steps.initialized, ending);

    let waiting = if parts.init.is_empty() || steps.initialized { "ContainerCreating" } else { "PodInitializing" };
    let init_policy =
        if parts.policy == RestartPolicy::Never { RestartPolicy::Never } else { RestartPolicy::OnFailure };
    let mut statuses: Vec<_> =
        parts.main.iter().map(|c| container_status(seen, c, record(c), parts.policy, waiting, leaving)).collect();
    statuses.sort_by(|a, b| a.name.cmp(&b.name));
    let init_statuses: Vec<_> = parts
        .init
        .iter()
        .map(|c| {
            let policy = if is_sidecar(c) { RestartPolicy::Always } else { init_policy };
            let mut status = container_status(seen, c, record(c), policy, "PodInitializing", leaving);
            if !is_sidecar(c) {
                // A plain init container is "ready" once it has done its work.
                status.ready = record(c).exit().is_some_and(|e| e.code == 0);
            }
            status
        })
        .collect();

    let ephemeral_statuses: Vec<_> = parts
        .ephemeral
        .iter()
        .map(|c| container_status(seen, c, record(c), RestartPolicy::Never, "ContainerCreating", leaving))
        .collect();

    let conditions = conditions::write(seen, parts, phase, steps.initialized, &statuses, &init_statuses);
    let old = seen.pod.status.as_ref();
    let ip = seen.sandbox.ip().map(str::to_owned);
    PodStatus {
        phase: Some(phase.as_str().to_owned()),
        conditions: Some(conditions),
        host_ip: Some(seen.host_ip.to_owned()),
        host_ips: Some(vec![HostIP { ip: seen.host_ip.to_owned() }]),
        pod_ips: ip.clone().map(|ip| vec![PodIP { ip }]),
        pod_ip: ip,
        start_time: old.and_then(|s| s.start_time.clone()).or(Some(Time(seen.accepted))),
        init_container_statuses: (!init_statuses.is_empty()).then_some(init_statuses),
        container_statuses: Some(statuses),
        ephemeral_container_statuses: (!ephemeral_statuses.is_empty()).then_some(ephemeral_statuses),
        qos_class: old.and_then(|s| s.qos_class.clone()).or_else(|| Some(qos(seen.pod.spec.as_ref()).to_owned())),
        reason: expired.then(|| "DeadlineExceeded".to_owned()).or_else(|| old.and_then(|s| s.reason.clone())),
        message: expired
            .then(|| "Pod was active on the node longer than the specified deadline".to_owned())
            .or_else(|| old.and_then(|s| s.message.clone())),
        observed_generation: seen.pod.metadata.generation,
        ..PodStatus::default()
    }
}

fn container_status(
    seen: &Observed<'_>,
    container: &Container,
    record: &Record,
    policy: RestartPolicy,
    waiting: &str,
    leaving: bool,
) -> ContainerStatus {
    let wait = |reason: &str, message: Option<String>| ContainerState {
        waiting: Some(ContainerStateWaiting { reason: Some(reason.to_owned()), message }),
        ..ContainerState::default()
    };
    let mut last = record.last.as_ref().map(terminated);
    let state = match &record.state {
        RunState::New | RunState::Starting { failed: None } => wait(waiting, None),
        RunState::Blocked { wait: blocked, .. } | RunState::Starting { failed: Some(blocked) } => {
            wait(&blocked.reason, blocked.message.clone())
        }
        RunState::Running { since, .. } => ContainerState {
            running: Some(ContainerStateRunning { started_at: Some(Time(*since)) }),
            ..ContainerState::default()
        },
        RunState::Exited(exit) => {
            let due = seen.backoff.restart_at(record).filter(|_| !leaving && policy.wants_restart(exit.code));
            match due {
                Some((at, delay)) if at > seen.now => {
                    last = Some(terminated(exit));
                    wait("CrashLoopBackOff", Some(backoff_message(seen.pod, &container.name, delay)))
                }
                _ => terminated(exit),
            }
        }
    };
    let started = record.is_running() && record.started;
    ContainerStatus {
        name: container.name.clone(),
        image: container.image.clone().unwrap_or_default(),
        image_id: record.image_id.clone(),
        container_id: match &record.state {
            RunState::Running { id, .. } => Some(id.clone()),
            RunState::Exited(exit) => Some(exit.id.clone()).filter(|id| !id.is_empty()),
            _ => record.last.as_ref().map(|exit| exit.id.clone()).filter(|id| !id.is_empty()),
        },
        ready: record.is_running() && record.ready && started,
        started: Some(started),
        restart_count: record.restarts,
        state: Some(state),
        last_state: Some(last.unwrap_or_default()),
        ..ContainerStatus::default()
    }
}

fn terminated(exit: &Exit) -> ContainerState {
    ContainerState {
        terminated: Some(ContainerStateTerminated {
            container_id: Some(exit.id.clone()).filter(|id| !id.is_empty()),
            exit_code: exit.code,
            reason: Some(exit.reason.clone()),
            message: exit.message.clone(),
            started_at: Some(Time(exit.started)),
            finished_at: Some(Time(exit.finished)),
            signal: None,
        }),
        ..ContainerState::default()
    }
}

fn backoff_message(pod: &Pod, container: &str, delay: jiff::SignedDuration) -> String {
    let meta = &pod.metadata;
    let text = |value: &Option<String>| value.clone().unwrap_or_default();
    let (minutes, seconds) = (delay.as_secs() / 60, delay.as_secs() % 60);
    let delay = if minutes > 0 { format!("{minutes}m{seconds}s") } else { format!("{seconds}s") };
    format!(
        "back-off {delay} restarting failed container={container} pod={}_{}({})",
        text(&meta.name),
        text(&meta.namespace),
        text(&meta.uid)
    )
}

/// The quality of service class that follows from the requests and limits.
fn qos(spec: Option<&PodSpec>) -> &'static str {
    let all: Vec<&Container> =
        spec.into_iter().flat_map(|s| s.init_containers.iter().flatten().chain(&s.containers)).collect();
    let names = ["cpu", "memory"];
    let of = |r: &ResourceRequirements, limits: bool, name: &str| {
        let map = if limits { &r.limits } else { &r.requests };
        map.as_ref().and_then(|m| m.get(name)).and_then(|q| Quantity::parse(&q.0).ok())
    };
    let guaranteed = !all.is_empty()
        && all.iter().all(|c| {
            let Some(r) = &c.resources else { return false };
            names.iter().all(|n| {
                let limit = of(r, true, n);
                limit.is_some() && of(r, false, n).is_none_or(|request| Some(request) == limit)
            })
        });
    let nothing = all.iter().all(|c| {
        c.resources.as_ref().is_none_or(|r| names.iter().all(|n| of(r, true, n).is_none() && of(r, false, n).is_none()))
    });
    match (guaranteed, nothing) {
        (true, _) => "Guaranteed",
        (_, true) => "BestEffort",
        _ => "Burstable",
    }
}
