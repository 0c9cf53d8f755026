//! The life of one Pod, as a pure state machine.
//!
//! ```text
//!   spec, records of its containers, sandbox, clock ──next──▶ actions, PodStatus, wake
//! ```
//!
//! [`next`] returns what to start, what to stop, and the status the kubelet would write. It has no state and never
//! waits: everything it needs is in [`Observed`].

mod conditions;
mod phase;
pub mod probe;
mod record;
mod restart;
mod status;
#[cfg(test)]
mod tests;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Container, Pod, PodSpec, PodStatus};

pub use phase::Phase;
pub use record::{Exit, Record, Records, RunState, Wait, recover};
pub use restart::{Backoff, RestartPolicy};

/// The sandbox of a pod: its network namespace and address.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Sandbox {
    #[default]
    Absent,
    Creating,
    Ready {
        ip: String,
    },
    /// Torn down; the address is kept for the final status.
    Removed {
        ip: Option<String>,
    },
}

impl Sandbox {
    fn ip(&self) -> Option<&str> {
        match self {
            Self::Ready { ip } => Some(ip),
            Self::Removed { ip } => ip.as_deref(),
            Self::Absent | Self::Creating => None,
        }
    }
}

/// Whether the pod is being deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Deletion {
    #[default]
    None,
    /// Deleted through the API: this many seconds to finish.
    Graceful { seconds: i64 },
    /// The object is already gone: nobody waits for a status.
    Gone,
}

/// Everything [`next`] decides from.
#[derive(Debug, Clone)]
pub struct Observed<'a> {
    pub pod: &'a Pod,
    pub records: &'a Records,
    pub sandbox: &'a Sandbox,
    pub deletion: Deletion,
    /// When this agent first saw the pod.
    pub accepted: Timestamp,
    pub host_ip: &'a str,
    pub backoff: Backoff,
    pub now: Timestamp,
}

/// One action on a pod.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Action {
    CreateSandbox,
    Start {
        container: String,
    },
    /// Run preStop, then signal, then after `grace` seconds kill.
    Stop {
        container: String,
        grace: i64,
        why: String,
    },
    RemoveSandbox,
    /// Everything is down: remove the object from the API.
    Finish,
}

/// The decision for one observation.
#[derive(Debug, Clone, PartialEq)]
pub struct Next {
    pub actions: Vec<Action>,
    pub status: PodStatus,
    /// Look again at this time even if nothing happens.
    pub wake: Option<Timestamp>,
}

/// Decides the next actions and status of one pod; the same observation gives the same result.
pub fn next(seen: &Observed<'_>) -> Next {
    let parts = PodContainers::of(seen.pod);
    let steps = restart::steps(seen, &parts);
    let deadline = active_deadline(seen);
    let expired = deadline.is_some_and(|at| seen.now >= at);
    let ending = expired || steps.finished || seen.deletion != Deletion::None || is_terminal(seen.pod);

    let (mut actions, wake) = if ending {
        (terminate(seen, &parts, expired), None)
    } else if matches!(seen.sandbox, Sandbox::Ready { .. }) {
        (steps.actions.clone(), steps.wake)
    } else {
        (Vec::new(), None)
    };
    if !ending && *seen.sandbox == Sandbox::Absent {
        actions.push(Action::CreateSandbox);
    }
    let status = status::write(seen, &parts, &steps, expired);
    let wake = if ending { wake } else { [wake, deadline].into_iter().flatten().min() };
    Next { actions, status, wake }
}

/// Stops what runs, then the sidecars in reverse order, then the sandbox, then the object.
fn terminate(seen: &Observed<'_>, parts: &PodContainers<'_>, expired: bool) -> Vec<Action> {
    let spec_grace = seen.pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds).unwrap_or(30);
    let (grace, why) = match seen.deletion {
        Deletion::Graceful { seconds } => (seconds, "the pod is being deleted"),
        Deletion::Gone => (0, "the pod object is gone"),
        Deletion::None if expired => (spec_grace, "the pod is past its active deadline"),
        Deletion::None => (spec_grace, "the pod is finished"),
    };
    let stop = |name: &str| Action::Stop { container: name.to_owned(), grace, why: why.to_owned() };
    let alive = |name: &str| seen.records.get(name).is_some_and(Record::is_alive);
    let stoppable = |name: &str| seen.records.get(name).is_some_and(|r| r.is_alive() && !r.stopping);

    let regular: Vec<&str> = parts
        .main
        .iter()
        .chain(&parts.init)
        .copied()
        .chain(&parts.ephemeral)
        .filter(|c| !is_sidecar(c))
        .map(|c| &*c.name)
        .collect();
    if regular.iter().any(|name| alive(name)) {
        return regular.into_iter().filter(|name| stoppable(name)).map(stop).collect();
    }
    for sidecar in parts.init.iter().rev().filter(|c| is_sidecar(c)) {
        if alive(&sidecar.name) {
            return if stoppable(&sidecar.name) { vec![stop(&sidecar.name)] } else { Vec::new() };
        }
    }
    match (seen.sandbox, seen.deletion) {
        (Sandbox::Ready { .. }, _) => vec![Action::RemoveSandbox],
        (Sandbox::Creating, _) | (_, Deletion::None) => Vec::new(),
        (Sandbox::Absent | Sandbox::Removed { .. }, _) => vec![Action::Finish],
    }
}

/// A pod the API already calls finished is never started again.
fn is_terminal(pod: &Pod) -> bool {
    pod.status.as_ref().and_then(|s| s.phase.as_deref()).is_some_and(|p| p == "Succeeded" || p == "Failed")
}

fn active_deadline(seen: &Observed<'_>) -> Option<Timestamp> {
    let seconds = seen.pod.spec.as_ref()?.active_deadline_seconds?;
    let start = seen.pod.status.as_ref().and_then(|s| s.start_time.as_ref()).map_or(seen.accepted, |t| t.0);
    start.checked_add(jiff::SignedDuration::from_secs(seconds)).ok()
}

/// The containers of a pod in the order they matter.
struct PodContainers<'a> {
    init: Vec<&'a Container>,
    main: Vec<&'a Container>,
    /// Added to the running pod by `kubectl debug`; started once.
    ephemeral: Vec<Container>,
    policy: RestartPolicy,
}

impl<'a> PodContainers<'a> {
    fn of(pod: &'a Pod) -> Self {
        let Some(spec) = &pod.spec else {
            return Self { init: vec![], main: vec![], ephemeral: vec![], policy: RestartPolicy::Always };
        };
        Self {
            init: spec.init_containers.iter().flatten().collect(),
            main: spec.containers.iter().collect(),
            ephemeral: ephemeral(spec),
            policy: RestartPolicy::of(spec),
        }
    }
}

/// A native sidecar: an init container that is kept running.
pub fn is_sidecar(container: &Container) -> bool {
    container.restart_policy.as_deref() == Some("Always")
}

/// Returns the container of a pod that has this name.
pub fn container(spec: &PodSpec, name: &str) -> Option<Container> {
    let mut all = spec.init_containers.iter().flatten().chain(&spec.containers);
    let found = all.find(|c| c.name == name).cloned();
    found.or_else(|| ephemeral(spec).into_iter().find(|c| c.name == name))
}

/// Returns the ephemeral containers of a pod, which have the fields of ordinary ones.
fn ephemeral(spec: &PodSpec) -> Vec<Container> {
    let one = |c| serde_json::from_value(serde_json::to_value(c).ok()?).ok();
    spec.ephemeral_containers.iter().flatten().filter_map(one).collect()
}
