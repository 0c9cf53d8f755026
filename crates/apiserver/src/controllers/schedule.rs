//! When the objects of a controller are due again: at a deadline, or after a failure with growing delays.

use std::collections::{BTreeMap, HashMap};
use std::time::Duration;

use jiff::Timestamp;

use crate::clock::{Clock, add_seconds};
use crate::store::ObjectKey;

/// The longest delay after repeated failures, in seconds.
const LONGEST_DELAY: i64 = 300;

/// The times at which objects are due.
#[derive(Default)]
pub(super) struct Schedule {
    due: BTreeMap<ObjectKey, Timestamp>,
    failures: HashMap<ObjectKey, u32>,
}

impl Schedule {
    /// Makes an object due at a time, or at no time.
    pub(super) fn set(&mut self, key: &ObjectKey, at: Option<Timestamp>) {
        match at {
            Some(at) => self.due.insert(key.clone(), at),
            None => self.due.remove(key),
        };
    }

    /// Makes an object due again after a failure: after one second at first, then ever later.
    pub(super) fn retry(&mut self, key: &ObjectKey, now: Timestamp) {
        let failures = self.failures.entry(key.clone()).or_default();
        let delay = 1_i64.checked_shl(*failures).unwrap_or(LONGEST_DELAY).clamp(1, LONGEST_DELAY);
        *failures = failures.saturating_add(1).min(30);
        let at = add_seconds(now, delay);
        let at = self.due.get(key).map_or(at, |known| (*known).min(at));
        self.due.insert(key.clone(), at);
    }

    /// Forgets the failures of an object.
    pub(super) fn succeeded(&mut self, key: &ObjectKey) {
        self.failures.remove(key);
    }

    /// Waits until the first object is due; forever if there is none.
    pub(super) async fn wait(&self, clock: &Clock) {
        match self.due.values().min() {
            Some(at) => {
                let wait = Duration::try_from(at.duration_since(clock.now())).unwrap_or(Duration::ZERO);
                tokio::time::sleep(wait).await;
            }
            None => std::future::pending().await,
        }
    }

    /// Removes and returns the objects that are due.
    pub(super) fn take_due(&mut self, now: Timestamp) -> Vec<ObjectKey> {
        let due: Vec<ObjectKey> = self.due.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()).collect();
        for key in &due {
            self.due.remove(key);
        }
        due
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_delay_an_object_ever_longer() {
        let at = |second: i64| Timestamp::from_second(second).expect("in range");
        let key = ObjectKey::new("n", "a");
        let mut schedule = Schedule::default();
        for (now, due) in [(0, 1), (1, 3), (3, 7)] {
            schedule.retry(&key, at(now));
            assert!(schedule.take_due(at(due - 1)).is_empty(), "not before {due}");
            assert_eq!(schedule.take_due(at(due)), std::slice::from_ref(&key));
        }
        schedule.succeeded(&key);
        schedule.retry(&key, at(10));
        assert_eq!(schedule.take_due(at(11)), [key]);
    }
}
