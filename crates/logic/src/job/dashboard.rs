//! What is polled about a RayJob's Ray job, and what the dashboard last replied.
//!
//! Nothing here does I/O. A plan names the job to poll ([`JobPoll`]); a poller of the operator asks, outside of
//! every pass, and its replies are part of the next [`Observed`](super::Observed).

use crate::dashboard::{DashboardEndpoint, RayRequest, RequestFailure, null_as_default};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};

/// Which Ray job to poll, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct JobPoll {
    pub endpoint: DashboardEndpoint,
    pub job_id: String,
    /// Poll at once if the last reply is older than this.
    pub fresher_than: Option<Timestamp>,
}

/// The state from the dashboard. A restart of the operator drops it, and polling restores it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobDashboard {
    /// Since when this process polls the job.
    pub polled_since: Option<Timestamp>,
    /// The last reply about a job.
    pub last_reply: Option<JobReply>,
    /// Whether the dashboard has accepted a submission since it last failed.
    pub has_accepted: bool,
    /// When one was last sent, accepted or not: one whose reply was lost may have been.
    pub submitted_at: Option<Timestamp>,
    /// The last attempt to stop it.
    pub stop: Option<StopAttempt>,
}

/// A reply, or that there was none.
#[derive(Clone, Debug, PartialEq)]
pub struct JobReply {
    /// The submission id that was asked about.
    pub job_id: String,
    /// When the reply came.
    pub at: Timestamp,
    pub answer: JobAnswer,
}

/// The reply of the dashboard about a job.
#[derive(Clone, Debug, PartialEq)]
pub enum JobAnswer {
    /// Its state.
    Info(JobInfo),
    /// Ray does not know it.
    NotFound,
    /// Nothing that can be used: no connection, a time-out, an error status, no JSON, no token.
    Failed(String),
}

impl JobAnswer {
    /// Returns whether the dashboard works, as far as this answer shows.
    pub(super) fn is_usable(&self) -> bool {
        match self {
            Self::Info(info) => !info.status.is_empty(),
            Self::NotFound => true,
            Self::Failed(_) => false,
        }
    }
}

/// A job as Ray's job API shows it. Absent and null fields count as empty.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct JobInfo {
    #[serde(deserialize_with = "null_as_default")]
    pub status: String,
    #[serde(deserialize_with = "null_as_default")]
    pub message: String,
    /// Milliseconds since 1970; zero if it has not started.
    #[serde(deserialize_with = "null_as_default")]
    pub start_time: u64,
    /// Milliseconds since 1970; zero if it has not ended.
    #[serde(deserialize_with = "null_as_default")]
    pub end_time: u64,
    /// The exit code of the entrypoint, once it has ended.
    pub driver_exit_code: Option<i32>,
}

/// The result of stopping a job.
#[derive(Clone, Debug, PartialEq)]
pub enum StopAttempt {
    /// It is not running any more.
    Done,
    /// Ray could not be reached, or refused, at this time.
    Failed { at: Timestamp },
}

impl JobDashboard {
    /// Returns the last reply about a job.
    pub fn about(&self, job_id: &str) -> Option<&JobReply> {
        self.last_reply.as_ref().filter(|reply| reply.job_id == job_id)
    }

    /// Records a reply. Returns whether it differs from the one before.
    pub fn observe(&mut self, reply: JobReply) -> bool {
        let changed = self.last_reply.as_ref().is_none_or(|last| last.answer != reply.answer);
        self.has_accepted &= reply.answer.is_usable();
        self.last_reply = Some(reply);
        changed
    }

    /// Records the result of a request.
    pub fn record(&mut self, request: &RayRequest, result: &Result<(), RequestFailure>, now: Timestamp) {
        match (request, result) {
            (RayRequest::SubmitJob { .. }, Ok(())) => {
                // Replies from before the submission are out of date.
                self.last_reply = None;
                self.has_accepted = true;
                self.submitted_at = Some(now);
            }
            (RayRequest::SubmitJob { job_id, .. }, Err(error)) => {
                self.submitted_at = Some(now);
                let answer = JobAnswer::Failed(error.text.clone());
                self.observe(JobReply { job_id: job_id.clone(), at: now, answer });
            }
            (RayRequest::StopJob { .. }, Ok(())) => self.stop = Some(StopAttempt::Done),
            (RayRequest::StopJob { .. }, Err(_)) => self.stop = Some(StopAttempt::Failed { at: now }),
            (RayRequest::ConfigureServe { .. }, _) => {}
        }
    }
}

/// Returns a time that Ray gives in milliseconds, to the second as in Kubernetes; zero is none.
pub fn moment(milliseconds: u64) -> Option<Timestamp> {
    let seconds = i64::try_from(milliseconds / 1000).ok().filter(|_| milliseconds != 0)?;
    Timestamp::from_second(seconds).ok()
}
#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_info_reads_nulls_and_missing_fields() {
        let info: JobInfo =
            serde_json::from_str(r#"{"status":"RUNNING","message":null,"start_time":1700000000123,"job_id":null}"#)
                .unwrap();
        assert_eq!(info.status, "RUNNING");
        assert_eq!((info.message.as_str(), info.end_time), ("", 0));
        assert_eq!(moment(info.start_time).map(|at| at.to_string()).as_deref(), Some("2023-11-14T22:13:20Z"));
    }

    #[test]
    fn out_of_range_timestamps_are_none() {
        assert_eq!(moment(0), None);
        assert_eq!(moment(u64::MAX), None);
        assert_eq!(moment(i64::MAX as u64 * 2), None);
    }
}
