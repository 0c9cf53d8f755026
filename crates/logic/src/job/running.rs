//! Running: what the dashboard and the submitter say, and what ends the job.
//!
//! KubeRay lets deadlines and a finished submitter decide before it asks the dashboard, so a job that
//! finished while the operator was away ends up as failed. Here every such verdict waits for an answer
//! that is younger than its cause, for half a minute of asking at most.

use super::dashboard::{Answer, Ask, Heard, JobInfo, Watch, moment};
use super::deadline::{LAST_LOOK, LOOK_AGAIN_SECONDS, SUBMITTER_GRACE, after, date_time};
use super::mode::Mode;
use super::phase::{Address, Attempt, Ended, deployment, reason};
use super::plan::Pass;
use super::status::{End, text, time};
use super::submitter_state::{SubmitterState, end_of};
use super::{cluster, deadline, finalize, head_service, initializing, submit};
use crate::action::Accept;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Kubernetes cuts times to seconds: what happened "at" a time happened within this.
const SECOND: SignedDuration = SignedDuration::from_secs(1);

pub(super) fn plan(pass: &mut Pass<'_>, mode: Mode, attempt: &Attempt, address: &Address) {
    if pass.seen.is_suspended() {
        pass.draft.enter(deployment::SUSPENDING);
        return;
    }
    let submitter = SubmitterState::of(pass.seen, mode, pass.config.gates.sidecar_submitter_restart);
    let heard = pass.seen.dashboard.about(&attempt.job_id);
    let mut look = Look { heard, fresher_than: None };
    hear(pass, &mut look);
    let request = (mode == Mode::Http).then(|| submit::request(&pass.seen.job.spec, &attempt.job_id)).transpose();
    let end = match &request {
        Err(error) if matches!(heard, Some(Heard { answer: Answer::NotFound, .. })) => {
            let message = format!("Job submission has failed. Reason: InvalidRequest. Message: {error}");
            Some(End::failed(reason::SUBMISSION_FAILED).saying(message))
        }
        _ => verdict(pass, mode, attempt, &submitter, &mut look),
    };
    let over = end.is_some();
    if let Some(end) = end {
        pass.draft.end(end, &pass.seen.job.spec, pass.now);
    }
    provide(pass, mode, attempt, address, over);
    if over {
        return;
    }
    if mode == Mode::Sidecar {
        // Nothing tells a RayJob of the head Pod's containers.
        pass.wake_at(after(pass.now, LOOK_AGAIN_SECONDS));
    }
    let can_submit = pass.seen.cluster.is_some();
    let ask = match request {
        Ok(Some(body)) if can_submit => Ask::InfoOrSubmit(body),
        _ => Ask::Info,
    };
    pass.watch = Some(Watch {
        endpoint: finalize::endpoint(pass, address.0.clone(), &attempt.cluster),
        job_id: attempt.job_id.clone(),
        ask,
        fresher_than: look.fresher_than,
    });
}

/// The last answer, and how young the next one has to be.
struct Look<'a> {
    heard: Option<&'a Heard>,
    fresher_than: Option<Timestamp>,
}

impl Look<'_> {
    /// Whether the dashboard has been asked since a moment; if not, it will be.
    fn is_since(&mut self, moment: Timestamp) -> bool {
        let since = self.heard.is_some_and(|heard| heard.at >= moment);
        if !since {
            self.fresher_than = self.fresher_than.max(Some(moment));
        }
        since
    }

    /// Like [`Self::is_since`], but after half a minute of asking in vain the moment counts as looked at.
    fn is_believed(&mut self, pass: &mut Pass<'_>, moment: Timestamp) -> bool {
        let asked = pass.seen.dashboard.asked_since.unwrap_or(pass.now);
        self.is_since(moment) || pass.is_past(moment.max(asked).checked_add(LAST_LOOK).ok())
    }
}

/// Takes what the dashboard said into the status. An answer that is no answer leaves the job's status.
fn hear(pass: &mut Pass<'_>, look: &mut Look<'_>) {
    let Some(heard) = look.heard else { return };
    match &heard.answer {
        Answer::Info(info) if !info.status.is_empty() => {
            pass.draft.now.job_status_check_failure_start_time = None;
            take_info(pass, info, heard.at);
            mirror_cluster(pass, look);
        }
        Answer::Info(_) | Answer::Failed(_) => {
            pass.draft.now.job_status_check_failure_start_time.get_or_insert(Time(heard.at));
        }
        Answer::NotFound => {}
    }
}

fn take_info(pass: &mut Pass<'_>, info: &JobInfo, at: Timestamp) {
    let status = &mut pass.draft.now;
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
        // Without an end nothing could count from it, and a lost submitter would keep the job for ever.
        times.end_time.get_or_insert(Time(at));
    }
}

/// Takes over the cluster's status, with an answer that is younger than it: as in KubeRay, a cluster
/// whose dashboard is silent is not mirrored.
fn mirror_cluster(pass: &mut Pass<'_>, look: &mut Look<'_>) {
    let Some(status) = pass.seen.cluster.as_ref().and_then(|cluster| cluster.status.as_ref()) else { return };
    if pass.draft.mirrors(status) {
        return;
    }
    let changed = time(&status.last_update_time).and_then(|at| at.checked_add(SECOND).ok());
    if changed.is_none_or(|changed| look.is_since(changed)) {
        pass.draft.mirror(Some(status));
    }
}

/// How the job ends, if it does now.
fn verdict(
    pass: &mut Pass<'_>,
    mode: Mode,
    attempt: &Attempt,
    submitter: &SubmitterState,
    look: &mut Look<'_>,
) -> Option<End> {
    match pass.draft.ended() {
        Some(ended) => ray_job_ended(pass, mode, ended, submitter),
        None => too_late(pass, attempt, look)
            .or_else(|| submitter_ended(pass, submitter, look))
            .or_else(|| silent_for_too_long(pass, look)),
    }
}

fn ray_job_ended(pass: &mut Pass<'_>, mode: Mode, ended: Ended, submitter: &SubmitterState) -> Option<End> {
    let end = |reason: &'static str| match ended {
        Ended::Failed => End::failed(if reason.is_empty() { reason::APP_FAILED } else { reason }),
        Ended::Succeeded | Ended::Stopped => End::complete(reason),
    };
    if submitter.is_over(mode) {
        return Some(end(""));
    }
    let ended_at = pass.draft.now.ray_job_info.as_ref().and_then(|info| time(&info.end_time));
    if pass.is_past(ended_at.and_then(|at| after(at, pass.config.rayjob_transition_grace_seconds))) {
        let message = "JobDeploymentStatus does not transition to Complete or Failed within the grace period after \
                       JobStatus reaches a terminal state.";
        return Some(end(reason::TRANSITION_GRACE_EXCEEDED).saying(message));
    }
    pass.wait_for("the submitter to finish");
    None
}

fn too_late(pass: &mut Pass<'_>, attempt: &Attempt, look: &mut Look<'_>) -> Option<End> {
    let spec = &pass.seen.job.spec;
    let moment = deadline::active(spec, attempt)?;
    (pass.is_past(Some(moment)) && look.is_believed(pass, moment)).then(|| deadline::active_exceeded(spec, attempt))
}

fn submitter_ended(pass: &mut Pass<'_>, submitter: &SubmitterState, look: &mut Look<'_>) -> Option<End> {
    let since = submitter.finished.and_then(|at| at.checked_add(SECOND).ok());
    if let Some(failure) = &submitter.failure {
        let believed = since.is_none_or(|since| look.is_believed(pass, since));
        return believed.then(|| end_of(failure, pass.draft.ended()));
    }
    let (finished, since) = (submitter.finished?, since?);
    if !look.is_since(since) {
        return None;
    }
    if matches!(look.heard, Some(Heard { answer: Answer::NotFound, .. })) {
        return Some(
            End::failed(reason::APP_FAILED).saying("Submitter completed but Ray job not found in RayCluster."),
        );
    }
    let limit = finished.checked_add(SUBMITTER_GRACE).ok()?;
    // A silent dashboard is no proof that the job failed; the status check time-out ends it.
    let running = matches!(look.heard, Some(Heard { answer: Answer::Info(_), .. }));
    (pass.is_past(Some(limit)) && look.is_since(limit) && running).then(|| {
        End::failed(reason::TRANSITION_GRACE_EXCEEDED).with_job_status("FAILED").saying(format!(
            "The RayJob submitter finished at {} but the ray job did not reach terminal state within {}s",
            date_time(finished),
            SUBMITTER_GRACE.as_secs()
        ))
    })
}

fn silent_for_too_long(pass: &mut Pass<'_>, look: &mut Look<'_>) -> Option<End> {
    let since = time(&pass.draft.now.job_status_check_failure_start_time)?;
    let timeout = pass.config.rayjob_status_check_timeout.as_secs();
    let limit = after(since, i64::try_from(timeout).unwrap_or(i64::MAX))?;
    (pass.is_past(Some(limit)) && look.is_believed(pass, limit)).then(|| {
        End::failed(reason::STATUS_CHECK_TIMEOUT).saying(format!(
            "Job status checks have been failing since {}; exceeded timeout of {timeout}s",
            date_time(since)
        ))
    })
}

/// What a running job needs besides Ray: its cluster, its head Service, and somebody who submits.
fn provide(pass: &mut Pass<'_>, mode: Mode, attempt: &Attempt, address: &Address, over: bool) {
    let selected = pass.seen.selected_cluster();
    let Some(ray_cluster) = &pass.seen.cluster else {
        match selected {
            Some(name) => cluster::miss(pass, name),
            // Deleted underneath: made again with the same name.
            None if !over => {
                cluster::create(pass, mode, attempt);
            }
            None => {}
        }
        return;
    };
    if selected.is_none() {
        head_service::plan(pass, ray_cluster);
    }
    if mode == Mode::K8sJob && !over && pass.seen.submitter.is_none() {
        // Deleted underneath, or not in the cache yet. The command asks Ray before it submits.
        initializing::submit(pass, ray_cluster, attempt, &address.0, Accept::AlreadyExists);
    }
}
