//! What a plan wants of a Ray dashboard, and what the dashboard last said.
//!
//! Nothing here talks to anybody. A plan says which job is to be followed ([`Watch`]); a poller of
//! the operator asks, outside of every pass, and what it hears is part of the next [`Observed`].
//! Asking is level-based: a watch says what should hold ("known to Ray, else submit it"), so a pass
//! that is repeated, or an operator that is restarted, asks for nothing twice.
//!
//! [`Observed`]: super::Observed

use jiff::Timestamp;
use serde::Deserialize;
use serde_json::Value;

/// Which Ray job to follow, and where.
#[derive(Clone, Debug, PartialEq)]
pub struct Watch {
    pub endpoint: DashboardEndpoint,
    pub job_id: String,
    pub ask: Ask,
    /// Ask at once if the last answer is older than this.
    pub fresher_than: Option<Timestamp>,
}

/// A dashboard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DashboardEndpoint {
    pub namespace: String,
    /// Host and port, without scheme.
    pub address: String,
    /// The head Service, for the way through the API server's proxy.
    pub service: String,
    /// The Secret with the token in its key `auth_token`, if the cluster asks for one.
    pub token_secret: Option<String>,
}

/// What to do about the job.
#[derive(Clone, Debug, PartialEq)]
pub enum Ask {
    /// Follow it.
    Info,
    /// Follow it; if Ray does not know it, submit it with this body.
    InfoOrSubmit(Value),
    /// Stop it.
    Stop,
}

/// What is known from the dashboard. Answers about other jobs do not belong here.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Dashboard {
    /// Since when this process asks about the job.
    pub asked_since: Option<Timestamp>,
    /// The last answer about the job.
    pub heard: Option<Heard>,
    /// What came of stopping it.
    pub stop: Option<Stop>,
}

/// An answer, or that there was none.
#[derive(Clone, Debug, PartialEq)]
pub struct Heard {
    /// The submission id that was asked about.
    pub job_id: String,
    /// When the answer came.
    pub at: Timestamp,
    pub answer: Answer,
}

/// What the dashboard said about a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Answer {
    /// Its state.
    Info(JobInfo),
    /// Ray does not know it.
    NotFound,
    /// Nothing that can be used: no connection, a time-out, an error status, no JSON, no token.
    Failed(String),
}

/// A job as Ray's job API shows it. Absent and null fields count as empty.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
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
}

/// What came of stopping a job.
#[derive(Clone, Debug, PartialEq)]
pub enum Stop {
    /// It is not running any more.
    Done,
    /// Nobody could be reached, or Ray refused, since this time.
    Failed { since: Timestamp },
}

impl Dashboard {
    /// The last answer about a job.
    pub fn about(&self, job_id: &str) -> Option<&Heard> {
        self.heard.as_ref().filter(|heard| heard.job_id == job_id)
    }
}

/// A moment that Ray gives in milliseconds, to the second as Kubernetes keeps it; zero is none.
pub fn moment(milliseconds: u64) -> Option<Timestamp> {
    let seconds = i64::try_from(milliseconds / 1000).ok().filter(|_| milliseconds != 0)?;
    Timestamp::from_second(seconds).ok()
}

fn null_as_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(inner: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(inner)?.unwrap_or_default())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn job_info_reads_nulls_and_what_is_missing() {
        let info: JobInfo =
            serde_json::from_str(r#"{"status":"RUNNING","message":null,"start_time":1700000000123,"job_id":null}"#)
                .unwrap();
        assert_eq!(info.status, "RUNNING");
        assert_eq!((info.message.as_str(), info.end_time), ("", 0));
        assert_eq!(moment(info.start_time).map(|at| at.to_string()).as_deref(), Some("2023-11-14T22:13:20Z"));
    }

    #[test]
    fn moments_that_no_clock_can_show_are_none() {
        assert_eq!(moment(0), None);
        assert_eq!(moment(u64::MAX), None);
        assert_eq!(moment(i64::MAX as u64 * 2), None);
    }
}
