//! New: the finalizer, then the names.
//!
//! Names are in the status before anything carries them, so a crash leaves no second cluster and no
//! second submission behind.

use super::mode::Mode;
use super::phase::deployment;
use super::plan::Pass;
use super::status::text;
use crate::action::{Action, Kind, ObjectKey, Step};
use crate::go;
use crate::labels::finalizer;
use crate::names::Suffixes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use serde_json::{Value, json};

pub(super) fn plan(pass: &mut Pass<'_>, mode: Mode) {
    let seen = pass.seen;
    let finalizers = seen.job.metadata.finalizers.clone().unwrap_or_default();
    if !finalizers.iter().any(|name| name == finalizer::RAY_JOB) {
        add_finalizer(pass, finalizers);
        return;
    }
    let mut suffixes = Suffixes::new(seen.seed);
    let mut generated = || format!("{}-{}", seen.name(), suffixes.draw());
    let status = &mut pass.draft.now;
    if mode != Mode::Interactive && status.job_id.as_deref().unwrap_or_default().is_empty() {
        let given = seen.job.spec.job_id.clone().filter(|id| !id.is_empty());
        status.job_id = Some(given.unwrap_or_else(&mut generated));
    }
    if status.ray_cluster_name.as_deref().unwrap_or_default().is_empty() {
        let selected = seen.selected_cluster().and_then(text);
        status.ray_cluster_name = Some(selected.unwrap_or_else(&mut generated));
    }
    status.start_time = Some(Time(pass.now));
    status.succeeded.get_or_insert(0);
    status.failed.get_or_insert(0);
    pass.draft.enter(deployment::INITIALIZING);
}

/// Adds the finalizer. The watch brings the object back, and the next pass goes on.
fn add_finalizer(pass: &mut Pass<'_>, mut finalizers: Vec<String>) {
    let seen = pass.seen;
    finalizers.push(finalizer::RAY_JOB.to_owned());
    // KubeRay writes the whole object here, which leaves Go's empty structs in the spec and drops empty values.
    let mut spec = go::job_spec(&seen.job.spec);
    let before = serde_json::to_value(&seen.job.spec).unwrap_or_default();
    for (key, _) in before.as_object().into_iter().flatten() {
        if spec.get(key).is_none() {
            spec[key.as_str()] = Value::Null;
        }
    }
    let patch = json!({
        "metadata": {"finalizers": finalizers, "resourceVersion": seen.job.metadata.resource_version},
        "spec": spec,
    });
    let key = ObjectKey::new(Kind::RayJob, seen.namespace(), seen.name());
    pass.then(Step::new(
        Action::Merge { key, patch: Box::new(patch) },
        "the Ray job must be stopped before the RayJob goes",
    ));
    pass.draft.now = pass.seen.job.status.clone().unwrap_or_default();
    pass.wait_for("the finalizer to be stored");
}
