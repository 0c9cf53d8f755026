//! The conditions of a RayCluster.
//!
//! Worked out in a fixed order, which is also the order in which they first appear.

use super::observed::Observed;
use super::suspend::{Suspension, is_resumed, suspension};
use super::{pods_blocked, status::all_running};
use crate::conditions::{
    self, CLUSTER_SUSPENDED, CLUSTER_SUSPENDING, HEAD_POD_READY, PODS_BLOCKED, PROVISIONED, REPLICA_FAILURE,
};
use crate::plan::Failure;
use crate::view::PodView;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;

/// Returns the conditions after a pass that ended with `failure`, from those before it.
pub(super) fn after_pass(seen: &Observed, failure: Option<&Failure>, now: Timestamp) -> Vec<Condition> {
    let before = seen.cluster.status.as_ref();
    let mut conditions =
        Conditions { list: before.and_then(|status| status.conditions.clone()).unwrap_or_default(), now };
    replica_failure(failure, &mut conditions);
    head_pod_ready(seen, &mut conditions);
    let state = suspension(before);
    if state != Suspension::Suspended {
        provisioned(seen, &mut conditions);
    }
    suspend_step(seen, state, &mut conditions);
    match pods_blocked::explain(seen) {
        Some((reason, message)) => conditions.set(PODS_BLOCKED, "True", &reason, &message),
        None => conditions.remove(PODS_BLOCKED),
    }
    conditions.list
}

fn replica_failure(failure: Option<&Failure>, conditions: &mut Conditions) {
    match failure {
        None => conditions.remove(REPLICA_FAILURE),
        Some(Failure { reason: Some(reason), error, .. }) => {
            conditions.set(REPLICA_FAILURE, "True", reason, &format!("{reason}\n{error}"));
        }
        Some(_) => {}
    }
}

fn head_pod_ready(seen: &Observed, conditions: &mut Conditions) {
    let Some(head) = seen.head_pods().next() else {
        return conditions.set(HEAD_POD_READY, "False", "HeadPodNotFound", "Head Pod not found");
    };
    let Some(ready) = &head.status.conditions.ready else {
        return conditions.set(HEAD_POD_READY, "False", "Unknown", "");
    };
    let mut reason = match ready.reason() {
        "" if ready.is_true() => "HeadPodRunningAndReady",
        "" => "Unknown",
        reason => reason,
    };
    let mut message = ready.message().to_owned();
    if ready.reason() == "ContainersNotReady"
        && let Some((container, why, text)) = first_stopped_container(head)
    {
        if !message.is_empty() {
            message.push_str("; ");
        }
        message.push_str(&format!("{container}: {text}"));
        if !why.is_empty() {
            reason = why;
        }
    }
    conditions.set(HEAD_POD_READY, ready.status.as_str(), reason, &message);
}

/// Returns name, reason and message of the first container that waits or has ended.
fn first_stopped_container(pod: &PodView) -> Option<(&str, &str, &str)> {
    pod.status.container_statuses.iter().find_map(|status| {
        let waiting = status.state.waiting.as_ref().map(|waiting| (waiting.reason.as_str(), waiting.message.as_str()));
        let ended = status.state.terminated.as_ref().map(|ended| (ended.reason.as_str(), ended.message.as_str()));
        waiting.or(ended).map(|(reason, message)| (status.name.as_str(), reason, message))
    })
}

fn provisioned(seen: &Observed, conditions: &mut Conditions) {
    if conditions::is_true(&conditions.list, PROVISIONED) {
        return;
    }
    if all_running(&seen.pods) {
        conditions.set(
            PROVISIONED,
            "True",
            "AllPodRunningAndReadyFirstTime",
            "All Ray Pods are ready for the first time",
        );
    } else {
        conditions.set(
            PROVISIONED,
            "False",
            "RayClusterPodsProvisioning",
            "RayCluster Pods are being provisioned for first time",
        );
    }
}

fn suspend_step(seen: &Observed, state: Suspension, conditions: &mut Conditions) {
    let wanted = seen.cluster.spec.suspend == Some(true);
    match state {
        Suspension::Suspending if seen.pods.is_empty() => {
            conditions.set(PROVISIONED, "False", "RayClusterPodsProvisioning", "RayCluster has been suspended");
            conditions.set(CLUSTER_SUSPENDING, "False", CLUSTER_SUSPENDING, "");
            conditions.set(CLUSTER_SUSPENDED, "True", CLUSTER_SUSPENDED, "");
        }
        Suspension::Suspending => {} // once begun, a suspension is finished
        Suspension::Suspended if is_resumed(seen) => conditions.set(CLUSTER_SUSPENDED, "False", CLUSTER_SUSPENDED, ""),
        Suspension::Suspended => {}
        Suspension::None => {
            conditions.set(CLUSTER_SUSPENDED, "False", CLUSTER_SUSPENDED, "");
            conditions.set(CLUSTER_SUSPENDING, if wanted { "True" } else { "False" }, CLUSTER_SUSPENDING, "");
        }
    }
}

/// The conditions and the time at which they change.
struct Conditions {
    list: Vec<Condition>,
    now: Timestamp,
}

impl Conditions {
    fn remove(&mut self, type_: &str) {
        conditions::remove(&mut self.list, type_);
    }

    fn set(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        conditions::set(&mut self.list, self.now, None, (type_, status, reason, message));
    }
}
