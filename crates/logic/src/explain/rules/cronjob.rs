//! RayCronJobs. Their last RayJob is part of the evidence, so that the other rules speak of it.

use super::super::Cause;
use super::super::evidence::{CronJob, Evidence};
use super::patterns::sentence;
use super::subject_words;
use crate::cronjob::schedule::Schedule;
use crate::reasons;
use jiff::tz::TimeZone;

fn cron_job(evidence: &Evidence) -> Option<&CronJob> {
    evidence.cron_job.as_ref().filter(|_| evidence.subject.kind == "RayCronJob")
}

pub(super) fn suspended(evidence: &Evidence) -> Option<Cause> {
    cron_job(evidence).filter(|cron_job| cron_job.spec.suspend)?;
    let who = subject_words(evidence);
    let advice = format!(
        "Resume it: kubectl patch raycronjob {} --type merge -p '{{\"spec\":{{\"suspend\":false}}}}'.",
        evidence.subject.name
    );
    Some(Cause::new("CronJobSuspended", who.clone(), format!("{who} is suspended, so it creates no RayJobs."), advice))
}

pub(super) fn run_not_created(evidence: &Evidence) -> Option<Cause> {
    cron_job(evidence)?;
    let is_about = |reason: &str| evidence.events.iter().rfind(|event| event.reason == reason);
    let who = subject_words(evidence);
    let last_run = evidence.job.as_ref().and_then(|job| job.metadata.creation_timestamp);
    if let Some(event) = is_about(reasons::FAILED_TO_CREATE_RAY_JOB).filter(|event| event.last > last_run) {
        let what = format!("{who} cannot create its RayJob");
        let advice = "Correct the jobTemplate, or what the API server's message names.";
        return Some(Cause::new("RunNotCreated", who, sentence(&what, &event.message), advice));
    }
    let event = is_about(reasons::MISSED_RUNS).filter(|event| event.last > last_run)?;
    let what = format!("{who} has missed runs while no operator was running");
    let advice = "Missed runs are not repeated; the next run follows the schedule. Keep the operator running, with two replicas if need be.";
    Some(Cause::new("MissedRuns", who, sentence(&what, &event.message), advice))
}

pub(super) fn never_ran(evidence: &Evidence) -> Option<Cause> {
    let cron_job = cron_job(evidence).filter(|_| evidence.job.is_none())?;
    waits(evidence, cron_job)
}

pub(super) fn waits_for_schedule(evidence: &Evidence) -> Option<Cause> {
    waits(evidence, cron_job(evidence)?)
}

fn waits(evidence: &Evidence, cron_job: &CronJob) -> Option<Cause> {
    let who = subject_words(evidence);
    let spec = &cron_job.spec;
    let zone = spec.time_zone.as_deref().and_then(|name| TimeZone::get(name).ok());
    let schedule = Schedule::parse(&spec.schedule).ok();
    // Without a zone the operator's own counts, which is not known here.
    let next = schedule.zip(zone).and_then(|(schedule, zone)| schedule.next_after(evidence.at, &zone));
    let when = next.map_or_else(String::new, |next| format!(" at {}", next.strftime("%Y-%m-%d %H:%M:%SZ")));
    let what = format!("{who} is healthy and will create its next RayJob{when} (schedule {}).", spec.schedule);
    Some(Cause::well("WaitsForSchedule", who, what))
}
