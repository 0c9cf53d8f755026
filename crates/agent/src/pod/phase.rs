//! The phase of a pod, counted from its containers as the kubelet does.

use super::{Observed, PodContainers, Record, RestartPolicy, RunState, is_sidecar};

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Phase {
    Pending,
    Running,
    Succeeded,
    Failed,
}

impl Phase {
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
        }
    }

    pub fn parse(text: &str) -> Option<Self> {
        [Self::Pending, Self::Running, Self::Succeeded, Self::Failed].into_iter().find(|p| p.as_str() == text)
    }

    pub fn is_terminal(self) -> bool {
        matches!(self, Self::Succeeded | Self::Failed)
    }
}

/// `ending`: no container is started any more and all are down.
pub(super) fn phase(seen: &Observed<'_>, parts: &PodContainers<'_>, initialized: bool, ending: bool) -> Phase {
    let known = seen.pod.status.as_ref().and_then(|s| s.phase.as_deref()).and_then(Phase::parse);
    if let Some(phase) = known.filter(|p| p.is_terminal()) {
        return phase;
    }
    let record = |name: &str| seen.records.get(name);
    let failed_init = parts
        .init
        .iter()
        .filter(|c| !is_sidecar(c))
        .any(|c| record(&c.name).and_then(Record::exit).is_some_and(|e| e.code != 0));
    if failed_init && !initialized && (parts.policy == RestartPolicy::Never || ending) {
        return Phase::Failed;
    }

    let (mut running, mut waiting, mut stopped, mut succeeded) = (0, 0, 0, 0);
    for container in &parts.main {
        match record(&container.name).map(|r| (&r.state, &r.last)) {
            Some((RunState::Running { .. }, _)) => running += 1,
            Some((RunState::Exited(exit), _)) => {
                stopped += 1;
                succeeded += usize::from(exit.code == 0);
            }
            Some((_, Some(_))) => stopped += 1,
            Some(_) | None => waiting += 1,
        }
    }
    if ending {
        // A pod deleted before it began has failed, unless everything it ran went well.
        return if waiting == 0 && stopped == succeeded { Phase::Succeeded } else { Phase::Failed };
    }
    if !initialized || waiting > 0 {
        return Phase::Pending;
    }
    if running > 0 {
        return Phase::Running;
    }
    match parts.policy {
        _ if stopped == 0 => Phase::Pending,
        RestartPolicy::Always => Phase::Running,
        _ if stopped == succeeded => Phase::Succeeded,
        RestartPolicy::Never => Phase::Failed,
        RestartPolicy::OnFailure => Phase::Running,
    }
}
