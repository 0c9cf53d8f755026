//! Conditions: their types, in one list, and how a list of them is read and changed.

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use manta_api::RayCluster;

// RayCluster.
pub const REPLICA_FAILURE: &str = "ReplicaFailure";
pub const HEAD_POD_READY: &str = "HeadPodReady";
pub const PROVISIONED: &str = "RayClusterProvisioned";
pub const CLUSTER_SUSPENDING: &str = "RayClusterSuspending";
pub const CLUSTER_SUSPENDED: &str = "RayClusterSuspended";
/// Ours alone: True while Pods cannot start, absent otherwise.
pub const PODS_BLOCKED: &str = "RayClusterPodsBlocked";

// RayService.
pub const READY: &str = "Ready";
pub const UPGRADE_IN_PROGRESS: &str = "UpgradeInProgress";
pub const ROLLBACK_IN_PROGRESS: &str = "RollbackInProgress";
/// Ours alone, and there only while an upgrade makes no progress.
pub const UPGRADE_STALLED: &str = "UpgradeStalled";
/// Ours alone: True while applications that should serve cannot be deployed, absent otherwise.
pub const APPLICATIONS_FAILED: &str = "ApplicationsFailed";
pub const SUSPENDING: &str = "Suspending";
pub const SUSPENDED: &str = "Suspended";

/// Returns the conditions of a RayCluster.
pub fn of_cluster(cluster: &RayCluster) -> &[Condition] {
    cluster.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default()
}

/// Returns the condition of a type.
pub fn find<'a>(conditions: &'a [Condition], type_: &str) -> Option<&'a Condition> {
    conditions.iter().find(|condition| condition.type_ == type_)
}

/// Returns whether the condition of a type is True.
pub fn is_true(conditions: &[Condition], type_: &str) -> bool {
    find(conditions, type_).is_some_and(|condition| condition.status == "True")
}

/// Removes the condition of a type.
pub fn remove(conditions: &mut Vec<Condition>, type_: &str) {
    conditions.retain(|condition| condition.type_ != type_);
}

/// Sets a condition; its transition time moves only with its status.
pub fn set(
    conditions: &mut Vec<Condition>,
    now: Timestamp,
    observed_generation: Option<i64>,
    (type_, status, reason, message): (&str, &str, &str, &str),
) {
    let index = conditions.iter().position(|condition| condition.type_ == type_);
    let unchanged = index.map(|index| &conditions[index]).filter(|condition| condition.status == status);
    let condition = Condition {
        last_transition_time: unchanged.map_or(Time(now), |condition| condition.last_transition_time.clone()),
        message: message.to_owned(),
        observed_generation,
        reason: reason.to_owned(),
        status: status.to_owned(),
        type_: type_.to_owned(),
    };
    match index {
        Some(index) => conditions[index] = condition,
        None => conditions.push(condition),
    }
}
