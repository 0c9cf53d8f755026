//! The running containers, network and logs of a pod, for requests from outside its worker.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use jiff::Timestamp;

use crate::exec::ExecTarget;
use crate::logs::{self, Log};
use crate::network::PodNetwork;
use crate::runtime::Spawner;
use crate::runtime::cgroup::Group;
use crate::runtime::memory;
use crate::worker::Input;

/// A shorter time says nothing about CPU use.
const SHORTEST_WINDOW: jiff::SignedDuration = jiff::SignedDuration::from_secs(1);

/// One run of one container.
#[derive(Clone)]
pub(crate) struct Run {
    pub(super) id: u64,
    pub(super) shown_id: String,
    pub(super) started: Timestamp,
    pub(super) inside: ExecTarget,
    pub(super) group: Group,
    pub(super) log: Log,
    pub(super) log_path: PathBuf,
    /// The container's own files, removed when it exits.
    pub(super) scratch: PathBuf,
    pub(super) termination_log: PathBuf,
    pub(super) message_from_logs: bool,
    /// The agent killed it for using too much memory.
    pub(super) over_limit: Arc<AtomicBool>,
    /// Where clients that attach write to, if it reads.
    pub(super) input: Option<Input>,
    /// When its CPU time was last asked for, and what it was.
    pub(super) measured: Arc<Mutex<Option<(Timestamp, u64)>>>,
}

/// What a container uses now.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ContainerUsage {
    /// Billionths of a CPU, averaged over the window.
    pub cpu_nanos: u64,
    pub memory_bytes: u64,
    pub window_seconds: u64,
}

impl Run {
    fn usage(&self, now: Timestamp) -> ContainerUsage {
        let total = self.group.usage();
        let mut measured = self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let (since, before) =
            measured.filter(|(at, _)| now.duration_since(*at) >= SHORTEST_WINDOW).unwrap_or((self.started, 0));
        *measured = Some((now, total.cpu_nanos));
        let window = u64::try_from(now.duration_since(since).as_millis()).unwrap_or(0).max(1);
        ContainerUsage {
            cpu_nanos: total.cpu_nanos.saturating_sub(before).saturating_mul(1000) / window,
            memory_bytes: total.memory_bytes,
            window_seconds: (window / 1000).max(1),
        }
    }

    pub(super) fn was_oom_killed(&self) -> bool {
        self.over_limit.load(Ordering::Relaxed) || self.group.oom_killed()
    }

    /// Removes the files and control group of an exited container, but not its log.
    pub(super) async fn discard(self) {
        let _ = tokio::task::spawn_blocking(move || {
            self.group.remove();
            let _ = std::fs::remove_dir_all(&self.scratch);
        })
        .await;
    }
}

#[derive(Default)]
pub(crate) struct PodHandle(Mutex<State>);

#[derive(Default)]
struct State {
    network: Option<PodNetwork>,
    runs: BTreeMap<String, Run>,
    /// The logs of the last two runs of each container, newest last.
    logs: BTreeMap<String, VecDeque<(PathBuf, Log)>>,
}

impl PodHandle {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn network(&self) -> Option<PodNetwork> {
        self.lock().network.clone()
    }

    pub(super) fn set_network(&self, network: Option<PodNetwork>) {
        self.lock().network = network;
    }

    pub(crate) fn inside(&self, container: &str) -> Option<ExecTarget> {
        self.lock().runs.get(container).map(|run| run.inside.clone())
    }

    pub(crate) fn input(&self, container: &str) -> Option<Input> {
        self.lock().runs.get(container).and_then(|run| run.input.clone())
    }

    pub(super) fn run(&self, container: &str) -> Option<Run> {
        self.lock().runs.get(container).cloned()
    }

    pub(crate) fn all_runs(&self) -> Vec<u64> {
        self.lock().runs.values().map(|run| run.id).collect()
    }

    pub(super) fn insert(&self, container: &str, run: Run) {
        let mut state = self.lock();
        let logs = state.logs.entry(container.to_owned()).or_default();
        logs.push_back((run.log_path.clone(), run.log.clone()));
        while logs.len() > 2 {
            if let Some((path, _)) = logs.pop_front() {
                tokio::spawn(async move { logs::remove(&path).await });
            }
        }
        state.runs.insert(container.to_owned(), run);
    }

    /// Removes and returns a run if it is still the current one.
    pub(super) fn take_run(&self, container: &str, id: u64) -> Option<Run> {
        let mut state = self.lock();
        if state.runs.get(container).is_some_and(|run| run.id == id) { state.runs.remove(container) } else { None }
    }

    /// Returns the log of the newest run, or of the one before.
    pub(crate) fn log(&self, container: &str, previous: bool) -> Option<Log> {
        let state = self.lock();
        let logs = state.logs.get(container)?;
        let back = if previous { 2 } else { 1 };
        logs.len().checked_sub(back).and_then(|at| logs.get(at)).map(|(_, log)| log.clone())
    }

    /// Returns what each container uses: CPU since it was last asked for, or since its start.
    pub(crate) fn usage(&self, now: Timestamp) -> Vec<(String, ContainerUsage)> {
        let runs: Vec<(String, Run)> = self.lock().runs.iter().map(|(name, run)| (name.clone(), run.clone())).collect();
        runs.into_iter().map(|(name, run)| (name, run.usage(now))).collect()
    }

    /// Records the memory use of each container and kills those above their limit.
    pub(crate) fn apply_memory(&self, used: &HashMap<u64, u64>, spawner: &Spawner) {
        for run in self.lock().runs.values() {
            let namespace = memory::pid_namespace_of(run.inside.pid);
            let bytes = namespace.and_then(|ns| used.get(&ns)).copied().unwrap_or_default();
            if let Err(error) = run.group.refresh(bytes) {
                tracing::debug!(%error, "cannot update the container's memory files");
            }
            if run.group.enforced_limit().is_some_and(|limit| i64::try_from(bytes).is_ok_and(|b| b > limit)) {
                run.over_limit.store(true, Ordering::Relaxed);
                spawner.kill(run.id, nix::libc::SIGKILL);
            }
        }
    }
}
