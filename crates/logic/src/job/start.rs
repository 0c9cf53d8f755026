//! New: the finalizer, then the names.
//!
//! Names are in the status before anything carries them, so a crash leaves no second cluster and no
//! second submission behind.

use super::Planner;
use super::mode::Mode;
use super::phase::deployment;
use super::status::text;
use crate::action::Kind;
use crate::finalizer;
use crate::go;
use crate::labels::finalizer::RAY_JOB;
use crate::names::Suffixes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::json;

pub(super) fn plan(planner: &mut Planner<'_>, mode: Mode) {
    let seen = planner.seen;
    if !finalizer::has(&seen.job.metadata, RAY_JOB) {
        return add_finalizer(planner);
    }
    let mut suffixes = Suffixes::new(seen.seed);
    let mut generated = || format!("{}-{}", seen.name(), suffixes.draw());
    let status = &mut planner.draft.now;
    if mode != Mode::Interactive && status.job_id.as_deref().unwrap_or_default().is_empty() {
        let given = seen.job.spec.job_id.clone().filter(|id| !id.is_empty());
        status.job_id = Some(given.unwrap_or_else(&mut generated));
    }
    if status.ray_cluster_name.as_deref().unwrap_or_default().is_empty() {
        let selected = seen.selected_cluster().and_then(text);
        status.ray_cluster_name = Some(selected.unwrap_or_else(&mut generated));
    }
    status.start_time = Some(Time(planner.now));
    status.succeeded.get_or_insert(0);
    status.failed.get_or_insert(0);
    planner.draft.enter(deployment::INITIALIZING);
}

/// Adds the finalizer; the watch triggers the next pass.
fn add_finalizer(planner: &mut Planner<'_>) {
    let job = &planner.seen.job;
    let (stored, written) = (json!(job.spec), go::job_spec(&job.spec));
    let key = planner.seen.key(Kind::RayJob, planner.seen.name());
    let why = "the Ray job must be stopped before the RayJob goes";
    planner.then(finalizer::add(key, &job.metadata, RAY_JOB, &stored, &written, why));
    planner.draft.discard();
    planner.wait_for("the finalizer to be stored");
}
