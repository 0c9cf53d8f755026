//! Keeps the number of pods of one ReplicaSet or ReplicationController.

use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::super::adoption::claim;
use super::super::{BURST, has_condition, int, is_scheduled, owner_reference, record};
use super::{Incomplete, Outcome, SetKind, set_condition, write_status};
use crate::clock::add_seconds;
use crate::ops::{Cluster, DeleteOptions, Target, WriteOptions};
use crate::registry::Resource;
use crate::store::ObjectKey;

const DELETION_COST: &str = "controller.kubernetes.io/pod-deletion-cost";

/// Reconciles one set.
pub(super) fn sync(cluster: &Cluster, kind: SetKind, key: &ObjectKey) -> Outcome {
    let resource = kind.resource(cluster);
    let target = Target { resource: &resource, namespace: &key.namespace, name: &key.name };
    let Ok(entry) = cluster.get(target) else { return Ok(None) };
    let set = entry.value();
    let pods = cluster.registry.builtin("", "pods");
    let mut owned = claim(cluster, &pods, &set, &kind.rules_of(&set), |_, _| ());
    owned.retain(|pod| !pod["metadata"]["deletionTimestamp"].is_string() && is_unfinished(pod));
    let mut failure = None;
    if !entry.deleting {
        failure = create_missing(cluster, kind, &set, &pods, &mut owned);
        delete_surplus(cluster, kind, &set, &pods, &mut owned);
    }
    let now = cluster.clock.now();
    let (status, wake) = status_of(&set, &owned, failure.as_deref(), &cluster.clock.stamp(), now);
    write_status(cluster, target, &set, status);
    if failure.is_some() { Err(Incomplete(wake)) } else { Ok(wake) }
}

fn wanted(set: &Value) -> usize {
    usize::try_from(set["spec"]["replicas"].as_i64().unwrap_or(1)).unwrap_or(0)
}

/// Creates the pods that are missing; returns why it could not.
fn create_missing(
    cluster: &Cluster,
    kind: SetKind,
    set: &Value,
    pods: &Arc<Resource>,
    owned: &mut Vec<Value>,
) -> Option<String> {
    let namespace = set["metadata"]["namespace"].as_str().unwrap_or("");
    let name = set["metadata"]["name"].as_str().unwrap_or("");
    let unscheduled = owned.iter().filter(|pod| !is_scheduled(pod)).count();
    let most = owned.len().saturating_add(BURST.saturating_sub(unscheduled));
    let template = &set["spec"]["template"];
    for _ in owned.len()..wanted(set).min(most) {
        let mut pod = json!({"metadata": template["metadata"], "spec": template["spec"]});
        pod["metadata"]["generateName"] = format!("{name}-").into();
        pod["metadata"]["ownerReferences"] = json!([owner_reference(set)]);
        match cluster.create(pods, namespace, pod, &WriteOptions::default()) {
            Ok(written) => {
                let message = format!("Created pod: {}", written.entry.key.name);
                record(cluster, set, kind.component, "Normal", "SuccessfulCreate", &message);
                owned.push(written.entry.value());
            }
            Err(error) => {
                let message = format!("Error creating: {error}");
                record(cluster, set, kind.component, "Warning", "FailedCreate", &message);
                return Some(error.to_string());
            }
        }
    }
    None
}

fn delete_surplus(cluster: &Cluster, kind: SetKind, set: &Value, pods: &Arc<Resource>, owned: &mut Vec<Value>) {
    let namespace = set["metadata"]["namespace"].as_str().unwrap_or("");
    if owned.len() <= wanted(set) {
        return;
    }
    owned.sort_by_key(|pod| std::cmp::Reverse(value_of(pod)));
    for pod in owned.split_off(wanted(set)) {
        let name = pod["metadata"]["name"].as_str().unwrap_or("");
        if cluster.delete(Target { resource: pods, namespace, name }, &DeleteOptions::default()).is_ok() {
            let message = format!("Deleted pod: {name}");
            record(cluster, set, kind.component, "Normal", "SuccessfulDelete", &message);
        }
    }
}

/// Ranks pods by how much would be lost with them: those that serve nobody yet go first, then the youngest.
fn value_of(pod: &Value) -> (bool, u8, bool, i64, std::cmp::Reverse<String>) {
    let phase = match pod["status"]["phase"].as_str() {
        Some("Running") => 2,
        Some("Unknown") => 1,
        _ => 0,
    };
    let cost = pod["metadata"]["annotations"][DELETION_COST].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    let since = pod["metadata"]["creationTimestamp"].as_str().unwrap_or("").to_owned();
    (is_scheduled(pod), phase, has_condition(pod, "Ready"), cost, std::cmp::Reverse(since))
}

/// Returns the status of a set, and when a pod that is ready becomes available.
fn status_of(
    set: &Value,
    pods: &[Value],
    failure: Option<&str>,
    stamp: &str,
    now: Timestamp,
) -> (Value, Option<Timestamp>) {
    let settle = int(&set["spec"]["minReadySeconds"]);
    let ready: Vec<&Value> = pods.iter().filter(|pod| has_condition(pod, "Ready")).collect();
    let available_at = |pod: &Value| ready_since(pod).map_or(now, |since| add_seconds(since, settle));
    let waiting: Vec<Timestamp> =
        ready.iter().map(|pod| available_at(pod)).filter(|at| settle > 0 && *at > now).collect();
    let labels = set["spec"]["template"]["metadata"]["labels"].as_object();
    let is_labelled = |pod: &&Value| {
        labels.into_iter().flatten().all(|(key, value)| pod["metadata"]["labels"][key.as_str()] == *value)
    };
    let labelled = pods.iter().filter(is_labelled).count();
    let mut status = json!({"replicas": pods.len(), "observedGeneration": set["metadata"]["generation"]});
    let numbers = [
        ("fullyLabeledReplicas", labelled),
        ("readyReplicas", ready.len()),
        ("availableReplicas", ready.len() - waiting.len()),
    ];
    for (name, number) in numbers {
        if number > 0 {
            status[name] = number.into();
        }
    }
    let mut conditions = set["status"]["conditions"].as_array().cloned().unwrap_or_default();
    match failure {
        Some(why) => set_condition(&mut conditions, "ReplicaFailure", "True", "FailedCreate", why, stamp, false),
        None => conditions.retain(|one| one["type"] != "ReplicaFailure"),
    }
    if !conditions.is_empty() {
        status["conditions"] = conditions.into();
    }
    (status, waiting.into_iter().min())
}

fn ready_since(pod: &Value) -> Option<Timestamp> {
    let conditions = pod["status"]["conditions"].as_array()?;
    conditions.iter().find(|one| one["type"] == "Ready")?["lastTransitionTime"].as_str()?.parse().ok()
}

pub(super) fn is_unfinished(pod: &Value) -> bool {
    !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pod_is_available_once_it_has_been_ready_long_enough() {
        let set = json!({"metadata": {"generation": 1}, "spec": {"minReadySeconds": 10, "template": {}}});
        let pod = json!({"status": {"conditions": [
            {"type": "Ready", "status": "True", "lastTransitionTime": "1970-01-01T00:01:40Z"}]}});
        let at = |second: i64| Timestamp::from_second(second).expect("in range");
        let (status, wake) = status_of(&set, std::slice::from_ref(&pod), None, "", at(105));
        assert_eq!((&status["readyReplicas"], &status["availableReplicas"]), (&json!(1), &Value::Null));
        assert_eq!(wake, Some(at(110)));
        let (status, wake) = status_of(&set, &[pod], None, "", at(110));
        assert_eq!((&status["availableReplicas"], wake), (&json!(1), None));
    }

    #[test]
    fn pods_that_serve_nobody_go_first() {
        let pod = |node: &str, ready: &str, cost: &str| {
            json!({"metadata": {"annotations": {DELETION_COST: cost}}, "spec": {"nodeName": node},
                "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": ready}]}})
        };
        let order = [pod("", "False", "9"), pod("n", "False", "9"), pod("n", "True", "1"), pod("n", "True", "2")];
        assert!(order.windows(2).all(|pair| value_of(&pair[0]) < value_of(&pair[1])));
    }
}
