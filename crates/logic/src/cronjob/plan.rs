//! The decision about one RayCronJob: whether a run is due, and when the next one is.
//!
//! A RayJob is named after the minute that it was scheduled for, so one run can never become two RayJobs,
//! whatever is repeated.

use super::Planner;
use super::missed::{self, Missed, due};
use super::observed::Observed;
use crate::action::{Accept, Event, Kind, Step};
use crate::build::owner::controller_reference;
use crate::config::Config;
use crate::go;
use crate::labels::{self, annotation};
use crate::leftovers;
use crate::plan::{Reconciled, StatusPlan};
use crate::reasons;
use crate::validate::ValidCronJob;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manta_api::{API_VERSION, RayCronJob, RayCronJobStatus, RayJob};
use serde_json::{Value, json};
use std::convert::Infallible;

impl Reconciled for RayCronJob {
    const CONTROLLER: &'static str = "raycronjob-controller";
    type Observed = Observed;
    type Status = RayCronJobStatus;
    type Poll = Infallible;
    type Draft<'a> = StatusPlan<RayCronJobStatus>;

    fn draft<'a>(_: &'a Observed, _: &'a Config) -> Self::Draft<'a> {
        StatusPlan::Keep
    }

    fn decide(planner: &mut Planner<'_>) {
        delete_leftovers(planner);
        decide(planner);
    }

    fn propose(planner: &mut Planner<'_>) -> StatusPlan<RayCronJobStatus> {
        planner.draft.clone()
    }
}

/// Deletes the RayJobs that are left of an earlier RayCronJob of this name.
fn delete_leftovers(planner: &mut Planner<'_>) {
    let seen = planner.seen;
    let uid = seen.cron_job.metadata.uid.as_deref().unwrap_or_default();
    let jobs = seen.jobs.iter().map(|job| (Kind::RayJob, job));
    leftovers::plan(planner, &seen.key(Kind::RayCronJob, seen.name()), uid, jobs);
}

fn decide(planner: &mut Planner<'_>) {
    let seen = planner.seen;
    let cron_job = &seen.cron_job;
    if cron_job.metadata.deletion_timestamp.is_some() {
        return;
    }
    let valid = match ValidCronJob::check(cron_job, planner.config) {
        Ok(valid) => valid,
        Err(invalid) => return planner.event(invalid.event(seen.namespace(), seen.name())),
    };
    let (schedule, zone) = (&valid.schedule, valid.zone.as_ref().unwrap_or(&seen.local_zone));
    if cron_job.spec.suspend == Some(true) {
        let note = "RayCronJob suspended, no new RayJobs will be created";
        return planner.event(Event::normal(reasons::SUSPENDED_RAY_CRON_JOB, "Suspend", note));
    }
    let last = cron_job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
    let Some(base) = last.or(cron_job.metadata.creation_timestamp.as_ref()).map(|time| time.0) else {
        return;
    };
    let annotations = cron_job.metadata.annotations.as_ref();
    let missed = Missed::read(annotations.and_then(|map| map.get(missed::ANNOTATION)).map(String::as_str));
    let due = due(schedule, base, planner.now, zone, missed);
    if let Some(run) = due.run {
        let name = match planner.config.safeguards.deterministic_run_names {
            true => job_name(seen.name(), run),
            false => format!("{}-{}", seen.name(), planner.now.as_millisecond()),
        };
        planner.then(start(seen, run, &name));
    }
    if let Some(event) = skipped(due.skipped, due.run) {
        planner.event(event);
    }
    if let Some(settled) = due.settled {
        planner.draft = StatusPlan::Write(RayCronJobStatus { last_schedule_time: Some(Time(settled)) });
    }
    // A status that was written wakes by itself; this is for the case that it was not.
    planner.wake_at(schedule.next_after(due.settled.unwrap_or(base), zone));
}

fn start(seen: &Observed, run: Timestamp, name: &str) -> Step {
    let failed = format!("Failed to create RayJob {}: ", seen.path(name));
    Step::create(seen.key(Kind::RayJob, name), &body(seen, name, run), format!("the run of {} is due", scheduled(run)))
        .on_failure(reasons::FAILED_TO_CREATE_RAY_JOB, failed)
        .accept(Accept::AlreadyExists)
}

fn body(seen: &Observed, name: &str, run: Timestamp) -> Value {
    let cron_job = &seen.cron_job;
    json!({
        "apiVersion": API_VERSION,
        "kind": RayJob::KIND,
        "metadata": {
            "name": name,
            "namespace": seen.namespace(),
            "labels": {labels::CRONJOB_NAME: seen.name()},
            "annotations": {annotation::CRONJOB_SCHEDULED: scheduled(run)},
            "ownerReferences": [controller_reference(RayCronJob::KIND, &cron_job.metadata)],
        },
        "spec": go::job_spec(&cron_job.spec.job_template),
    })
}

/// Returns the name of the RayJob for a run: the minute since 1970 makes it unique.
fn job_name(cron_job: &str, run: Timestamp) -> String {
    format!("{cron_job}-{}", run.as_second() / 60)
}

/// Returns a time to the second, in UTC.
fn scheduled(run: Timestamp) -> String {
    run.strftime("%Y-%m-%dT%H:%M:%SZ").to_string()
}

fn skipped(count: usize, run: Option<Timestamp>) -> Option<Event> {
    let started = match run {
        Some(run) => format!("the run of {} was started", scheduled(run)),
        None => "none was started".to_owned(),
    };
    let hint = missed::ANNOTATION;
    (count > 0).then(|| {
        let note = format!("{count} scheduled runs were missed and skipped, {started} (see the annotation {hint})");
        Event::warning(reasons::MISSED_RUNS, "Schedule", note)
    })
}

#[cfg(test)]
mod tests;
