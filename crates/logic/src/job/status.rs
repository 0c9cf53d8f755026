//! The status that a pass leaves behind: counters, times, and what is worth a write.
//!
//! `jobStatus` and `jobDeploymentStatus` never contradict each other: `Complete` stands with
//! SUCCEEDED or STOPPED only, and a job that Ray calls SUCCEEDED or STOPPED is never `Failed`
//! (see [`StatusDraft::end`]).

use super::phase::{Ended, deployment};
use super::retry;
use crate::cluster::fill_go_zeroes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manta_api::{RayClusterStatus, RayJobInfo, RayJobSpec, RayJobStatus};

/// How an attempt ended.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct End {
    pub(super) failed: bool,
    pub(super) reason: &'static str,
    /// Replaces the message; without it the message of Ray stays.
    pub(super) message: Option<String>,
    /// Replaces the job's status.
    pub(super) job_status: Option<&'static str>,
}

impl End {
    /// Returns the end of an attempt that failed.
    pub(super) fn failed(reason: &'static str) -> Self {
        Self { failed: true, reason, message: None, job_status: None }
    }

    /// Returns the end of an attempt whose Ray job ended.
    pub(super) fn complete(reason: &'static str) -> Self {
        Self { failed: false, reason, message: None, job_status: None }
    }

    /// Sets the message.
    pub(super) fn with_message(mut self, message: impl Into<String>) -> Self {
        self.message = Some(message.into());
        self
    }

    /// Sets the status of the job.
    pub(super) fn with_job_status(mut self, job_status: &'static str) -> Self {
        self.job_status = Some(job_status);
        self
    }
}

/// The status in the making.
#[derive(Clone, Debug, PartialEq)]
pub struct StatusDraft {
    before: RayJobStatus,
    pub(super) now: RayJobStatus,
}

impl StatusDraft {
    pub(super) fn of(status: Option<&RayJobStatus>) -> Self {
        let before = status.cloned().unwrap_or_default();
        Self { now: before.clone(), before }
    }

    /// Leaves the status as it was.
    pub(super) fn discard(&mut self) {
        self.now = self.before.clone();
    }

    /// Moves to another phase.
    pub(super) fn enter(&mut self, phase: &'static str) {
        self.now.job_deployment_status = text(phase);
    }

    pub(super) fn job_status(&self) -> &str {
        self.now.job_status.as_deref().unwrap_or_default()
    }

    /// Returns how the Ray job ended, as far as the status knows.
    pub(super) fn ended(&self) -> Option<Ended> {
        Ended::read(self.job_status())
    }

    /// Ends the attempt: counts it, and tries again if there are tries left.
    pub(super) fn end(&mut self, end: End, spec: &RayJobSpec, now: Timestamp) {
        // The status from Ray takes precedence over failures around the job.
        let failed = match Ended::read(end.job_status.unwrap_or(self.job_status())) {
            Some(Ended::Succeeded | Ended::Stopped) => false,
            Some(Ended::Failed) => true,
            None => end.failed,
        };
        if let Some(job_status) = end.job_status {
            self.now.job_status = text(job_status);
        }
        if failed == end.failed {
            self.now.reason = text(end.reason);
            if let Some(message) = end.message {
                self.now.message = text(message);
            }
        } else {
            self.now.reason = None;
        }
        let failures = self.now.failed.unwrap_or(0);
        let successes = self.now.succeeded.unwrap_or(0);
        if !failed {
            let succeeded = self.ended() == Some(Ended::Succeeded);
            self.now.succeeded = Some(successes.saturating_add(succeeded.into()));
            self.now.failed = Some(failures);
            self.enter(deployment::COMPLETE);
        } else {
            let failures = failures.saturating_add(1);
            self.now.failed = Some(failures);
            self.now.succeeded = Some(successes);
            let again =
                retry::tries_again(spec.backoff_limit, failures, self.now.reason.as_deref().unwrap_or_default());
            self.enter(if again { deployment::RETRYING } else { deployment::FAILED });
            if again {
                return;
            }
        }
        self.now.end_time = Some(Time(now));
    }

    /// Copies the cluster's status, unless only its time stamps changed.
    pub(super) fn mirror(&mut self, cluster: Option<&RayClusterStatus>) {
        let empty = RayClusterStatus::default();
        let cluster = cluster.unwrap_or(&empty);
        if !self.mirrors(cluster) {
            self.now.ray_cluster_status = Some(cluster.clone());
        }
    }

    /// Returns whether the copy of the cluster's status is up to date, time stamps aside.
    pub(super) fn mirrors(&self, cluster: &RayClusterStatus) -> bool {
        let empty = RayClusterStatus::default();
        let copy = self.now.ray_cluster_status.as_ref().unwrap_or(&empty);
        let head = |status: &RayClusterStatus| status.head.clone().unwrap_or_default();
        copy.state == cluster.state
            && copy.reason == cluster.reason
            && copy.ready_worker_replicas == cluster.ready_worker_replicas
            && copy.available_worker_replicas == cluster.available_worker_replicas
            && copy.desired_worker_replicas == cluster.desired_worker_replicas
            && copy.min_worker_replicas == cluster.min_worker_replicas
            && copy.max_worker_replicas == cluster.max_worker_replicas
            && copy.endpoints == cluster.endpoints
            && head(copy) == head(cluster)
            && copy.conditions == cluster.conditions
    }

    /// Returns the status to write, if anything changed. Unlike in KubeRay a new message alone is a change.
    pub(super) fn changed(&self) -> Option<RayJobStatus> {
        (self.now != self.before).then(|| in_go_form(self.now.clone()))
    }
}

/// Returns the time of a status field.
pub(super) fn time(field: &Option<Time>) -> Option<Timestamp> {
    field.as_ref().map(|time| time.0)
}

/// Returns a text of the status; the empty one is absent.
pub(super) fn text(value: impl Into<String>) -> Option<String> {
    Some(value.into()).filter(|value| !value.is_empty())
}

/// Returns the status as KubeRay writes it: parts that are not pointers in Go are always there.
fn in_go_form(mut status: RayJobStatus) -> RayJobStatus {
    status.ray_job_info.get_or_insert_with(RayJobInfo::default);
    fill_go_zeroes(status.ray_cluster_status.get_or_insert_with(RayClusterStatus::default));
    status
}

#[cfg(test)]
mod tests {
    use super::super::phase::reason;
    use super::*;

    fn now() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn ended(job_status: &str, end: End, spec: &RayJobSpec) -> RayJobStatus {
        let before = RayJobStatus {
            job_status: text(job_status),
            job_deployment_status: text(deployment::RUNNING),
            ..RayJobStatus::default()
        };
        let mut draft = StatusDraft::of(Some(&before));
        draft.end(end, spec, now());
        draft.now
    }

    #[test]
    fn counters_and_end_time_follow_the_outcome() {
        let spec = RayJobSpec { backoff_limit: Some(0), ..RayJobSpec::default() };
        let check = |job_status: &str, end: End, expect: (&str, i32, i32)| {
            let status = ended(job_status, end, &spec);
            let phase = status.job_deployment_status.as_deref().unwrap_or_default();
            assert_eq!((phase, status.succeeded.unwrap(), status.failed.unwrap()), expect, "{job_status}");
            assert_eq!(status.end_time, Some(Time(now())));
        };
        check("SUCCEEDED", End::complete(""), (deployment::COMPLETE, 1, 0));
        check("STOPPED", End::complete(""), (deployment::COMPLETE, 0, 0));
        check("FAILED", End::failed(reason::APP_FAILED), (deployment::FAILED, 0, 1));
        check("RUNNING", End::failed(reason::DEADLINE_EXCEEDED), (deployment::FAILED, 0, 1));
    }

    #[test]
    fn a_retry_keeps_reason_and_message_but_sets_no_end() {
        let spec = RayJobSpec { backoff_limit: Some(1), ..RayJobSpec::default() };
        let status = ended("FAILED", End::failed(reason::APP_FAILED).with_message("boom"), &spec);
        assert_eq!(status.job_deployment_status.as_deref(), Some("Retrying"));
        assert_eq!((status.reason.as_deref(), status.message.as_deref()), (Some("AppFailed"), Some("boom")));
        assert_eq!((status.end_time, status.failed), (None, Some(1)));
    }

    #[test]
    fn deployment_status_never_contradicts_the_job_status() {
        let spec = RayJobSpec::default();
        let status = ended("SUCCEEDED", End::failed(reason::SUBMISSION_FAILED).with_message("submitter died"), &spec);
        assert_eq!(status.job_deployment_status.as_deref(), Some("Complete"));
        assert_eq!((status.reason, status.message), (None, None));
        let status = ended("FAILED", End::complete(""), &spec);
        assert_eq!(status.job_deployment_status.as_deref(), Some("Failed"));
    }

    #[test]
    fn only_a_changed_status_is_written() {
        let before = in_go_form(RayJobStatus { message: text("old"), ..RayJobStatus::default() });
        let mut draft = StatusDraft::of(Some(&before));
        assert_eq!(draft.changed(), None);
        draft.now.message = text("new");
        assert_eq!(draft.changed().and_then(|status| status.message).as_deref(), Some("new"));
    }

    #[test]
    fn timestamps_of_the_cluster_status_are_no_change() {
        let cluster = RayClusterStatus { state: text("ready"), ..RayClusterStatus::default() };
        let mut draft = StatusDraft::of(Some(&RayJobStatus {
            ray_cluster_status: Some(cluster.clone()),
            ..RayJobStatus::default()
        }));
        let mut later = cluster.clone();
        later.last_update_time = Some(Time(now()));
        later.observed_generation = Some(7);
        draft.mirror(Some(&later));
        assert_eq!(draft.now.ray_cluster_status, Some(cluster));
        later.max_worker_replicas = Some(3);
        draft.mirror(Some(&later));
        assert_eq!(draft.now.ray_cluster_status, Some(later));
    }
}
