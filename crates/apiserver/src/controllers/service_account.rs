//! Creates the default service account and the `kube-root-ca.crt` ConfigMap of every namespace.

use std::sync::Arc;

use serde_json::{Value, json};

use super::Informer;
use crate::ops::{Cluster, WriteOptions};
use crate::store::{Change, ListRange, ObjectKey};

const CA_MAP: &str = "kube-root-ca.crt";

pub(super) async fn run(cluster: Arc<Cluster>, ca: String) {
    let mut namespaces = Informer::new(&cluster, "namespaces");
    let mut accounts = Informer::new(&cluster, "serviceaccounts");
    let mut maps = Informer::new(&cluster, "configmaps");
    loop {
        // Both objects come back when somebody deletes them, as long as their namespace stays.
        let again = tokio::select! {
            _ = namespaces.next() => true,
            events = accounts.next() => {
                events.iter().any(|event| event.change == Change::Deleted && &*event.entry.key.name == "default")
            }
            events = maps.next() => {
                events.iter().any(|event| event.change == Change::Deleted && &*event.entry.key.name == CA_MAP)
            }
        };
        if again {
            ensure_defaults(&cluster, &ca);
        }
    }
}

fn ensure_defaults(cluster: &Cluster, ca: &str) {
    let page = cluster.store.list("namespaces", &ListRange::default(), |entry| !entry.deleting);
    for namespace in page.map(|page| page.entries).unwrap_or_default() {
        let name = &namespace.key.name;
        ensure(cluster, "serviceaccounts", name, json!({"metadata": {"name": "default"}}));
        let note = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints \
                    such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
                    distributions of Kubernetes clusters.";
        let map = json!({"metadata": {"name": CA_MAP, "annotations": {"kubernetes.io/description": note}},
            "data": {"ca.crt": ca}});
        ensure(cluster, "configmaps", name, map);
    }
}

fn ensure(cluster: &Cluster, plural: &str, namespace: &str, value: Value) {
    let resource = cluster.registry.builtin("", plural);
    let name = value["metadata"]["name"].as_str().unwrap_or("");
    if cluster.store.get(&resource.table, &ObjectKey::new(namespace, name)).is_some() {
        return;
    }
    if let Err(error) = cluster.create(&resource, namespace, value, &WriteOptions::default()) {
        tracing::debug!(%error, namespace, plural, "cannot create the default objects of a namespace");
    }
}
