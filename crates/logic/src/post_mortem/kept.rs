//! Which records tell about an object, and what they add to what is known about it.

use super::{Occasion, Record, Summary};
use crate::explain::evidence::Replaced;
use crate::explain::{Evidence, Subject, explain};

/// What is kept about one object: by default the records, or with another type what identifies them.
#[derive(Clone, Debug, PartialEq)]
pub struct Kept<T = Record> {
    /// The record of its end; for a RayCluster perhaps that of the object that it belonged to.
    pub end: Option<T>,
    /// Those of Pods that failed and were replaced, the oldest first.
    pub failures: Vec<T>,
}

impl<T> Default for Kept<T> {
    fn default() -> Self {
        Self { end: None, failures: Vec::new() }
    }
}

/// Returns the records of a namespace, sorted from the newest to the oldest, that tell about an object.
///
/// The subject has a UID if it exists; of one that is gone, the newest of its name is meant. `clusters` are the RayClusters
/// that it is known to use.
pub fn kept_about(sorted: &[Summary], subject: &Subject, clusters: &[String]) -> Kept<Summary> {
    let is_named = |summary: &&Summary| summary.kind == subject.kind && summary.name == subject.name;
    let newest = sorted.iter().find(is_named).map(|summary| summary.uid.as_str());
    let uid = if subject.uid.is_empty() { newest.unwrap_or_default() } else { &subject.uid };
    let is_own = |summary: &&Summary| is_named(summary) && summary.uid == uid;
    let is_failure = |summary: &&Summary| summary.occasion == Occasion::PodFailed.name();
    let is_owner = |summary: &&Summary| {
        subject.kind == "RayCluster" && summary.kind != "RayCluster" && summary.cluster == subject.name
    };
    let mut own = sorted.iter().filter(is_own);
    let end = own.find(|summary| !is_failure(summary)).or_else(|| sorted.iter().find(is_owner));
    let used = |name: &String| clusters.contains(name) || end.is_some_and(|end| end.cluster == *name);
    let is_of_cluster =
        |summary: &&Summary| subject.kind != "RayCluster" && summary.kind == "RayCluster" && used(&summary.name);
    let failures = sorted.iter().filter(is_failure).filter(|summary| is_own(summary) || is_of_cluster(summary));
    let mut failures: Vec<Summary> = failures.rev().cloned().collect();
    // Of an object that went without a record of its own, the last failure is all that is left.
    let end = end.cloned().or_else(|| if subject.uid.is_empty() { failures.pop() } else { None });
    Kept { end, failures }
}

impl Kept {
    /// Returns all that is known about an object from what exists and what was kept; nothing if there is neither.
    pub fn complete(&self, live: Option<Evidence>) -> Option<Evidence> {
        let evidence = match (live, &self.end) {
            (Some(live), Some(end)) if !live.has_ray_pods() => complete(live, end),
            (Some(live), _) => live,
            (None, end) => end.as_ref()?.evidence.clone(),
        };
        Some(self.failures.iter().fold(evidence, with_failure))
    }
}

/// Returns the evidence about an object that exists, with what it has lost since its record was written.
fn complete(mut live: Evidence, record: &Record) -> Evidence {
    let kept = &record.evidence;
    if live.subject.uid != kept.subject.uid {
        return live;
    }
    let is_live = |name: &str| live.pods.iter().any(|pod| pod.metadata.name == name);
    let lost: Vec<_> = kept.pods.iter().filter(|pod| !is_live(&pod.metadata.name)).cloned().collect();
    live.pods.extend(lost);
    live.pods.sort_by(|a, b| a.metadata.name.cmp(&b.metadata.name));
    add_story(&mut live, kept, |_| true);
    if live.clusters.is_empty() {
        live.clusters.clone_from(&kept.clusters);
    }
    if live.ray == Default::default() {
        live.ray = kept.ray.clone();
    }
    live
}

/// Returns the evidence with a Pod that failed and was replaced.
fn with_failure(mut evidence: Evidence, record: &Record) -> Evidence {
    let kept = &record.evidence;
    let cause = explain(kept).cause;
    let Some(name) = cause.object.strip_prefix("Pod ") else { return evidence };
    let is_there = evidence.pods.iter().any(|pod| pod.metadata.name == name);
    if cause.is_well || is_there || kept.at > evidence.at {
        return evidence;
    }
    let is_head = kept.pods.iter().any(|pod| pod.metadata.name == name && pod.is_head());
    add_story(&mut evidence, kept, |pod| pod == name);
    evidence.replaced.push(Replaced { at: kept.at, is_head, cause });
    evidence
}

/// Adds the events that are not known yet, and the logs of these Pods.
fn add_story(evidence: &mut Evidence, kept: &Evidence, is_wanted: impl Fn(&str) -> bool) {
    let is_known = |log: &crate::explain::Log| {
        evidence.logs.iter().any(|it| {
            (it.source, &it.pod, &it.name, it.is_previous) == (log.source, &log.pod, &log.name, log.is_previous)
        })
    };
    let logs: Vec<_> = kept.logs.iter().filter(|log| is_wanted(&log.pod) && !is_known(log)).cloned().collect();
    evidence.logs.extend(logs);
    let events: Vec<_> = kept.events.iter().filter(|event| !evidence.events.contains(event)).cloned().collect();
    evidence.events.extend(events);
    evidence.events.sort_by_key(|event| event.last);
}
