//! The phase of a RayJob, read from and written to `status.jobDeploymentStatus` and `status.jobStatus`.
//!
//! A phase carries what it needs, so `Running` without an address does not exist: a status that
//! claims it (it was edited, or another operator wrote it) is read as the last phase for which
//! everything is there. Unknown texts, and `ValidationFailed` once the spec is valid again,
//! are read the same way, so there is no phase that a RayJob cannot leave.

use super::mode::Mode;
use super::status::time;
use jiff::Timestamp;
use manta_api::{RayJob, RayJobStatus};

/// The phase of a RayJob.
#[derive(Clone, Debug, PartialEq)]
pub enum Phase {
    /// Nothing has been chosen yet.
    New,
    /// Names are chosen; the cluster is being created.
    Initializing(Attempt),
    /// The cluster is ready; the user has not named a job yet.
    Waiting(Attempt),
    /// The job has been, or is being, handed to Ray.
    Running(Attempt, Address),
    /// Everything is being removed, to be built again later.
    Suspending,
    /// Nothing is there until the user resumes.
    Suspended,
    /// Everything is being removed, to be tried again.
    Retrying,
    /// Over.
    Finished(Finish),
}

/// What is known since the names were chosen.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt {
    /// The RayCluster's name.
    pub cluster: String,
    /// The submission id; empty in InteractiveMode until the user names one.
    pub job_id: String,
    /// `status.startTime`, which deadlines count from.
    pub since: Timestamp,
}

/// `status.dashboardURL`: host and port, without scheme.
#[derive(Clone, Debug, PartialEq)]
pub struct Address(pub String);

/// How a RayJob ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Finish {
    pub failed: bool,
    /// `status.endTime`, which every time-to-live counts from.
    pub at: Option<Timestamp>,
}

/// The texts of `status.jobDeploymentStatus`.
pub mod deployment {
    pub const NEW: &str = "";
    pub const INITIALIZING: &str = "Initializing";
    pub const WAITING: &str = "Waiting";
    pub const RUNNING: &str = "Running";
    pub const COMPLETE: &str = "Complete";
    pub const FAILED: &str = "Failed";
    pub const VALIDATION_FAILED: &str = "ValidationFailed";
    pub const SUSPENDING: &str = "Suspending";
    pub const SUSPENDED: &str = "Suspended";
    pub const RETRYING: &str = "Retrying";
}

/// The texts of `status.reason`.
pub mod reason {
    pub const SUBMISSION_FAILED: &str = "SubmissionFailed";
    pub const DEADLINE_EXCEEDED: &str = "DeadlineExceeded";
    pub const PRE_RUNNING_DEADLINE_EXCEEDED: &str = "PreRunningDeadlineExceeded";
    pub const APP_FAILED: &str = "AppFailed";
    pub const TRANSITION_GRACE_EXCEEDED: &str = "JobDeploymentStatusTransitionGracePeriodExceeded";
    pub const STATUS_CHECK_TIMEOUT: &str = "JobStatusCheckTimeoutExceeded";
    pub const VALIDATION_FAILED: &str = "ValidationFailed";
}

/// How a Ray job ended, as Ray reports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ended {
    Succeeded,
    Stopped,
    Failed,
}

impl Ended {
    /// Returns the end that a text of `status.jobStatus` means, if any.
    pub fn read(job_status: &str) -> Option<Self> {
        match job_status {
            "SUCCEEDED" => Some(Self::Succeeded),
            "STOPPED" => Some(Self::Stopped),
            "FAILED" => Some(Self::Failed),
            _ => None,
        }
    }
}

impl Phase {
    /// Returns the text of `status.jobDeploymentStatus`.
    pub fn name(&self) -> &'static str {
        match self {
            Self::New => deployment::NEW,
            Self::Initializing(_) => deployment::INITIALIZING,
            Self::Waiting(_) => deployment::WAITING,
            Self::Running(..) => deployment::RUNNING,
            Self::Suspending => deployment::SUSPENDING,
            Self::Suspended => deployment::SUSPENDED,
            Self::Retrying => deployment::RETRYING,
            Self::Finished(finish) if finish.failed => deployment::FAILED,
            Self::Finished(_) => deployment::COMPLETE,
        }
    }

    /// Reads the phase from a status; every status has one.
    pub fn read(job: &RayJob, mode: Mode) -> Self {
        let empty = RayJobStatus::default();
        let status = job.status.as_ref().unwrap_or(&empty);
        match status.job_deployment_status.as_deref().unwrap_or_default() {
            deployment::NEW => Self::New,
            deployment::INITIALIZING => attempt(job, status, mode).map_or(Self::New, Self::Initializing),
            deployment::WAITING => attempt(job, status, mode).map_or(Self::New, |attempt| match address(status) {
                Some(_) => Self::Waiting(attempt),
                None => Self::Initializing(attempt),
            }),
            deployment::RUNNING => running(job, status, mode),
            deployment::COMPLETE => Self::Finished(Finish { failed: false, at: time(&status.end_time) }),
            deployment::FAILED => Self::Finished(Finish { failed: true, at: time(&status.end_time) }),
            deployment::SUSPENDING => Self::Suspending,
            deployment::SUSPENDED => Self::Suspended,
            deployment::RETRYING => Self::Retrying,
            _ => Self::recover(job, status, mode),
        }
    }

    /// Returns the phase before validation failed, from what it left in the status.
    fn recover(job: &RayJob, status: &RayJobStatus, mode: Mode) -> Self {
        let started = time(&status.start_time);
        // A retry has no end time, and a resumed job starts after the end time of the run before.
        if let Some(end) = time(&status.end_time).filter(|end| started.is_none_or(|start| *end >= start)) {
            let ended = Ended::read(status.job_status.as_deref().unwrap_or_default());
            let failed = !matches!(ended, Some(Ended::Succeeded | Ended::Stopped));
            return Self::Finished(Finish { failed, at: Some(end) });
        }
        running(job, status, mode)
    }
}

fn running(job: &RayJob, status: &RayJobStatus, mode: Mode) -> Phase {
    match (attempt(job, status, mode), address(status)) {
        (Some(attempt), Some(_)) if attempt.job_id.is_empty() => Phase::Waiting(attempt),
        (Some(attempt), Some(address)) => Phase::Running(attempt, address),
        (Some(attempt), None) => Phase::Initializing(attempt),
        (None, _) => Phase::New,
    }
}

fn attempt(job: &RayJob, status: &RayJobStatus, mode: Mode) -> Option<Attempt> {
    let cluster = status.ray_cluster_name.clone().filter(|name| !name.is_empty())?;
    let job_id = status.job_id.clone().unwrap_or_default();
    if job_id.is_empty() && mode != Mode::Interactive {
        return None;
    }
    let since = time(&status.start_time).or_else(|| time(&job.metadata.creation_timestamp))?;
    Some(Attempt { cluster, job_id, since })
}

fn address(status: &RayJobStatus) -> Option<Address> {
    status.dashboard_url.clone().filter(|url| !url.is_empty()).map(Address)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::job::tests::fixture::{at, job};

    fn check(edit: impl FnOnce(&mut RayJobStatus), mode: Mode, expect: &str) {
        let mut job = job("train");
        let mut status = RayJobStatus::default();
        edit(&mut status);
        job.status = Some(status);
        let phase = format!("{:?}", Phase::read(&job, mode));
        assert!(phase.starts_with(expect), "{phase} is not {expect}");
    }

    fn named(status: &mut RayJobStatus, phase: &str) {
        status.job_deployment_status = Some(phase.to_owned());
        status.ray_cluster_name = Some("train-bcdfg".to_owned());
        status.job_id = Some("train-hjklm".to_owned());
        status.start_time = Some(at(0));
    }

    fn addressed(status: &mut RayJobStatus, phase: &str) {
        named(status, phase);
        status.dashboard_url = Some("host:8265".to_owned());
    }

    #[test]
    fn a_status_that_lacks_what_its_phase_needs_is_read_as_an_earlier_phase() {
        check(|_| {}, Mode::K8sJob, "New");
        check(|s| s.job_deployment_status = Some("Running".into()), Mode::K8sJob, "New");
        check(|s| named(s, "Running"), Mode::K8sJob, "Initializing");
        check(|s| addressed(s, "Running"), Mode::K8sJob, "Running");
        check(|s| named(s, "Waiting"), Mode::Interactive, "Initializing");
        check(|s| addressed(s, "Waiting"), Mode::Interactive, "Waiting");
        let without_id = |s: &mut RayJobStatus, phase: &str| {
            addressed(s, phase);
            s.job_id = None;
        };
        check(|s| without_id(s, "Running"), Mode::Interactive, "Waiting");
        check(|s| without_id(s, "Running"), Mode::Http, "New");
    }

    #[test]
    fn a_status_without_start_counts_from_the_creation() {
        let mut job = job("train");
        let mut status = RayJobStatus::default();
        named(&mut status, "Initializing");
        status.start_time = None;
        job.status = Some(status);
        let Phase::Initializing(attempt) = Phase::read(&job, Mode::K8sJob) else { panic!("not initializing") };
        assert_eq!(Some(attempt.since), time(&job.metadata.creation_timestamp));
    }

    #[test]
    fn the_phase_before_a_failed_validation_is_restored() {
        for unknown in ["ValidationFailed", "Bogus", "running"] {
            check(|s| s.job_deployment_status = Some(unknown.into()), Mode::K8sJob, "New");
            check(|s| named(s, unknown), Mode::K8sJob, "Initializing");
            check(|s| addressed(s, unknown), Mode::K8sJob, "Running");
            let ended = |s: &mut RayJobStatus, job_status: &str| {
                addressed(s, unknown);
                s.end_time = Some(at(9));
                s.job_status = Some(job_status.to_owned());
            };
            check(|s| ended(s, "SUCCEEDED"), Mode::K8sJob, "Finished(Finish { failed: false");
            check(|s| ended(s, "RUNNING"), Mode::K8sJob, "Finished(Finish { failed: true");
            // Resumed after an end: the end belongs to the run before.
            let resumed = |s: &mut RayJobStatus| {
                ended(s, "RUNNING");
                s.start_time = Some(at(20));
            };
            check(resumed, Mode::K8sJob, "Running");
        }
    }
}
