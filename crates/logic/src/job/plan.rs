//! The decision about one RayJob: what comes before the phase, and which phase decides.

use super::dashboard::JobPoll;
use super::observed::Observed;
use super::phase::{Phase, deployment, reason};
use super::status::{StatusDraft, text};
use super::{Planner, deletion, deletion_rules, initializing, running, start, suspend};
use crate::action::{Event, Kind};
use crate::config::Config;
use crate::labels;
use crate::leftovers;
use crate::plan::{Reconciled, StatusPlan};
use crate::scheduler;
use crate::validate::validate_job;
use manta_api::{RayJob, RayJobStatus};

impl Reconciled for RayJob {
    const CONTROLLER: &'static str = "rayjob-controller";
    type Observed = Observed;
    type Status = RayJobStatus;
    type Poll = JobPoll;
    type Draft<'a> = StatusDraft;

    fn draft<'a>(seen: &'a Observed, _: &'a Config) -> StatusDraft {
        StatusDraft::of(seen.job.status.as_ref())
    }

    fn decide(planner: &mut Planner<'_>) {
        if labels::is_managed_by_self(planner.seen.job.spec.managed_by.as_deref()) {
            delete_leftovers(planner);
            decide(planner);
        }
    }

    fn propose(planner: &mut Planner<'_>) -> StatusPlan<RayJobStatus> {
        planner.draft.changed().map_or(StatusPlan::Keep, StatusPlan::Write)
    }
}

/// Deletes what is left of an earlier RayJob of this name.
fn delete_leftovers(planner: &mut Planner<'_>) {
    let seen = planner.seen;
    let submitter = seen.submitter.iter().map(|job| (Kind::Job, &job.metadata));
    let service = seen.head_service.iter().map(|service| (Kind::Service, &service.metadata));
    let clusters = seen.clusters.iter().map(|cluster| (Kind::RayCluster, cluster));
    let group_kind = scheduler::job_pod_group(seen.name(), planner.config).map(|(kind, _)| kind);
    let group = group_kind.into_iter().zip(seen.pod_group.iter().map(|group| &group.metadata));
    let all = submitter.chain(service).chain(clusters).chain(group);
    leftovers::plan(planner, &seen.key(Kind::RayJob, seen.name()), seen.uid(), all);
}

fn decide(planner: &mut Planner<'_>) {
    let job = &planner.seen.job;
    // Before validation: an invalid spec must not keep an object from being deleted.
    if job.metadata.deletion_timestamp.is_some() {
        return deletion::plan(planner);
    }
    let mode = match validate_job(job, planner.config) {
        Ok(mode) => mode,
        Err(invalid) => return refuse(planner, invalid.reason(), invalid.text),
    };
    let phase = Phase::read(job, mode);
    leave_invalid(planner, &phase);
    match phase {
        Phase::New => start::plan(planner, mode),
        Phase::Initializing(attempt) => initializing::plan(planner, mode, &attempt),
        Phase::Waiting(attempt) => initializing::plan_waiting(planner, &attempt),
        Phase::Running(attempt, address) => running::plan(planner, mode, &attempt, &address),
        Phase::Suspending => suspend::plan_teardown(planner, mode, deployment::SUSPENDED),
        Phase::Retrying => suspend::plan_teardown(planner, mode, deployment::NEW),
        Phase::Suspended => suspend::plan_suspended(planner),
        Phase::Finished(finish) => deletion_rules::plan(planner, finish),
    }
}

/// Reports an invalid spec.
fn refuse(planner: &mut Planner<'_>, event_reason: &'static str, message: String) {
    let note = format!("{}: {message}", planner.seen.path(planner.seen.name()));
    planner.event(Event::warning(event_reason, "Validate", note));
    planner.draft.enter(deployment::VALIDATION_FAILED);
    planner.draft.now.reason = text(reason::VALIDATION_FAILED);
    planner.draft.now.message = text(message);
}

/// Reports the phase again once the spec is valid, and no longer what was wrong.
fn leave_invalid(planner: &mut Planner<'_>, phase: &Phase) {
    let draft = &mut planner.draft;
    let name = phase.name();
    if draft.now.job_deployment_status.as_deref().unwrap_or_default() == name {
        return;
    }
    draft.enter(name);
    if draft.now.reason.as_deref() == Some(reason::VALIDATION_FAILED) {
        draft.now.reason = None;
        draft.now.message = None;
    }
}
