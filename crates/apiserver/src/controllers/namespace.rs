//! Deletes the content of terminating namespaces, then the namespaces.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Informer, Worker};
use crate::ops::{Cluster, DeleteOptions, Propagation, Target, WriteOptions};
use crate::registry::Resource;
use crate::selector::Selection;
use crate::store::ListRange;

/// How often a terminating namespace is checked for remaining content.
const RETRY_INTERVAL: Duration = Duration::from_millis(100);

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker) {
    let mut feed = Informer::new(&cluster, "namespaces");
    loop {
        let page = cluster.store.list("namespaces", &ListRange::default(), |entry| entry.deleting);
        let ending = page.map(|page| page.entries).unwrap_or_default();
        let mut waiting = false;
        for namespace in &ending {
            let key = &namespace.key;
            waiting |= worker.handle("namespaces", key, || !empty(&cluster, &key.name)).unwrap_or(false);
        }
        if waiting {
            let _ = tokio::time::timeout(RETRY_INTERVAL, feed.next()).await;
        } else {
            feed.next().await;
        }
    }
}

/// Deletes the content of a namespace, its pods first; returns true once the namespace itself is gone.
fn empty(cluster: &Cluster, name: &str) -> bool {
    let now = cluster.registry.now();
    let tables: Vec<&Arc<Resource>> = now.tables().filter(|resource| resource.namespaced).collect();
    let (pods, others): (Vec<&Arc<Resource>>, Vec<&Arc<Resource>>) =
        tables.into_iter().partition(|resource| &*resource.table == "pods");
    let mut left = Remaining::default();
    // What pods still need, such as their secrets, stays until they are gone.
    for resources in [pods, others] {
        for resource in resources {
            delete_all(cluster, resource, name, &mut left);
        }
        if !left.counts.is_empty() {
            report(cluster, name, &left);
            return false;
        }
    }
    let namespaces = cluster.registry.builtin("", "namespaces");
    let target = Target { resource: &namespaces, namespace: "", name };
    let done = cluster.modify(target, Some("finalize"), &WriteOptions::default(), |old| {
        let mut new = old.clone();
        if let Some(finalizers) = new["spec"]["finalizers"].as_array_mut() {
            finalizers.retain(|finalizer| finalizer != "kubernetes");
        }
        Ok(new)
    });
    done.is_ok_and(|_| cluster.get(target).is_err())
}

/// What is left of a namespace's content.
#[derive(Default)]
struct Remaining {
    counts: BTreeMap<String, usize>,
    finalizers: BTreeMap<String, usize>,
    failures: Vec<String>,
}

fn delete_all(cluster: &Cluster, resource: &Arc<Resource>, namespace: &str, left: &mut Remaining) {
    let selection = Selection { namespace: Some(namespace.into()), ..Selection::default() };
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    if let Err(error) = cluster.delete_collection(resource, &selection, &options) {
        left.failures.push(error.to_string());
    }
    let range = ListRange { namespace: Some(namespace), ..ListRange::default() };
    let found = cluster.store.list(&resource.table, &range, |_| true).map(|page| page.entries).unwrap_or_default();
    if found.is_empty() {
        return;
    }
    let group = if resource.group.is_empty() { String::new() } else { (*resource.group).to_owned() };
    left.counts.insert(format!("{}.{group}", resource.plural), found.len());
    for entry in found {
        for finalizer in entry.value()["metadata"]["finalizers"].as_array().into_iter().flatten() {
            *left.finalizers.entry(finalizer.as_str().unwrap_or("").to_owned()).or_default() += 1;
        }
    }
}

/// Reports in the namespace's status why it is not gone yet.
fn report(cluster: &Cluster, name: &str, left: &Remaining) {
    let list = |counts: &BTreeMap<String, usize>, word: &str| {
        let parts: Vec<String> =
            counts.iter().map(|(what, count)| format!("{what} {word} {count} resource instances")).collect();
        parts.join(", ")
    };
    let content = format!("Some resources are remaining: {}", list(&left.counts, "has"));
    let finalizers =
        format!("Some content in the namespace has finalizers remaining: {}", list(&left.finalizers, "in"));
    let failures =
        format!("Failed to delete all resource types, {} remaining: {}", left.failures.len(), left.failures.join(", "));
    let conditions = [
        ("NamespaceDeletionDiscoveryFailure", false, "ResourcesDiscovered", "All resources successfully discovered"),
        (
            "NamespaceDeletionGroupVersionParsingFailure",
            false,
            "ParsedGroupVersions",
            "All legacy kube types successfully parsed",
        ),
        match left.failures.is_empty() {
            true => (
                "NamespaceDeletionContentFailure",
                false,
                "ContentDeleted",
                "All content successfully deleted, may be waiting on finalization",
            ),
            false => ("NamespaceDeletionContentFailure", true, "ContentDeletionFailed", failures.as_str()),
        },
        ("NamespaceContentRemaining", true, "SomeResourcesRemain", content.as_str()),
        match left.finalizers.is_empty() {
            true => (
                "NamespaceFinalizersRemaining",
                false,
                "ContentHasNoFinalizers",
                "All content-preserving finalizers finished",
            ),
            false => ("NamespaceFinalizersRemaining", true, "SomeFinalizersRemain", finalizers.as_str()),
        },
    ];
    let namespaces = cluster.registry.builtin("", "namespaces");
    let target = Target { resource: &namespaces, namespace: "", name };
    let stamp = cluster.clock.stamp();
    let reported = cluster.edit_status(target, |namespace| {
        let known = namespace["status"]["conditions"].as_array().cloned().unwrap_or_default();
        let wanted = conditions.iter().map(|(kind, holds, reason, message)| {
            let value = if *holds { "True" } else { "False" };
            let before = known.iter().find(|one| one["type"] == *kind && one["status"] == value);
            let since = before.map_or_else(|| stamp.as_str().into(), |one| one["lastTransitionTime"].clone());
            json!({"type": kind, "status": value, "reason": reason, "message": message, "lastTransitionTime": since})
        });
        namespace["status"]["conditions"] = wanted.collect::<Vec<Value>>().into();
    });
    if let Err(error) = reported {
        tracing::debug!(%error, namespace = name, "cannot report the deletion of a namespace");
    }
}
