//! ReplicaSets, ReplicationControllers and Deployments.
//!
//! A ReplicaSet or ReplicationController keeps its number of pods (`set.rs`). A Deployment keeps one ReplicaSet per
//! template and moves pods between them within the bounds of its strategy (`deployment.rs`); how many each of them gets
//! is decided in `rollout.rs`, which is pure.

mod deployment;
mod rollout;
mod set;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::schedule::Schedule;
use super::{Informer, Worker, controller_of};
use crate::ops::{Cluster, Target};
use crate::registry::Resource;
use crate::selector::{LabelRule, labels_match};
use crate::store::{Change, Entry, Event, ListRange, ObjectKey};

/// Not everything could be done; the object is due at the given time, or after a delay.
struct Incomplete(Option<Timestamp>);

type Outcome = Result<Option<Timestamp>, Incomplete>;

/// A kind that keeps a number of pods.
#[derive(Clone, Copy)]
struct SetKind {
    group: &'static str,
    api_version: &'static str,
    kind: &'static str,
    plural: &'static str,
    table: &'static str,
    component: &'static str,
}

const REPLICA_SETS: SetKind = SetKind {
    group: "apps",
    api_version: "apps/v1",
    kind: "ReplicaSet",
    plural: "replicasets",
    table: "replicasets.apps",
    component: "replicaset-controller",
};

const REPLICATION_CONTROLLERS: SetKind = SetKind {
    group: "",
    api_version: "v1",
    kind: "ReplicationController",
    plural: "replicationcontrollers",
    table: "replicationcontrollers",
    component: "replication-controller",
};

impl SetKind {
    fn resource(&self, cluster: &Cluster) -> Arc<Resource> {
        cluster.registry.builtin(self.group, self.plural)
    }

    /// Returns the rules of an object's selector; that of a ReplicationController is a plain map.
    fn rules_of(&self, object: &Value) -> Vec<LabelRule> {
        match self.kind {
            "ReplicationController" => LabelRule::from_map(&object["spec"]["selector"]),
            _ => LabelRule::from_object(&object["spec"]["selector"]),
        }
    }
}

/// Keeps the pods of ReplicaSets.
pub(super) async fn run_sets(cluster: Arc<Cluster>, worker: Worker) {
    follow_sets(cluster, worker, REPLICA_SETS).await;
}

/// Keeps the pods of ReplicationControllers.
pub(super) async fn run_controllers(cluster: Arc<Cluster>, worker: Worker) {
    follow_sets(cluster, worker, REPLICATION_CONTROLLERS).await;
}

async fn follow_sets(cluster: Arc<Cluster>, mut worker: Worker, kind: SetKind) {
    let mut sets = Informer::new(&cluster, kind.table);
    let mut pods = Informer::new(&cluster, "pods");
    let mut schedule = Schedule::default();
    loop {
        let mut due: BTreeSet<ObjectKey> = BTreeSet::new();
        tokio::select! {
            biased;
            events = sets.next() => due.extend(events.iter().map(|event| ObjectKey::clone(&event.entry.key))),
            events = pods.next() => due.extend(events.iter().flat_map(|event| sets_of(&cluster, kind, event))),
            () = schedule.wait(&cluster.clock) => {}
        }
        due.extend(schedule.take_due(cluster.clock.now()));
        for key in due {
            let outcome = worker.handle(kind.table, &key, || set::sync(&cluster, kind, &key));
            apply(outcome, &key, &mut schedule, &cluster);
        }
    }
}

fn apply(outcome: Option<Outcome>, key: &ObjectKey, schedule: &mut Schedule, cluster: &Cluster) {
    match outcome {
        Some(Ok(wake)) => {
            schedule.succeeded(key);
            schedule.set(key, wake);
        }
        Some(Err(Incomplete(wake))) => {
            schedule.set(key, wake);
            schedule.retry(key, cluster.clock.now());
        }
        None => {}
    }
}

/// Returns the sets that an event of a pod concerns: its controller, the one before, and for orphans those that match.
fn sets_of(cluster: &Cluster, kind: SetKind, event: &Arc<Event>) -> Vec<ObjectKey> {
    if cluster.store.count(kind.table) == 0 {
        return Vec::new();
    }
    let namespace = &event.entry.key.namespace;
    let mut found: Vec<ObjectKey> = [Some(&event.entry), event.before.as_ref()]
        .into_iter()
        .flatten()
        .filter_map(|entry| owner(entry, kind))
        .collect();
    found.dedup();
    if event.entry.owners.is_empty() && event.change != Change::Deleted && !event.entry.labels.is_empty() {
        let range = ListRange { namespace: Some(namespace), ..ListRange::default() };
        let matches = |set: &Entry| {
            let rules = kind.rules_of(&set.shared_value());
            !rules.is_empty() && labels_match(&rules, &event.entry)
        };
        let adopters = cluster.store.list(kind.table, &range, matches);
        let adopters = adopters.map(|page| page.entries).unwrap_or_default();
        found.extend(adopters.iter().map(|set| ObjectKey::clone(&set.key)));
    }
    found
}

/// Returns the controller of an object, if it is of a kind.
fn owner(entry: &Entry, kind: SetKind) -> Option<ObjectKey> {
    // Pods of Jobs have owners, too, and need not be parsed.
    if entry.owners.is_empty() || entry.label("batch.kubernetes.io/job-name").is_some() {
        return None;
    }
    let value = entry.shared_value();
    let owner = controller_of(&value)?;
    let ours = owner["kind"] == kind.kind && owner["apiVersion"] == kind.api_version;
    ours.then(|| ObjectKey {
        namespace: entry.key.namespace.clone(),
        name: owner["name"].as_str().unwrap_or("").into(),
    })
}

/// Keeps the ReplicaSets of Deployments.
pub(super) async fn run_deployments(cluster: Arc<Cluster>, mut worker: Worker) {
    let mut deployments = Informer::new(&cluster, "deployments.apps");
    let mut sets = Informer::new(&cluster, "replicasets.apps");
    let mut pods = Informer::new(&cluster, "pods");
    let mut schedule = Schedule::default();
    loop {
        let mut due: BTreeSet<ObjectKey> = BTreeSet::new();
        tokio::select! {
            biased;
            events = deployments.next() => due.extend(events.iter().map(|event| ObjectKey::clone(&event.entry.key))),
            events = sets.next() => due.extend(events.iter().flat_map(|event| deployment::deployments_of(&cluster, event))),
            // Recreate waits until the last of the old pods is gone.
            events = pods.next() => {
                let gone = events.iter().filter(|event| event.change == Change::Deleted);
                let sets = gone.filter_map(|event| owner(&event.entry, REPLICA_SETS));
                due.extend(sets.filter_map(|set| deployment::deployment_of(&cluster, &set)));
            }
            () = schedule.wait(&cluster.clock) => {}
        }
        due.extend(schedule.take_due(cluster.clock.now()));
        for key in due {
            let outcome = worker.handle("deployments.apps", &key, || deployment::sync(&cluster, &key));
            apply(outcome, &key, &mut schedule, &cluster);
        }
    }
}

/// Writes a status if it differs from the one that was seen.
fn write_status(cluster: &Cluster, target: Target<'_>, seen: &Value, status: Value) {
    if seen["status"] == status {
        return;
    }
    if let Err(error) = cluster.edit_status(target, |value| value["status"] = status.clone()) {
        tracing::debug!(%error, name = target.name, "cannot write a status");
    }
}

/// Sets a condition in a list, keeping the time of its last transition if its status stays.
fn set_condition(
    conditions: &mut Vec<Value>,
    kind: &str,
    value: &str,
    reason: &str,
    message: &str,
    now: &str,
    dated: bool,
) {
    let known = conditions.iter_mut().find(|one| one["type"] == kind);
    let steady = known.as_ref().is_some_and(|one| one["status"] == value);
    if steady && known.as_ref().is_some_and(|one| one["reason"] == reason && one["message"] == message) {
        return;
    }
    let since = known.as_ref().filter(|_| steady).map_or_else(|| now.into(), |one| one["lastTransitionTime"].clone());
    let mut condition =
        json!({"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": since});
    if dated {
        condition["lastUpdateTime"] = now.into();
    }
    match known {
        Some(known) => *known = condition,
        None => conditions.push(condition),
    }
}
