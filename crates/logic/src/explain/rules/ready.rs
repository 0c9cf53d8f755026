//! What is well, what is on its way, and what is left to say when no other rule applies.

use super::super::Cause;
use super::super::evidence::{Cluster, Evidence, Pod, Terminated, condition};
use super::demand::queued;
use super::exits::{end_cause, replaced_cause};
use super::patterns::sentence;
use super::{job_words, pod_object, pods, subject_words};
use crate::conditions::READY;

pub(super) fn job_succeeded(evidence: &Evidence) -> Option<Cause> {
    let status = evidence.job_status()?;
    if status.job_status.as_deref() != Some("SUCCEEDED") || status.job_deployment_status.as_deref() == Some("Failed") {
        return None;
    }
    let who = job_words(evidence);
    Some(Cause::well("JobSucceeded", who.clone(), format!("{who} has succeeded.")))
}

pub(super) fn job_running(evidence: &Evidence) -> Option<Cause> {
    let status = evidence.job_status()?;
    if status.job_status.as_deref() != Some("RUNNING") || status.job_deployment_status.as_deref() != Some("Running") {
        return None;
    }
    let who = job_words(evidence);
    let since = status.start_time.as_ref().map(|start| evidence.at.duration_since(start.0).as_secs());
    let since = since.map_or_else(String::new, |seconds| format!(", {seconds} s after it was started"));
    let queue = queued(evidence).map_or_else(String::new, |demand| format!("; waiting for free resources: {demand}"));
    Some(Cause::well("JobRunning", who.clone(), format!("{who} is running{since}{queue}.")))
}

/// Everything is ready again, after something died.
pub(super) fn recovered(evidence: &Evidence) -> Option<Cause> {
    if evidence.subject.kind == "RayJob" || evidence.pods.is_empty() || !pods(evidence).all(Pod::is_ready) {
        return None;
    }
    let ends = pods(evidence).flat_map(|pod| pod.status.container_statuses.iter().map(move |status| (pod, status)));
    let ends = ends.filter_map(|(pod, status)| Some((pod, status, status.last_state.terminated.as_ref()?)));
    let last: Option<(_, _, &Terminated)> = ends.max_by_key(|(_, _, ended)| ended.finished_at);
    let replaced = evidence.replaced.last();
    let cause = match (last, replaced) {
        (Some((.., ended)), Some(replaced)) if ended.finished_at < Some(replaced.at) => replaced_cause(replaced),
        (Some((pod, status, ended)), _) => end_cause(evidence, pod, status, ended),
        (None, replaced) => replaced_cause(replaced?),
    };
    let who = subject_words(evidence);
    Some(Cause { summary: format!("{who} is ready again. {}", cause.summary), ..cause })
}

pub(super) fn cluster_ready(evidence: &Evidence) -> Option<Cause> {
    let cluster = evidence.clusters.first().filter(|_| evidence.subject.kind == "RayCluster")?;
    let status = cluster.status.as_ref()?;
    let (ready, desired) = (status.ready_worker_replicas.unwrap_or(0), status.desired_worker_replicas.unwrap_or(0));
    let is_ready_head = |pod: &Pod| pod.is_head() && pod.is_ready();
    let head = evidence.unread("list pods").is_some() || evidence.pods.iter().any(is_ready_head);
    if status.state.as_deref() != Some("ready") || ready < desired || !head {
        return None;
    }
    let who = subject_words(evidence);
    Some(Cause::well("ClusterReady", who.clone(), format!("{who} is ready, with {ready} of {desired} workers.")))
}

pub(super) fn service_ready(evidence: &Evidence) -> Option<Cause> {
    let status = evidence.service_status()?;
    condition(status.conditions.as_ref(), READY).filter(|ready| ready.status == "True")?;
    let apps = status.active_service_status.as_ref().and_then(|slot| slot.application_statuses.as_ref())?;
    if !apps.values().all(|application| application.status.as_deref() == Some("RUNNING")) {
        return None;
    }
    let who = subject_words(evidence);
    let endpoints = status.num_serve_endpoints.unwrap_or(0);
    let what = format!("{who} serves {} on {endpoints} Pods.", apps.keys().cloned().collect::<Vec<_>>().join(", "));
    Some(Cause::well("ServiceReady", who, what))
}

/// A cluster that the status names and that is gone.
pub(super) fn cluster_lost(evidence: &Evidence) -> Option<Cause> {
    let status = evidence.job_status()?;
    let name = status.ray_cluster_name.as_deref().filter(|name| !name.is_empty())?;
    let is_running = status.job_deployment_status.as_deref() == Some("Running");
    let is_known = evidence.unread("get rayclusters").is_none();
    if !is_running || !is_known || evidence.clusters.iter().any(|cluster| cluster.metadata.name == name) {
        return None;
    }
    let who = job_words(evidence);
    let what = format!("The RayCluster {name} of {who} no longer exists.");
    let advice = "Somebody deleted it; create the RayJob again, and delete RayJobs instead of their clusters.";
    Some(Cause::new("ClusterGone", who, what, advice))
}

/// Pods that have only just begun to start.
pub(super) fn pod_starting(evidence: &Evidence) -> Option<Cause> {
    let pod = pods(evidence).find(|pod| !pod.is_ready() && pod.status.phase != "Succeeded")?;
    let seconds = pod.metadata.creation_timestamp.map(|at| evidence.at.duration_since(at).as_secs()).unwrap_or(0);
    let containers = &pod.status.container_statuses;
    let waiting =
        pod.all_containers().find_map(|(status, _)| status.state.waiting.as_ref().map(|it| it.reason.as_str()));
    let what = match (pod.status.phase.as_str(), waiting) {
        ("Running", _) => {
            let ready = containers.iter().filter(|status| status.ready).count();
            format!("runs, but is not ready yet ({ready} of {} containers)", containers.len())
        }
        (_, Some(waiting)) if !waiting.is_empty() => format!("is starting ({waiting})"),
        ("" | "Pending", _) => "waits for a node".to_owned(),
        (phase, _) => format!("is {phase}"),
    };
    let text = format!("The {} {what}, {seconds} s after it was created.", pod.words());
    let advice = "Wait; images can take minutes to pull. If it stays so, kubectl describe pod shows the node's view.";
    Some(Cause::new("PodStarting", pod_object(pod), text, advice))
}

/// Clusters and Pods that may not be read, where nothing else tells what is missing.
pub(super) fn unreadable(evidence: &Evidence) -> Option<Cause> {
    let is_ready = |cluster: &Cluster| cluster.status.as_ref().is_some_and(|it| it.state.as_deref() == Some("ready"));
    let (what, it) = match (evidence.unread("get rayclusters"), evidence.unread("list pods")) {
        (Some(why), _) => ("its RayCluster", why),
        (None, Some(why)) if !evidence.clusters.iter().any(is_ready) => ("its Pods", why),
        _ => return None,
    };
    let who = subject_words(evidence);
    let text = format!("What {who} waits for cannot be determined, because {what} cannot be read");
    let advice = "Ask for the permissions that manta explain needs; docs/terminal.md lists them.";
    Some(Cause::new("Unreadable", who, sentence(&text, &format!("{}: {}", it.what, it.why)), advice))
}

/// Pods that have not been created yet.
pub(super) fn pods_missing(evidence: &Evidence) -> Option<Cause> {
    if evidence.unread("list pods").is_some() {
        return None;
    }
    let cluster = evidence.clusters.iter().find(|cluster| cluster.metadata.deletion_timestamp.is_none())?;
    let name = &cluster.metadata.name;
    let pods_of = |pod: &&Pod| pod.metadata.label("ray.io/cluster") == name && !pod.is_terminating();
    let has_head = evidence.pods.iter().filter(pods_of).any(Pod::is_head);
    let desired = cluster.status.as_ref().and_then(|status| status.desired_worker_replicas).unwrap_or(0);
    let workers = evidence.pods.iter().filter(pods_of).filter(|pod| pod.is_worker()).count();
    let (reason, what) = match has_head {
        false if cluster.status.is_none() => {
            ("ClusterStarting", format!("RayCluster {name} has just been created and has no Pods yet."))
        }
        false => ("HeadMissing", format!("RayCluster {name} has no head Pod; the operator has to create one.")),
        true if workers < usize::try_from(desired).unwrap_or(0) => (
            "WorkersMissing",
            format!("RayCluster {name} has {workers} of {desired} worker Pods; the operator has to create the others."),
        ),
        true => return None,
    };
    let advice =
        "Wait some seconds; if it stays so, check that the operator runs, and its log for errors about this object.";
    Some(Cause::new(reason, format!("RayCluster {name}"), what, advice))
}

pub(super) fn waiting_for_cluster(evidence: &Evidence) -> Option<Cause> {
    let status = evidence.job_status()?;
    let who = job_words(evidence);
    let state = status.job_deployment_status.as_deref().unwrap_or_default();
    let what = match state {
        "" | "New" => format!("{who} has just been created."),
        "Initializing" => {
            let cluster = status.ray_cluster_name.as_deref().unwrap_or_default();
            format!("{who} waits for its RayCluster {cluster} to become ready.")
        }
        "Running" => format!("{who} has been submitted, and its program has not started yet."),
        "Suspending" | "Suspended" => format!("{who} is suspended."),
        _ => return None,
    };
    Some(Cause::new("JobStarting", who, what, "Wait; the timeline below shows what has happened so far."))
}

/// The last warning about any of the objects.
pub(super) fn last_warning(evidence: &Evidence) -> Option<Cause> {
    let event = evidence.events.iter().rfind(|event| event.is_warning)?;
    let what = format!(
        "The last warning about {} is {} of {} {}",
        subject_words(evidence),
        event.reason,
        event.kind,
        event.name
    );
    let advice = "The timeline below shows what came before.";
    Some(Cause::new("Warning", format!("{} {}", event.kind, event.name), sentence(&what, &event.message), advice))
}

/// The state, when nothing explains it.
pub(super) fn last_known(evidence: &Evidence) -> Cause {
    let who = subject_words(evidence);
    let state = super::super::timeline::state(evidence);
    let state = if state.is_empty() { "has no status".to_owned() } else { format!("is {state}") };
    let what = format!("{who} {state}, and nothing that could be read says more.");
    let advice = "Look at the operator's log, and at the sources below that could not be read.";
    Cause::new("NothingRecorded", who, what, advice)
}
