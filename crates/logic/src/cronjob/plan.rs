//! The decision about one RayCronJob: whether a run is due, and when the next one is.
//!
//! A RayJob is named after the minute that it was scheduled for, so one run can never become two RayJobs,
//! whatever is repeated.

use super::missed::{self, Missed, due};
use super::observed::Observed;
use crate::action::{Accept, Action, Body, Event, Kind, ObjectKey, Outcome, Stage, Step, Wake};
use crate::build::owner::controller_reference;
use crate::config::Config;
use crate::go;
use crate::labels::{self, annotation};
use crate::validate::ValidCronJob;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manta_api::{API_VERSION, RayCronJob, RayCronJobStatus, RayJob};
use serde_json::{Value, json};

/// What to do about one RayCronJob.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Writes, in order.
    pub stages: Vec<Stage>,
    /// The status to write when the stages are done, if it changes.
    pub status: Option<RayCronJobStatus>,
    /// Events that do not depend on a write.
    pub events: Vec<Event>,
    pub wake: Wake,
}

/// Decides the next step for one RayCronJob: same inputs, same plan.
pub fn plan(seen: &Observed, now: Timestamp, config: &Config) -> Plan {
    let rest = Plan { stages: Vec::new(), status: None, events: Vec::new(), wake: Wake::OnChange };
    let cron_job = &seen.cron_job;
    if cron_job.metadata.deletion_timestamp.is_some() {
        return rest;
    }
    let valid = match ValidCronJob::check(cron_job, config) {
        Ok(valid) => valid,
        Err(invalid) => return Plan { events: vec![invalid.event(seen.namespace(), seen.name())], ..rest },
    };
    let (schedule, zone) = (&valid.schedule, valid.zone.as_ref().unwrap_or(&seen.local_zone));
    if cron_job.spec.suspend == Some(true) {
        let note = "RayCronJob suspended, no new RayJobs will be created";
        return Plan { events: vec![Event::normal("SuspendedRayCronJob", "Suspend", note)], ..rest };
    }
    let last = cron_job.status.as_ref().and_then(|status| status.last_schedule_time.as_ref());
    let Some(base) = last.or(cron_job.metadata.creation_timestamp.as_ref()).map(|time| time.0) else {
        return rest;
    };
    let annotations = cron_job.metadata.annotations.as_ref();
    let missed = Missed::read(annotations.and_then(|map| map.get(missed::ANNOTATION)).map(String::as_str));
    let due = due(schedule, base, now, zone, missed);
    let next = schedule.next_after(due.settled.unwrap_or(base), zone);
    Plan {
        stages: due.run.map(|run| start(seen, run)).into_iter().collect(),
        status: due.settled.map(|settled| RayCronJobStatus { last_schedule_time: Some(Time(settled)) }),
        events: skipped(due.skipped, due.run).into_iter().collect(),
        // A status that was written wakes by itself; this is for the case that it was not.
        wake: next.map_or(Wake::OnChange, |next| Wake::At(next.max(soon(now)))),
    }
}

/// The status to write after a plan has been carried out: none if the RayJob could not be made.
pub fn settle(plan: &Plan, outcome: &Outcome) -> Option<RayCronJobStatus> {
    plan.status.clone().filter(|_| outcome.failure.is_none())
}

fn start(seen: &Observed, run: Timestamp) -> Stage {
    let name = job_name(seen.name(), run);
    let key = ObjectKey::new(Kind::RayJob, seen.namespace(), &name);
    let failed = format!("Failed to create RayJob {}/{name}: ", seen.namespace());
    let action = Action::Create { key, body: Body::of(&body(seen, &name, run)) };
    let why = format!("the run of {} is due", scheduled(run));
    vec![
        Step::new(action, why)
            .failed(Event::warning("FailedToCreateRayJob", "Create", failed))
            .accept(Accept::AlreadyExists),
    ]
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

/// The name of the RayJob for a run: the minute since 1970 tells runs apart.
fn job_name(cron_job: &str, run: Timestamp) -> String {
    format!("{cron_job}-{}", run.as_second() / 60)
}

/// A time to the second, in UTC.
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
        Event::warning("MissedRuns", "Schedule", note)
    })
}

fn soon(now: Timestamp) -> Timestamp {
    now.checked_add(jiff::SignedDuration::from_secs(1)).unwrap_or(now)
}

#[cfg(test)]
mod tests;
