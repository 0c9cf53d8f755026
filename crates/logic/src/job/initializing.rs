//! Initializing: from the names to a cluster that is ready, and the hand-over of the job.
//!
//! A cluster that cannot be made, or is never ready, does not fail the job by itself: the deadlines
//! do. InteractiveMode passes through Waiting.

use super::Planner;
use super::mode::Mode;
use super::phase::{Attempt, deployment};
use super::{cluster, deadline, submitter};
use crate::action::Accept;
use crate::labels::KUEUE_QUEUE;
use crate::names;
use crate::scheduler;
use manta_api::RayCluster;

pub(super) fn plan(planner: &mut Planner<'_>, mode: Mode, attempt: &Attempt) {
    let seen = planner.seen;
    if seen.is_suspended() {
        planner.draft.enter(deployment::SUSPENDING);
        return;
    }
    // A job that was already submitted, because the operator stopped before the status write or because a
    // sidecar is quick, may have ended by now: Running finds that out.
    let handed_over = match mode {
        Mode::K8sJob => seen.own_submitter().is_some(),
        Mode::Sidecar => submitter::sidecar_ended(seen),
        Mode::Http | Mode::Interactive => false,
    };
    if !handed_over && end_if_late(planner, attempt) {
        return;
    }
    if seen.selected_cluster().is_some() || mode == Mode::Sidecar {
        // No watch reports clusters of other owners, or the head Pod's containers.
        planner.wake_at(deadline::after(planner.now, deadline::LOOK_AGAIN_SECONDS));
    }
    if !handed_over && !ensure_gang(planner, mode) {
        return;
    }
    let Some(ray_cluster) = &seen.cluster else {
        match seen.selected_cluster() {
            Some(name) => cluster::report_missing(planner, name),
            None if cluster::create(planner, mode, attempt) => planner.wait_for("the RayCluster to be made"),
            None => {}
        }
        return;
    };
    let status = ray_cluster.status.as_ref();
    let known = planner.draft.now.dashboard_url.clone().filter(|url| !url.is_empty());
    let ready = status.and_then(|status| status.state.as_deref()) == Some("ready");
    if known.is_none() && !ready && !handed_over {
        planner.draft.mirror(status);
        planner.wait_for("the RayCluster to be ready");
        return;
    }
    let Some(url) = known.or_else(|| dashboard_url(planner, ray_cluster, attempt)) else {
        planner.wait_for("the head Service to have a dashboard port: dashboard port is not found");
        planner.back_off();
        return;
    };
    planner.draft.now.dashboard_url = Some(url.clone());
    // Otherwise the copy waits for the dashboard's first answer, as in KubeRay. Kueue reads from it whether all Pods are
    // ready, and evicts a job that is late.
    if seen.job.metadata.labels.as_ref().is_some_and(|labels| labels.contains_key(KUEUE_QUEUE)) {
        planner.draft.mirror(status);
    }
    match mode {
        Mode::Interactive => planner.draft.enter(deployment::WAITING),
        Mode::K8sJob if !handed_over && !submitter::create(planner, ray_cluster, attempt, &url, Accept::Nothing) => {
            planner.draft.discard();
        }
        Mode::K8sJob | Mode::Http | Mode::Sidecar => planner.draft.enter(deployment::RUNNING),
    }
}

/// Creates what the batch scheduler needs before there are Pods. Returns whether a cluster may be created.
fn ensure_gang(planner: &mut Planner<'_>, mode: Mode) -> bool {
    let gang = scheduler::plan_job_gang(planner.seen, mode, planner.config);
    gang.steps.into_iter().for_each(|step| planner.then(step));
    let Some(blocked) = gang.blocked else { return true };
    blocked.event.into_iter().for_each(|event| planner.event(event));
    planner.wait_for(blocked.error);
    planner.back_off();
    false
}

/// Waiting: the user has to name the job that was submitted by hand.
pub(super) fn plan_waiting(planner: &mut Planner<'_>, attempt: &Attempt) {
    let spec = &planner.seen.job.spec;
    if planner.seen.is_suspended() {
        planner.draft.enter(deployment::SUSPENDING);
        return;
    }
    if planner.reached_or_wake_at(deadline::pre_running(spec, attempt)) {
        planner.draft.end(deadline::pre_running_exceeded(spec, attempt), spec, planner.now);
        return;
    }
    match spec.job_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => {
            planner.draft.now.job_id = Some(id.to_owned());
            planner.draft.enter(deployment::RUNNING);
        }
        None => planner.wait_for("spec.jobId to name a submitted job"),
    }
}

/// Ends an attempt that has run out of time. Returns whether it has.
fn end_if_late(planner: &mut Planner<'_>, attempt: &Attempt) -> bool {
    let spec = &planner.seen.job.spec;
    let end = if planner.reached_or_wake_at(deadline::active(spec, attempt)) {
        deadline::active_exceeded(spec, attempt)
    } else if planner.reached_or_wake_at(deadline::pre_running(spec, attempt)) {
        deadline::pre_running_exceeded(spec, attempt)
    } else {
        return false;
    };
    planner.draft.end(end, spec, planner.now);
    true
}

/// Returns host and port of the dashboard, from the cluster's head Service.
fn dashboard_url(planner: &Planner<'_>, ray_cluster: &RayCluster, attempt: &Attempt) -> Option<String> {
    let service = planner.seen.cluster_head_service.as_ref()?;
    let port = service.spec.ports.iter().find(|port| port.name == "dashboard")?.port;
    let name = names::head_service(&attempt.cluster, &ray_cluster.spec);
    let host = names::fqdn(&name, planner.seen.namespace(), &planner.config.cluster_domain);
    Some(format!("{host}:{port}"))
}
