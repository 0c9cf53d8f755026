//! Deletes events an hour after they were last recorded, as the real server's `--event-ttl` does.

use std::collections::{BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::Value;

use super::{Informer, Worker};
use crate::clock::add_seconds;
use crate::ops::{Cluster, DeleteOptions, Target};
use crate::store::{Change, ObjectKey};

/// How long an event is stored after its last occurrence, in seconds.
const TTL: i64 = 3600;
/// The longest sleep, so that a clock that is set forward is noticed.
const LONGEST_SLEEP: Duration = Duration::from_secs(600);

/// The expiry of every stored event.
#[derive(Default)]
struct Expiries {
    by_key: HashMap<Arc<ObjectKey>, Timestamp>,
    by_time: BTreeSet<(Timestamp, Arc<ObjectKey>)>,
}

impl Expiries {
    fn set(&mut self, key: &Arc<ObjectKey>, expiry: Option<Timestamp>) {
        if let Some(old) = self.by_key.remove(key) {
            self.by_time.remove(&(old, key.clone()));
        }
        if let Some(expiry) = expiry {
            self.by_key.insert(key.clone(), expiry);
            self.by_time.insert((expiry, key.clone()));
        }
    }

    fn next(&self) -> Option<&(Timestamp, Arc<ObjectKey>)> {
        self.by_time.first()
    }
}

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker) {
    let mut events = Informer::new(&cluster, "events");
    let mut expiries = Expiries::default();
    loop {
        let now = cluster.clock.now();
        let wait = expiries.next().map(|(at, _)| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO));
        tokio::select! {
            biased;
            changes = events.next() => {
                for change in changes {
                    let stored = change.change != Change::Deleted;
                    expiries.set(&change.entry.key, stored.then(|| expiry_of(&change.entry.shared_value(), now)));
                }
            }
            () = tokio::time::sleep(wait.unwrap_or(LONGEST_SLEEP).min(LONGEST_SLEEP)) => {}
        }
        let now = cluster.clock.now();
        while let Some((_, key)) = expiries.next().filter(|(at, _)| *at <= now).cloned() {
            expiries.set(&key, None);
            worker.handle("events", &key, || delete(&cluster, &key));
        }
    }
}

/// Returns when an event expires: an hour after the latest time that it names.
fn expiry_of(event: &Value, now: Timestamp) -> Timestamp {
    let times = [
        &event["metadata"]["creationTimestamp"],
        &event["lastTimestamp"],
        &event["eventTime"],
        &event["series"]["lastObservedTime"],
    ];
    let last = times.into_iter().filter_map(|time| time.as_str()?.parse::<Timestamp>().ok()).max();
    // Clients set most of these times; none of them keeps an event for longer than the hour.
    add_seconds(last.map_or(now, |last| last.min(now)), TTL)
}

fn delete(cluster: &Cluster, key: &ObjectKey) {
    let resource = cluster.registry.builtin("", "events");
    let target = Target { resource: &resource, namespace: &key.namespace, name: &key.name };
    if let Err(error) = cluster.delete(target, &DeleteOptions::default())
        && !error.is_not_found()
    {
        tracing::debug!(%error, name = &*key.name, "cannot delete an expired event");
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::clock::{Clock, seconds};
    use crate::ops::WriteOptions;
    use crate::{Options, Server};

    #[tokio::test(start_paused = true)]
    async fn events_expire_an_hour_after_their_last_occurrence() {
        let start = tokio::time::Instant::now();
        let now = move || add_seconds(Timestamp::UNIX_EPOCH, start.elapsed().as_secs() as i64);
        let options = Options { clock: Some(Clock::new(now, 1)), ..Options::default() };
        let server = Server::start(options).await.expect("starts");
        let cluster = server.cluster();
        let resource = cluster.registry.builtin("", "events");
        let create = |name: &str, last: Timestamp| {
            let event = json!({"metadata": {"name": name}, "involvedObject": {"namespace": "default"},
                "lastTimestamp": seconds(last)});
            cluster.create(&resource, "default", event, &WriteOptions::default()).expect("created");
        };
        let names = || {
            let page = cluster.store.list("events", &Default::default(), |_| true).expect("current");
            page.entries.iter().map(|entry| entry.key.name.to_string()).collect::<Vec<_>>()
        };
        create("first", now());
        create("far-future", add_seconds(now(), 1_000_000));
        tokio::time::sleep(Duration::from_secs(1800)).await;
        create("second", now());
        assert_eq!(names(), ["far-future", "first", "second"]);
        tokio::time::sleep(Duration::from_secs(1801)).await;
        assert_eq!(names(), ["second"]);
        tokio::time::sleep(Duration::from_secs(1800)).await;
        assert!(names().is_empty());
    }
}
