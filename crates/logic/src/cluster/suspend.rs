//! Suspending and resuming a cluster.
//!
//! The state lives in two conditions, so that a change of mind cannot leave half a cluster:
//! `RayClusterSuspending` is set first, then all Pods go, then `RayClusterSuspended` is set.

use super::Planner;
use super::observed::Observed;
use crate::action::Event;
use crate::conditions::{CLUSTER_SUSPENDED, CLUSTER_SUSPENDING};
use crate::labels::KUEUE_QUEUE;
use crate::reasons;
use crate::view::PodView;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use manta_api::RayClusterStatus;
use std::sync::Arc;

/// How far a suspension has got, by the conditions.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Suspension {
    None,
    Suspending,
    Suspended,
}

/// Reads the suspension from a status: the first of the two conditions that is True.
pub(super) fn suspension(status: Option<&RayClusterStatus>) -> Suspension {
    let conditions = status.and_then(|status| status.conditions.as_deref()).unwrap_or_default();
    let is_set = |condition: &&Condition| {
        condition.status == "True" && [CLUSTER_SUSPENDING, CLUSTER_SUSPENDED].contains(&condition.type_.as_str())
    };
    match conditions.iter().find(is_set) {
        Some(condition) if condition.type_ == CLUSTER_SUSPENDING => Suspension::Suspending,
        Some(_) => Suspension::Suspended,
        None => Suspension::None,
    }
}

/// Returns whether a suspended cluster is to run again.
///
/// Removing the field resumes it, unlike in KubeRay, except in a queue of Kueue: there only Kueue's `false` admits it.
/// A manifest without the field must not start Pods outside the quota.
pub(super) fn is_resumed(seen: &Observed) -> bool {
    match seen.cluster.spec.suspend {
        Some(suspend) => !suspend,
        None => seen.label(KUEUE_QUEUE).is_none(),
    }
}

/// Deletes the Pods of a cluster that is being suspended. Returns whether Pods may be created.
pub(super) fn plan(planner: &mut Planner<'_>) -> bool {
    let seen = planner.seen;
    let wanted = seen.cluster.spec.suspend == Some(true);
    let state = suspension(seen.cluster.status.as_ref());
    let by_conditions = planner.config.gates.ray_cluster_status_conditions;
    if state == Suspension::Suspending || (!by_conditions && wanted) {
        delete_all_pods(planner, Because::Suspension);
        return false;
    }
    let is_late = |pod: &Arc<PodView>| !seen.is_going(pod);
    if state == Suspension::Suspended && wanted && seen.pods.iter().any(is_late) {
        // It was being created when the suspension began.
        delete_all_pods(planner, Because::Suspension);
    }
    // The condition is written first; the next pass deletes the Pods.
    !(by_conditions && (state == Suspension::Suspended || wanted))
}

/// Why all Pods of a cluster are deleted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Because {
    Suspension,
    SpecChange,
}

/// Deletes every Pod of the cluster, with one event for all of them.
pub(super) fn delete_all_pods(planner: &mut Planner<'_>, because: Because) {
    let seen = planner.seen;
    let cluster = seen.path(seen.name());
    let (all, why) = match because {
        Because::Suspension => ("", "suspension"),
        Because::SpecChange => ("all ", "spec change with Recreate upgradeStrategy"),
    };
    let alive: Vec<_> = seen.pods.iter().filter(|pod| !seen.is_going(pod)).collect();
    let failed = format!("Failed deleting Pods due to {why} for RayCluster {cluster}, ");
    let delete = |pod: &&Arc<PodView>| {
        seen.delete_pod(pod, why)
            .on_failure(reasons::FAILED_TO_DELETE_POD_COLLECTION, failed.clone())
            .failure_reason(reasons::FAILED_DELETE_ALL_PODS)
    };
    planner.then_all(alive.iter().map(delete).collect());
    if !alive.is_empty() || seen.pods.is_empty() {
        let note = format!("Deleted {all}Pods for RayCluster {cluster} due to {why}");
        planner.event(Event::normal(reasons::DELETED_POD, "Delete", note));
    }
}
