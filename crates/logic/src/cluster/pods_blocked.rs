//! The condition `RayClusterPodsBlocked`: which Pods cannot start, and why.
//!
//! KubeRay leaves users to search Pods and events (#4178, #4272). Here a condition names the Pods
//! that cannot start and the reason that the scheduler or the kubelet gave. It is removed as soon
//! as they can. Pods that the API server refuses show in `ReplicaFailure`.

use super::observed::Observed;
use crate::view::{ConditionStatus, ContainerStatusView, PodView};

/// How many Pods the message names.
const NAMED: usize = 3;

/// Returns reason and message, if something keeps Pods from starting.
pub(super) fn explain(seen: &Observed) -> Option<(String, String)> {
    let blocked: Vec<(&PodView, &str, String)> = seen
        .pods
        .iter()
        .filter(|pod| !seen.is_going(pod))
        .filter_map(|pod| why_blocked(pod).map(|(reason, text)| (pod.as_ref(), reason, text)))
        .collect();
    let (_, reason, _) = blocked.first()?;
    let mut message = format!("{} of {} Pods cannot start: ", blocked.len(), seen.pods.len());
    for (index, (pod, reason, text)) in blocked.iter().take(NAMED).enumerate() {
        if index > 0 {
            message.push_str("; ");
        }
        message.push_str(&format!("{}: {reason}", pod.metadata.name));
        if !text.is_empty() {
            message.push_str(&format!(": {text}"));
        }
    }
    if blocked.len() > NAMED {
        message.push_str(&format!("; and {} more", blocked.len() - NAMED));
    }
    Some(((*reason).to_owned(), message))
}

fn why_blocked(pod: &PodView) -> Option<(&str, String)> {
    let scheduled = pod.status.conditions.scheduled.as_ref();
    if let Some(condition) = scheduled.filter(|condition| condition.status == ConditionStatus::False) {
        let reason = if condition.reason().is_empty() { "Unschedulable" } else { condition.reason() };
        return Some((reason, one_line(condition.message())));
    }
    let statuses = pod.status.init_container_statuses.iter().chain(&pod.status.container_statuses);
    statuses.into_iter().find_map(why_waiting)
}

/// Returns what a container waits for, unless that is part of a normal start.
fn why_waiting(status: &ContainerStatusView) -> Option<(&str, String)> {
    let waiting = status.state.waiting.as_ref()?;
    match waiting.reason.as_str() {
        "" | "ContainerCreating" | "PodInitializing" => None,
        reason => Some((reason, format!("{}: {}", status.name, one_line(&waiting.message)))),
    }
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
