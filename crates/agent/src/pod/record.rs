//! What is known about each container of a pod.

use std::collections::BTreeMap;

use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ContainerStatus, Pod};

/// The records of one pod, by container name.
pub type Records = BTreeMap<String, Record>;

/// One container: how it is now, how it was before.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Record {
    pub state: RunState,
    /// How the run before this one ended.
    pub last: Option<Exit>,
    pub restarts: i32,
    /// Restarts in a row without a long enough run between them.
    pub streak: u32,
    /// The readiness verdict; a container without a probe is ready while it runs.
    pub ready: bool,
    /// The startup verdict; a container without a probe has started once it runs.
    pub started: bool,
    /// Why liveness or startup probing gave the container up.
    pub unhealthy: Option<String>,
    /// A stop has been asked for.
    pub stopping: bool,
    /// The last run was in a sandbox that is gone, and with it what the init containers had prepared.
    pub lost: bool,
    /// Which environment the image stands for, once resolved.
    pub image_id: String,
}

/// Where a container is in its life.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum RunState {
    /// Not created yet.
    #[default]
    New,
    /// Could not be created; tried again after `retry`.
    Blocked {
        wait: Wait,
        retry: Timestamp,
    },
    /// Being created, perhaps not for the first time.
    Starting {
        /// Why the attempt before this one failed.
        failed: Option<Wait>,
    },
    Running {
        id: String,
        since: Timestamp,
    },
    Exited(Exit),
}

/// Why a container waits, in the kubelet's words.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Wait {
    pub reason: String,
    pub message: Option<String>,
}

/// How a run ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Exit {
    pub id: String,
    pub code: i32,
    pub reason: String,
    pub message: Option<String>,
    pub started: Timestamp,
    pub finished: Timestamp,
}

impl Record {
    /// A process exists or is about to.
    pub fn is_alive(&self) -> bool {
        matches!(self.state, RunState::Starting { .. } | RunState::Running { .. })
    }

    pub fn is_running(&self) -> bool {
        matches!(self.state, RunState::Running { .. })
    }

    pub fn exit(&self) -> Option<&Exit> {
        match &self.state {
            RunState::Exited(exit) => Some(exit),
            _ => None,
        }
    }

    /// Takes note of a new run; `reset` is how long a run must last to be forgiven.
    pub fn begin(&mut self, reset: jiff::SignedDuration) {
        match std::mem::replace(&mut self.state, RunState::Starting { failed: None }) {
            RunState::Exited(exit) => {
                let lasted = exit.finished.duration_since(exit.started);
                self.streak = if lasted >= reset { 1 } else { self.streak.saturating_add(1) };
                self.restarts = self.restarts.saturating_add(1);
                self.last = Some(exit);
            }
            // The reason stays until another one is known, so that the status does not alternate with every attempt.
            RunState::Blocked { wait, .. } => self.state = RunState::Starting { failed: Some(wait) },
            RunState::New | RunState::Starting { .. } | RunState::Running { .. } => {}
        }
        self.ready = false;
        self.started = false;
        self.unhealthy = None;
        self.stopping = false;
        self.lost = false;
    }

    /// Takes note of the end of a run.
    pub fn end(&mut self, exit: Exit) {
        self.state = RunState::Exited(exit);
        self.ready = false;
        self.started = false;
        self.stopping = false;
    }
}

/// Rebuilds records from a status written by an earlier agent, whose processes died with it.
pub fn recover(pod: &Pod, now: Timestamp) -> Records {
    let Some(status) = &pod.status else { return Records::new() };
    let over = matches!(status.phase.as_deref(), Some("Succeeded" | "Failed"));
    let mut records = Records::new();
    for seen in status.ephemeral_container_statuses.iter().flatten() {
        records.insert(seen.name.clone(), recover_one(seen, now));
    }
    for seen in status.container_statuses.iter().flatten() {
        records.insert(seen.name.clone(), Record { lost: true, ..recover_one(seen, now) });
    }
    for seen in status.init_container_statuses.iter().flatten() {
        // The new sandbox is initialised again, as after a reboot of a node.
        let record =
            if over { recover_one(seen, now) } else { Record { restarts: seen.restart_count, ..Record::default() } };
        records.insert(seen.name.clone(), record);
    }
    records
}

fn recover_one(seen: &ContainerStatus, now: Timestamp) -> Record {
    let mut record = Record { restarts: seen.restart_count, image_id: seen.image_id.clone(), ..Record::default() };
    record.last = seen.last_state.as_ref().and_then(|s| s.terminated.as_ref()).map(exit_of);
    let Some(state) = &seen.state else { return record };
    if let Some(terminated) = &state.terminated {
        record.state = RunState::Exited(exit_of(terminated));
    } else if let Some(running) = &state.running {
        record.state = RunState::Exited(Exit {
            id: seen.container_id.clone().unwrap_or_default(),
            code: 137,
            reason: "ContainerStatusUnknown".to_owned(),
            message: Some("The container ended together with the agent that ran it".to_owned()),
            started: running.started_at.as_ref().map_or(now, |t| t.0),
            finished: now,
        });
    } else if let Some(last) = record.last.take() {
        record.state = RunState::Exited(last);
        record.restarts = record.restarts.saturating_sub(1).max(0);
    }
    record
}

fn exit_of(terminated: &k8s_openapi::api::core::v1::ContainerStateTerminated) -> Exit {
    let started = terminated.started_at.as_ref().map_or(Timestamp::UNIX_EPOCH, |t| t.0);
    Exit {
        id: terminated.container_id.clone().unwrap_or_default(),
        code: terminated.exit_code,
        reason: terminated.reason.clone().unwrap_or_default(),
        message: terminated.message.clone(),
        started,
        finished: terminated.finished_at.as_ref().map_or(started, |t| t.0),
    }
}
