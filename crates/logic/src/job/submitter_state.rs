//! Whether the submitter has finished, and whether it failed.

use super::mode::Mode;
use super::observed::Observed;
use super::phase::{Ended, reason};
use super::status::End;
use crate::build::submitter::{BACKOFF_LIMIT, CONTAINER};
use crate::view::{ContainerStatusView, JobView, PodView};
use jiff::Timestamp;

/// What is known about the submitter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SubmitterState {
    /// How the RayJob ends because of it, unless Ray knows better.
    pub(super) failure: Option<End>,
    /// When it stopped following the job.
    pub(super) finished: Option<Timestamp>,
    /// Nobody follows the job, and nobody says since when.
    pub(super) gone: bool,
}

impl SubmitterState {
    pub(super) fn of(seen: &Observed, mode: Mode, restarts: bool) -> Self {
        match mode {
            Mode::K8sJob => seen.own_submitter().map_or(Self { gone: true, ..Self::default() }, of_job),
            Mode::Sidecar => match head_pod(seen) {
                Some(pod) => of_sidecar(pod, restarts),
                None => Self {
                    failure: Some(End::failed(reason::APP_FAILED).saying("Ray head pod not found.")),
                    gone: true,
                    ..Self::default()
                },
            },
            Mode::Http | Mode::Interactive => Self::default(),
        }
    }

    /// Whether a Ray job that has ended has nobody to wait for.
    pub(super) fn is_over(&self, mode: Mode) -> bool {
        !mode.has_submitter() || self.finished.is_some() || self.failure.is_some() || self.gone
    }
}

/// Whether the sidecar has ended, well or not.
pub(super) fn sidecar_ended(seen: &Observed) -> bool {
    let status = head_pod(seen).and_then(sidecar);
    status.is_some_and(|status| status.state.terminated.is_some())
}

/// The end that a failed submitter means: the job's own failure, if Ray has told of one.
pub(super) fn end_of(failure: &End, ended: Option<Ended>) -> End {
    match ended {
        Some(Ended::Failed) => End::failed(reason::APP_FAILED),
        _ => failure.clone(),
    }
}

fn of_job(job: &JobView) -> SubmitterState {
    let over = |condition: &&crate::view::JobConditionView| {
        condition.status == "True" && (condition.type_ == "Complete" || condition.type_ == "Failed")
    };
    let mut ends = job.status.conditions.iter().filter(over);
    let Some(first) = ends.next() else { return SubmitterState::default() };
    let failed = [first].into_iter().chain(ends).find(|condition| condition.type_ == "Failed");
    let failure = failed.map(|condition| {
        let message =
            format!("Job submission has failed. Reason: {}. Message: {}", condition.reason, condition.message);
        End::failed(reason::SUBMISSION_FAILED).saying(message)
    });
    SubmitterState { failure, finished: first.last_transition_time, gone: false }
}

fn of_sidecar(pod: &PodView, restarts: bool) -> SubmitterState {
    let Some(status) = sidecar(pod) else { return SubmitterState::default() };
    let terminated = status.state.terminated.as_ref();
    let finished = terminated.and_then(|terminated| terminated.finished_at);
    let message = if restarts {
        let gave_up = status.last_state.terminated.is_some()
            && terminated.is_none_or(|terminated| terminated.exit_code != 0)
            && status.restart_count >= BACKOFF_LIMIT;
        gave_up.then(|| {
            format!("Ray head pod submitter container {CONTAINER} terminated after exceeding the maximum restart count")
        })
    } else {
        terminated.filter(|terminated| terminated.exit_code != 0).map(|terminated| {
            format!(
                "Ray head pod container {CONTAINER} terminated with exit code {}: {}",
                terminated.exit_code, terminated.reason
            )
        })
    };
    SubmitterState {
        failure: message.map(|message| End::failed(reason::SUBMISSION_FAILED).saying(message)),
        finished,
        gone: false,
    }
}

/// The head Pod; of several the one that is not on its way out.
fn head_pod(seen: &Observed) -> Option<&PodView> {
    let alive = |pod: &&PodView| !pod.is_terminating();
    seen.head_pods.iter().find(alive).or(seen.head_pods.first())
}

fn sidecar(pod: &PodView) -> Option<&ContainerStatusView> {
    pod.status.container_statuses.iter().find(|status| status.name == CONTAINER)
}
