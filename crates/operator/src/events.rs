//! Publishes events about our objects, as `events.k8s.io/v1`.
//!
//! Events of one pass that differ only in their note become one with a count, as with KubeRay's recorder. An event
//! that was published in the last minutes is suppressed: an object that stays invalid costs one write, not one per
//! pass. No pass waits for an event to be written.

use crate::api_request::{error_text, send};
use crate::clock::Clock;
use crate::lock::lock;
use crate::write_budget::Retries;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event as Published, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::Client;
use kube::api::PostParams;
use kube::core::request::Request;
use manta_logic::action::{Event, EventKind};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;
use tokio_util::task::TaskTracker;
use tracing::warn;

/// How long a repeated event is suppressed.
const SUPPRESSED_FOR: Duration = Duration::from_secs(600);
/// Longer notes are refused by the API server.
const LONGEST_NOTE: usize = 1024;
/// Events that may be under way at once, beside all other writes, which are many more when there is much to do. Each object
/// belongs to one writer, so that its events are written in order.
const WRITERS: usize = 8;
/// Events that may wait for each writer.
const WAITING: usize = 1024;
/// Events that are remembered at least before old ones are removed.
const REMEMBERED: usize = 4096;

/// Takes events and writes them in the background.
#[derive(Clone)]
pub struct Publisher {
    writers: [mpsc::Sender<Published>; WRITERS],
    recent: Arc<Mutex<RecentEvents>>,
    host: Arc<str>,
    clock: Clock,
    /// How many events were published: the name of an event is its time, and two may have the same.
    published: Arc<AtomicU64>,
}

impl Publisher {
    /// Starts the tasks that write; they end when the last publisher is gone.
    pub fn start(client: &Client, host: &str, clock: Clock, tasks: &TaskTracker) -> Self {
        let writers = std::array::from_fn(|_| {
            let (sender, receiver) = mpsc::channel(WAITING);
            tasks.spawn(write_all(client.clone(), receiver));
            sender
        });
        Self { writers, recent: Arc::default(), host: host.into(), clock, published: Arc::default() }
    }

    /// Publishes events about an object, save for repeated ones.
    pub fn publish(&self, regarding: &ObjectReference, events: Vec<Event>) {
        let uid = regarding.uid.clone().unwrap_or_default();
        let writer = &self.writers[writer_of(&uid)];
        let mut groups: Vec<(Event, i32)> = Vec::new();
        for event in events {
            let series = |event: &Event| (event.controller, event.reason, event.action, event.kind);
            let same = |other: &Event| series(other) == series(&event);
            match groups.iter_mut().find(|(other, _)| same(other)) {
                Some((_, count)) => *count += 1,
                None => groups.push((event, 1)),
            }
        }
        for (event, count) in groups {
            if lock(&self.recent).insert(&uid, &event)
                && writer.try_send(self.published(regarding, event, count)).is_err()
            {
                warn!("event queue is full; dropped an event");
            }
        }
    }

    fn published(&self, regarding: &ObjectReference, event: Event, count: i32) -> Published {
        let now = self.clock.now();
        let name = regarding.name.clone().unwrap_or_default();
        let number = (now.as_nanosecond() as u64).wrapping_add(self.published.fetch_add(1, Ordering::Relaxed));
        Published {
            metadata: ObjectMeta {
                name: Some(format!("{name}.{number:x}")),
                namespace: regarding.namespace.clone(),
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
            regarding: Some(regarding.clone()),
            reporting_controller: Some(event.controller.to_owned()),
            reporting_instance: Some(format!("{}-{}", event.controller, self.host)),
            series: (count > 1).then_some(EventSeries { count, last_observed_time: MicroTime(now) }),
            ..Published::default()
        }
    }
}

/// The events of the last minutes.
///
/// Only hashes are stored: the notes of a thousand clusters would take a megabyte.
#[derive(Default)]
struct RecentEvents {
    published: HashMap<u64, Instant>,
    hasher: RandomState,
    /// How many were left when old ones were last removed.
    left: usize,
}

impl RecentEvents {
    /// Adds an event. Returns whether it is not a repetition.
    fn insert(&mut self, uid: &str, event: &Event) -> bool {
        let now = Instant::now();
        if self.published.len() > REMEMBERED.max(2 * self.left) {
            self.published.retain(|_, at| now.duration_since(*at) < SUPPRESSED_FOR);
            self.left = self.published.len();
        }
        let hash = self.hasher.hash_one((uid, event.reason, &event.note));
        match self.published.insert(hash, now) {
            Some(at) => now.duration_since(at) >= SUPPRESSED_FOR,
            None => true,
        }
    }
}

/// Returns the index of the writer of an object.
fn writer_of(uid: &str) -> usize {
    let sum = uid.bytes().fold(0_usize, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
    sum % WRITERS
}

async fn write_all(client: Client, mut events: mpsc::Receiver<Published>) {
    while let Some(event) = events.recv().await {
        let mut retries = Retries::default();
        let written = loop {
            let written = write(&client, &event).await;
            match written.as_ref().err().and_then(|error| retries.wait_after(error)) {
                Some(wait) => tokio::time::sleep(wait).await,
                None => break written,
            }
        };
        if let Err(error) = written {
            // Some of these are about an object whose namespace is being deleted.
            warn!(reason = event.reason, error = error_text(&error), "cannot write an event");
        }
    }
}

async fn write(client: &Client, event: &Published) -> Result<(), kube::Error> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let bytes = serde_json::to_vec(event).map_err(kube::Error::SerdeError)?;
    let request = Request::new(format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"))
        .create(&PostParams::default(), bytes)
        .map_err(kube::Error::BuildRequest)?;
    send(client, request).await.map(drop)
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

    #[tokio::test(start_paused = true)]
    async fn a_repeated_event_is_suppressed_for_a_while() {
        let mut recent = RecentEvents::default();
        let event = |note: &str| Event::normal("Created", "Create", note);
        assert!(recent.insert("u", &event("a")));
        assert!(!recent.insert("u", &event("a")));
        assert!(recent.insert("v", &event("a")) && recent.insert("u", &event("b")));
        tokio::time::advance(SUPPRESSED_FOR).await;
        assert!(recent.insert("u", &event("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn old_events_take_no_memory() {
        let mut recent = RecentEvents::default();
        let mut publish = |number: usize| recent.insert("u", &Event::normal("Created", "Create", number.to_string()));
        (0..=REMEMBERED).for_each(|number| assert!(publish(number)));
        tokio::time::advance(SUPPRESSED_FOR).await;
        assert!(publish(0));
        assert_eq!(recent.published.len(), 1);
    }

    /// Publishes events with these notes, each about an object, to a server that takes 100 ms for each. Returns what it got,
    /// in order, and how long that took.
    async fn publish(events: Vec<(String, String)>) -> (Vec<(String, String)>, Duration) {
        let written: Arc<Mutex<Vec<(String, String)>>> = Arc::default();
        let seen = Arc::clone(&written);
        let server = move |axum::Json(event): axum::Json<Published>| async move {
            tokio::time::sleep(Duration::from_millis(100)).await;
            let about = event.regarding.and_then(|object| object.name).unwrap_or_default();
            lock(&seen).push((about, event.note.unwrap_or_default()));
            axum::Json(serde_json::json!({"metadata": {}}))
        };
        let client = Client::new(axum::Router::new().fallback(server), "ns");
        let (tasks, start) = (TaskTracker::new(), Instant::now());
        let publisher = Publisher::start(&client, "host", Clock::default(), &tasks);
        for (about, note) in events {
            let regarding = ObjectReference {
                name: Some(about.clone()),
                namespace: Some("ns".to_owned()),
                uid: Some(about),
                ..ObjectReference::default()
            };
            publisher.publish(&regarding, vec![Event::normal("Created", "Create", note)]);
        }
        drop(publisher);
        tasks.close();
        tasks.wait().await;
        let written = lock(&written).clone();
        (written, start.elapsed())
    }

    #[tokio::test(start_paused = true)]
    async fn events_of_many_objects_wait_for_no_slow_write_in_turn() {
        // Three events each of 30 clusters a second, for half a minute.
        let events: Vec<_> = (0..2_700).map(|number| (format!("c-{}", number / 3), number.to_string())).collect();
        let (written, took) = publish(events).await;
        assert_eq!(written.len(), 2_700);
        assert!(took < Duration::from_secs(60), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn events_of_one_object_are_written_in_order() {
        let events: Vec<_> = (0..60).map(|number| (format!("c-{}", number % 3), format!("{number:02}"))).collect();
        let (written, _) = publish(events).await;
        for object in ["c-0", "c-1", "c-2"] {
            let notes: Vec<_> = written.iter().filter(|(about, _)| about == object).map(|(_, note)| note).collect();
            assert_eq!(notes.len(), 20);
            assert!(notes.is_sorted(), "{notes:?}");
        }
    }

    #[test]
    fn long_notes_are_cut_at_a_character() {
        assert_eq!(shorten_note("short".into()), "short");
        let cut = shorten_note("ä".repeat(2000));
        assert!(cut.len() <= LONGEST_NOTE && cut.ends_with('…'));
    }
}
