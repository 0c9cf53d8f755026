//! Which objects are due for a pass.
//!
//! An object is in at most one pass at a time; what happens meanwhile makes it due again. Objects at rest are not in
//! here at all: no entry, no timer. A wake-up carries its reason.

use crate::lock::lock;
use crate::shrinking_map;
use jiff::Timestamp;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::plan::Wake;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::fmt;
use std::sync::Mutex;
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::Instant;

/// Changes that come together are handled together: the Pods of a cluster become ready one by one, and each would
/// cost a pass and a status.
const GATHER: Duration = Duration::from_millis(100);
/// While there is little to do they are handled almost at once, so that every step shows in a status as it does
/// with KubeRay: a RayJob mirrors the step before its cluster is ready.
const GATHER_IN_QUIET: Duration = Duration::from_millis(3);
/// More passes than these within the time below are not little.
const QUIET: usize = 64;
const QUIET_TIME: Duration = Duration::from_secs(1);
/// The first and the longest wait after a failed pass.
const FIRST_BACK_OFF: Duration = Duration::from_millis(250);
const LONGEST_BACK_OFF: Duration = Duration::from_secs(120);
/// While writes are refused, changes of other objects do not bring the next try closer than this. In a namespace that is
/// being deleted, every Pod that goes would otherwise cost another refused Pod.
const REFUSED: Duration = Duration::from_secs(5);
/// When to look again for writes that the caches do not show yet. Most of them wake the object by themselves.
const NOT_SHOWN: Duration = Duration::from_secs(1);

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
    /// Something that the object depends on changed during the pass.
    dirty: bool,
    /// The object itself changed during the pass, in more than its status.
    changed: bool,
    /// The next pass is to see a status that the cache does not show yet; while running, the cache showed one.
    shown: Shown,
    /// Before this time, only a change of the object itself makes it due.
    held_until: Option<Instant>,
    /// Why the object is due; the first reason stays.
    reason: Option<WakeReason>,
    failures: u32,
    /// Since when the object has been waiting, for the lag metric.
    waiting_since: Option<Instant>,
}

/// Whether the cache shows the status that the last pass wrote.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
enum Shown {
    /// No pass waits for it.
    #[default]
    NotNeeded,
    /// The last pass waits for it.
    Awaited,
    /// A status came during the pass.
    DuringPass,
}

/// Why an object is due.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WakeReason {
    /// This object was created or changed.
    Changed(Kind, Box<str>),
    /// This object was deleted.
    Deleted(Kind, Box<str>),
    /// The watch of this kind has listed everything, or started over.
    Listed(Kind),
    /// Ray's dashboard or a Serve proxy replied.
    RayReplied,
    /// The time has come that the last pass asked for, and what it waited for.
    Timer(Option<Box<str>>),
    /// The cache shows the status that the last pass wrote, or a second has passed.
    StatusShown,
    /// The last pass failed.
    Retry,
}

impl fmt::Display for WakeReason {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Changed(kind, name) => write!(formatter, "{} {name} changed", kind.resource().kind),
            Self::Deleted(kind, name) => write!(formatter, "{} {name} was deleted", kind.resource().kind),
            Self::Listed(kind) => write!(formatter, "all of {} listed", kind.resource().plural),
            Self::RayReplied => write!(formatter, "Ray replied"),
            Self::Timer(None) => write!(formatter, "timer"),
            Self::Timer(Some(what)) => write!(formatter, "timer, waiting for {what}"),
            Self::StatusShown => write!(formatter, "its status was written"),
            Self::Retry => write!(formatter, "retry after a failed pass"),
        }
    }
}

/// When an object is due again after a pass.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Requeue {
    /// Not until something changes.
    OnChange,
    /// After this time at the latest; with what is waited for.
    After(Duration, Option<Box<str>>),
    /// When the cache shows the status that was written, or after a second.
    OnceShown,
    /// After a back-off that grows with every failure.
    BackOff,
    /// The same, after writes that failed: changes of other objects do not bring it much closer.
    Refused,
}

impl Requeue {
    /// Returns what a plan's wake-up means now.
    pub(crate) fn by(wake: Wake, now: Timestamp, waiting_for: Option<&str>) -> Self {
        match wake {
            Wake::BackOff => Self::BackOff,
            Wake::Refused => Self::Refused,
            Wake::OnceShown => Self::OnceShown,
            Wake::At(at) => {
                Self::After(Duration::try_from(at.duration_since(now)).unwrap_or_default(), waiting_for.map(Into::into))
            }
            Wake::OnChange => Self::OnChange,
        }
    }

    /// Returns whether the pass failed.
    pub(crate) fn is_failure(&self) -> bool {
        matches!(self, Self::BackOff | Self::Refused)
    }
}

/// An object that is due.
#[derive(Debug)]
pub struct Due {
    pub key: ObjectKey,
    /// How long it has been due.
    pub waited: Duration,
    /// The first of the reasons that came together.
    pub reason: WakeReason,
}

impl Queue {
    /// Makes an object due soon, because something changed that it depends on.
    pub fn wake(&self, key: &ObjectKey, reason: impl FnOnce() -> WakeReason) {
        self.wake_by(key, false, reason);
    }

    /// Makes an object due soon, because it changed in more than its status.
    pub(crate) fn wake_itself(&self, key: &ObjectKey, reason: impl FnOnce() -> WakeReason) {
        self.wake_by(key, true, reason);
    }

    fn wake_by(&self, key: &ObjectKey, itself: bool, reason: impl FnOnce() -> WakeReason) {
        let mut state = lock(&self.state);
        let mut held_until = None;
        if let Some(entry) = state.entries.get_mut(key) {
            if entry.running {
                entry.dirty = true;
                entry.changed |= itself;
                entry.reason.get_or_insert_with(reason);
                return;
            }
            held_until = entry.held_until.filter(|_| !itself);
        }
        let now = Instant::now();
        let at = (now + state.gather(now)).max(held_until.unwrap_or(now));
        state.schedule(key, at, reason);
        drop(state);
        self.changed.notify_one();
    }

    /// Takes note that the cache shows a new status of an object, and nothing else new about it. An object's own status
    /// wakes nobody but a pass that waits for it.
    pub(crate) fn status_shown(&self, key: &ObjectKey, reason: impl FnOnce() -> WakeReason) {
        let mut state = lock(&self.state);
        match state.entries.get_mut(key) {
            Some(entry) if entry.running => entry.shown = Shown::DuringPass,
            Some(entry) if entry.shown == Shown::Awaited => {
                let now = Instant::now();
                let at = now + state.gather(now);
                state.schedule(key, at, reason);
                drop(state);
                self.changed.notify_one();
            }
            _ => {}
        }
    }

    /// Waits for the next object that is due.
    pub async fn next(&self) -> Due {
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
                    biased;
                    () = changed => {}
                    () = tokio::time::sleep_until(at) => {}
                },
                None => changed.await,
            }
        }
    }

    /// Ends a pass over an object.
    pub fn done(&self, key: &ObjectKey, requeue: Requeue) {
        let mut state = lock(&self.state);
        let gather = state.gather(Instant::now());
        let Some(entry) = state.entries.get_mut(key) else { return };
        entry.running = false;
        let (dirty, changed) = (std::mem::take(&mut entry.dirty), std::mem::take(&mut entry.changed));
        let shown = std::mem::take(&mut entry.shown);
        entry.failures = if requeue.is_failure() { entry.failures.saturating_add(1) } else { 0 };
        entry.held_until = None;
        let wait = match requeue {
            _ if changed => Some((gather, WakeReason::Retry)),
            Requeue::BackOff => Some((back_off(entry.failures), WakeReason::Retry)),
            Requeue::Refused => {
                let wait = back_off(entry.failures);
                entry.held_until = Some(Instant::now() + wait.min(REFUSED));
                Some((wait, WakeReason::Retry))
            }
            _ if dirty => Some((gather, WakeReason::Retry)),
            Requeue::OnceShown if shown == Shown::DuringPass => Some((gather, WakeReason::StatusShown)),
            Requeue::OnceShown => {
                entry.shown = Shown::Awaited;
                Some((NOT_SHOWN, WakeReason::StatusShown))
            }
            Requeue::After(wait, what) => Some((wait, WakeReason::Timer(what))),
            Requeue::OnChange => None,
        };
        match wait {
            Some((wait, reason)) => state.schedule(key, Instant::now() + wait, || reason),
            None => shrinking_map::remove(&mut state.entries, key),
        }
        drop(state);
        self.changed.notify_one();
    }

    /// Returns the objects that are due or in a pass.
    pub(crate) fn keys(&self) -> Vec<ObjectKey> {
        lock(&self.state).entries.keys().cloned().collect()
    }

    /// Returns how long the first object has been due.
    pub(crate) fn overdue(&self) -> Duration {
        lock(&self.state).due.first_key_value().map_or(Duration::ZERO, |((at, _), _)| at.elapsed())
    }

    /// Returns how many objects are due or in a pass.
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
    fn schedule(&mut self, key: &ObjectKey, at: Instant, reason: impl FnOnce() -> WakeReason) {
        let sequence = self.sequence;
        self.sequence += 1;
        let entry = self.entries.entry(key.clone()).or_default();
        if let Some(due) = entry.due {
            if due.0 <= at {
                return;
            }
            self.due.remove(&due);
            entry.reason = None; // this one is the earlier
        }
        entry.reason.get_or_insert_with(reason);
        entry.due = Some((at, sequence));
        entry.waiting_since.get_or_insert(at);
        self.due.insert((at, sequence), key.clone());
    }

    fn take_first(&mut self) -> Due {
        let Some((_, key)) = self.due.pop_first() else { unreachable!("the caller saw an entry under this lock") };
        if self.begun.len() == QUIET {
            self.begun.pop_front();
        }
        self.begun.push_back(Instant::now());
        let entry = self.entries.entry(key.clone()).or_default();
        entry.due = None;
        entry.running = true;
        entry.shown = Shown::NotNeeded;
        let waited = entry.waiting_since.take().map_or(Duration::ZERO, |since| since.elapsed());
        let reason = entry.reason.take().unwrap_or(WakeReason::Timer(None));
        Due { key, waited, reason }
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

    fn changed() -> WakeReason {
        WakeReason::Changed(Kind::Pod, "p".into())
    }

    #[test]
    fn a_plan_says_when_the_object_is_due_again() {
        let now: Timestamp = "2026-03-01T08:00:00Z".parse().unwrap();
        let check = |wake: Wake, expect: Requeue| assert_eq!(Requeue::by(wake, now, Some("x")), expect);
        let (soon, past) = (now + Duration::from_secs(5), now - Duration::from_secs(5));
        check(Wake::OnChange, Requeue::OnChange);
        check(Wake::BackOff, Requeue::BackOff);
        check(Wake::Refused, Requeue::Refused);
        check(Wake::OnceShown, Requeue::OnceShown);
        check(Wake::At(soon), Requeue::After(Duration::from_secs(5), Some("x".into())));
        check(Wake::At(past), Requeue::After(Duration::ZERO, Some("x".into())));
    }

    #[tokio::test(start_paused = true)]
    async fn a_wake_up_carries_its_first_reason() {
        let queue = Queue::default();
        queue.wake(&key("a"), changed);
        queue.wake(&key("a"), || WakeReason::RayReplied);
        assert_eq!(queue.next().await.reason, changed());
        queue.wake(&key("a"), || WakeReason::RayReplied);
        queue.done(&key("a"), Requeue::OnChange);
        assert_eq!(queue.next().await.reason, WakeReason::RayReplied, "it came during the pass");
        queue.done(&key("a"), Requeue::After(Duration::from_secs(3600), Some("Godot".into())));
        queue.wake(&key("a"), changed);
        assert_eq!(queue.next().await.reason, changed(), "it came before the timer");
        queue.done(&key("a"), Requeue::After(Duration::from_secs(1), Some("Godot".into())));
        assert_eq!(queue.next().await.reason.to_string(), "timer, waiting for Godot");
        queue.done(&key("a"), Requeue::BackOff);
        assert_eq!(queue.next().await.reason, WakeReason::Retry);
    }

    #[tokio::test(start_paused = true)]
    async fn wakes_that_come_together_make_one_pass() {
        let queue = Queue::default();
        queue.wake(&key("a"), changed);
        queue.wake(&key("a"), changed);
        assert_eq!(queue.next().await.key, key("a"));
        queue.done(&key("a"), Requeue::OnChange);
        assert_eq!(queue.depth(), 0, "an object at rest has no entry");
    }

    #[tokio::test(start_paused = true)]
    async fn changes_are_gathered_for_longer_while_there_is_much_to_do() {
        let queue = Queue::default();
        let wait = async |name: &str| {
            let start = Instant::now();
            queue.wake(&key(name), changed);
            queue.next().await;
            queue.done(&key(name), Requeue::OnChange);
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
        queue.wake(&key("a"), changed);
        queue.next().await;
        queue.wake(&key("a"), changed);
        let other = tokio::time::timeout(Duration::from_secs(1), queue.next()).await;
        assert!(other.is_err(), "never two passes over one object at once");
        queue.done(&key("a"), Requeue::OnChange);
        assert_eq!(queue.next().await.key, key("a"));
    }

    #[tokio::test(start_paused = true)]
    async fn failures_back_off_and_a_success_forgets_them() {
        let queue = Queue::default();
        queue.wake(&key("a"), changed);
        let mut waits = Vec::new();
        for _ in 0..4 {
            let started = Instant::now();
            queue.next().await;
            waits.push(started.elapsed());
            queue.done(&key("a"), Requeue::BackOff);
        }
        assert!(waits.windows(2).all(|pair| pair[0] < pair[1]), "{waits:?}");
        queue.next().await;
        queue.done(&key("a"), Requeue::OnChange);
        assert_eq!(queue.depth(), 0);
    }

    #[tokio::test(start_paused = true)]
    async fn a_change_overtakes_a_long_wait() {
        let queue = Queue::default();
        queue.wake(&key("a"), changed);
        queue.next().await;
        queue.done(&key("a"), Requeue::After(Duration::from_secs(3600), None));
        queue.wake(&key("a"), changed);
        let started = Instant::now();
        queue.next().await;
        assert!(started.elapsed() < Duration::from_secs(1));
    }

    #[tokio::test(start_paused = true)]
    async fn an_objects_own_status_wakes_only_a_pass_that_waits_for_it() {
        let queue = Queue::default();
        let shown = || queue.status_shown(&key("a"), || WakeReason::StatusShown);
        shown();
        assert_eq!(queue.depth(), 0, "somebody else's status");
        let mut waits = Vec::new();
        for (during_pass, requeue) in [
            (false, Requeue::OnceShown),
            (true, Requeue::OnceShown),
            (true, Requeue::Refused),
            (false, Requeue::Refused),
        ] {
            queue.wake(&key("a"), changed);
            queue.next().await;
            if during_pass {
                shown();
            }
            queue.done(&key("a"), requeue);
            let started = Instant::now();
            shown();
            queue.next().await;
            waits.push(started.elapsed());
            queue.done(&key("a"), Requeue::OnChange);
        }
        assert!(waits[0] < FIRST_BACK_OFF && waits[1] < FIRST_BACK_OFF, "{waits:?}");
        assert!(waits[2] >= FIRST_BACK_OFF && waits[3] >= FIRST_BACK_OFF, "a status ends no back-off: {waits:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_status_that_no_watch_shows_is_not_waited_for_long() {
        let queue = Queue::default();
        queue.wake(&key("a"), changed);
        queue.next().await;
        queue.done(&key("a"), Requeue::OnceShown);
        let started = Instant::now();
        queue.next().await;
        assert!(started.elapsed() >= NOT_SHOWN && started.elapsed() < 2 * NOT_SHOWN);
    }

    #[tokio::test(start_paused = true)]
    async fn while_writes_are_refused_only_the_object_itself_shortens_the_wait() {
        let queue = Queue::default();
        queue.wake(&key("a"), changed);
        let mut tries = 0;
        let started = Instant::now();
        while started.elapsed() < Duration::from_secs(20) {
            queue.next().await;
            tries += 1;
            queue.wake(&key("a"), changed);
            queue.done(&key("a"), Requeue::Refused);
            queue.wake(&key("a"), changed);
        }
        assert!(tries <= 10, "{tries} tries in 20 s");
        queue.next().await;
        queue.done(&key("a"), Requeue::Refused);
        let started = Instant::now();
        queue.wake_itself(&key("a"), changed);
        queue.next().await;
        assert!(started.elapsed() < FIRST_BACK_OFF);
        queue.wake_itself(&key("a"), changed);
        queue.done(&key("a"), Requeue::Refused);
        queue.next().await;
        assert!(started.elapsed() < FIRST_BACK_OFF, "it changed during the pass");
    }
}
