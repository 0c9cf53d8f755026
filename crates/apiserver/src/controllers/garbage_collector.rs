//! Garbage collection: deletes objects whose owners are all gone.
//!
//! | how the owner was deleted | what happens |
//! |---|---|
//! | Background | the owner goes at once, dependents are deleted after it |
//! | Foreground | the owner waits for the dependents that block it |
//! | Orphan | dependents lose the reference, then the owner goes |
//!
//! One task per table reads that table's history, so kinds do not slow each other down.

use std::collections::HashSet;
use std::sync::Arc;

use serde_json::Value;
use tokio::task::JoinSet;

use super::{Informer, Worker, has_finalizer, remove_finalizer, supervise};
use crate::error::ApiError;
use crate::ops::{Cluster, DeleteOptions, Propagation, Target};
use crate::store::{Change, Entry, Event, ObjectKey, Uid};

const FOREGROUND: &str = "foregroundDeletion";
const ORPHAN: &str = "orphan";

pub(super) async fn run(cluster: Arc<Cluster>) {
    let mut changes = cluster.registry.changes();
    let mut known: HashSet<Arc<str>> = HashSet::new();
    let mut tasks = JoinSet::new();
    loop {
        for resource in cluster.registry.now().tables() {
            if known.insert(resource.table.clone()) {
                let table = resource.table.clone();
                let follow = move |cluster, worker| follow(cluster, worker, table.clone());
                tasks.spawn(supervise(cluster.clone(), "garbage-collector", follow));
            }
        }
        if changes.changed().await.is_err() {
            return;
        }
    }
}

async fn follow(cluster: Arc<Cluster>, mut worker: Worker, table: Arc<str>) {
    let mut feed = Informer::new(&cluster, &table);
    loop {
        for event in feed.next().await {
            worker.handle_event(&table, &event, || handle_event(&cluster, &table, &event));
        }
    }
}

fn handle_event(cluster: &Cluster, table: &Arc<str>, event: &Event) {
    let entry = &event.entry;
    if event.change == Change::Deleted {
        for (table, key) in cluster.store.dependents(entry.uid) {
            collect(cluster, &table, &key);
        }
        if !entry.owners.is_empty() {
            for owner in entry.shared_value()["metadata"]["ownerReferences"].as_array().into_iter().flatten() {
                release_owner(cluster, owner, &entry.key.namespace);
            }
        }
        return;
    }
    let same_owners = event.before.as_ref().is_some_and(|before| before.owners == entry.owners);
    if !entry.owners.is_empty() && !same_owners && !entry.deleting {
        collect(cluster, table, &entry.key);
    }
    if entry.deleting {
        continue_deletion(cluster, table, entry);
    }
}

/// The state of an owner, in the garbage collector's terms.
#[derive(Clone, Copy, PartialEq, Eq)]
enum OwnerState {
    /// The owner exists, or its kind is not served.
    Solid,
    /// The owner is in foreground deletion and waits for its dependents.
    WaitingForDependents,
    /// The owner does not exist.
    Dangling,
}

/// Deletes an object without a solid owner; otherwise removes its dangling owner references.
fn collect(cluster: &Cluster, table: &Arc<str>, key: &ObjectKey) {
    let now = cluster.registry.now();
    let (Some(resource), Some(entry)) = (now.find_table(table), cluster.store.get(table, key)) else { return };
    let value = entry.shared_value();
    let owners = value["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
    if owners.is_empty() || entry.deleting {
        return;
    }
    let states: Vec<OwnerState> = owners.iter().map(|owner| owner_state(cluster, owner, &key.namespace)).collect();
    let target = Target { resource, namespace: &key.namespace, name: &key.name };
    let result = if states.contains(&OwnerState::Solid) {
        if states.iter().all(|state| *state == OwnerState::Solid) {
            return;
        }
        let lost: Vec<&Value> = owners
            .iter()
            .zip(&states)
            .filter(|(_, state)| **state != OwnerState::Solid)
            .map(|(owner, _)| &owner["uid"])
            .collect();
        remove_owner_references(cluster, target, &lost)
    } else {
        let blocked =
            states.contains(&OwnerState::WaitingForDependents) && !cluster.store.dependents(entry.uid).is_empty();
        let propagation = match (has_finalizer(&value, ORPHAN), has_finalizer(&value, FOREGROUND) || blocked) {
            (true, _) => Propagation::Orphan,
            (_, true) => Propagation::Foreground,
            _ => Propagation::Background,
        };
        let uid = value["metadata"]["uid"].as_str().map(str::to_owned);
        let options = DeleteOptions { uid, propagation: Some(propagation), ..DeleteOptions::default() };
        let deleted = cluster.delete(target, &options).map(|_| ());
        // Only now: an owner that continues must find this object being deleted already.
        if deleted.is_ok() && propagation == Propagation::Foreground && waits_in_a_cycle(cluster, &entry) {
            report(unblock_owners(cluster, target, &owners), key);
        }
        deleted
    };
    report(result, key);
}

/// Returns whether a dependent of an object waits for its own dependents: then each waits for the other.
fn waits_in_a_cycle(cluster: &Cluster, entry: &Entry) -> bool {
    cluster.store.dependents(entry.uid).iter().any(|(table, key)| {
        let found = cluster.store.get(table, key).filter(|found| found.deleting);
        found.is_some_and(|found| has_finalizer(&found.shared_value(), FOREGROUND))
    })
}

/// Stops an object from blocking the deletion of its owners, and lets them continue.
fn unblock_owners(cluster: &Cluster, target: Target<'_>, owners: &[Value]) -> Result<(), ApiError> {
    cluster.edit(target, |value| {
        for owner in value["metadata"]["ownerReferences"].as_array_mut().into_iter().flatten() {
            owner["blockOwnerDeletion"] = false.into();
        }
    })?;
    for owner in owners {
        release_owner(cluster, owner, target.namespace);
    }
    Ok(())
}

fn owner_state(cluster: &Cluster, owner: &Value, namespace: &str) -> OwnerState {
    let text = |key: &str| owner[key].as_str().unwrap_or("");
    let now = cluster.registry.now();
    let Some(resource) = now.find_kind(text("apiVersion"), text("kind")) else { return OwnerState::Solid };
    let namespace = if resource.namespaced { namespace } else { "" };
    let found = cluster.store.get(&resource.table, &ObjectKey::new(namespace, text("name")));
    match found.filter(|found| found.uid == Uid::parse(text("uid"))) {
        None => OwnerState::Dangling,
        Some(found) if found.deleting && has_finalizer(&found.shared_value(), FOREGROUND) => {
            OwnerState::WaitingForDependents
        }
        Some(_) => OwnerState::Solid,
    }
}

/// Processes the `orphan` and `foregroundDeletion` finalizers of an object that is being deleted.
fn continue_deletion(cluster: &Cluster, table: &Arc<str>, entry: &Entry) {
    let now = cluster.registry.now();
    let Some(resource) = now.find_table(table) else { return };
    let value = entry.shared_value();
    let target = Target { resource, namespace: &entry.key.namespace, name: &entry.key.name };
    if has_finalizer(&value, ORPHAN) {
        for (table, key) in cluster.store.dependents(entry.uid) {
            let Some(resource) = now.find_table(&table) else { continue };
            let dependent = Target { resource, namespace: &key.namespace, name: &key.name };
            report(remove_owner_references(cluster, dependent, &[&value["metadata"]["uid"]]), &key);
        }
        report(remove_finalizer(cluster, target, ORPHAN), &entry.key);
    }
    if has_finalizer(&value, FOREGROUND) {
        let dependents = cluster.store.dependents(entry.uid);
        for (table, key) in &dependents {
            collect(cluster, table, key);
        }
        let blocking = cluster.store.dependents(entry.uid).iter().any(|(table, key)| {
            let found = cluster.store.get(table, key).map(|found| found.shared_value());
            let owners = found.as_ref().and_then(|found| found["metadata"]["ownerReferences"].as_array());
            let uid = &value["metadata"]["uid"];
            owners.into_iter().flatten().any(|owner| owner["uid"] == *uid && owner["blockOwnerDeletion"] == true)
        });
        if !blocking {
            report(remove_finalizer(cluster, target, FOREGROUND), &entry.key);
        }
    }
}

/// Continues the deletion of an owner that waited for a dependent.
fn release_owner(cluster: &Cluster, owner: &Value, namespace: &str) {
    let text = |key: &str| owner[key].as_str().unwrap_or("");
    let now = cluster.registry.now();
    let Some(resource) = now.find_kind(text("apiVersion"), text("kind")) else { return };
    let namespace = if resource.namespaced { namespace } else { "" };
    let found = cluster.store.get(&resource.table, &ObjectKey::new(namespace, text("name")));
    if let Some(found) = found.filter(|found| found.deleting && found.uid == Uid::parse(text("uid"))) {
        continue_deletion(cluster, &resource.table, &found);
    }
}

fn remove_owner_references(cluster: &Cluster, target: Target<'_>, uids: &[&Value]) -> Result<(), ApiError> {
    let change = |value: &mut Value| {
        if let Some(owners) = value["metadata"]["ownerReferences"].as_array_mut() {
            owners.retain(|owner| !uids.contains(&&owner["uid"]));
        }
    };
    cluster.edit(target, change).map(|_| ())
}

fn report(result: Result<(), ApiError>, key: &ObjectKey) {
    // An object that is already gone, or has another uid, needs no collection.
    if let Err(error) = result
        && !error.is_not_found()
        && !error.is_conflict()
    {
        tracing::warn!(%error, namespace = &*key.namespace, name = &*key.name, "garbage collection failed");
    }
}
