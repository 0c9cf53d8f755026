//! Forgets changes after five minutes, as kube-apiserver has etcd do: without it a burst of work would stay in memory for
//! as long as nothing else happens.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use super::Worker;
use crate::ops::Cluster;

const INTERVAL: Duration = Duration::from_secs(60);
/// How many intervals a change can still be watched for.
const KEPT_INTERVALS: usize = 5;

pub(super) async fn run(cluster: Arc<Cluster>, _: Worker) {
    // The newest revision at the end of each interval, the latest last.
    let mut revisions = VecDeque::from([cluster.store.visible()]);
    loop {
        tokio::time::sleep(INTERVAL).await;
        revisions.push_back(cluster.store.visible());
        if revisions.len() > KEPT_INTERVALS
            && let Some(oldest) = revisions.pop_front()
        {
            cluster.store.compact(oldest);
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ops::WriteOptions;
    use crate::store::{Compacted, ListRange};
    use crate::{Options, Server};

    #[tokio::test(start_paused = true)]
    async fn changes_can_be_watched_for_five_minutes() {
        let server = Server::start(Options::default()).await.expect("starts");
        let cluster = server.cluster();
        let resource = cluster.registry.builtin("", "secrets");
        let create = |name: &str| {
            let object = json!({"metadata": {"name": name}});
            cluster.create(&resource, "default", object, &WriteOptions::default()).expect("created");
            cluster.store.revision()
        };
        let table = "secrets".into();
        let seen_from = |revision: u64| cluster.store.follow(&table, revision).poll(10).map(|changes| changes.len());
        let before = create("before");
        create("burst");
        tokio::time::sleep(Duration::from_secs(240)).await;
        assert_eq!(seen_from(before), Ok(1));
        tokio::time::sleep(Duration::from_secs(120)).await;
        assert_eq!(seen_from(before), Err(Compacted));
        assert_eq!(cluster.store.count("secrets"), 2, "objects stay");
        let page = |table: &str| {
            let range = ListRange { at: Some(before), ..ListRange::default() };
            cluster.store.list(table, &range, |_| true).map(|page| page.entries.len())
        };
        assert_eq!(page("secrets").err(), Some(Compacted));
        assert_eq!(page("namespaces").err(), Some(Compacted), "also of a kind that did not change");
        let now = cluster.store.revision();
        create("after");
        assert_eq!(seen_from(now), Ok(1), "whoever had seen everything goes on");
    }
}
