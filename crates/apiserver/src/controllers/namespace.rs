//! Deletes the content of terminating namespaces, then the namespaces.

use std::sync::Arc;
use std::time::Duration;

use serde_json::json;

use super::{Informer, Worker};
use crate::ops::{Cluster, DeleteOptions, Propagation, Target, WriteOptions};
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

/// Deletes the content of a namespace; returns true once the namespace itself is gone.
fn empty(cluster: &Cluster, name: &str) -> bool {
    let selection = Selection { namespace: Some(name.into()), ..Selection::default() };
    let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
    let now = cluster.registry.now();
    let mut left = 0;
    for resource in now.tables().filter(|resource| resource.namespaced) {
        if let Err(error) = cluster.delete_collection(resource, &selection, &options) {
            tracing::debug!(%error, namespace = name, resource = &*resource.plural, "cannot delete the content of a namespace yet");
        }
        let span = ListRange { namespace: Some(name), limit: Some(1), ..ListRange::default() };
        left += cluster.store.list(&resource.table, &span, |_| true).map_or(0, |page| page.entries.len());
    }
    if left > 0 {
        return false;
    }
    let namespaces = cluster.registry.builtin("", "namespaces");
    let target = Target { resource: &namespaces, namespace: "", name };
    let done = cluster.modify(target, Some("finalize"), &WriteOptions::default(), |old| {
        let mut new = old.clone();
        new["spec"]["finalizers"] = json!([]);
        Ok(new)
    });
    done.is_ok_and(|_| cluster.get(target).is_err())
}
