//! Which Pods have ended and must be replaced.

use crate::view::{PodView, TerminatedView};
use jiff::Timestamp;
use jiff::tz::TimeZone;

/// The rules in order; the first that applies is the reason.
const RULES: &[fn(&PodView) -> bool] = &[pod_has_ended, ray_has_ended_for_good];

/// Returns whether a Pod must be deleted so that another can take its place.
pub(super) fn must_replace(pod: &PodView) -> bool {
    RULES.iter().any(|rule| rule(pod))
}

fn pod_has_ended(pod: &PodView) -> bool {
    matches!(pod.status.phase.as_str(), "Failed" | "Succeeded")
}

fn ray_has_ended_for_good(pod: &PodView) -> bool {
    pod.status.phase == "Running" && pod.spec.restart_policy == "Never" && pod.ray_container_terminated().is_some()
}

/// Returns why a Pod must be replaced, in KubeRay's words.
pub(super) fn reason(pod: &PodView, node_type: &str) -> String {
    let name = &pod.metadata.name;
    if pod_has_ended(pod) {
        return format!(
            "The {node_type} Pod {name} status is {} which is a terminal state. KubeRay will delete the Pod and create new Pods in the next reconciliation if necessary.",
            pod.status.phase
        );
    }
    format!(
        "The Pod status of the {node_type} Pod {name} is {}, and the Ray container terminated status is {}. The container is unable to restart due to its restart policy {}, so KubeRay will delete it.",
        pod.status.phase,
        terminated(pod.ray_container_terminated()),
        pod.spec.restart_policy
    )
}

/// `Pod status: …; Pod restart policy: …; Ray container terminated status: …`.
pub(super) fn state(pod: &PodView) -> String {
    format!(
        "Pod status: {}; Pod restart policy: {}; Ray container terminated status: {}",
        pod.status.phase,
        pod.spec.restart_policy,
        terminated(pod.ray_container_terminated())
    )
}

/// Returns how a container ended, as Go prints the struct.
fn terminated(state: Option<&TerminatedView>) -> String {
    let Some(ended) = state else { return "nil".to_owned() };
    format!(
        "&ContainerStateTerminated{{ExitCode:{},Signal:{},Reason:{},Message:{},StartedAt:{},FinishedAt:{},ContainerID:{},}}",
        ended.exit_code,
        ended.signal,
        ended.reason,
        ended.message,
        time(ended.started_at),
        time(ended.finished_at),
        ended.container_id
    )
}

fn time(time: Option<Timestamp>) -> String {
    match time {
        Some(time) => time.to_zoned(TimeZone::UTC).strftime("%Y-%m-%d %H:%M:%S +0000 UTC").to_string(),
        None => "0001-01-01 00:00:00 +0000 UTC".to_owned(),
    }
}
