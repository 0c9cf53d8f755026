//! Running: the state of the dashboard and the submitter, and how the job ends.
//!
//! KubeRay applies deadlines and a finished submitter before it polls the dashboard, so a job that
//! finished while the operator was down ends up as failed. Here every such decision waits for a reply
//! that is newer than its cause, for half a minute of polling at most.

use super::Planner;
use super::dashboard::{JobAnswer, JobInfo, JobPoll, JobReply, moment};
use super::deadline::{LAST_LOOK, LOOK_AGAIN_SECONDS, SUBMITTER_GRACE, after, date_time};
use super::mode::Mode;
use super::phase::{Address, Attempt, Ended, deployment, reason};
use super::status::{End, text, time};
use super::submitter::{self, SubmitterState, end_of};
use super::{cluster, deadline, deletion, head_service, http_submission};
use crate::action::{Accept, Action, Kind, Step};
use crate::dashboard::RayRequest;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Kubernetes cuts times to seconds: what happened "at" a time happened within this.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

/// How long after a submission a job that Ray does not know is submitted again.
const RESUBMIT_AFTER: SignedDuration = SignedDuration::from_secs(3);

pub(super) fn plan(planner: &mut Planner<'_>, mode: Mode, attempt: &Attempt, address: &Address) {
    let seen = planner.seen;
    if seen.is_suspended() {
        planner.draft.enter(deployment::SUSPENDING);
        return;
    }
    let submitter = SubmitterState::of(seen, mode, planner.config.gates.sidecar_submitter_restart);
    let reply = seen.dashboard.about(&attempt.job_id);
    let mut freshness = Freshness { reply, fresher_than: None };
    observe_reply(planner, &mut freshness);
    let is_unknown = matches!(reply, Some(JobReply { answer: JobAnswer::NotFound, .. }));
    let submission = (mode == Mode::Http && is_unknown && may_submit(planner)).then(|| {
        let once = planner.config.safeguards.one_submission_per_attempt;
        let id = if once { attempt.job_id.clone() } else { format!("{}-{}", attempt.job_id, planner.now) };
        http_submission::request(&seen.job.spec, &id)
    });
    let end = match &submission {
        Some(Err(error)) => {
            let message = format!("Job submission has failed. Reason: InvalidRequest. Message: {error}");
            Some(End::failed(reason::SUBMISSION_FAILED).with_message(message))
        }
        _ => decide_end(planner, mode, attempt, &submitter, &mut freshness),
    };
    let over = end.is_some();
    if let Some(end) = end {
        planner.draft.end(end, &seen.job.spec, planner.now);
    }
    ensure_prerequisites(planner, mode, attempt, address, over);
    if over {
        return;
    }
    if mode == Mode::Sidecar {
        // No watch shows a RayJob the containers of the head Pod.
        planner.wake_after(LOOK_AGAIN_SECONDS);
    }
    let endpoint = deletion::endpoint(planner, address.0.clone(), &attempt.cluster);
    if let Some(Ok(body)) = submission
        && seen.cluster.is_some()
    {
        let key = seen.key(Kind::RayCluster, &attempt.cluster);
        let request = RayRequest::SubmitJob { job_id: attempt.job_id.clone(), body };
        let action = Action::Ray { key, endpoint: endpoint.clone(), request };
        planner.finally(Step::new(action, "Ray does not know the job yet"));
    }
    let (job_id, fresher_than) = (attempt.job_id.clone(), freshness.fresher_than);
    planner.poll = Some(JobPoll { endpoint, job_id, fresher_than });
}

/// Returns whether a job may be submitted again, if it was before: a head that forgets it at once, or refuses it, must not be
/// flooded.
fn may_submit(planner: &mut Planner<'_>) -> bool {
    let last = planner.seen.dashboard.submitted_at;
    last.and_then(|at| at.checked_add(RESUBMIT_AFTER).ok()).is_none_or(|moment| planner.reached_or_wake_at(moment))
}

/// The last reply, and how young the next one has to be.
struct Freshness<'a> {
    reply: Option<&'a JobReply>,
    fresher_than: Option<Timestamp>,
}

impl Freshness<'_> {
    /// Returns whether the dashboard has replied since a moment; if not, it is polled again.
    fn replied_since_or_poll(&mut self, moment: Timestamp) -> bool {
        let replied = self.reply.is_some_and(|reply| reply.at >= moment);
        if !replied {
            self.fresher_than = self.fresher_than.max(Some(moment));
        }
        replied
    }

    /// Like [`Self::replied_since_or_poll`], but stops waiting for a reply after half a minute of polling in vain.
    fn confirmed_or_poll(&mut self, planner: &mut Planner<'_>, moment: Timestamp) -> bool {
        let polled = planner.seen.dashboard.polled_since.unwrap_or(planner.now);
        self.replied_since_or_poll(moment) || planner.reached_or_wake_at(moment.max(polled).checked_add(LAST_LOOK).ok())
    }
}

/// Copies what the dashboard replied into the status. A failed request leaves the job's status as it is.
fn observe_reply(planner: &mut Planner<'_>, freshness: &mut Freshness<'_>) {
    if planner.seen.dashboard.has_accepted {
        planner.draft.now.job_status_check_failure_start_time = None;
    }
    let Some(reply) = freshness.reply else { return };
    match &reply.answer {
        JobAnswer::Info(info) if !info.status.is_empty() => {
            planner.draft.now.job_status_check_failure_start_time = None;
            record_info(planner, info, reply.at);
            mirror_cluster(planner, freshness);
        }
        JobAnswer::Info(_) | JobAnswer::Failed(_) => {
            planner.draft.now.job_status_check_failure_start_time.get_or_insert(Time(reply.at));
        }
        JobAnswer::NotFound => {}
    }
}

fn record_info(planner: &mut Planner<'_>, info: &JobInfo, at: Timestamp) {
    let status = &mut planner.draft.now;
    status.job_status = text(info.status.as_str());
    status.message = text(info.message.as_str());
    status.reason = None;
    let times = status.ray_job_info.get_or_insert_default();
    if let Some(start) = moment(info.start_time) {
        times.start_time = Some(Time(start));
    }
    if let Some(end) = moment(info.end_time) {
        times.end_time = Some(Time(end));
    } else if Ended::read(&info.status).is_some() {
        // Without an end nothing could count from it, and a lost submitter would keep the job running forever.
        times.end_time.get_or_insert(Time(at));
    }
}

/// Copies the cluster's status, with a reply that is younger than it: as in KubeRay, a cluster whose dashboard
/// is unreachable is not mirrored.
fn mirror_cluster(planner: &mut Planner<'_>, freshness: &mut Freshness<'_>) {
    let Some(status) = planner.seen.cluster.as_ref().and_then(|cluster| cluster.status.as_ref()) else { return };
    if planner.draft.mirrors(status) {
        return;
    }
    let changed = time(&status.last_update_time).and_then(|at| at.checked_add(SECOND).ok());
    if changed.is_none_or(|changed| freshness.replied_since_or_poll(changed)) {
        planner.draft.mirror(Some(status));
    }
}

/// Returns how the job ends, if it does now.
fn decide_end(
    planner: &mut Planner<'_>,
    mode: Mode,
    attempt: &Attempt,
    submitter: &SubmitterState,
    freshness: &mut Freshness<'_>,
) -> Option<End> {
    match planner.draft.ended() {
        Some(ended) => ray_job_ended(planner, mode, ended, submitter),
        None => deadline_passed(planner, attempt, freshness)
            .or_else(|| submitter_ended(planner, submitter, freshness))
            .or_else(|| status_checks_failed(planner, freshness)),
    }
}

fn ray_job_ended(planner: &mut Planner<'_>, mode: Mode, ended: Ended, submitter: &SubmitterState) -> Option<End> {
    let end = |reason: &'static str| match ended {
        Ended::Failed => End::failed(if reason.is_empty() { reason::APP_FAILED } else { reason }),
        Ended::Succeeded | Ended::Stopped => End::complete(reason),
    };
    if submitter.is_over(mode) {
        return Some(end(""));
    }
    let ended_at = planner.draft.now.ray_job_info.as_ref().and_then(|info| time(&info.end_time));
    if planner.reached_or_wake_at(ended_at.and_then(|at| after(at, planner.config.rayjob_transition_grace_seconds))) {
        let message = "JobDeploymentStatus does not transition to Complete or Failed within the grace period after \
                       JobStatus reaches a terminal state.";
        return Some(end(reason::TRANSITION_GRACE_EXCEEDED).with_message(message));
    }
    planner.wait_for("the submitter to finish");
    None
}

fn deadline_passed(planner: &mut Planner<'_>, attempt: &Attempt, freshness: &mut Freshness<'_>) -> Option<End> {
    let spec = &planner.seen.job.spec;
    let moment = deadline::active(spec, attempt)?;
    (planner.reached_or_wake_at(Some(moment)) && freshness.confirmed_or_poll(planner, moment))
        .then(|| deadline::active_exceeded(spec, attempt))
}

fn submitter_ended(
    planner: &mut Planner<'_>,
    submitter: &SubmitterState,
    freshness: &mut Freshness<'_>,
) -> Option<End> {
    let since = submitter.finished.and_then(|at| at.checked_add(SECOND).ok());
    if let Some(failure) = &submitter.failure {
        let confirmed = since.is_none_or(|since| freshness.confirmed_or_poll(planner, since));
        return confirmed.then(|| end_of(failure, planner.draft.ended()));
    }
    let (finished, since) = (submitter.finished?, since?);
    if !freshness.replied_since_or_poll(since) {
        return None;
    }
    if matches!(freshness.reply, Some(JobReply { answer: JobAnswer::NotFound, .. })) {
        return Some(
            End::failed(reason::APP_FAILED).with_message("Submitter completed but Ray job not found in RayCluster."),
        );
    }
    let limit = finished.checked_add(SUBMITTER_GRACE).ok()?;
    // An unreachable dashboard does not prove that the job failed; the status check time-out ends it.
    let running = matches!(freshness.reply, Some(JobReply { answer: JobAnswer::Info(_), .. }));
    (planner.reached_or_wake_at(Some(limit)) && freshness.replied_since_or_poll(limit) && running).then(|| {
        End::failed(reason::TRANSITION_GRACE_EXCEEDED).with_job_status("FAILED").with_message(format!(
            "The RayJob submitter finished at {} but the ray job did not reach terminal state within {}s",
            date_time(finished),
            SUBMITTER_GRACE.as_secs()
        ))
    })
}

fn status_checks_failed(planner: &mut Planner<'_>, freshness: &mut Freshness<'_>) -> Option<End> {
    let since = time(&planner.draft.now.job_status_check_failure_start_time)?;
    let timeout = planner.config.rayjob_status_check_timeout.as_secs();
    let limit = after(since, i64::try_from(timeout).unwrap_or(i64::MAX))?;
    (planner.reached_or_wake_at(Some(limit)) && freshness.confirmed_or_poll(planner, limit)).then(|| {
        End::failed(reason::STATUS_CHECK_TIMEOUT).with_message(format!(
            "Job status checks have been failing since {}; exceeded timeout of {timeout}s",
            date_time(since)
        ))
    })
}

/// Creates what a running job needs besides Ray: its cluster, its head Service, and its submitter.
fn ensure_prerequisites(planner: &mut Planner<'_>, mode: Mode, attempt: &Attempt, address: &Address, over: bool) {
    let selected = planner.seen.selected_cluster();
    let Some(ray_cluster) = &planner.seen.cluster else {
        match selected {
            Some(name) => cluster::report_missing(planner, name),
            // Deleted by another client: recreated with the same name.
            None if !over => {
                cluster::create(planner, mode, attempt);
            }
            None => {}
        }
        return;
    };
    if selected.is_none() {
        head_service::plan(planner, ray_cluster);
    }
    if mode == Mode::K8sJob && !over && planner.seen.submitter.is_none() {
        // Deleted by another client, or not in the cache yet. The command queries Ray before it submits.
        submitter::create(planner, ray_cluster, attempt, &address.0, Accept::AlreadyExists);
    }
}
