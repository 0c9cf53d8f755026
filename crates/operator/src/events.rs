//! Publishes events about our objects, as `events.k8s.io/v1`.
//!
//! Events of one pass that differ only in their note become one with a count, like KubeRay's
//! recorder shows them. What was told in the last minutes is not told again: an object that stays
//! invalid costs one write, not one per pass. Nobody waits for an event to be written.

use crate::act;
use crate::clock::Clock;
use crate::stores::lock;
use k8s_openapi::api::core::v1::ObjectReference;
use k8s_openapi::api::events::v1::{Event as Published, EventSeries};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{MicroTime, ObjectMeta};
use kube::api::PostParams;
use kube::core::request::Request;
use kube::{Client, Resource};
use manta_logic::action::{Event, EventKind};
use std::collections::HashMap;
use std::hash::{BuildHasher, RandomState};
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

/// Takes events and writes them in the background.
#[derive(Clone)]
pub struct Publisher {
    sender: mpsc::Sender<Published>,
    told: Arc<Mutex<Told>>,
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
            if lock(&self.told).is_news(&uid, &event)
                && self.sender.try_send(self.published(regarding, event, count)).is_err()
            {
                warn!("too many events wait to be written; one was dropped");
            }
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

/// What was told lately.
///
/// Only a number stands for each: of a thousand clusters this would otherwise be a megabyte of notes.
#[derive(Default)]
struct Told {
    news: HashMap<u64, Instant>,
    numbers: RandomState,
    /// How many were left when the old ones were last thrown out.
    left: usize,
}

impl Told {
    /// Whether this was not told lately; from now on it was.
    fn is_news(&mut self, uid: &str, event: &Event) -> bool {
        let now = Instant::now();
        if self.news.len() > WAITING.max(2 * self.left) {
            self.news.retain(|_, at| now.duration_since(*at) < TOLD_FOR);
            self.left = self.news.len();
        }
        let number = self.numbers.hash_one((uid, event.reason, &event.note));
        match self.news.insert(number, now) {
            Some(at) => now.duration_since(at) >= TOLD_FOR,
            None => true,
        }
    }
}

async fn write_all(client: Client, mut events: mpsc::Receiver<Published>) {
    while let Some(event) = events.recv().await {
        if let Err(error) = write(&client, &event).await {
            // An object that is gone takes its namespace with it at times; that is no news.
            warn!(reason = event.reason, error = act::text(&error), "an event could not be written");
        }
    }
}

async fn write(client: &Client, event: &Published) -> Result<(), kube::Error> {
    let namespace = event.metadata.namespace.as_deref().unwrap_or_default();
    let bytes = serde_json::to_vec(event).map_err(kube::Error::SerdeError)?;
    let request = Request::new(format!("/apis/events.k8s.io/v1/namespaces/{namespace}/events"))
        .create(&PostParams::default(), bytes)
        .map_err(kube::Error::BuildRequest)?;
    act::send(client, request).await.map(drop)
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
    async fn the_same_is_no_news_for_a_while() {
        let mut told = Told::default();
        let event = |note: &str| Event::normal("Created", "Create", note);
        assert!(told.is_news("u", &event("a")));
        assert!(!told.is_news("u", &event("a")));
        assert!(told.is_news("v", &event("a")) && told.is_news("u", &event("b")));
        tokio::time::advance(TOLD_FOR).await;
        assert!(told.is_news("u", &event("a")));
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_told_long_ago_takes_no_room() {
        let mut told = Told::default();
        let mut tell = |number: usize| told.is_news("u", &Event::normal("Created", "Create", number.to_string()));
        (0..=WAITING).for_each(|number| assert!(tell(number)));
        tokio::time::advance(TOLD_FOR).await;
        assert!(tell(0));
        assert_eq!(told.news.len(), 1);
    }

    #[test]
    fn long_notes_are_cut_at_a_character() {
        assert_eq!(shorten_note("short".into()), "short");
        let cut = shorten_note("ä".repeat(2000));
        assert!(cut.len() <= LONGEST_NOTE && cut.ends_with('…'));
    }
}
