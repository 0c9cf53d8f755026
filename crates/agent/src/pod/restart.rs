//! Decides which containers to start, and which to stop because they are unhealthy.
//!
//! Init containers run one after the other; sidecars among them only have to start. A container
//! that ended is started again as its policy says, at once the first time and then with a delay
//! that doubles.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, PodSpec};

use super::{Action, Observed, PodContainers, Record, RunState, is_sidecar};

/// When an ended container is started again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RestartPolicy {
    Always,
    OnFailure,
    Never,
}

impl RestartPolicy {
    pub fn of(spec: &PodSpec) -> Self {
        match spec.restart_policy.as_deref() {
            Some("OnFailure") => Self::OnFailure,
            Some("Never") => Self::Never,
            _ => Self::Always,
        }
    }

    pub(super) fn wants_restart(self, code: i32) -> bool {
        match self {
            Self::Always => true,
            Self::OnFailure => code != 0,
            Self::Never => false,
        }
    }
}

/// How long to wait before starting a container that keeps ending.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Backoff {
    pub base: SignedDuration,
    pub cap: SignedDuration,
    /// A run this long clears the record.
    pub reset: SignedDuration,
}

impl Backoff {
    /// What the kubelet does.
    pub const KUBELET: Self = Self {
        base: SignedDuration::from_secs(10),
        cap: SignedDuration::from_secs(300),
        reset: SignedDuration::from_secs(600),
    };
    /// Shorter, for a single machine.
    pub const LOCAL: Self = Self { base: SignedDuration::from_secs(1), ..Self::KUBELET };

    /// The delay after the run that followed `streak` restarts in a row.
    pub fn delay(&self, streak: u32) -> SignedDuration {
        let Some(doublings) = streak.checked_sub(1) else { return SignedDuration::ZERO };
        let factor = 1i32.checked_shl(doublings.min(30)).unwrap_or(i32::MAX);
        self.base.checked_mul(factor).unwrap_or(self.cap).min(self.cap)
    }

    /// When the container may be started again, and the delay that led there.
    pub(super) fn restart_at(&self, record: &Record) -> Option<(Timestamp, SignedDuration)> {
        let exit = record.exit()?;
        let lasted = exit.finished.duration_since(exit.started);
        let delay = if lasted >= self.reset { SignedDuration::ZERO } else { self.delay(record.streak) };
        Some((exit.finished.checked_add(delay).unwrap_or(Timestamp::MAX), delay))
    }
}

/// The result of walking over a pod's containers.
pub(super) struct Steps {
    pub(super) actions: Vec<Action>,
    pub(super) wake: Option<Timestamp>,
    /// All init containers are through, so the main ones may run.
    pub(super) initialized: bool,
    /// No container will be started again and none is left to wait for.
    pub(super) finished: bool,
}

pub(super) fn steps(seen: &Observed<'_>, parts: &PodContainers<'_>) -> Steps {
    let mut steps = Steps { actions: Vec::new(), wake: None, initialized: true, finished: false };
    for container in &parts.ephemeral {
        steps.consider(seen, container, RestartPolicy::Never);
    }
    let begun = has_begun(seen, parts);
    for container in &parts.init {
        let step = if is_sidecar(container) {
            steps.consider(seen, container, RestartPolicy::Always)
        } else if begun {
            Stage::Done
        } else {
            steps.consider(seen, container, init_policy(parts.policy))
        };
        let record = seen.records.get(&container.name);
        let through = match step {
            Stage::Done => {
                !is_sidecar(container) && (begun || record.and_then(Record::exit).is_some_and(|e| e.code == 0))
            }
            Stage::Failed => {
                steps.initialized = false;
                steps.finished = true;
                return steps;
            }
            Stage::Busy => is_sidecar(container) && (begun || record.is_some_and(|r| r.is_running() && r.started)),
        };
        if !through {
            steps.initialized = false;
            return steps;
        }
    }
    let mut over = !parts.main.is_empty();
    for container in &parts.main {
        over &= !matches!(steps.consider(seen, container, parts.policy), Stage::Busy);
    }
    steps.finished = over;
    steps
}

/// Whether the init containers are through: a main container has run in this sandbox, or none will ever run again.
fn has_begun(seen: &Observed<'_>, parts: &PodContainers<'_>) -> bool {
    let record = |c: &Container| seen.records.get(&c.name);
    let ran = |c: &Container| record(c).is_some_and(|r| !r.lost && !matches!(r.state, RunState::New));
    let is_over =
        |c: &Container| record(c).and_then(Record::exit).is_some_and(|exit| !parts.policy.wants_restart(exit.code));
    let mut main = parts.main.iter().copied();
    main.clone().any(ran) || (!parts.main.is_empty() && main.all(is_over))
}

/// `Always` means "until it succeeds" for a plain init container.
fn init_policy(policy: RestartPolicy) -> RestartPolicy {
    if policy == RestartPolicy::Never { policy } else { RestartPolicy::OnFailure }
}

enum Stage {
    /// Ended well and stays ended.
    Done,
    /// Ended badly and stays ended.
    Failed,
    /// Running, or to be started sooner or later.
    Busy,
}

impl Steps {
    fn consider(&mut self, seen: &Observed<'_>, container: &Container, policy: RestartPolicy) -> Stage {
        let start = || Action::Start { container: container.name.clone() };
        let fresh = Record::default();
        let record = seen.records.get(&container.name).unwrap_or(&fresh);
        match &record.state {
            RunState::New => self.actions.push(start()),
            RunState::Blocked { retry, .. } => self.at(*retry, seen.now, start()),
            RunState::Starting { .. } => {}
            RunState::Running { .. } => {
                if let (Some(why), false) = (&record.unhealthy, record.stopping) {
                    let grace = probe_grace(container)
                        .or_else(|| seen.pod.spec.as_ref().and_then(|s| s.termination_grace_period_seconds));
                    self.actions.push(Action::Stop {
                        container: container.name.clone(),
                        grace: grace.unwrap_or(30),
                        why: why.clone(),
                    });
                }
            }
            RunState::Exited(exit) if policy.wants_restart(exit.code) => {
                if let Some((at, _)) = seen.backoff.restart_at(record) {
                    self.at(at, seen.now, start());
                }
            }
            RunState::Exited(exit) if exit.code == 0 => return Stage::Done,
            RunState::Exited(_) => return Stage::Failed,
        }
        Stage::Busy
    }

    fn at(&mut self, when: Timestamp, now: Timestamp, action: Action) {
        if when <= now {
            self.actions.push(action);
        } else {
            self.wake = Some(self.wake.map_or(when, |wake| wake.min(when)));
        }
    }
}

/// A liveness or startup probe may bring its own grace period.
fn probe_grace(container: &Container) -> Option<i64> {
    let probes = [&container.liveness_probe, &container.startup_probe];
    probes.into_iter().flatten().find_map(|p| p.termination_grace_period_seconds)
}
