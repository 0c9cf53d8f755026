//! Which objects are due for a pass.
//!
//! An object is in at most one pass at a time; what happens meanwhile makes it due again. Objects
//! at rest are not in here at all: no entry, no timer.

use jiff::Timestamp;
use manta_logic::action::{ObjectKey, Wake};
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::stores::lock;

/// Changes that come together are looked at together: the Pods of a cluster become ready one by one, and each would
/// cost a pass and a status.
const GATHER: Duration = Duration::from_millis(100);
/// While there is little to do they are looked at almost at once, so that every step shows in a status as it does
/// with KubeRay: a RayJob mirrors the step before its cluster is ready.
const GATHER_IN_QUIET: Duration = Duration::from_millis(3);
/// More passes than these within the time below are not little.
const QUIET: usize = 64;
const QUIET_TIME: Duration = Duration::from_secs(1);
/// The first and the longest wait after a failed pass.
const FIRST_BACK_OFF: Duration = Duration::from_millis(250);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(120);

/// The objects that are due, and when.
#[derive(Default)]
pub struct Queue {
    state: Mutex<State>,
    changed: Notify,
}

#[derive(Default)]
struct State {
    entries: HashMap<ObjectKey, Entry>,
    due: BTreeMap<(Instant, u64), ObjectKey>,
    sequence: u64,
    /// When the last passes began, the latest at the end.
    begun: VecDeque<Instant>,
}

#[derive(Default)]
struct Entry {
    due: Option<(Instant, u64)>,
    running: bool,
    /// Something happened during the pass.
    dirty: bool,
    failures: u32,
    /// Since when the object has been waiting, for the lag metric.
    waiting_since: Option<Instant>,
}

/// How a pass ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing to do until something changes.
    Rest,
    /// Look again after this time at the latest.
    After(Duration),
    /// It failed: look again after a growing while.
    BackOff,
}

impl Next {
    /// What a plan's wish means now, unless carrying it out has failed.
    pub(crate) fn by(wake: Wake, failed: bool, now: Timestamp) -> Self {
        match wake {
            _ if failed => Self::BackOff,
            Wake::BackOff => Self::BackOff,
            Wake::At(at) => Self::After(Duration::try_from(at.duration_since(now)).unwrap_or_default()),
            Wake::OnChange => Self::Rest,
        }
    }

    /// The earlier of the two; failures come first.
    pub(crate) fn or_earlier(self, other: Self) -> Self {
        match (self, other) {
            (Self::BackOff, _) | (_, Self::BackOff) => Self::BackOff,
            (Self::After(one), Self::After(two)) => Self::After(one.min(two)),
            (Self::Rest, next) | (next, Self::Rest) => next,
        }
    }
}

impl Queue {
    /// Something about an object has changed.
    pub fn wake(&self, key: &ObjectKey) {
        let mut state = lock(&self.state);
        if let Some(entry) = state.entries.get_mut(key)
            && entry.running
        {
            entry.dirty = true;
            return;
        }
        let now = Instant::now();
        let wait = state.gather(now);
        state.schedule(key, now + wait);
        drop(state);
        self.changed.notify_one();
    }

    /// Waits for the next object that is due and gives it out with how long it has waited.
    pub async fn next(&self) -> (ObjectKey, Duration) {
        loop {
            let changed = self.changed.notified();
            let first = {
                let mut state = lock(&self.state);
                match state.due.first_key_value() {
                    Some((&(at, _), _)) if at <= Instant::now() => return state.take_first(),
                    Some((&(at, _), _)) => Some(at),
                    None => None,
                }
            };
            match first {
                Some(at) => tokio::select! {
                    () = changed => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    /// A pass over an object has ended.
    pub fn done(&self, key: &ObjectKey, next: Next) {
        let mut state = lock(&self.state);
        let gather = state.gather(Instant::now());
        let Some(entry) = state.entries.get_mut(key) else { return };
        entry.running = false;
        let dirty = std::mem::take(&mut entry.dirty);
        entry.failures = if next == Next::BackOff { entry.failures.saturating_add(1) } else { 0 };
        let wait = match next {
            Next::BackOff => Some(back_off(entry.failures)),
            _ if dirty => Some(gather),
            Next::After(wait) => Some(wait),
            Next::Rest => None,
        };
        match wait {
            Some(wait) => state.schedule(key, Instant::now() + wait),
            None => {
                state.entries.remove(key);
            }
        }
        drop(state);
        self.changed.notify_one();
    }

    /// The objects that are due or in a pass.
    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        lock(&self.state).entries.keys().cloned().collect()
    }

    /// For how long the first object has been due.
    pub(crate) fn overdue(&self) -> Duration {
        lock(&self.state).due.first_key_value().map_or(Duration::ZERO, |((at, _), _)| at.elapsed())
    }

    /// How many objects are due or in a pass.
    pub fn depth(&self) -> usize {
        lock(&self.state).entries.len()
    }
}

impl State {
    /// How long to wait for changes that belong together.
    fn gather(&self, now: Instant) -> Duration {
        let busy = self.begun.len() == QUIET && self.begun.front().is_some_and(|first| now < *first + QUIET_TIME);
        if busy { GATHER } else { GATHER_IN_QUIET }
    }

    /// Makes an object due at this time, or earlier if it already is.
    fn schedule(&mut self, key: &ObjectKey, at: Instant) {
        let sequence = self.sequence;
        self.sequence += 1;
        let entry = self.entries.entry(key.clone()).or_default();
        if let Some(due) = entry.due {
            if due.0 <= at {
                return;
            }
            self.due.remove(&due);
        }
        entry.due = Some((at, sequence));
        entry.waiting_since.get_or_insert(at);
        self.due.insert((at, sequence), key.clone());
    }

    fn take_first(&mut self) -> (ObjectKey, Duration) {
        let Some((_, key)) = self.due.pop_first() else { unreachable!("the caller saw an entry under this lock") };
        if self.begun.len() == QUIET {
            self.begun.pop_front();
        }
        self.begun.push_back(Instant::now());
        let entry = self.entries.entry(key.clone()).or_default();
        entry.due = None;
        entry.running = true;
        let lag = entry.waiting_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        (key, lag)
    }
}

fn back_off(failures: u32) -> Duration {
    FIRST_BACK_OFF.saturating_mul(1 << failures.saturating_sub(1).min(16)).min(LONGEST_BACK_OFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use manta_logic::action::Kind;

    fn key(name: &str) -> ObjectKey {
        ObjectKey::new(Kind::RayCluster, "default", name)
    }

    #[test]
    fn a_plans_wish_says_when_to_look_again() {
        let now: Timestamp = "2026-03-01T08:00:00Z".parse().unwrap();
        let check = |wake: Wake, failed: bool, expect: Next| assert_eq!(Next::by(wake, failed, now), expect);
        let (soon, past) = (now + Duration::from_secs(5), now - Duration::from_secs(5));
        check(Wake::OnChange, false, Next::Rest);
        check(Wake::OnChange, true, Next::BackOff);
        check(Wake::BackOff, false, Next::BackOff);
        check(Wake::At(soon), false, Next::After(Duration::from_secs(5)));
        check(Wake::At(past), false, Next::After(Duration::ZERO));
        check(Wake::At(soon), true, Next::BackOff);
    }

    #[test]
    fn of_two_looks_the_earlier_one_counts() {
        let after = |seconds| Next::After(Duration::from_secs(seconds));
        let check = |one: Next, two: Next, expect: Next| {
            assert_eq!(one.or_earlier(two), expect);
            assert_eq!(two.or_earlier(one), expect);
        };
        check(Next::Rest, Next::Rest, Next::Rest);
        check(Next::Rest, after(3), after(3));
        check(after(2), after(3), after(2));
        check(after(0), Next::BackOff, Next::BackOff);
    }

    #[tokio::test(start_paused = true)]
    async fn wakes_that_come_together_make_one_pass() {
        let queue = Queue::default();
        queue.wake(&key("a"));
        queue.wake(&key("a"));
        assert_eq!(queue.next().await.0, key("a"));
        queue.done(&key("a"), Next::Rest);
        assert_eq!(queue.depth(), 0, "an object at rest has no entry");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_gathered_for_longer_while_there_is_much_to_do() {
        let queue = Queue::default();
        let wait = async |name: &str| {
            let start = Instant::now();
            queue.wake(&key(name));
            queue.next().await;
            queue.done(&key(name), Next::Rest);
            start.elapsed()
        };
        for number in 0..QUIET {
            assert!(wait(&number.to_string()).await < 2 * GATHER_IN_QUIET);
        }
        assert!(wait("busy").await >= GATHER);
        tokio::time::advance(QUIET_TIME).await;
        assert!(wait("quiet again").await < 2 * GATHER_IN_QUIET);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_during_a_pass_makes_another() {
        let queue = Queue::default();
        queue.wake(&key("a"));
        queue.next().await;
        queue.wake(&key("a"));
        let other = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        assert!(other.is_err(), "never two passes over one object at once");
        queue.done(&key("a"), Next::Rest);
        assert_eq!(queue.next().await.0, key("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_a_success_forgets_them() {
        let queue = Queue::default();
        queue.wake(&key("a"));
        let mut waits = Vec::new();
        for _ in 0..4 {
            let started = Instant::now();
            queue.next().await;
            waits.push(started.elapsed());
            queue.done(&key("a"), Next::BackOff);
        }
        assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
        queue.next().await;
        queue.done(&key("a"), Next::Rest);
        assert_eq!(queue.depth(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_overtakes_a_long_wait() {
        let queue = Queue::default();
        queue.wake(&key("a"));
        queue.next().await;
        queue.done(&key("a"), Next::After(Duration::from_secs(3600)));
        queue.wake(&key("a"));
        let started = Instant::now();
        queue.next().await;
        assert!(started.elapsed() < Duration::from_secs(1));
    }
}
