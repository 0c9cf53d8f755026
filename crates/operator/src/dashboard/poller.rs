//! One light task per object that polls a dashboard.
//!
//! The pace follows the replies: quick after a change, slower while nothing changes, and much slower while the
//! dashboard does not reply. After a few failures in a row the circuit is open: then a task also needs one of a few
//! slots that all such tasks share, so that dead dashboards starve no other.

use super::client::Client;
use crate::lock::lock;
use crate::queue::{Queue, WakeReason};
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

/// The wait after a change, and the longest while all goes well: how late a change is seen at most.
const QUICK: Duration = Duration::from_secs(1);
const STEADY: Duration = Duration::from_secs(5);
/// The longest wait while the dashboard does not reply.
const TIRED: Duration = Duration::from_secs(30);
/// Failures in a row that open the circuit.
const OPEN_AFTER: u32 = 3;
/// Requests to silent dashboards that may be under way at once.
const SLOTS: usize = 32;

/// Something to poll at a dashboard.
pub(crate) trait Poll: Clone + PartialEq + Send + Sync + 'static {
    /// What is known about it.
    type State: Clone + Send + 'static;
    /// What one round brings.
    type Reply: Send + 'static;

    /// Returns whether the state of the other poll holds for this one.
    fn is_about_the_same(&self, other: &Self) -> bool;

    /// Returns whether the change from the other poll cannot wait for the next round.
    fn is_urgent(&self, other: &Self) -> bool;

    /// Returns the time that the next reply must be younger than.
    fn fresher_than(&self) -> Option<Timestamp>;

    /// Returns what is known before the first reply.
    fn start(now: Timestamp) -> Self::State;

    /// Asks once.
    fn ask(&self, client: &Client) -> impl Future<Output = Self::Reply> + Send;

    /// Takes a reply.
    fn observe(&self, state: &mut Self::State, reply: Self::Reply) -> Round;
}

/// What came of asking once.
pub(crate) struct Round {
    /// Whether the dashboard gave a usable reply.
    pub(crate) reached: bool,
    /// Whether it says something else than before.
    pub(crate) changed: bool,
}

/// All tasks that poll one sort of thing.
pub(crate) struct Pollers<P: Poll> {
    entries: Arc<Mutex<HashMap<ObjectKey, Entry<P>>>>,
    client: Client,
    queue: Arc<Queue>,
    slots: Arc<Semaphore>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

struct Entry<P: Poll> {
    poll: P,
    state: P::State,
    /// When the last reply came.
    replied: Option<Timestamp>,
    /// Something changed that cannot wait for the next round.
    urgent: bool,
    /// How many requests have changed the state; replies from before the last one say nothing.
    requests: u64,
    changed: Arc<Notify>,
    cancel: CancellationToken,
}

impl<P: Poll> Pollers<P> {
    pub(crate) fn new(client: Client, queue: Arc<Queue>, tasks: TaskTracker, stop: CancellationToken) -> Self {
        Self { entries: Arc::default(), client, queue, slots: Arc::new(Semaphore::new(SLOTS)), tasks, stop }
    }

    /// Returns what is known for an object.
    pub(crate) fn state(&self, owner: &ObjectKey) -> Option<P::State> {
        lock(&self.entries).get(owner).map(|entry| entry.state.clone())
    }

    /// Records what became of a request, and asks at once what it has changed.
    pub(crate) fn record(&self, owner: &ObjectKey, change: impl FnOnce(&mut P::State)) {
        if let Some(entry) = lock(&self.entries).get_mut(owner) {
            change(&mut entry.state);
            entry.requests += 1;
            entry.urgent = true;
            entry.changed.notify_one();
        }
    }

    /// Polls this for an object from now on, or nothing.
    pub(crate) fn follow(&self, owner: &ObjectKey, poll: Option<P>) {
        let mut entries = lock(&self.entries);
        let Some(poll) = poll else {
            if let Some(entry) = entries.remove(owner) {
                entry.cancel.cancel();
            }
            return;
        };
        if let Some(entry) = entries.get_mut(owner)
            && entry.poll.is_about_the_same(&poll)
        {
            entry.urgent |= poll.is_urgent(&entry.poll);
            let changed = entry.urgent || poll.fresher_than() != entry.poll.fresher_than();
            entry.poll = poll;
            if changed {
                entry.changed.notify_one();
            }
            return;
        }
        let cancel = self.stop.child_token();
        let changed = Arc::new(Notify::new());
        let entry = Entry {
            poll,
            state: P::start(self.client.now()),
            replied: None,
            urgent: false,
            requests: 0,
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
                biased;
                () = cancel.cancelled() => {}
                () = task.run(&changed) => {}
            }
        });
    }

    /// Returns how many objects are polled.
    #[cfg(test)]
    pub(crate) fn count(&self) -> usize {
        lock(&self.entries).len()
    }
}

struct Task<P: Poll> {
    owner: ObjectKey,
    entries: Arc<Mutex<HashMap<ObjectKey, Entry<P>>>>,
    client: Client,
    queue: Arc<Queue>,
    slots: Arc<Semaphore>,
    cancel: CancellationToken,
}

impl<P: Poll> Task<P> {
    async fn run(&self, changed: &Notify) {
        let mut pace = Pace::new(&self.owner);
        loop {
            let Some((poll, requests)) = self.current() else { return };
            let reply = {
                let _slot = match pace.is_open() {
                    true => Some(self.slots.acquire().await),
                    false => None,
                };
                poll.ask(&self.client).await
            };
            if let Some(round) = self.take(&poll, requests, reply) {
                pace.replied(&round);
            }
            tokio::select! {
                biased;
                () = tokio::time::sleep(pace.wait()) => {}
                () = self.moment_to_ask(changed) => {}
            }
        }
    }

    fn current(&self) -> Option<(P, u64)> {
        let mut entries = lock(&self.entries);
        let entry = entries.get_mut(&self.owner).filter(|_| !self.cancel.is_cancelled())?;
        entry.urgent = false;
        Some((entry.poll.clone(), entry.requests))
    }

    /// Takes a reply, unless the object polls something else by now or a request has overtaken it. Wakes the object if
    /// the reply says something new, or if a fresh one was wanted.
    fn take(&self, poll: &P, requests: u64, reply: P::Reply) -> Option<Round> {
        let (round, wanted) = {
            let mut entries = lock(&self.entries);
            let entry = entries.get_mut(&self.owner).filter(|_| !self.cancel.is_cancelled())?;
            if entry.requests != requests {
                return None;
            }
            let before = entry.replied.replace(self.client.now());
            let limit = entry.poll.fresher_than();
            let wanted = limit.is_some_and(|limit| before.is_none_or(|before| before < limit));
            (poll.observe(&mut entry.state, reply), wanted)
        };
        if round.changed || wanted {
            self.queue.wake(&self.owner, || WakeReason::RayReplied);
        }
        Some(round)
    }

    /// Waits for a change that cannot wait, or for the moment that the next reply has to be younger than.
    async fn moment_to_ask(&self, changed: &Notify) {
        loop {
            match self.time_to_ask() {
                Some(wait) if wait.is_zero() => return,
                Some(wait) => tokio::select! {
                    biased;
                    () = tokio::time::sleep(wait) => {}
                    () = changed.notified() => {}
                },
                None => changed.notified().await,
            }
        }
    }

    /// Returns how long until a fresh reply is needed, if one is.
    fn time_to_ask(&self) -> Option<Duration> {
        let entries = lock(&self.entries);
        let entry = entries.get(&self.owner)?;
        if entry.urgent {
            return Some(Duration::ZERO);
        }
        let limit = entry.poll.fresher_than()?;
        let needed = entry.replied.is_none_or(|replied| replied < limit);
        needed.then(|| Duration::try_from(limit.duration_since(self.client.now())).unwrap_or_default())
    }
}

/// How long to wait until the next round.
struct Pace {
    failures: u32,
    since_change: Instant,
    /// Shortens the waits, differently from object to object, so that they do not poll in step.
    spread: f64,
}

impl Pace {
    fn new(owner: &ObjectKey) -> Self {
        let sum = owner.name.bytes().fold(0u32, |sum, byte| sum.wrapping_mul(31).wrapping_add(byte.into()));
        Self { failures: 0, since_change: Instant::now(), spread: 0.9 + f64::from(sum % 101) / 1000.0 }
    }

    fn replied(&mut self, round: &Round) {
        self.failures = if round.reached { 0 } else { self.failures.saturating_add(1) };
        if round.changed {
            self.since_change = Instant::now();
        }
    }

    /// Returns whether the dashboard is taken for dead.
    fn is_open(&self) -> bool {
        self.failures >= OPEN_AFTER
    }

    fn wait(&self) -> Duration {
        let wait = match self.failures {
            0 => (self.since_change.elapsed() / 10).clamp(QUICK, STEADY),
            failures => (QUICK * 2u32.saturating_pow(failures.min(6) - 1)).min(TIRED),
        };
        wait.mul_f64(self.spread)
    }
}

#[cfg(test)]
mod tests;
