//! Deletes pods from a node with `NoExecute` taints that they do not tolerate, or tolerate only for a while.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{Informer, Worker, record};
use crate::clock::add_seconds;
use crate::ops::{Cluster, DeleteOptions, Target};
use crate::store::{Change, ListRange, ObjectKey};

/// The longest sleep, so that a clock that is set forward is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);

/// When a pod has to go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stay {
    Forever,
    /// For some seconds since the taint was seen.
    Seconds(i64),
}

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker) {
    let mut nodes = Informer::new(&cluster, "nodes");
    let mut pods = Informer::new(&cluster, "pods");
    let mut taints: HashMap<Box<str>, Vec<Value>> = HashMap::new();
    let mut due: HashMap<ObjectKey, Timestamp> = HashMap::new();
    loop {
        let now = cluster.clock.now();
        let next = due.values().min().map(|at| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO));
        let mut changed: BTreeSet<ObjectKey> = BTreeSet::new();
        tokio::select! {
            biased;
            events = nodes.next() => {
                for event in events {
                    let name = event.entry.key.name.clone();
                    let found = if event.change == Change::Deleted { Vec::new() } else { evicting(&event.entry.value()) };
                    let before = if found.is_empty() { taints.remove(&name) } else { taints.insert(name.clone(), found.clone()) };
                    if before.unwrap_or_default() != found {
                        changed.extend(pods_on(&cluster, &name));
                    }
                }
            }
            events = pods.next(), if !taints.is_empty() || !due.is_empty() => {
                changed.extend(events.iter().map(|event| ObjectKey::clone(&event.entry.key)));
            }
            () = tokio::time::sleep(next.unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP)) => {}
        }
        let now = cluster.clock.now();
        for key in changed {
            let pod = cluster.store.get("pods", &key).map(|entry| entry.value()).filter(is_there);
            let on = pod.as_ref().and_then(|pod| taints.get(pod["spec"]["nodeName"].as_str().unwrap_or("")));
            match (pod.as_ref(), on) {
                (Some(pod), Some(taints)) => match stay(pod, taints) {
                    Stay::Forever => drop(due.remove(&key)),
                    // The time runs from the first time that the taint is seen.
                    Stay::Seconds(seconds) => drop(due.entry(key).or_insert_with(|| add_seconds(now, seconds))),
                },
                _ => drop(due.remove(&key)),
            }
        }
        let expired: Vec<ObjectKey> = due.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in expired {
            due.remove(&key);
            worker.handle("pods", &key, || evict(&cluster, &key));
        }
    }
}

/// Returns the taints of a node that end pods.
fn evicting(node: &Value) -> Vec<Value> {
    let taints = node["spec"]["taints"].as_array().into_iter().flatten();
    taints.filter(|taint| taint["effect"] == "NoExecute").cloned().collect()
}

fn is_there(pod: &Value) -> bool {
    !pod["metadata"]["deletionTimestamp"].is_string()
        && !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn pods_on(cluster: &Cluster, node: &str) -> Vec<ObjectKey> {
    let found = cluster.store.list("pods", &ListRange::default(), |pod| pod.value()["spec"]["nodeName"] == node);
    found.map(|page| page.entries).unwrap_or_default().iter().map(|entry| ObjectKey::clone(&entry.key)).collect()
}

/// Decides how long a pod may stay with these taints: as long as its shortest toleration of them says.
fn stay(pod: &Value, taints: &[Value]) -> Stay {
    let tolerations: Vec<&Value> = pod["spec"]["tolerations"].as_array().into_iter().flatten().collect();
    let mut shortest = Stay::Forever;
    for taint in taints {
        let mut used = tolerations.iter().filter(|toleration| tolerates(toleration, taint)).peekable();
        if used.peek().is_none() {
            return Stay::Seconds(0);
        }
        for seconds in used.filter_map(|toleration| toleration["tolerationSeconds"].as_i64()) {
            shortest = match shortest {
                Stay::Forever => Stay::Seconds(seconds.max(0)),
                Stay::Seconds(known) => Stay::Seconds(known.min(seconds.max(0))),
            };
        }
    }
    shortest
}

/// Whether a toleration covers a taint.
fn tolerates(toleration: &Value, taint: &Value) -> bool {
    let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
    let (key, effect) = (text(&toleration["key"]), text(&toleration["effect"]));
    (effect.is_empty() || effect == taint["effect"])
        && (key.is_empty() || key == taint["key"])
        && (toleration["operator"] == "Exists"
            || (!key.is_empty() && text(&toleration["value"]) == text(&taint["value"])))
}

fn evict(cluster: &Cluster, key: &ObjectKey) {
    let pods = cluster.registry.builtin("", "pods");
    let target = Target { resource: &pods, namespace: &key.namespace, name: &key.name };
    let Ok(pod) = cluster.get(target).map(|entry| entry.value()) else { return };
    let component = "taint-eviction-controller";
    let shown = format!("Marking for deletion Pod {}/{}", key.namespace, key.name);
    record(cluster, &pod, component, "Normal", "TaintManagerEviction", &shown);
    let condition = json!({"type": "DisruptionTarget", "status": "True", "reason": "DeletionByTaintManager",
        "message": "Taint manager: deleting due to NoExecute taint", "lastTransitionTime": cluster.clock.stamp()});
    let marked = cluster.edit_status(target, |pod| {
        let conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let others = conditions.into_iter().filter(|one| one["type"] != "DisruptionTarget");
        pod["status"]["conditions"] = others.chain([condition.clone()]).collect();
    });
    if let Err(error) = marked.map(drop).and_then(|()| cluster.delete(target, &DeleteOptions::default()).map(drop)) {
        tracing::debug!(%error, "cannot evict a pod from a tainted node");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_stay_as_long_as_they_tolerate_the_taints() {
        let check = |tolerations: Value, expect: Stay| {
            let pod = json!({"spec": {"tolerations": tolerations}});
            let taints = [json!({"key": "k", "value": "v", "effect": "NoExecute"})];
            assert_eq!(stay(&pod, &taints), expect, "{tolerations}");
        };
        check(json!([]), Stay::Seconds(0));
        check(json!([{"key": "k", "operator": "Exists"}]), Stay::Forever);
        check(json!([{"key": "k", "value": "v", "effect": "NoExecute", "tolerationSeconds": 5}]), Stay::Seconds(5));
        check(json!([{"key": "k", "value": "x"}]), Stay::Seconds(0));
        check(json!([{"operator": "Exists", "effect": "NoSchedule"}]), Stay::Seconds(0));
        check(json!([{"operator": "Exists"}, {"key": "k", "value": "v", "tolerationSeconds": 7}]), Stay::Seconds(7));
    }

    #[test]
    fn only_no_execute_evicts() {
        let node =
            json!({"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}, {"key": "b", "effect": "NoExecute"}]}});
        assert_eq!(evicting(&node), [json!({"key": "b", "effect": "NoExecute"})]);
    }
}
