//! Keeps the status of resource quotas: what is used of them.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};

use super::{Informer, Worker};
use crate::ops::quota::TABLE;
use crate::ops::{Cluster, Target};
use crate::store::ListRange;

/// How long changes are gathered before usage is counted again.
const GATHER: Duration = Duration::from_millis(50);

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker) {
    let mut quotas = Informer::new(&cluster, TABLE);
    loop {
        let seen = cluster.store.revision();
        quotas.poll();
        reconcile(&cluster, &mut worker);
        if cluster.store.count(TABLE) == 0 {
            quotas.next().await;
            continue;
        }
        // What a quota counts may be in any table. Its own writes are seen once more, and change nothing then.
        cluster.store.wait_newer(seen).await;
        tokio::time::sleep(GATHER).await;
    }
}

fn reconcile(cluster: &Cluster, worker: &mut Worker) {
    let resource = cluster.registry.builtin("", TABLE);
    let found = cluster.store.list(TABLE, &ListRange::default(), |_| true);
    for entry in found.map(|page| page.entries).unwrap_or_default() {
        worker.handle(TABLE, &entry.key, || {
            let quota = entry.value();
            let used = cluster.quota_usage(&entry.key.namespace, &quota);
            let used: serde_json::Map<String, Value> =
                used.into_iter().map(|(name, amount)| (name, amount.to_string().into())).collect();
            let status = json!({"hard": quota["spec"]["hard"], "used": used});
            if quota["status"] == status {
                return;
            }
            let target = Target { resource: &resource, namespace: &entry.key.namespace, name: &entry.key.name };
            if let Err(error) = cluster.edit_status(target, |quota| quota["status"] = status.clone()) {
                tracing::debug!(%error, name = &*entry.key.name, "cannot write the status of a quota");
            }
        });
    }
}
