//! Deletion, and the finalizer that lets Redis be cleaned before a cluster goes.
//!
//! Deletion always ends. The finalizer goes when the clean-up Job has finished, at once when no
//! clean-up is possible or wanted any more, and at the deadline whatever happens; a warning names
//! what was left behind (KubeRay #4767, #4721).

use super::Planner;
use super::observed::Observed;
use crate::action::{Accept, Event, Kind, Step};
use crate::build;
use crate::cluster_spec;
use crate::config::Config;
use crate::finalizer;
use crate::go;
use crate::labels::finalizer::REDIS_CLEANUP;
use crate::labels::{HEAD, NODE_TYPE, WORKER, annotation};
use crate::reasons;
use crate::view::JobView;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// Adds the finalizer before the first Pod exists, so that no cluster with Redis goes uncleaned.
pub(super) fn add_finalizer(seen: &Observed, cfg: &Config) -> Option<Step> {
    if !cfg.redis_cleanup || !cluster_spec::is_redis_ft_enabled(&seen.cluster) || has_finalizer(seen) {
        return None;
    }
    let stored = json!(seen.cluster.spec);
    let mut spec = seen.cluster.spec.clone();
    spec.head_group_spec.ray_start_params.get_or_insert_default();
    for group in spec.worker_group_specs.iter_mut().flatten() {
        group.ray_start_params.get_or_insert_default();
    }
    let written = go::cluster_spec(&spec);
    let key = seen.key(Kind::RayCluster, seen.name());
    let why = "Redis must be cleaned before the cluster goes";
    Some(finalizer::add(key, &seen.cluster.metadata, REDIS_CLEANUP, &stored, &written, why))
}

/// Cleans up after a cluster that is being deleted.
pub(super) fn plan(planner: &mut Planner<'_>) {
    let (seen, now) = (planner.seen, planner.now);
    if !has_finalizer(seen) {
        return; // the garbage collector takes the children
    }
    if cluster_spec::is_gcs_storage_embedded(&seen.cluster.spec) {
        return planner.push(remove_finalizer(seen, "the embedded store goes with its volume"));
    }
    let deadline = deletion_time(seen, now) + timeout(seen);
    if now >= deadline {
        let age = now.duration_since(deletion_time(seen, now));
        planner.push(remove_finalizer(seen, "the clean-up took too long").done(Event::warning(
            reasons::FORCE_DELETED_STUCK_CLUSTER,
            "Cleanup",
            format!(
                "Force-removed GCS FT finalizer after {} due to Redis cleanup timeout; Redis storage namespace \"{}\" may need manual cleanup",
                go::duration::print(age),
                seen.annotation(annotation::EXTERNAL_STORAGE_NAMESPACE).unwrap_or_default()
            ),
        )));
        return;
    }
    planner.wake_at(deadline);
    if let Some(why) = why_no_cleanup(seen, planner.config) {
        planner.push(remove_finalizer(seen, why).done(Event::warning(
            reasons::SKIPPED_REDIS_CLEANUP,
            "Cleanup",
            format!(
                "Removed the GCS FT finalizer without Redis cleanup because {why}; Redis storage namespace \"{}\" may need manual cleanup",
                cluster_spec::external_storage_namespace(&seen.cluster)
            ),
        )));
        return;
    }
    for pod in &seen.pods {
        let is_ray_pod = matches!(pod.metadata.label(NODE_TYPE), Some(HEAD | WORKER));
        if is_ray_pod && !seen.is_going(pod) {
            planner.push(seen.delete_pod(pod, "the cluster is being deleted"));
        }
    }
    if seen.head_pods().next().is_some() {
        return; // a head that lives would write to Redis again
    }
    plan_cleanup_job(planner);
}

fn plan_cleanup_job(planner: &mut Planner<'_>) {
    let seen = planner.seen;
    if let Some(job) = seen.cleanup_jobs.first() {
        if is_finished(job) {
            planner.push(remove_finalizer(seen, "the clean-up Job has finished"));
        }
        return;
    }
    let name = build::redis_cleanup_job_name(seen.name());
    if seen.in_flight.is_creating(Kind::Job, &name) {
        return;
    }
    let (job, path) = (build::redis_cleanup_job(&seen.cluster, planner.config), seen.path(&name));
    planner.push(
        Step::create(seen.key(Kind::Job, &name), &job, "Redis must be cleaned")
            .on_success(reasons::CREATED_REDIS_CLEANUP_JOB, format!("Created Redis cleanup Job {path}"))
            .on_failure(
                reasons::FAILED_TO_CREATE_REDIS_CLEANUP_JOB,
                format!("Failed to create Redis cleanup Job {path}, "),
            )
            .accept(Accept::AlreadyExists),
    );
}

/// Returns why Redis cannot be cleaned or need not be, if so.
fn why_no_cleanup(seen: &Observed, cfg: &Config) -> Option<&'static str> {
    if !cfg.redis_cleanup {
        return Some("ENABLE_GCS_FT_REDIS_CLEANUP is false");
    }
    if !cluster_spec::is_gcs_ft_enabled(&seen.cluster) {
        return Some("GCS fault tolerance was removed from the spec");
    }
    let head = seen.cluster.spec.head_group_spec.template.spec.as_ref();
    if head.is_none_or(|spec| spec.containers.is_empty()) {
        return Some("the head group has no container to clean up with");
    }
    None
}

fn remove_finalizer(seen: &Observed, why: &str) -> Step {
    finalizer::remove(seen.key(Kind::RayCluster, seen.name()), &seen.cluster.metadata, REDIS_CLEANUP, why)
}

/// Returns whether a Job is complete or failed; `FailureTarget` precedes the latter.
fn is_finished(job: &JobView) -> bool {
    job.status.conditions.iter().any(|condition| {
        condition.status == "True" && matches!(condition.type_.as_str(), "Complete" | "Failed" | "FailureTarget")
    })
}

fn has_finalizer(seen: &Observed) -> bool {
    finalizer::has(&seen.cluster.metadata, REDIS_CLEANUP)
}

fn deletion_time(seen: &Observed, now: Timestamp) -> Timestamp {
    seen.cluster.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0)
}

fn timeout(seen: &Observed) -> SignedDuration {
    SignedDuration::from_secs(cluster_spec::gcs_ft_deletion_timeout_seconds(&seen.cluster))
}
