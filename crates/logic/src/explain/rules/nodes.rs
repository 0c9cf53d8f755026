//! Pods that their nodes, the scheduler or an eviction ended.

use super::super::Cause;
use super::super::evidence::{Evidence, Pod};
use super::patterns::sentence;
use super::pod_object;
use jiff::SignedDuration;

/// How long after its grace period a Pod counts as stuck.
const STUCK_AFTER: SignedDuration = SignedDuration::from_secs(120);

pub(super) fn lost_pod(evidence: &Evidence) -> Option<Cause> {
    evidence.pods.iter().find_map(lost)
}

fn lost(pod: &Pod) -> Option<Cause> {
    let status = &pod.status;
    let node = if pod.spec.node_name.is_empty() { "its node" } else { &pod.spec.node_name };
    let disruption = pod.condition("DisruptionTarget").filter(|condition| condition.status == "True");
    let (by, message) = match disruption {
        Some(condition) => (condition.reason.as_str(), condition.message.as_str()),
        None => ("", ""),
    };
    let who = pod.words();
    let (reason, what, advice) = match (status.reason.as_str(), by) {
        (_, "PreemptionByScheduler") => (
            "Preempted",
            format!("The {who} was preempted by a Pod of higher priority"),
            "Give the template a higher priorityClassName, or add nodes.",
        ),
        (_, "DeletionByTaintManager") | ("NodeLost", _) => (
            "NodeLost",
            format!("The {who} was lost with its node {node}, which does not answer"),
            "Check the node: kubectl describe node. The operator replaces the Pod.",
        ),
        ("NodeShutdown" | "Terminated" | "Shutdown", _) => (
            "NodeShutDown",
            format!("The {who} ended because its node {node} was shut down"),
            "On spot nodes this happens: keep the head on nodes that stay, and let GCS fault tolerance keep its state.",
        ),
        ("Evicted", _) => (
            "Evicted",
            format!("The {who} was evicted by its node {node}"),
            "Set requests for what the Pod really uses (memory and ephemeral-storage), so that it goes to a node that has it.",
        ),
        (_, "EvictionByEvictionAPI") => (
            "Drained",
            format!("The {who} was evicted from node {node}, as in kubectl drain"),
            "A PodDisruptionBudget for the head delays drains; the operator replaces the Pod.",
        ),
        (reason, _) if reason.starts_with("OutOf") || reason == "UnexpectedAdmissionError" => (
            "RefusedByNode",
            format!("The node {node} refused the {who} ({reason})"),
            "Another Pod took the resource in between; the operator creates a new Pod.",
        ),
        ("DeadlineExceeded", _) => (
            "PodDeadlineExceeded",
            format!("The {who} ran longer than its activeDeadlineSeconds"),
            "Remove activeDeadlineSeconds from the Pod template; RayJobs have their own.",
        ),
        _ => return None,
    };
    let message = if status.message.is_empty() { message } else { &status.message };
    Some(Cause::new(reason, pod_object(pod), sentence(&what, message), advice))
}

/// A Pod whose node is gone stays for ever, and a new head has to wait for it.
pub(super) fn stuck_terminating(evidence: &Evidence) -> Option<Cause> {
    let is_stuck =
        |pod: &&Pod| pod.metadata.deletion_timestamp.is_some_and(|at| evidence.at.duration_since(at) > STUCK_AFTER);
    let pod = evidence.pods.iter().find(is_stuck)?;
    let what = match pod.metadata.finalizers.as_slice() {
        [] => format!("The {} is being deleted, but its node {} does not confirm it.", pod.words(), pod.spec.node_name),
        all => format!("The {} is being deleted and waits for {}.", pod.words(), all.join(", ")),
    };
    let advice = format!(
        "If the node is gone, kubectl delete pod {} --force, or remove the node with kubectl delete node.",
        pod.metadata.name
    );
    Some(Cause::new("PodStuckTerminating", pod_object(pod), what, advice))
}
