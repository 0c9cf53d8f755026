//! A job of a simulated Ray.

use crate::world::BEGINNING;
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// A job, whose end is decided when it is submitted.
pub(super) struct Job {
    submitted: Instant,
    runs_for: Duration,
    fails: bool,
    stopped: Option<Instant>,
}

impl Job {
    pub(super) fn new(runs_for: Duration, fails: bool) -> Self {
        Self { submitted: Instant::now(), runs_for, fails, stopped: None }
    }

    /// Stops it, if it still runs.
    pub(super) fn stop(&mut self) {
        self.stopped.get_or_insert(Instant::now());
    }

    pub(super) fn status(&self) -> &'static str {
        let age = self.submitted.elapsed();
        match () {
            () if self.stopped.is_some_and(|at| at < self.submitted + self.runs_for) => "STOPPED",
            () if age >= self.runs_for && self.fails => "FAILED",
            () if age >= self.runs_for => "SUCCEEDED",
            () if age < Duration::from_millis(200) => "PENDING",
            () => "RUNNING",
        }
    }

    /// Returns what the dashboard shows.
    pub(super) fn info(&self, id: &str, start: Instant) -> Value {
        let millis = |at: Instant| BEGINNING as u128 * 1000 + (at - start).as_millis();
        let status = self.status();
        let over = !matches!(status, "PENDING" | "RUNNING");
        let message = if status == "FAILED" { "the entrypoint failed" } else { "" };
        json!({
            "submission_id": id, "status": status, "message": message, "type": "SUBMISSION",
            "start_time": millis(self.submitted) as u64,
            "end_time": over.then(|| millis(self.stopped.unwrap_or(self.submitted + self.runs_for)) as u64),
        })
    }
}
