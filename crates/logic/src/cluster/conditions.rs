//! The conditions of a RayCluster.
//!
//! Worked out in a fixed order, which is also the order in which they first appear.

use super::observed::Observed;
use super::suspend::{SUSPENDED, SUSPENDING, Suspension, suspension};
use super::{not_running, status::all_running};
use crate::action::Failure;
use crate::view::PodView;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};

const REPLICA_FAILURE: &str = "ReplicaFailure";
const HEAD_POD_READY: &str = "HeadPodReady";
const PROVISIONED: &str = "RayClusterProvisioned";

/// The conditions after a pass that ended with `failure`, from those before it.
pub(super) fn work_out(seen: &Observed, failure: Option<&Failure>, now: Timestamp) -> Vec<Condition> {
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
    match not_running::explain(seen) {
        Some((reason, message)) => conditions.set(not_running::CONDITION, "True", &reason, &message),
        None => conditions.remove(not_running::CONDITION),
    }
    conditions.list
}

fn replica_failure(failure: Option<&Failure>, conditions: &mut Conditions) {
    match failure {
        None => conditions.remove(REPLICA_FAILURE),
        Some(Failure { reason: Some(reason), error }) => {
            conditions.set(REPLICA_FAILURE, "True", reason, &format!("{reason}\n{error}"));
        }
        Some(_) => {}
    }
}

fn head_pod_ready(seen: &Observed, conditions: &mut Conditions) {
    let Some(head) = seen.head_pods().next() else {
        return conditions.set(HEAD_POD_READY, "False", "HeadPodNotFound", "Head Pod not found");
    };
    let Some(ready) = head.condition("Ready") else {
        return conditions.set(HEAD_POD_READY, "False", "Unknown", "");
    };
    let mut reason = match ready.reason.as_str() {
        "" if ready.status == "True" => "HeadPodRunningAndReady",
        "" => "Unknown",
        reason => reason,
    };
    let mut message = ready.message.clone();
    if ready.reason == "ContainersNotReady"
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
    conditions.set(HEAD_POD_READY, &ready.status, reason, &message);
}

/// Name, reason and message of the first container that waits or has ended.
fn first_stopped_container(pod: &PodView) -> Option<(&str, &str, &str)> {
    pod.status.container_statuses.iter().find_map(|status| {
        let waiting = status.state.waiting.as_ref().map(|waiting| (waiting.reason.as_str(), waiting.message.as_str()));
        let ended = status.state.terminated.as_ref().map(|ended| (ended.reason.as_str(), ended.message.as_str()));
        waiting.or(ended).map(|(reason, message)| (status.name.as_str(), reason, message))
    })
}

fn provisioned(seen: &Observed, conditions: &mut Conditions) {
    if conditions.is_true(PROVISIONED) {
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
            conditions.set(SUSPENDING, "False", SUSPENDING, "");
            conditions.set(SUSPENDED, "True", SUSPENDED, "");
        }
        Suspension::Suspending => {} // once begun, a suspension is finished
        // Removing the field resumes too; KubeRay knows only an explicit `false`.
        Suspension::Suspended if !wanted => conditions.set(SUSPENDED, "False", SUSPENDED, ""),
        Suspension::Suspended => {}
        Suspension::None => {
            conditions.set(SUSPENDED, "False", SUSPENDED, "");
            conditions.set(SUSPENDING, if wanted { "True" } else { "False" }, SUSPENDING, "");
        }
    }
}

/// A list of conditions, changed like Kubernetes' own helper does.
struct Conditions {
    list: Vec<Condition>,
    now: Timestamp,
}

impl Conditions {
    fn is_true(&self, type_: &str) -> bool {
        self.list.iter().any(|condition| condition.type_ == type_ && condition.status == "True")
    }

    fn remove(&mut self, type_: &str) {
        self.list.retain(|condition| condition.type_ != type_);
    }

    /// The transition time moves only when the status does.
    fn set(&mut self, type_: &str, status: &str, reason: &str, message: &str) {
        let reason = reason.to_owned();
        let message = message.to_owned();
        match self.list.iter_mut().find(|condition| condition.type_ == type_) {
            Some(condition) => {
                if condition.status != status {
                    status.clone_into(&mut condition.status);
                    condition.last_transition_time = Time(self.now);
                }
                condition.reason = reason;
                condition.message = message;
            }
            None => self.list.push(Condition {
                type_: type_.to_owned(),
                status: status.to_owned(),
                reason,
                message,
                last_transition_time: Time(self.now),
                observed_generation: None,
            }),
        }
    }
}
