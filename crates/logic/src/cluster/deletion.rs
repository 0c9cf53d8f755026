//! Deletion, and the finalizer that lets Redis be cleaned before a cluster goes.
//!
//! Deletion always ends. The finalizer goes when the clean-up Job has finished, at once when no
//! clean-up is possible or wanted any more, and at the deadline whatever happens; a warning names
//! what was left behind (KubeRay #4767, #4721).

use super::observed::Observed;
use super::plan::Draft;
use crate::action::{Accept, Action, Event, Kind, Step, create, merge_difference};
use crate::build::{self, cluster_facts as facts};
use crate::config::Config;
use crate::go;
use crate::labels::{HEAD, NODE_TYPE, WORKER, annotation, finalizer};
use crate::view::JobView;
use jiff::{SignedDuration, Timestamp};
use serde_json::json;

/// Adds the finalizer before the first Pod exists, so that no cluster with Redis goes uncleaned.
pub(super) fn add_finalizer(seen: &Observed, cfg: &Config) -> Option<Step> {
    if !cfg.redis_cleanup || !facts::is_redis_ft_enabled(&seen.cluster) || has_finalizer(seen) {
        return None;
    }
    let mut finalizers = seen.cluster.metadata.finalizers.clone().unwrap_or_default();
    finalizers.push(finalizer::REDIS_CLEANUP.to_owned());
    // KubeRay writes the whole object back, by which empty parts appear in its spec and others go. That
    // is harmless, and whoever compares generations knows the object in that form.
    let stored = serde_json::to_value(&seen.cluster.spec).unwrap_or_default();
    let mut spec = seen.cluster.spec.clone();
    spec.head_group_spec.ray_start_params.get_or_insert_default();
    for group in spec.worker_group_specs.iter_mut().flatten() {
        group.ray_start_params.get_or_insert_default();
    }
    let patch = json!({
        "metadata": {"finalizers": finalizers, "resourceVersion": seen.cluster.metadata.resource_version},
        "spec": merge_difference(&stored, &go::cluster_spec(&spec)),
    });
    Some(Step::new(
        Action::Merge { key: seen.key(Kind::RayCluster, seen.name()), patch: Box::new(patch) },
        "Redis must be cleaned before the cluster goes",
    ))
}

/// What to do for a cluster that is being deleted.
pub(super) fn plan(seen: &Observed, now: Timestamp, cfg: &Config) -> Draft {
    let mut draft = Draft::default();
    if !has_finalizer(seen) {
        return draft; // the garbage collector takes the children
    }
    if facts::is_gcs_storage_embedded(&seen.cluster.spec) {
        draft.push(remove_finalizer(seen, "the embedded store goes with its volume"));
        return draft;
    }
    let deadline = deletion_time(seen, now) + timeout(seen);
    if now >= deadline {
        let age = now.duration_since(deletion_time(seen, now));
        draft.push(remove_finalizer(seen, "the clean-up took too long").done(Event::warning(
            "ForceDeletedStuckCluster",
            "Cleanup",
            format!(
                "Force-removed GCS FT finalizer after {} due to Redis cleanup timeout; Redis storage namespace \"{}\" may need manual cleanup",
                go::duration::print(age),
                seen.annotation(annotation::EXTERNAL_STORAGE_NAMESPACE).unwrap_or_default()
            ),
        )));
        return draft;
    }
    draft.wake_at(deadline);
    if let Some(why) = why_no_cleanup(seen, cfg) {
        draft.push(remove_finalizer(seen, why).done(Event::warning(
            "SkippedRedisCleanup",
            "Cleanup",
            format!(
                "Removed the GCS FT finalizer without Redis cleanup because {why}; Redis storage namespace \"{}\" may need manual cleanup",
                facts::external_storage_namespace(&seen.cluster)
            ),
        )));
        return draft;
    }
    for pod in &seen.pods {
        let is_ray_pod = matches!(pod.metadata.label(NODE_TYPE), Some(HEAD | WORKER));
        if is_ray_pod && !seen.is_going(pod) {
            draft.push(
                Step::new(
                    Action::Delete {
                        key: seen.key(Kind::Pod, &pod.metadata.name),
                        uid: pod.metadata.uid.clone(),
                        force: false,
                    },
                    "the cluster is being deleted",
                )
                .accept(Accept::NotFound),
            );
        }
    }
    if seen.head_pods().next().is_some() {
        return draft; // a head that lives would write to Redis again
    }
    plan_cleanup_job(seen, cfg, &mut draft);
    draft
}

fn plan_cleanup_job(seen: &Observed, cfg: &Config, draft: &mut Draft) {
    if let Some(job) = seen.cleanup_jobs.first() {
        if is_finished(job) {
            draft.push(remove_finalizer(seen, "the clean-up Job has finished"));
        }
        return;
    }
    let name = build::redis_cleanup_job_name(seen.name());
    if seen.in_flight.is_creating(Kind::Job, &name) {
        return;
    }
    let job = build::redis_cleanup_job(&seen.cluster, cfg);
    draft.push(
        Step::new(create(seen.key(Kind::Job, &name), &job), "Redis must be cleaned")
            .done(Event::normal(
                "CreatedRedisCleanupJob",
                "Create",
                format!("Created Redis cleanup Job {}", seen.path(&name)),
            ))
            .failed(Event::warning(
                "FailedToCreateRedisCleanupJob",
                "Create",
                format!("Failed to create Redis cleanup Job {}, ", seen.path(&name)),
            ))
            .accept(Accept::AlreadyExists),
    );
}

/// Why Redis cannot be cleaned or need not be, if so.
fn why_no_cleanup(seen: &Observed, cfg: &Config) -> Option<&'static str> {
    if !cfg.redis_cleanup {
        return Some("ENABLE_GCS_FT_REDIS_CLEANUP is false");
    }
    if !facts::is_gcs_ft_enabled(&seen.cluster) {
        return Some("GCS fault tolerance was removed from the spec");
    }
    let head = seen.cluster.spec.head_group_spec.template.spec.as_ref();
    if head.is_none_or(|spec| spec.containers.is_empty()) {
        return Some("the head group has no container to clean up with");
    }
    None
}

fn remove_finalizer(seen: &Observed, why: &str) -> Step {
    let kept: Vec<&String> =
        seen.cluster.metadata.finalizers.iter().flatten().filter(|name| *name != finalizer::REDIS_CLEANUP).collect();
    let patch = json!({"metadata": {
        "finalizers": kept,
        "resourceVersion": seen.cluster.metadata.resource_version,
    }});
    Step::new(Action::Merge { key: seen.key(Kind::RayCluster, seen.name()), patch: Box::new(patch) }, why.to_owned())
        .accept(Accept::NotFound)
}

/// Complete or failed; `FailureTarget` is the latter, a moment early.
fn is_finished(job: &JobView) -> bool {
    job.status.conditions.iter().any(|condition| {
        condition.status == "True" && matches!(condition.type_.as_str(), "Complete" | "Failed" | "FailureTarget")
    })
}

fn has_finalizer(seen: &Observed) -> bool {
    seen.cluster.metadata.finalizers.iter().flatten().any(|name| name == finalizer::REDIS_CLEANUP)
}

fn deletion_time(seen: &Observed, now: Timestamp) -> Timestamp {
    seen.cluster.metadata.deletion_timestamp.as_ref().map_or(now, |time| time.0)
}

fn timeout(seen: &Observed) -> SignedDuration {
    SignedDuration::from_secs(facts::gcs_ft_deletion_timeout_seconds(&seen.cluster))
}
