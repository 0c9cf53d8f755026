//! How the traffic is shared during an incremental upgrade. The two weights always sum to 100.

use super::capacity::{Direction, Share};
use jiff::{SignedDuration, Timestamp};

/// Weights of the active and of the pending cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Weights {
    pub(super) active: i32,
    pub(super) pending: i32,
}

/// What a step of the traffic depends on.
#[derive(Clone, Copy, Debug)]
pub(super) struct Traffic {
    pub(super) active: Share,
    pub(super) pending: Share,
    pub(super) direction: Direction,
    /// When the traffic of the cluster that gains it last changed.
    pub(super) last: Option<Timestamp>,
    pub(super) step: i32,
    pub(super) interval: SignedDuration,
    /// Whether the cluster that gains traffic can take it: its applications run with the capacity that it should have.
    pub(super) gaining_serves: bool,
}

/// Returns the weights from now on, and the moment of the next change, if only time is missing.
pub(super) fn weights(traffic: Traffic, now: Timestamp) -> (Weights, Option<Timestamp>) {
    let Traffic { active, pending, direction, .. } = traffic;
    let keep = shared(active.traffic);
    let gaining = match direction {
        Direction::Forwards => pending,
        Direction::Back => active,
    };
    if gaining.traffic == gaining.capacity {
        return (keep, None);
    }
    let due = traffic.last.and_then(|last| last.checked_add(traffic.interval).ok());
    if let Some(due) = due.filter(|due| *due > now) {
        return (keep, Some(due));
    }
    let next = gaining.traffic.saturating_add(traffic.step).min(gaining.capacity);
    match direction {
        _ if !traffic.gaining_serves => (keep, None),
        Direction::Back => (shared(next), None),
        Direction::Forwards => (shared(100 - next), None),
    }
}

fn shared(active: i32) -> Weights {
    let active = active.clamp(0, 100);
    Weights { active, pending: 100 - active }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn now() -> Timestamp {
        "2026-01-01T00:01:00Z".parse().unwrap()
    }

    fn traffic(active: (i32, i32), pending: (i32, i32)) -> Traffic {
        let share = |(capacity, traffic)| Share { capacity, traffic };
        Traffic {
            active: share(active),
            pending: share(pending),
            direction: Direction::Forwards,
            last: Some(now() - SignedDuration::from_secs(30)),
            step: 10,
            interval: SignedDuration::from_secs(30),
            gaining_serves: true,
        }
    }

    #[test]
    fn traffic_moves_in_steps_up_to_the_capacity() {
        let check = |given: Traffic, expect: (i32, i32)| {
            let (weights, _) = weights(given, now());
            assert_eq!((weights.active, weights.pending), expect, "{given:?}");
        };
        let start = traffic((100, 100), (60, 0));
        check(Traffic { gaining_serves: false, ..start }, (100, 0));
        check(Traffic { last: Some(now()), ..start }, (100, 0));
        check(start, (90, 10));
        check(traffic((100, 100), (5, 0)), (95, 5));
        check(Traffic { last: None, ..start }, (90, 10));
        check(traffic((100, 100), (0, 0)), (100, 0));
        let back = Traffic { direction: Direction::Back, ..traffic((40, 30), (70, 70)) };
        check(back, (40, 60));
        check(Traffic { gaining_serves: false, ..back }, (30, 70));
        check(Traffic { active: Share { capacity: 40, traffic: 40 }, ..back }, (40, 60));
    }

    #[test]
    fn a_step_before_its_interval_wakes_at_its_end() {
        let waiting = Traffic { last: Some(now()), ..traffic((100, 100), (60, 0)) };
        let (_, wake) = weights(waiting, now());
        assert_eq!(wake, Some(now() + SignedDuration::from_secs(30)));
    }

    proptest! {
        #[test]
        fn weights_sum_to_100(
            active in (-5i32..110, -5i32..110), pending in (-5i32..110, -5i32..110), step in 0i32..101,
            back: bool, serves: bool, ago in 0i64..60,
        ) {
            let direction = if back { Direction::Back } else { Direction::Forwards };
            let last = Some(now() - SignedDuration::from_secs(ago));
            let given = Traffic { direction, gaining_serves: serves, step, last, ..traffic(active, pending) };
            let (weights, wake) = weights(given, now());
            prop_assert_eq!(weights.active + weights.pending, 100);
            prop_assert!((0..=100).contains(&weights.active));
            prop_assert!(wake.is_none_or(|wake| wake > now()));
        }
    }
}
