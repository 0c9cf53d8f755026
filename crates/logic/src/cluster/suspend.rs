//! Suspending and resuming a cluster.
//!
//! The state lives in two conditions, so that a change of mind cannot leave half a cluster:
//! `RayClusterSuspending` is set first, then all Pods go, then `RayClusterSuspended` is set.

use super::observed::Observed;
use super::plan::Draft;
use crate::action::{Accept, Action, Event, Kind, Step};
use crate::config::Config;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use manta_api::RayClusterStatus;

pub(super) const SUSPENDING: &str = "RayClusterSuspending";
pub(super) const SUSPENDED: &str = "RayClusterSuspended";

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
        condition.status == "True" && (condition.type_ == SUSPENDING || condition.type_ == SUSPENDED)
    };
    match conditions.iter().find(is_set) {
        Some(condition) if condition.type_ == SUSPENDING => Suspension::Suspending,
        Some(_) => Suspension::Suspended,
        None => Suspension::None,
    }
}

/// Deletes the Pods of a cluster that is being suspended. Answers whether Pods may be made.
pub(super) fn plan(seen: &Observed, cfg: &Config, draft: &mut Draft) -> bool {
    let wanted = seen.cluster.spec.suspend == Some(true);
    let state = suspension(seen.cluster.status.as_ref());
    let by_conditions = cfg.gates.ray_cluster_status_conditions;
    if state == Suspension::Suspending || (!by_conditions && wanted) {
        delete_all_pods(seen, draft, "suspension");
        return false;
    }
    // Not yet suspending: the status says so first, and the Pods go in the next pass.
    !(by_conditions && (state == Suspension::Suspended || wanted))
}

/// Deletes every Pod of the cluster and tells why, once.
pub(super) fn delete_all_pods(seen: &Observed, draft: &mut Draft, because: &'static str) {
    let cluster = seen.path(seen.name());
    let (done, failed) = match because {
        "suspension" => (
            format!("Deleted Pods for RayCluster {cluster} due to suspension"),
            format!("Failed deleting Pods due to suspension for RayCluster {cluster}, "),
        ),
        because => (
            format!("Deleted all Pods for RayCluster {cluster} due to {because}"),
            format!("Failed deleting Pods due to {because} for RayCluster {cluster}, "),
        ),
    };
    let alive: Vec<_> = seen.pods.iter().filter(|pod| !seen.is_going(pod)).collect();
    draft.end_stage();
    for pod in &alive {
        draft.push(
            Step::new(
                Action::Delete {
                    key: seen.key(Kind::Pod, &pod.metadata.name),
                    uid: pod.metadata.uid.clone(),
                    force: false,
                },
                because,
            )
            .failed(Event::warning("FailedToDeletePodCollection", "Delete", failed.clone()))
            .failure_reason("FailedDeleteAllPods")
            .accept(Accept::NotFound),
        );
    }
    draft.end_stage();
    if !alive.is_empty() || seen.pods.is_empty() {
        draft.events.push(Event::normal("DeletedPod", "Delete", done));
    }
}
