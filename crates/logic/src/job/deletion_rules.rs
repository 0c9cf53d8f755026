//! Complete and Failed: what is deleted, and when.
//!
//! In order of precedence: `deletionStrategy.deletionRules`, the legacy `onSuccess`/`onFailure`, and
//! `shutdownAfterJobFinishes`. Every time-to-live counts from `status.endTime`. Of several rules that
//! are due only the one with the most effect is carried out. A cluster of `clusterSelector` is never
//! touched, but the RayJob itself may go.

use super::deadline::after;
use super::phase::Finish;
use super::plan::Pass;
use super::suspend::delete_cluster;
use crate::action::{Accept, Action, Event, Kind, ObjectKey, Step};
use crate::cluster_spec;
use crate::scheduler;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manta_api::{DeletionPolicyType, DeletionRule, DeletionStrategy, RayCluster};
use serde_json::json;

pub(super) fn plan(pass: &mut Pass<'_>, finish: Finish) {
    let spec = &pass.seen.job.spec;
    let Some(end) = finish.at else {
        // Written by somebody else: without an end nothing would ever be due.
        pass.draft.now.end_time = Some(Time(pass.now));
        return;
    };
    let strategy = spec.deletion_strategy.as_ref().filter(|_| pass.config.gates.ray_job_deletion_policy);
    match strategy {
        Some(DeletionStrategy { deletion_rules: Some(rules), .. }) => by_rules(pass, end, finish.failed, rules),
        Some(strategy) => by_outcome(pass, end, strategy),
        None if spec.shutdown_after_job_finishes.unwrap_or(false) => shutdown(pass, end),
        None => {}
    }
    // Last, so that a scheduler that cannot be told keeps nothing from being deleted.
    if let Some(step) = scheduler::shrink_job_gang(pass.seen, pass.config) {
        pass.then(step);
    }
}

fn by_rules(pass: &mut Pass<'_>, end: Timestamp, failed: bool, rules: &[DeletionRule]) {
    let matching = rules.iter().filter(|rule| matches(rule, pass.draft.job_status(), failed));
    let matching: Vec<_> = matching.cloned().collect();
    let due = |pass: &mut Pass<'_>, rule: &DeletionRule| {
        pass.is_past(after(end, rule.condition.ttl_seconds.unwrap_or(0))) && !is_achieved(pass, &rule.policy)
    };
    let overdue: Vec<_> = matching.iter().filter(|rule| due(pass, rule)).collect();
    // The first of the strongest.
    if let Some(rule) = overdue.iter().rev().max_by_key(|rule| strength(&rule.policy)) {
        execute(pass, &rule.policy);
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

/// The legacy form. Statuses other than SUCCEEDED and FAILED match neither policy.
fn by_outcome(pass: &mut Pass<'_>, end: Timestamp, strategy: &DeletionStrategy) {
    let policy = match pass.draft.job_status() {
        "SUCCEEDED" => &strategy.on_success,
        "FAILED" => &strategy.on_failure,
        _ => return,
    };
    let Some(policy) = policy.as_ref().and_then(|policy| policy.policy.clone()) else { return };
    if policy != DeletionPolicyType::DeleteNone
        && pass.is_past(after(end, pass.seen.job.spec.ttl_seconds_after_finished.unwrap_or(0)))
        && !is_achieved(pass, &policy)
    {
        execute(pass, &policy);
    }
}

fn shutdown(pass: &mut Pass<'_>, end: Timestamp) {
    if pass.seen.selected_cluster().is_some() {
        return;
    }
    if pass.is_past(after(end, pass.seen.job.spec.ttl_seconds_after_finished.unwrap_or(0))) {
        if pass.config.delete_rayjob_after_finish {
            delete_self(pass);
        } else {
            delete_cluster(pass);
        }
    }
}

/// How much a policy removes.
fn strength(policy: &DeletionPolicyType) -> u8 {
    match policy {
        DeletionPolicyType::DeleteSelf => 3,
        DeletionPolicyType::DeleteCluster => 2,
        DeletionPolicyType::DeleteWorkers => 1,
        DeletionPolicyType::DeleteNone | DeletionPolicyType::Other(_) => 0,
    }
}

/// Whether nothing is left to do for a policy.
fn is_achieved(pass: &Pass<'_>, policy: &DeletionPolicyType) -> bool {
    let alive = pass.seen.own_cluster().filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
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

fn execute(pass: &mut Pass<'_>, policy: &DeletionPolicyType) {
    match policy {
        DeletionPolicyType::DeleteSelf => delete_self(pass),
        DeletionPolicyType::DeleteCluster => {
            delete_cluster(pass);
        }
        DeletionPolicyType::DeleteWorkers => delete_workers(pass),
        DeletionPolicyType::DeleteNone | DeletionPolicyType::Other(_) => {}
    }
}

fn delete_self(pass: &mut Pass<'_>) {
    let action = Action::Delete {
        key: ObjectKey::new(Kind::RayJob, pass.seen.namespace(), pass.seen.name()),
        uid: pass.seen.uid().to_owned(),
        force: false,
    };
    pass.then(Step::new(action, "the job has finished, and its time to live is over").accept(Accept::NotFound));
}

/// Suspends every worker group; the head stays, with its logs and its dashboard.
fn delete_workers(pass: &mut Pass<'_>) {
    let Some(cluster) = pass.seen.own_cluster() else { return };
    let mut groups = cluster.spec.worker_group_specs.clone().unwrap_or_default();
    for group in &mut groups {
        group.suspend = Some(true);
    }
    let shaped = crate::go::cluster_spec(&manta_api::RayClusterSpec {
        worker_group_specs: Some(groups),
        ..cluster.spec.clone()
    });
    let name = cluster.metadata.name.as_deref().unwrap_or_default();
    let path = pass.path(name);
    let patch = json!({
        "metadata": {"resourceVersion": cluster.metadata.resource_version},
        "spec": {"workerGroupSpecs": shaped.get("workerGroupSpecs")},
    });
    let action =
        Action::Merge { key: ObjectKey::new(Kind::RayCluster, pass.seen.namespace(), name), patch: Box::new(patch) };
    pass.then(
        Step::new(action, "the job has finished, and its workers' time to live is over")
            .done(Event::normal(
                "UpdatedRayCluster",
                "Update",
                format!("Set the `suspend` field to true for all worker groups in cluster {path}"),
            ))
            .failed(Event::warning(
                "FailedToUpdateRayCluster",
                "Update",
                format!("Failed to suspend worker groups in cluster {path}: "),
            )),
    );
}
