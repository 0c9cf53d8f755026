//! Publishes events about our objects, as `events.k8s.io/v1`.
//!
//! Events of one pass that differ only in their note become one with a count, like KubeRay's
//! recorder shows them. What was told in the last minutes is not told again: an object that stays
//! invalid costs one write, not one per pass. Nobody waits for an event to be written.

use crate::clock::Clock;
use crate::stores::lock;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event as Published, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::{Api, Client, Resource};
use manta_logic::action::{Event, EventKind};
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::warn;

/// For how long the same news is no news.
const TOLD_FOR: Duration = Duration::from_secs(600);
/// Longer notes are refused by the API server.
const LONGEST_NOTE: usize = 1024;
/// Events that may wait to be written.
const WAITING: usize = 4096;

/// The object that events are about, and who speaks.
#[derive(Clone, Debug)]
pub struct Regarding {
    pub reference: ObjectReference,
    /// E.g. `raycluster-controller`.
    pub controller: &'static str,
}

impl Regarding {
    /// This controller, about this object.
    pub(crate) fn new<K: Resource<DynamicType = ()>>(object: &K, controller: &'static str) -> Self {
        Self { reference: object.object_ref(&()), controller }
    }
}

/// What makes an event news: the object's UID, the reason and the note.
type News = (String, &'static str, String);

/// Takes events and writes them in the background.
#[derive(Clone)]
pub struct Publisher {
    sender: mpsc::Sender<Published>,
    told: Arc<Mutex<HashMap<News, Instant>>>,
    host: Arc<str>,
    clock: Clock,
}

impl Publisher {
    /// Starts the task that writes; it ends when the last publisher is gone.
    pub fn start(client: Client, host: &str, clock: Clock, tasks: &TaskTracker) -> Self {
        let (sender, receiver) = mpsc::channel(WAITING);
        tasks.spawn(write_all(client, receiver));
        Self { sender, told: Arc::default(), host: host.into(), clock }
    }

    /// Tells events about an object, save for those told lately.
    pub fn publish(&self, regarding: &Regarding, events: Vec<Event>) {
        let uid = regarding.reference.uid.clone().unwrap_or_default();
        let mut groups: Vec<(Event, i32)> = Vec::new();
        for event in events {
            let same = |other: &Event| {
                other.reason == event.reason && other.action == event.action && other.kind == event.kind
            };
            match groups.iter_mut().find(|(other, _)| same(other)) {
                Some((_, count)) => *count += 1,
                None => groups.push((event, 1)),
            }
        }
        for (event, count) in groups {
            if self.is_news(&uid, &event) && self.sender.try_send(self.published(regarding, event, count)).is_err() {
                warn!("too many events wait to be written; one was dropped");
            }
        }
    }

    fn is_news(&self, uid: &str, event: &Event) -> bool {
        let mut told = lock(&self.told);
        let now = Instant::now();
        if told.len() > WAITING {
            told.retain(|_, at| now.duration_since(*at) < TOLD_FOR);
        }
        let key = (uid.to_owned(), event.reason, event.note.clone());
        match told.insert(key, now) {
            Some(at) => now.duration_since(at) >= TOLD_FOR,
            None => true,
        }
    }

    fn published(&self, regarding: &Regarding, event: Event, count: i32) -> Published {
        let now = self.clock.now();
        let name = regarding.reference.name.clone().unwrap_or_default();
        Published {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{:x}", now.as_nanosecond() as u64)),
                namespace: regarding.reference.namespace.clone(),
                ..ObjectMeta::default()
            },
            event_time: Some(MicroTime(now)),
            type_: Some(match event.kind {
                EventKind::Normal => "Normal".to_owned(),
                EventKind::Warning => "Warning".to_owned(),
            }),
            reason: Some(event.reason.to_owned()),
            action: Some(event.action.to_owned()),
            note: Some(shorten_note(event.note)),
            regarding: Some(regarding.reference.clone()),
            reporting_controller: Some(regarding.controller.to_owned()),
            reporting_instance: Some(format!("{}-{}", regarding.controller, self.host)),
            series: (count > 1).then_some(EventSeries { count, last_observed_time: MicroTime(now) }),
            ..Published::default()
        }
    }
}

async fn write_all(client: Client, mut events: mpsc::Receiver<Published>) {
    while let Some(event) = events.recv().await {
        let api: Api<Published> =
            Api::namespaced(client.clone(), event.metadata.namespace.as_deref().unwrap_or_default());
        if let Err(error) = api.create(&PostParams::default(), &event).await {
            // An object that is gone takes its namespace with it at times; that is no news.
            warn!(reason = event.reason, error = crate::act::text(&error), "an event could not be written");
        }
    }
}

fn shorten_note(mut note: String) -> String {
    if note.len() > LONGEST_NOTE {
        let mut end = LONGEST_NOTE - '…'.len_utf8();
        while !note.is_char_boundary(end) {
            end -= 1;
        }
        note.truncate(end);
        note.push('…');
    }
    note
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_notes_are_cut_at_a_character() {
        assert_eq!(shorten_note("short".into()), "short");
        let cut = shorten_note("ä".repeat(2000));
        assert!(cut.len() <= LONGEST_NOTE && cut.ends_with('…'));
    }
}
