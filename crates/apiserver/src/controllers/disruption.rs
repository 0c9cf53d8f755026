//! Keeps the status of disruption budgets: how many of the selected pods may be evicted now.

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Map, Value, json};

use super::schedule::Schedule;
use super::{Informer, Worker, controller_of, has_condition, int};
use crate::clock::{add_seconds, seconds};
use crate::ops::{Cluster, Target, WriteOptions};
use crate::selector::{LabelRule, labels_match};
use crate::store::{Entry, ListRange, ObjectKey};

const TABLE: &str = "poddisruptionbudgets.policy";
/// How long an evicted pod counts as gone before its deletion is seen.
const DELETION_SECONDS: i64 = 120;

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker) {
    let mut budgets = Informer::new(&cluster, TABLE);
    let mut pods = Informer::new(&cluster, "pods");
    let mut schedule = Schedule::default();
    loop {
        let mut due: BTreeSet<ObjectKey> = BTreeSet::new();
        tokio::select! {
            biased;
            events = budgets.next() => due.extend(events.iter().map(|event| ObjectKey::clone(&event.entry.key))),
            events = pods.next() => {
                if cluster.store.count(TABLE) > 0 {
                    due.extend(events.iter().flat_map(|event| budgets_of(&cluster, &event.entry)));
                }
            }
            () = schedule.wait(&cluster.clock) => {}
        }
        due.extend(schedule.take_due(cluster.clock.now()));
        for key in due {
            let wake = worker.handle(TABLE, &key, || sync(&cluster, &key));
            schedule.set(&key, wake.flatten());
        }
    }
}

/// Returns the budgets that select a pod.
fn budgets_of(cluster: &Cluster, pod: &Entry) -> Vec<ObjectKey> {
    let range = ListRange { namespace: Some(&pod.key.namespace), ..ListRange::default() };
    let selects = |budget: &Entry| labels_match(&LabelRule::from_object(&budget.value()["spec"]["selector"]), pod);
    let found = cluster.store.list(TABLE, &range, selects).map(|page| page.entries).unwrap_or_default();
    found.iter().map(|budget| ObjectKey::clone(&budget.key)).collect()
}

/// Counts the pods of a budget; returns when to count them again.
fn sync(cluster: &Cluster, key: &ObjectKey) -> Option<Timestamp> {
    let entry = cluster.store.get(TABLE, key)?;
    let budget = entry.value();
    let rules = LabelRule::from_object(&budget["spec"]["selector"]);
    let range = ListRange { namespace: Some(&key.namespace), ..ListRange::default() };
    let found = cluster.store.list("pods", &range, |pod| labels_match(&rules, pod));
    let pods: Vec<Value> = match budget["spec"]["selector"].is_null() {
        true => Vec::new(),
        false => found.map(|page| page.entries).unwrap_or_default().iter().map(|pod| pod.value()).collect(),
    };
    let pods: Vec<&Value> =
        pods.iter().filter(|pod| !matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))).collect();
    let (status, wake) = status_of(&budget, &pods, expected(cluster, &key.namespace, &pods), cluster.clock.now());
    if budget["status"] == status {
        return wake;
    }
    let resource = cluster.registry.builtin("policy", "poddisruptionbudgets");
    let target = Target { resource: &resource, namespace: &key.namespace, name: &key.name };
    let written = cluster.modify(target, Some("status"), &WriteOptions::default(), |old| {
        let mut new = old.clone();
        // An eviction since then has taken a disruption that this status would give back: its write is an event.
        if old["status"] == budget["status"] {
            new["status"] = status.clone();
        }
        Ok(new)
    });
    if let Err(error) = written {
        tracing::debug!(%error, name = &*key.name, "cannot write the status of a disruption budget");
    }
    wake
}

/// Returns the evicted pods that are still to go, with when they were evicted, and when the first is given up on.
fn disrupted(budget: &Value, pods: &[&Value], now: Timestamp) -> (Map<String, Value>, Option<Timestamp>) {
    let mut kept = Map::new();
    let mut wake: Option<Timestamp> = None;
    for (name, since) in budget["status"]["disruptedPods"].as_object().into_iter().flatten() {
        let pod = pods.iter().find(|pod| pod["metadata"]["name"] == name.as_str());
        let until = since.as_str().and_then(|text| text.parse().ok()).map(|at| add_seconds(at, DELETION_SECONDS));
        let until = until.filter(|until| *until > now);
        if let Some(until) = until.filter(|_| pod.is_some_and(|pod| !is_terminating(pod))) {
            kept.insert(name.clone(), since.clone());
            wake = Some(wake.map_or(until, |wake| wake.min(until)));
        }
    }
    (kept, wake)
}

fn is_terminating(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

/// Returns how many pods there should be: what their controllers want, and one for each pod without one.
fn expected(cluster: &Cluster, namespace: &str, pods: &[&Value]) -> i64 {
    let now = cluster.registry.now();
    let mut seen = BTreeSet::new();
    let mut total = 0;
    for pod in pods {
        let Some(owner) = controller_of(pod) else {
            total += 1;
            continue;
        };
        if !seen.insert(owner["uid"].to_string()) {
            continue;
        }
        let text = |key: &str| owner[key].as_str().unwrap_or("");
        let found = now.find_kind(text("apiVersion"), text("kind"));
        let found = found.and_then(|kind| cluster.store.get(&kind.table, &ObjectKey::new(namespace, text("name"))));
        total += found.and_then(|owner| owner.value()["spec"]["replicas"].as_i64()).unwrap_or(1);
    }
    total
}

/// Resolves a number or a percentage, rounded up.
fn share(value: &Value, total: i64) -> i64 {
    match value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse::<i64>().ok()) {
        Some(percent) => total.saturating_mul(percent).saturating_add(99) / 100,
        None => int(value),
    }
}

/// Returns the status of a budget, and when to look again.
fn status_of(budget: &Value, pods: &[&Value], expected: i64, now: Timestamp) -> (Value, Option<Timestamp>) {
    let spec = &budget["spec"];
    let total =
        if spec["minAvailable"].is_i64() || spec["minAvailable"].is_u64() { pods.len() as i64 } else { expected };
    let desired = match spec["maxUnavailable"].is_null() {
        true => share(&spec["minAvailable"], total),
        false => (total - share(&spec["maxUnavailable"], total)).max(0),
    };
    let (disrupted, wake) = disrupted(budget, pods, now);
    let is_healthy = |pod: &&&Value| {
        let name = pod["metadata"]["name"].as_str().unwrap_or("");
        has_condition(pod, "Ready") && !is_terminating(pod) && !disrupted.contains_key(name)
    };
    let healthy = pods.iter().filter(is_healthy).count() as i64;
    let allowed = if total > 0 { (healthy - desired).max(0) } else { 0 };
    let generation = &budget["metadata"]["generation"];
    let (value, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let known = budget["status"]["conditions"].as_array().cloned().unwrap_or_default();
    let before = known.iter().find(|one| one["type"] == "DisruptionAllowed" && one["status"] == value);
    let since = before.map_or_else(|| seconds(now).into(), |one| one["lastTransitionTime"].clone());
    let mut conditions: Vec<Value> = known.into_iter().filter(|one| one["type"] != "DisruptionAllowed").collect();
    conditions.push(json!({"type": "DisruptionAllowed", "status": value, "reason": reason, "message": "",
        "observedGeneration": generation, "lastTransitionTime": since}));
    let mut status = json!({"observedGeneration": generation, "currentHealthy": healthy, "desiredHealthy": desired,
        "expectedPods": total, "disruptionsAllowed": allowed, "conditions": conditions});
    if !disrupted.is_empty() {
        status["disruptedPods"] = disrupted.into();
    }
    (status, wake)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn budgets_leave_enough_pods() {
        let ready = json!({"status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let check = |spec: Value, pods: usize, expected: i64, allowed: i64| {
            let pods = vec![&ready; pods];
            let (status, _) = status_of(&json!({"spec": spec}), &pods, expected, Timestamp::UNIX_EPOCH);
            assert_eq!(status["disruptionsAllowed"], allowed, "{spec}");
        };
        check(json!({"minAvailable": 1}), 2, 2, 1);
        check(json!({"minAvailable": 1}), 1, 1, 0);
        check(json!({"minAvailable": "50%"}), 3, 3, 1);
        check(json!({"maxUnavailable": 1}), 3, 3, 1);
        check(json!({"maxUnavailable": 1}), 2, 3, 0);
        check(json!({"maxUnavailable": 1}), 0, 0, 0);
    }

    #[test]
    fn an_evicted_pod_counts_as_gone_for_two_minutes() {
        let pod = |name: &str| json!({"metadata": {"name": name}, "status": {"conditions": [{"type": "Ready", "status": "True"}]}});
        let pods = [pod("a"), pod("b"), pod("c")];
        let pods: Vec<&Value> = pods.iter().collect();
        let budget = json!({"spec": {"minAvailable": 1}, "status": {"disruptedPods":
            {"a": "1970-01-01T00:00:10Z", "gone": "1970-01-01T00:00:10Z"}}});
        let at = |second| Timestamp::from_second(second).expect("in range");
        let (status, wake) = status_of(&budget, &pods, 3, at(20));
        assert_eq!((&status["disruptionsAllowed"], wake), (&json!(1), Some(at(130))));
        assert_eq!(status["disruptedPods"], json!({"a": "1970-01-01T00:00:10Z"}));
        let (status, wake) = status_of(&budget, &pods, 3, at(130));
        assert_eq!((&status["disruptionsAllowed"], &status["disruptedPods"], wake), (&json!(2), &Value::Null, None));
    }
}
