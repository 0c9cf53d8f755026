//! The built-in controllers: each file is one controller, each controller one task.
//!
//! Controllers follow the tables that they need, and write through the same operations as clients, so
//! defaults, validation and finalizers apply to them too.

mod adoption;
pub(crate) mod crd;
mod disruption;
mod endpoints;
mod event_ttl;
mod garbage_collector;
mod history;
mod job;
mod namespace;
mod quota;
mod replicas;
pub(crate) mod role_aggregation;
mod schedule;
mod service_account;
pub(crate) mod supervisor;
mod taint_eviction;
mod volume;

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::error::ApiError;
use crate::ops::{Cluster, Target, WriteOptions};
use crate::store::{Change, Entry, Event, Follower, ListRange};
use supervisor::{Worker, supervise};

/// Starts all controllers.
pub(crate) fn spawn(
    cluster: &Arc<Cluster>,
    ca: &str,
    volumes: Option<PathBuf>,
    stop: &CancellationToken,
    tasks: &mut JoinSet<()>,
) {
    let mut start = |task: futures::future::BoxFuture<'static, ()>| {
        let stop = stop.clone();
        tasks.spawn(async move {
            tokio::select! {
                biased;
                () = task => {}
                () = stop.cancelled() => {}
            }
        });
    };
    let ca = ca.to_owned();
    start(Box::pin(supervise(cluster.clone(), "crd", crd::run)));
    start(Box::pin(garbage_collector::run(cluster.clone())));
    start(Box::pin(supervise(cluster.clone(), "namespace", namespace::run)));
    start(Box::pin(supervise(cluster.clone(), "service-account", move |cluster, worker| {
        service_account::run(cluster, worker, ca.clone())
    })));
    start(Box::pin(supervise(cluster.clone(), "job", job::run)));
    start(Box::pin(supervise(cluster.clone(), "disruption", disruption::run)));
    start(Box::pin(supervise(cluster.clone(), "endpoints", endpoints::run)));
    start(Box::pin(supervise(cluster.clone(), "event-ttl", event_ttl::run)));
    start(Box::pin(supervise(cluster.clone(), "history", history::run)));
    start(Box::pin(supervise(cluster.clone(), "replica-set", replicas::run_sets)));
    start(Box::pin(supervise(cluster.clone(), "replication-controller", replicas::run_controllers)));
    start(Box::pin(supervise(cluster.clone(), "deployment", replicas::run_deployments)));
    start(Box::pin(supervise(cluster.clone(), "quota", quota::run)));
    start(Box::pin(supervise(cluster.clone(), "role-aggregation", role_aggregation::run)));
    start(Box::pin(supervise(cluster.clone(), "taint-eviction", taint_eviction::run)));
    start(Box::pin(supervise(cluster.clone(), "volume", move |cluster, worker| {
        volume::run(cluster, worker, volumes.clone())
    })));
}

/// A controller's view of a table: first every stored object, then every change.
struct Informer {
    cluster: Arc<Cluster>,
    table: Arc<str>,
    follower: Follower,
    start: Vec<Arc<Event>>,
}

impl Informer {
    fn new(cluster: &Arc<Cluster>, table: &str) -> Informer {
        let table: Arc<str> = table.into();
        let (revision, start) = Informer::present(cluster, &table);
        let follower = cluster.store.follow(&table, revision);
        Informer { cluster: cluster.clone(), table, follower, start }
    }

    fn present(cluster: &Cluster, table: &Arc<str>) -> (u64, Vec<Arc<Event>>) {
        let Ok(page) = cluster.store.list(table, &ListRange::default(), |_| true) else { return (0, Vec::new()) };
        let event = |entry: Arc<Entry>| Arc::new(Event { change: Change::Added, entry, before: None });
        (page.revision, page.entries.into_iter().map(event).collect())
    }

    /// Returns the pending events without waiting.
    fn poll(&mut self) -> Vec<Arc<Event>> {
        let start = std::mem::take(&mut self.start);
        if !start.is_empty() {
            return start;
        }
        match self.follower.poll(1024) {
            Ok(events) => events,
            Err(_) => {
                // Too far behind: look at everything again instead.
                let (revision, events) = Informer::present(&self.cluster, &self.table);
                self.follower = self.cluster.store.follow(&self.table, revision);
                events
            }
        }
    }

    /// Waits for the next events.
    async fn next(&mut self) -> Vec<Arc<Event>> {
        loop {
            let events = self.poll();
            if !events.is_empty() {
                return events;
            }
            self.follower.changed().await;
        }
    }
}

/// Returns the controller owner reference of an object.
fn controller_of(value: &Value) -> Option<&Value> {
    value["metadata"]["ownerReferences"].as_array()?.iter().find(|owner| owner["controller"] == true)
}

/// Returns a controller owner reference to an object.
fn owner_reference(owner: &Value) -> Value {
    json!({
        "apiVersion": owner["apiVersion"],
        "kind": owner["kind"],
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": true,
        "blockOwnerDeletion": true,
    })
}

/// Returns whether a condition of an object is True.
fn has_condition(value: &Value, kind: &str) -> bool {
    let conditions = value["status"]["conditions"].as_array().into_iter().flatten();
    conditions.clone().any(|one| one["type"] == kind && one["status"] == "True")
}

/// Returns whether an object has a finalizer.
fn has_finalizer(value: &Value, name: &str) -> bool {
    value["metadata"]["finalizers"].as_array().into_iter().flatten().any(|finalizer| finalizer == name)
}

/// Removes a finalizer from an object.
fn remove_finalizer(cluster: &Cluster, target: Target<'_>, name: &str) -> Result<(), ApiError> {
    let change = |value: &mut Value| {
        if let Some(finalizers) = value["metadata"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != name);
        }
    };
    cluster.edit(target, change).map(|_| ())
}

/// How many pods of one owner may wait for a node; further ones are created once these are scheduled.
const BURST: usize = 500;

/// Returns whether a pod is bound to a node.
fn is_scheduled(pod: &Value) -> bool {
    pod["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty())
}

/// Returns an integer field, or zero.
fn int(value: &Value) -> i64 {
    value.as_i64().unwrap_or(0)
}

/// Records an event about an object.
fn record(cluster: &Cluster, about: &Value, component: &str, kind: &str, reason: &str, message: &str) {
    let metadata = &about["metadata"];
    let namespace = metadata["namespace"].as_str().unwrap_or("default");
    let name = metadata["name"].as_str().unwrap_or("");
    let now = cluster.clock.stamp();
    let event = json!({
        "metadata": {"name": format!("{name}.{:016x}", cluster.clock.next())},
        "involvedObject": {"apiVersion": about["apiVersion"], "kind": about["kind"], "name": name,
            "namespace": namespace, "uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]},
        "reason": reason, "message": message, "type": kind, "count": 1,
        "source": {"component": component}, "reportingComponent": component,
        "firstTimestamp": now, "lastTimestamp": now,
    });
    let events = cluster.registry.builtin("", "events");
    if let Err(error) = cluster.create(&events, namespace, event, &WriteOptions::default()) {
        tracing::debug!(%error, reason, "cannot record an event");
    }
}
