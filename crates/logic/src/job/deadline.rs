//! The deadlines of a RayJob.
//!
//! | what | from | ends in |
//! |---|---|---|
//! | `activeDeadlineSeconds` | `startTime` | Failed, DeadlineExceeded |
//! | `preRunningDeadlineSeconds` | `startTime` | Failed, PreRunningDeadlineExceeded |
//! | transition grace | end of the Ray job | what the Ray job ended in |
//! | submitter grace, 30 s | end of the submitter | Failed |
//! | status check time-out | first failed check | Failed, JobStatusCheckTimeoutExceeded |
//!
//! A deadline of a running job takes effect only after a poll of the dashboard that is newer than the deadline, so that
//! an operator that was down does not fail a job that has finished.

use super::phase::{Attempt, reason};
use super::status::End;
use jiff::{SignedDuration, Timestamp};
use manta_api::RayJobSpec;

/// How long the Ray job may take to show its end after its submitter has finished.
pub(super) const SUBMITTER_GRACE: SignedDuration = SignedDuration::from_secs(30);
/// The polling interval where no watch reports changes.
pub(super) const LOOK_AGAIN_SECONDS: i64 = 3;
/// How long a passed deadline waits for the last poll of the dashboard.
pub(super) const LAST_LOOK: SignedDuration = SignedDuration::from_secs(30);

/// Returns when `activeDeadlineSeconds` is over.
pub(super) fn active(spec: &RayJobSpec, attempt: &Attempt) -> Option<Timestamp> {
    after(attempt.since, spec.active_deadline_seconds?)
}

/// Returns when `preRunningDeadlineSeconds` is over.
pub(super) fn pre_running(spec: &RayJobSpec, attempt: &Attempt) -> Option<Timestamp> {
    after(attempt.since, spec.pre_running_deadline_seconds?)
}

/// Returns the end of a job that passed `activeDeadlineSeconds`.
pub(super) fn active_exceeded(spec: &RayJobSpec, attempt: &Attempt) -> End {
    End::failed(reason::DEADLINE_EXCEEDED).with_message(format!(
        "The RayJob has passed the activeDeadlineSeconds. StartTime: {}. ActiveDeadlineSeconds: {}",
        go_time(attempt.since),
        spec.active_deadline_seconds.unwrap_or_default()
    ))
}

/// Returns the end of a job that passed `preRunningDeadlineSeconds`.
pub(super) fn pre_running_exceeded(spec: &RayJobSpec, attempt: &Attempt) -> End {
    End::failed(reason::PRE_RUNNING_DEADLINE_EXCEEDED).with_message(format!(
        "The RayJob has passed the preRunningDeadlineSeconds. StartTime: {}. PreRunningDeadlineSeconds: {}",
        go_time(attempt.since),
        spec.pre_running_deadline_seconds.unwrap_or_default()
    ))
}

/// Returns the moment some seconds after another; none if it is out of range.
pub(super) fn after(moment: Timestamp, seconds: impl Into<i64>) -> Option<Timestamp> {
    moment.checked_add(SignedDuration::from_secs(seconds.into())).ok()
}

/// Returns a time as Go prints it: `2024-01-01 00:00:00 +0000 UTC`.
pub(super) fn go_time(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string()
}

/// Returns a time as `2024-01-01 00:00:00`.
pub(super) fn date_time(moment: Timestamp) -> String {
    moment.strftime("%Y-%m-%d %H:%M:%S").to_string()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_show_the_start_and_the_limit() {
        let attempt =
            Attempt { cluster: "c".into(), job_id: "j".into(), since: "2024-01-01T00:00:00Z".parse().unwrap() };
        let spec = RayJobSpec {
            active_deadline_seconds: Some(120),
            pre_running_deadline_seconds: Some(5),
            ..RayJobSpec::default()
        };
        let end = active_exceeded(&spec, &attempt);
        let text = "The RayJob has passed the activeDeadlineSeconds. \
                    StartTime: 2024-01-01 00:00:00 +0000 UTC. ActiveDeadlineSeconds: 120";
        assert_eq!(end.message.as_deref(), Some(text));
        let end = pre_running_exceeded(&spec, &attempt);
        let text = "The RayJob has passed the preRunningDeadlineSeconds. \
                    StartTime: 2024-01-01 00:00:00 +0000 UTC. PreRunningDeadlineSeconds: 5";
        assert_eq!(end.message.as_deref(), Some(text));
        assert_eq!(active(&spec, &attempt), Some("2024-01-01T00:02:00Z".parse().unwrap()));
    }

    #[test]
    fn out_of_range_deadlines_are_never_reached() {
        assert_eq!(after(Timestamp::MAX, 1), None);
    }
}
