//! Initializing: from the names to a cluster that is ready, and the hand-over of the job.
//!
//! A cluster that cannot be made, or is never ready, does not fail the job by itself: the deadlines
//! do. Waiting is the stop that InteractiveMode makes on the way.

use super::mode::Mode;
use super::phase::{Attempt, deployment};
use super::plan::Pass;
use super::submitter_state::sidecar_ended;
use super::{cluster, deadline};
use crate::action::{Accept, Action, Body, Event, Kind, ObjectKey, Step};
use crate::build::submitter::Submitter;
use crate::names;
use crate::scheduler;
use manta_api::RayCluster;
use serde_json::Value;

pub(super) fn plan(pass: &mut Pass<'_>, mode: Mode, attempt: &Attempt) {
    let seen = pass.seen;
    if seen.is_suspended() {
        pass.draft.enter(deployment::SUSPENDING);
        return;
    }
    // A job that is already on its way, because the operator went away between the hand-over and the
    // status write or because a sidecar is quick, may be over by now: Running finds that out.
    let handed_over = match mode {
        Mode::K8sJob => seen.own_submitter().is_some(),
        Mode::Sidecar => sidecar_ended(seen),
        Mode::Http | Mode::Interactive => false,
    };
    if !handed_over && is_late(pass, attempt) {
        return;
    }
    if seen.selected_cluster().is_some() || mode == Mode::Sidecar {
        // Nothing tells a RayJob of a cluster that is not its own, nor of the head Pod's containers.
        pass.wake_at(deadline::after(pass.now, deadline::LOOK_AGAIN_SECONDS));
    }
    if !handed_over && !gather(pass, mode) {
        return;
    }
    let Some(ray_cluster) = &seen.cluster else {
        match seen.selected_cluster() {
            Some(name) => cluster::miss(pass, name),
            None if cluster::create(pass, mode, attempt) => pass.wait_for("the RayCluster to be made"),
            None => {}
        }
        return;
    };
    let status = ray_cluster.status.as_ref();
    let known = pass.draft.now.dashboard_url.clone().filter(|url| !url.is_empty());
    let ready = status.and_then(|status| status.state.as_deref()) == Some("ready");
    if known.is_none() && !ready && !handed_over {
        pass.draft.mirror(status);
        pass.wait_for("the RayCluster to be ready");
        return;
    }
    let Some(url) = known.or_else(|| dashboard_url(pass, ray_cluster, attempt)) else {
        pass.wait_for("the head Service to have a dashboard port: dashboard port is not found");
        pass.back_off();
        return;
    };
    pass.draft.now.dashboard_url = Some(url.clone());
    match mode {
        Mode::Interactive => pass.draft.enter(deployment::WAITING),
        Mode::K8sJob if !handed_over && !submit(pass, ray_cluster, attempt, &url, Accept::Nothing) => {
            pass.draft.now = seen.job.status.clone().unwrap_or_default();
        }
        Mode::K8sJob | Mode::Http | Mode::Sidecar => pass.draft.enter(deployment::RUNNING),
    }
}

/// Makes what the batch scheduler needs before there are Pods. Answers whether a cluster may be made.
fn gather(pass: &mut Pass<'_>, mode: Mode) -> bool {
    let gang = scheduler::plan_job_gang(pass.seen, mode, pass.config);
    gang.stages.into_iter().flatten().for_each(|step| pass.then(step));
    let Some(blocked) = gang.blocked else { return true };
    blocked.event.into_iter().for_each(|event| pass.event(event));
    pass.wait_for(blocked.error);
    pass.back_off();
    false
}

/// Waiting: the user has to name the job that was submitted by hand.
pub(super) fn plan_waiting(pass: &mut Pass<'_>, attempt: &Attempt) {
    let spec = &pass.seen.job.spec;
    if pass.seen.is_suspended() {
        pass.draft.enter(deployment::SUSPENDING);
        return;
    }
    if pass.is_past(deadline::pre_running(spec, attempt)) {
        pass.draft.end(deadline::pre_running_exceeded(spec, attempt), spec, pass.now);
        return;
    }
    match spec.job_id.as_deref().filter(|id| !id.is_empty()) {
        Some(id) => {
            pass.draft.now.job_id = Some(id.to_owned());
            pass.draft.enter(deployment::RUNNING);
        }
        None => pass.wait_for("spec.jobId to name a submitted job"),
    }
}

/// Adds the submitter Job to the plan. False if it cannot be made.
pub(super) fn submit(
    pass: &mut Pass<'_>,
    ray_cluster: &RayCluster,
    attempt: &Attempt,
    url: &str,
    accept: Accept,
) -> bool {
    let path = pass.path(pass.seen.name());
    let failed = |error: &str| {
        let note = format!("Failed to create new Kubernetes Job {path}: {error}");
        Event::warning("FailedToCreateRayJobSubmitter", "Create", note)
    };
    let built = Submitter {
        job: &pass.seen.job,
        mode: Mode::K8sJob,
        cluster: ray_cluster,
        job_id: &attempt.job_id,
        dashboard_url: url,
        config: pass.config,
    }
    .job();
    let body: Value = match built {
        Ok(job) => serde_json::to_value(&job).unwrap_or_default(),
        Err(error) => {
            pass.event(failed(&error.to_string()));
            pass.back_off();
            return false;
        }
    };
    let key = ObjectKey::new(Kind::Job, pass.seen.namespace(), pass.seen.name());
    pass.then(
        Step::new(Action::Create { key, body: Body::of(&body) }, "the job must be handed to Ray")
            .done(Event::normal("CreatedRayJobSubmitter", "Create", format!("Created Kubernetes Job {path}")))
            .failed(failed(""))
            .accept(accept),
    );
    true
}

fn is_late(pass: &mut Pass<'_>, attempt: &Attempt) -> bool {
    let spec = &pass.seen.job.spec;
    let end = if pass.is_past(deadline::active(spec, attempt)) {
        deadline::active_exceeded(spec, attempt)
    } else if pass.is_past(deadline::pre_running(spec, attempt)) {
        deadline::pre_running_exceeded(spec, attempt)
    } else {
        return false;
    };
    pass.draft.end(end, spec, pass.now);
    true
}

/// Host and port of the dashboard, from the cluster's head Service.
fn dashboard_url(pass: &Pass<'_>, ray_cluster: &RayCluster, attempt: &Attempt) -> Option<String> {
    let service = pass.seen.cluster_head_service.as_ref()?;
    let port = service.spec.ports.iter().find(|port| port.name == "dashboard")?.port;
    let name = names::head_service(&attempt.cluster, &ray_cluster.spec);
    let host = names::fqdn(&name, pass.seen.namespace(), &pass.config.cluster_domain);
    Some(format!("{host}:{port}"))
}
