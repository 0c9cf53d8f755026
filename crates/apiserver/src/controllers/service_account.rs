//! Creates the default service account and the `kube-root-ca.crt` ConfigMap of every namespace.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Informer, Worker};
use crate::ops::{Cluster, Target, WriteOptions};
use crate::store::{Change, ListRange, ObjectKey};

const CA_MAP: &str = "kube-root-ca.crt";

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker, ca: String) {
    let mut namespaces = Informer::new(&cluster, "namespaces");
    let mut accounts = Informer::new(&cluster, "serviceaccounts");
    let mut maps = Informer::new(&cluster, "configmaps");
    loop {
        // Both objects are restored when they are deleted or altered, as long as their namespace exists.
        let again = tokio::select! {
            biased;
            _ = namespaces.next() => true,
            events = accounts.next() => {
                events.iter().any(|event| event.change == Change::Deleted && &*event.entry.key.name == "default")
            }
            events = maps.next() => events.iter().any(|event| &*event.entry.key.name == CA_MAP),
        };
        if again {
            ensure_defaults(&cluster, &ca, &mut worker);
        }
    }
}

fn ensure_defaults(cluster: &Cluster, ca: &str, worker: &mut Worker) {
    let page = cluster.store.list("namespaces", &ListRange::default(), |entry| !entry.deleting);
    for namespace in page.map(|page| page.entries).unwrap_or_default() {
        worker.handle("namespaces", &namespace.key, || ensure_namespace(cluster, &namespace.key.name, ca));
    }
}

fn ensure_namespace(cluster: &Cluster, name: &str, ca: &str) {
    ensure(cluster, "serviceaccounts", name, json!({"metadata": {"name": "default"}}));
    let note = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints \
                such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
                distributions of Kubernetes clusters.";
    let map = json!({"metadata": {"name": CA_MAP, "annotations": {"kubernetes.io/description": note}},
        "data": {"ca.crt": ca}});
    ensure(cluster, "configmaps", name, map);
}

/// Creates an object, or restores its data.
fn ensure(cluster: &Cluster, plural: &str, namespace: &str, value: Value) {
    let resource = cluster.registry.builtin("", plural);
    let name = value["metadata"]["name"].as_str().unwrap_or("");
    let written = match cluster.store.get(&resource.table, &ObjectKey::new(namespace, name)) {
        Some(found) if found.value()["data"] == value["data"] => return,
        Some(_) => {
            let target = Target { resource: &resource, namespace, name };
            cluster.edit(target, |found| found["data"] = value["data"].clone())
        }
        None => cluster.create(&resource, namespace, value, &WriteOptions::default()),
    };
    if let Err(error) = written {
        tracing::debug!(%error, namespace, plural, "cannot create the default objects of a namespace");
    }
}
