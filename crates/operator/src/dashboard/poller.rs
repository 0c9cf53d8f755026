//! One light task per object that follows something at a dashboard.
//!
//! The pace follows what is heard: quick after news, slower while nothing changes, and much slower while
//! nobody answers. After a few failures in a row the circuit is open: then a task also needs one of a few
//! slots that all such tasks share, so that dead dashboards crowd out nobody.

use super::client::Client;
use crate::queue::Queue;
use crate::stores::lock;
use jiff::Timestamp;
use manta_logic::action::ObjectKey;
use std::collections::HashMap;
use std::future::Future;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::{Notify, Semaphore};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;

/// The wait after news, and the longest while all goes well.
const QUICK: Duration = Duration::from_secs(1);
const STEADY: Duration = Duration::from_secs(5);
/// The longest wait while nobody answers.
const TIRED: Duration = Duration::from_secs(30);
/// Failures in a row that open the circuit.
const OPEN_AFTER: u32 = 3;
/// Requests to silent dashboards that may be under way at once.
const SLOTS: usize = 32;

/// Something to follow at a dashboard, and how to ask about it.
pub(crate) trait Subject: Clone + Send + Sync + 'static {
    /// What is known about it.
    type Known: Clone + Send + 'static;

    /// Whether what is known about the other holds for this one.
    fn is_about_the_same(&self, other: &Self) -> bool;

    /// Whether the change from the other cannot wait for the next round.
    fn is_urgent(&self, other: &Self) -> bool;

    /// Ask at once if the last answer is older than this.
    fn fresher_than(&self) -> Option<Timestamp>;

    /// What is known before the first answer.
    fn start(now: Timestamp) -> Self::Known;

    /// Asks once.
    fn ask(&self, client: &Client, known: Self::Known) -> impl Future<Output = Round<Self::Known>> + Send;
}

/// What came of asking once.
pub(crate) struct Round<K> {
    pub(crate) known: K,
    /// Whether the dashboard gave a usable answer.
    pub(crate) reached: bool,
    /// Whether it said something else than before.
    pub(crate) news: bool,
    /// Whether there is nothing more to ask.
    pub(crate) over: bool,
}

/// All tasks that follow one sort of subject.
pub(crate) struct Pollers<S: Subject> {
    entries: Arc<Mutex<HashMap<ObjectKey, Entry<S>>>>,
    client: Client,
    queue: Arc<Queue>,
    slots: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

struct Entry<S: Subject> {
    subject: S,
    known: S::Known,
    /// When the last answer came.
    heard: Option<Timestamp>,
    /// Something changed that cannot wait for the next round.
    urgent: bool,
    changed: Arc<Notify>,
    cancel: CancellationToken,
}

impl<S: Subject> Pollers<S> {
    pub(crate) fn new(client: Client, queue: Arc<Queue>, tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self { entries: Arc::default(), client, queue, slots: Arc::new(Semaphore::new(SLOTS)), tasks, stop }
    }

    /// What is known for an object.
    pub(crate) fn known(&self, owner: &ObjectKey) -> Option<S::Known> {
        lock(&self.entries).get(owner).map(|entry| entry.known.clone())
    }

    /// Follows this subject for an object from now on, or nothing.
    pub(crate) fn follow(&self, owner: &ObjectKey, subject: Option<S>) {
        let mut entries = lock(&self.entries);
        let Some(subject) = subject else {
            if let Some(entry) = entries.remove(owner) {
                entry.cancel.cancel();
            }
            return;
        };
        if let Some(entry) = entries.get_mut(owner)
            && entry.subject.is_about_the_same(&subject)
        {
            entry.urgent |= subject.is_urgent(&entry.subject);
            let changed = entry.urgent || subject.fresher_than() != entry.subject.fresher_than();
            entry.subject = subject;
            if changed {
                entry.changed.notify_one();
            }
            return;
        }
        let cancel = self.stop.child_token();
        let changed = Arc::new(Notify::new());
        let entry = Entry {
            subject,
            known: S::start(self.client.now()),
            heard: None,
            urgent: false,
            changed: Arc::clone(&changed),
            cancel: cancel.clone(),
        };
        if let Some(before) = entries.insert(owner.clone(), entry) {
            before.cancel.cancel();
        }
        let task = Task {
            owner: owner.clone(),
            entries: Arc::clone(&self.entries),
            client: self.client.clone(),
            queue: Arc::clone(&self.queue),
            slots: Arc::clone(&self.slots),
            cancel: cancel.clone(),
        };
        self.tasks.spawn(async move {
            tokio::select! {
                () = cancel.cancelled() => {}
                () = task.run(&changed) => {}
            }
        });
    }

    /// How many objects are followed.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        lock(&self.entries).len()
    }
}

struct Task<S: Subject> {
    owner: ObjectKey,
    entries: Arc<Mutex<HashMap<ObjectKey, Entry<S>>>>,
    client: Client,
    queue: Arc<Queue>,
    slots: Arc<Semaphore>,
    cancel: CancellationToken,
}

impl<S: Subject> Task<S> {
    async fn run(&self, changed: &Notify) {
        let mut pace = Pace::new(&self.owner);
        loop {
            let Some((subject, known)) = self.current() else { return };
            let round = {
                let _slot = match pace.is_open() {
                    true => Some(self.slots.acquire().await),
                    false => None,
                };
                subject.ask(&self.client, known).await
            };
            pace.heard(round.reached, round.news);
            let over = round.over;
            self.note(round);
            if over {
                self.moment_to_ask(changed).await;
                continue;
            }
            tokio::select! {
                () = tokio::time::sleep(pace.wait()) => {}
                () = self.moment_to_ask(changed) => {}
            }
        }
    }

    fn current(&self) -> Option<(S, S::Known)> {
        let mut entries = lock(&self.entries);
        let entry = entries.get_mut(&self.owner).filter(|_| !self.cancel.is_cancelled())?;
        entry.urgent = false;
        Some((entry.subject.clone(), entry.known.clone()))
    }

    /// Keeps what was heard, unless the object follows something else by now, and tells the object if it is
    /// news or if a fresh answer was wanted.
    fn note(&self, round: Round<S::Known>) {
        let mut tell = round.news;
        if let Some(entry) = lock(&self.entries).get_mut(&self.owner).filter(|_| !self.cancel.is_cancelled()) {
            let before = entry.heard.replace(self.client.now());
            tell |= entry.subject.fresher_than().is_some_and(|limit| before.is_none_or(|before| before < limit));
            entry.known = round.known;
        }
        if tell {
            self.queue.wake(&self.owner);
        }
    }

    /// Waits for a change that cannot wait, or for the moment that the next answer has to be younger than.
    async fn moment_to_ask(&self, changed: &Notify) {
        loop {
            match self.time_to_ask() {
                Some(wait) if wait.is_zero() => return,
                Some(wait) => tokio::select! {
                    () = tokio::time::sleep(wait) => {}
                    () = changed.notified() => {}
                },
                None => changed.notified().await,
            }
        }
    }

    /// How long until somebody needs a fresh answer, if anybody does.
    fn time_to_ask(&self) -> Option<Duration> {
        let entries = lock(&self.entries);
        let entry = entries.get(&self.owner)?;
        if entry.urgent {
            return Some(Duration::ZERO);
        }
        let limit = entry.subject.fresher_than()?;
        let needed = entry.heard.is_none_or(|heard| heard < limit);
        needed.then(|| Duration::try_from(limit.duration_since(self.client.now())).unwrap_or_default())
    }
}

/// How long to wait until the next round.
struct Pace {
    failures: u32,
    since_news: Instant,
    /// Differs from object to object, so that they do not ask in step.
    spread: f64,
}

impl Pace {
    fn new(owner: &ObjectKey) -> Self {
        let sum = owner.name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        Self { failures: 0, since_news: Instant::now(), spread: 0.9 + f64::from(sum % 21) / 100.0 }
    }

    fn heard(&mut self, reached: bool, news: bool) {
        self.failures = if reached { 0 } else { self.failures.saturating_add(1) };
        if news {
            self.since_news = Instant::now();
        }
    }

    /// Whether the dashboard is taken for dead.
    fn is_open(&self) -> bool {
        self.failures >= OPEN_AFTER
    }

    fn wait(&self) -> Duration {
        let wait = match self.failures {
            0 => (self.since_news.elapsed() / 10).clamp(QUICK, STEADY),
            failures => (QUICK * 2u32.saturating_pow(failures.min(6) - 1)).min(TIRED),
        };
        wait.mul_f64(self.spread)
    }
}

#[cfg(test)]
mod tests;
