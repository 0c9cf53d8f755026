//! Complete and Failed: what is deleted, and when.
//!
//! In order of precedence: `deletionStrategy.deletionRules`, the legacy `onSuccess`/`onFailure`, and
//! `shutdownAfterJobFinishes`. Every time-to-live counts from `status.endTime`. Of several rules that
//! are due only the one with the most effect is carried out. A cluster of `clusterSelector` is never
//! modified, but the RayJob itself may be deleted.

use super::Planner;
use super::deadline::after;
use super::phase::Finish;
use super::suspend::delete_cluster;
use crate::action::{Kind, Step};
use crate::cluster_spec;
use crate::reasons;
use crate::scheduler;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manta_api::{DeletionPolicyType, DeletionRule, DeletionStrategy, RayCluster};
use serde_json::json;

pub(super) fn plan(planner: &mut Planner<'_>, finish: Finish) {
    let spec = &planner.seen.job.spec;
    let Some(end) = finish.at else {
        // Another client wrote the status; without an end time no rule would ever be due.
        planner.draft.now.end_time = Some(Time(planner.now));
        return;
    };
    let strategy = spec.deletion_strategy.as_ref().filter(|_| planner.config.gates.ray_job_deletion_policy);
    match strategy {
        Some(DeletionStrategy { deletion_rules: Some(rules), .. }) => by_rules(planner, end, finish.failed, rules),
        Some(strategy) => by_outcome(planner, end, strategy),
        None if spec.shutdown_after_job_finishes.unwrap_or(false) => shutdown(planner, end),
        None => {}
    }
    // Last, so that a failing scheduler does not block deletion.
    if let Some(step) = scheduler::shrink_job_gang(planner.seen, planner.config) {
        planner.then(step);
    }
}

fn by_rules(planner: &mut Planner<'_>, end: Timestamp, failed: bool, rules: &[DeletionRule]) {
    let matching = rules.iter().filter(|rule| matches(rule, planner.draft.job_status(), failed));
    let matching: Vec<_> = matching.cloned().collect();
    let due = |planner: &mut Planner<'_>, rule: &DeletionRule| {
        planner.reached_or_wake_at(after(end, rule.condition.ttl_seconds.unwrap_or(0)))
            && !is_achieved(planner, &rule.policy)
    };
    let overdue: Vec<_> = matching.iter().filter(|rule| due(planner, rule)).collect();
    // The first of the strongest.
    if let Some(rule) = overdue.iter().rev().max_by_key(|rule| strength(&rule.policy)) {
        execute(planner, &rule.policy);
    }
}

fn matches(rule: &DeletionRule, job_status: &str, failed: bool) -> bool {
    let condition = &rule.condition;
    match (&condition.job_status, &condition.job_deployment_status) {
        (Some(wanted), _) => wanted.as_str() == job_status,
        (None, Some(wanted)) => wanted.as_str() == if failed { "Failed" } else { "Complete" },
        (None, None) => false,
    }
}

/// Applies the legacy form. Statuses other than SUCCEEDED and FAILED match neither policy.
fn by_outcome(planner: &mut Planner<'_>, end: Timestamp, strategy: &DeletionStrategy) {
    let policy = match planner.draft.job_status() {
        "SUCCEEDED" => &strategy.on_success,
        "FAILED" => &strategy.on_failure,
        _ => return,
    };
    let Some(policy) = policy.as_ref().and_then(|policy| policy.policy.clone()) else { return };
    if policy != DeletionPolicyType::DeleteNone
        && planner.reached_or_wake_at(after(end, planner.seen.job.spec.ttl_seconds_after_finished.unwrap_or(0)))
        && !is_achieved(planner, &policy)
    {
        execute(planner, &policy);
    }
}

fn shutdown(planner: &mut Planner<'_>, end: Timestamp) {
    if planner.seen.selected_cluster().is_some() {
        return;
    }
    if planner.reached_or_wake_at(after(end, planner.seen.job.spec.ttl_seconds_after_finished.unwrap_or(0))) {
        if planner.config.delete_rayjob_after_finish {
            delete_self(planner);
        } else {
            delete_cluster(planner);
        }
    }
}

/// Returns how much a policy removes.
fn strength(policy: &DeletionPolicyType) -> u8 {
    match policy {
        DeletionPolicyType::DeleteSelf => 3,
        DeletionPolicyType::DeleteCluster => 2,
        DeletionPolicyType::DeleteWorkers => 1,
        DeletionPolicyType::DeleteNone | DeletionPolicyType::Other(_) => 0,
    }
}

/// Returns whether nothing is left to do for a policy.
fn is_achieved(planner: &Planner<'_>, policy: &DeletionPolicyType) -> bool {
    let alive = planner.seen.own_cluster().filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
    match policy {
        DeletionPolicyType::DeleteSelf => false,
        DeletionPolicyType::DeleteCluster => alive.is_none(),
        DeletionPolicyType::DeleteWorkers => alive.is_none_or(has_no_workers),
        DeletionPolicyType::DeleteNone | DeletionPolicyType::Other(_) => true,
    }
}

fn has_no_workers(cluster: &RayCluster) -> bool {
    cluster_spec::worker_groups(&cluster.spec).iter().all(cluster_spec::is_suspended)
}

fn execute(planner: &mut Planner<'_>, policy: &DeletionPolicyType) {
    match policy {
        DeletionPolicyType::DeleteSelf => delete_self(planner),
        DeletionPolicyType::DeleteCluster => {
            delete_cluster(planner);
        }
        DeletionPolicyType::DeleteWorkers => delete_workers(planner),
        DeletionPolicyType::DeleteNone | DeletionPolicyType::Other(_) => {}
    }
}

fn delete_self(planner: &mut Planner<'_>) {
    let key = planner.seen.key(Kind::RayJob, planner.seen.name());
    planner.then(Step::delete(key, planner.seen.uid(), "the job has finished, and its time to live is over"));
}

/// Suspends every worker group; the head stays, with its logs and its dashboard.
fn delete_workers(planner: &mut Planner<'_>) {
    let Some(cluster) = planner.seen.own_cluster() else { return };
    let mut groups = cluster.spec.worker_group_specs.clone().unwrap_or_default();
    for group in &mut groups {
        group.suspend = Some(true);
    }
    let shaped = crate::go::cluster_spec(&manta_api::RayClusterSpec {
        worker_group_specs: Some(groups),
        ..cluster.spec.clone()
    });
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let path = planner.seen.path(name);
    let patch = json!({
        "metadata": {"resourceVersion": cluster.metadata.resource_version},
        "spec": {"workerGroupSpecs": shaped.get("workerGroupSpecs")},
    });
    let why = "the job has finished, and its workers' time to live is over";
    let done = format!("Set the `suspend` field to true for all worker groups in cluster {path}");
    planner.then(
        Step::merge(planner.seen.key(Kind::RayCluster, name), patch, why)
            .on_success(reasons::UPDATED_RAY_CLUSTER, done)
            .on_failure(
                reasons::FAILED_TO_UPDATE_RAY_CLUSTER,
                format!("Failed to suspend worker groups in cluster {path}: "),
            ),
    );
}
