//! Jobs end once, say what happened, and run once per tick of their schedule.

use super::Seen;
use crate::object::{generation, name, owner, text, uid};
use crate::ray::Ray;
use serde_json::Value;
use std::time::Duration;

/// The annotation with the time that a run was scheduled for.
const SCHEDULED: &str = "ray.io/cronjob-scheduled-timestamp";

/// The variable of a submitter with the ID that it submits a job under.
const SUBMISSION_ID: &str = "RAY_JOB_SUBMISSION_ID";

/// A job is not given up before dashboards were silent for this time.
const SILENCE: Duration = Duration::from_secs(30);

impl Seen {
    pub(super) fn see_job(&mut self, job: &Value, ray: &Ray) -> Option<String> {
        self.ends_once(job)
            .or_else(|| self.runs_once(job))
            .or_else(|| claims_success(job, ray))
            .or_else(|| claims_silence(job, ray))
            .or_else(|| self.overruled("RayJob", job))
    }

    /// A job that has ended does not begin again, unless somebody changed it.
    fn ends_once(&mut self, job: &Value) -> Option<String> {
        let generation = generation(job);
        let phase = text(&job["status"]["jobDeploymentStatus"]);
        match self.ended.get(&uid(job)) {
            Some((ended, how)) => (*ended == generation && *how != phase)
                .then(|| format!("RayJob {} went from {how} to {phase}", name(job))),
            None => {
                if matches!(phase.as_str(), "Complete" | "Failed") {
                    self.ended.insert(uid(job), (generation, phase));
                }
                None
            }
        }
    }

    /// An attempt of a RayJob has one Job that submits it.
    pub(super) fn submitted_once(&mut self, job: &Value) -> Option<String> {
        let container = &job["spec"]["template"]["spec"]["containers"][0];
        let variables = container["env"].as_array().into_iter().flatten();
        let id = variables.into_iter().find(|variable| variable["name"] == SUBMISSION_ID)?["value"].as_str()?;
        let first = self.submitters.entry(id.to_owned()).or_insert_with(|| uid(job));
        (*first != uid(job)).then(|| format!("two Jobs submit {id}: {} is the second", name(job)))
    }

    /// A tick of a RayCronJob starts one RayJob.
    fn runs_once(&mut self, job: &Value) -> Option<String> {
        let run = text(&job["metadata"]["annotations"][SCHEDULED]);
        let cron_job = owner(job).filter(|_| !run.is_empty())?;
        let first = self.runs.entry((cron_job, run.clone())).or_insert_with(|| uid(job));
        (*first != uid(job)).then(|| format!("two RayJobs for the run of {run}: {}", name(job)))
    }
}

/// A job that is said to have succeeded has.
fn claims_success(job: &Value, ray: &Ray) -> Option<String> {
    let id = text(&job["status"]["jobId"]);
    (job["status"]["jobStatus"] == "SUCCEEDED" && !ray.has_succeeded(&id))
        .then(|| format!("RayJob {} is said to have succeeded, and never did", name(job)))
}

/// A job that is given up because no dashboard replied was not replied about.
fn claims_silence(job: &Value, ray: &Ray) -> Option<String> {
    let silent = ray.silent_for();
    (job["status"]["reason"] == "JobStatusCheckTimeoutExceeded" && silent < SILENCE)
        .then(|| format!("RayJob {} was given up {silent:?} after a dashboard replied", name(job)))
}
