//! The operators of a chaos run: processes that are killed and started again.

use crate::transcript::Transcript;
use anyhow::{Context, Result};
use manta_testkit::Supervised;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::Instant;

/// What Kubernetes waits before it starts a container again that ended by itself.
const RESTART: Duration = Duration::from_secs(1);
/// How long Kubernetes waits before it kills what it asked to end.
const GRACE: Duration = Duration::from_secs(30);
/// What an operator logs that ends because another one leads.
const LOST: &str = "leader election lost";

/// An operator, with one process after the other.
pub(super) struct Operator {
    name: String,
    command: Command,
    folder: PathBuf,
    state: Mutex<State>,
    kills: AtomicU64,
    transcript: Transcript,
}

enum State {
    Runs(Supervised),
    Down {
        until: Instant,
    },
    /// It was asked to end.
    Ending,
    /// It is not started again.
    Stopped,
}

impl Operator {
    /// Returns an operator that is to be started at once, with its logs in a folder.
    pub(super) fn new(name: &str, command: Command, folder: &Path, transcript: Transcript) -> Self {
        Self {
            name: name.to_owned(),
            command,
            folder: folder.to_owned(),
            state: Mutex::new(State::Down { until: Instant::now() }),
            kills: AtomicU64::new(0),
            transcript,
        }
    }

    /// Kills the process, if one runs. Another is started after a while.
    pub(super) fn kill(&self, down: Duration) {
        let mut state = self.lock();
        if matches!(*state, State::Runs(_)) {
            let killed = std::mem::replace(&mut *state, State::Down { until: Instant::now() + down });
            drop(killed);
            self.kills.fetch_add(1, Ordering::Relaxed);
            self.transcript.line("world", format!("{} is killed", self.name));
        }
    }

    /// Asks the process to end, if one runs, and waits until it has. Another is started soon.
    pub(super) fn terminate(&self) -> Result<()> {
        let mut state = self.lock();
        if !matches!(*state, State::Runs(_)) {
            return Ok(());
        }
        let before = std::mem::replace(&mut *state, State::Ending);
        drop(state);
        self.transcript.line("world", format!("{} is asked to end", self.name));
        if let State::Runs(process) = before {
            process.terminate(GRACE)?;
        }
        *self.lock() = State::Down { until: Instant::now() + RESTART };
        Ok(())
    }

    /// Stops the process from running, if there is one, until `resume`.
    pub(super) fn pause(&self) {
        self.transcript.line("world", format!("{} is paused", self.name));
        if let State::Runs(process) = &*self.lock() {
            // It may have ended by itself.
            let _ = process.pause();
        }
    }

    /// Lets the process run again. One that was killed meanwhile is not concerned.
    pub(super) fn resume(&self) {
        self.transcript.line("world", format!("{} is resumed", self.name));
        if let State::Runs(process) = &*self.lock() {
            let _ = process.resume();
        }
    }

    /// Starts the process when it is time. Fails if it ended for another reason than a lost election.
    pub(super) fn keep_running(&self) -> Result<()> {
        let mut state = self.lock();
        match &mut *state {
            State::Runs(process) => {
                let Err(ended) = process.check() else { return Ok(()) };
                let ended = format!("{ended:#}");
                *state = State::Down { until: Instant::now() + RESTART };
                self.transcript.line("world", format!("{} has ended", self.name));
                ended.contains(LOST).then_some(()).with_context(|| format!("an operator ended by itself: {ended}"))
            }
            State::Down { until } if Instant::now() >= *until => {
                *state = State::Runs(Supervised::start(&self.folder, &self.name, &self.command)?);
                self.transcript.line("world", format!("{} starts", self.name));
                Ok(())
            }
            State::Down { .. } | State::Ending | State::Stopped => Ok(()),
        }
    }

    /// Ends the process for good.
    pub(super) fn stop(&self) {
        *self.lock() = State::Stopped;
    }

    /// Returns how often it was killed.
    pub(super) fn kills(&self) -> u64 {
        self.kills.load(Ordering::Relaxed)
    }

    /// Returns the first panic that its processes logged.
    pub(super) fn panic(&self) -> Option<String> {
        let log = std::fs::read_to_string(self.folder.join(format!("{}.log", self.name))).unwrap_or_default();
        log.lines().find(|line| line.contains("panicked at")).map(str::to_owned)
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
