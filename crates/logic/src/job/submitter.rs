//! The submitter: the Kubernetes Job that runs `ray job submit`, or the sidecar that does, and how it ended.

use super::Planner;
use super::mode::Mode;
use super::observed::Observed;
use super::phase::{Attempt, Ended, reason};
use super::status::End;
use crate::action::{Accept, Event, Kind, Step};
use crate::build::submitter::{BACKOFF_LIMIT, CONTAINER, Submitter};
use crate::reasons;
use crate::view::{ContainerStatusView, JobView, PodView};
use jiff::Timestamp;
use manta_api::RayCluster;

/// What is known about the submitter.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct SubmitterState {
    /// How the RayJob ends because of it, unless Ray knows better.
    pub(super) failure: Option<End>,
    /// When it stopped following the job.
    pub(super) finished: Option<Timestamp>,
    /// There is no submitter, and it is unknown since when.
    pub(super) missing: bool,
}

impl SubmitterState {
    pub(super) fn of(seen: &Observed, mode: Mode, restarts: bool) -> Self {
        match mode {
            Mode::K8sJob => seen.own_submitter().map_or(Self { missing: true, ..Self::default() }, of_job),
            Mode::Sidecar => match head_pod(seen) {
                Some(pod) => of_sidecar(pod, restarts),
                None => Self {
                    failure: Some(End::failed(reason::APP_FAILED).with_message("Ray head pod not found.")),
                    missing: true,
                    ..Self::default()
                },
            },
            Mode::Http | Mode::Interactive => Self::default(),
        }
    }

    /// Returns whether a Ray job that has ended waits for no submitter.
    pub(super) fn is_over(&self, mode: Mode) -> bool {
        !mode.has_submitter() || self.finished.is_some() || self.failure.is_some() || self.missing
    }
}

/// Returns whether the sidecar has ended, well or not.
pub(super) fn sidecar_ended(seen: &Observed) -> bool {
    let status = head_pod(seen).and_then(sidecar);
    status.is_some_and(|status| status.state.terminated.is_some())
}

/// Returns how the RayJob ends with a failed submitter: with the job's own failure, if Ray reported one.
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
        End::failed(reason::SUBMISSION_FAILED).with_message(message)
    });
    SubmitterState { failure, finished: first.last_transition_time, missing: false }
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
        failure: message.map(|message| End::failed(reason::SUBMISSION_FAILED).with_message(message)),
        finished,
        missing: false,
    }
}

/// Returns the head Pod; of several the one that is not terminating.
fn head_pod(seen: &Observed) -> Option<&PodView> {
    let alive = |pod: &&PodView| !pod.is_terminating();
    seen.head_pods.iter().find(alive).or(seen.head_pods.first())
}

fn sidecar(pod: &PodView) -> Option<&ContainerStatusView> {
    pod.status.container_statuses.iter().find(|status| status.name == CONTAINER)
}

/// Creates the submitter Job. Returns whether it can be built.
pub(super) fn create(
    planner: &mut Planner<'_>,
    ray_cluster: &RayCluster,
    attempt: &Attempt,
    url: &str,
    accept: Accept,
) -> bool {
    let seen = planner.seen;
    let path = seen.path(seen.name());
    let failed = |error: &str| format!("Failed to create new Kubernetes Job {path}: {error}");
    let built = Submitter {
        job: &seen.job,
        mode: Mode::K8sJob,
        cluster: ray_cluster,
        job_id: &attempt.job_id,
        dashboard_url: url,
        config: planner.config,
    }
    .job();
    match built {
        Ok(job) => planner.then(
            Step::create(seen.key(Kind::Job, seen.name()), &job, "the job must be handed to Ray")
                .on_success(reasons::CREATED_RAY_JOB_SUBMITTER, format!("Created Kubernetes Job {path}"))
                .on_failure(reasons::FAILED_TO_CREATE_RAY_JOB_SUBMITTER, failed(""))
                .accept(accept),
        ),
        Err(error) => {
            let note = failed(&error.to_string());
            planner.event(Event::warning(reasons::FAILED_TO_CREATE_RAY_JOB_SUBMITTER, "Create", note));
            planner.back_off();
            return false;
        }
    }
    true
}

/// Deletes the submitter Job. Returns whether there is none any more.
pub(super) fn delete(planner: &mut Planner<'_>) -> bool {
    let Some(submitter) = planner.seen.own_submitter() else { return true };
    let meta = &submitter.metadata;
    if meta.deletion_timestamp.is_some() {
        return false;
    }
    let path = planner.seen.path(&meta.name);
    let why = "the job does not need its submitter any more";
    planner.then(
        Step::delete(planner.seen.key(Kind::Job, &meta.name), &meta.uid, why)
            .on_success(reasons::DELETED_RAY_JOB_SUBMITTER, format!("Deleted submitter K8s Job {path}"))
            .on_failure(
                reasons::FAILED_TO_DELETE_RAY_JOB_SUBMITTER,
                format!("Failed to delete submitter K8s Job {path}: "),
            ),
    );
    false
}
