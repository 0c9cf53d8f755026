//! How much of its capacity each cluster has during an incremental upgrade (`target_capacity`).
//!
//! Capacity and traffic alternate: capacity changes only after the traffic has followed the last step.

use super::gateway;
use super::{Planner, Side};
use jiff::SignedDuration;
use manta_api::ClusterServeStatus;

/// How long gateways have to follow a route before capacity is taken from where requests went.
const FOLLOWING: SignedDuration = SignedDuration::from_secs(5);

/// Capacity and traffic of one cluster, in percent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Share {
    pub(super) capacity: i32,
    pub(super) traffic: i32,
}

impl Share {
    /// Returns the share in a slot; unset fields mean `capacity` and no traffic.
    pub(super) fn of(slot: &ClusterServeStatus, capacity: i32) -> Self {
        Self { capacity: slot.target_capacity.unwrap_or(capacity), traffic: slot.traffic_routed_percent.unwrap_or(0) }
    }
}

/// Where an upgrade goes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forwards,
    Back,
}

/// Returns the next capacity of a cluster, if it is due to change.
pub(super) fn goal(planner: &mut Planner<'_>, side: Side) -> Option<i32> {
    let is_between_two = planner.draft.active.is_some() && planner.draft.pending.is_some();
    if !planner.draft.is_incremental || !planner.draft.is_upgrading || !is_between_two || !gateway::is_open(planner) {
        return None;
    }
    let direction = if planner.draft.is_rolling_back() { Direction::Back } else { Direction::Forwards };
    let active = Share::of(planner.draft.slot(Side::Active), 100);
    let pending = Share::of(planner.draft.slot(Side::Pending), 0);
    let options = gateway::options(planner)?;
    let next = step(side, active, pending, options.max_surge_percent.unwrap_or(100), direction)?;
    let slot = planner.draft.slot(side);
    let shrinks = slot.target_capacity.is_none_or(|now| next < now);
    let moved = slot.last_traffic_migrated_time.clone().filter(|_| shrinks);
    let followed = moved.and_then(|moved| moved.0.checked_add(FOLLOWING).ok());
    followed.is_none_or(|followed| planner.reached_or_wake_at(followed)).then_some(next)
}

/// Returns the next capacity of one of the two clusters.
pub(super) fn step(side: Side, active: Share, pending: Share, surge: i32, direction: Direction) -> Option<i32> {
    let (growing, shrinking, grows) = match direction {
        Direction::Forwards => (pending, active, Side::Pending),
        Direction::Back => (active, pending, Side::Active),
    };
    if growing.capacity != growing.traffic {
        return None;
    }
    let too_much = growing.capacity.saturating_add(shrinking.capacity) > 100;
    let (now, next) = match (too_much, side == grows) {
        (true, false) => (shrinking.capacity, shrinking.capacity.saturating_sub(surge).max(0)),
        (false, true) => (growing.capacity, growing.capacity.saturating_add(surge).min(100)),
        _ => return None,
    };
    (next != now).then_some(next)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn capacity_moves_in_steps() {
        let share = |(capacity, traffic)| Share { capacity, traffic };
        let check = |active, pending, surge, direction, expect: (Option<i32>, Option<i32>)| {
            let next = |side| step(side, share(active), share(pending), surge, direction);
            assert_eq!((next(Side::Active), next(Side::Pending)), expect, "{active:?} {pending:?} {direction:?}");
        };
        use Direction::{Back, Forwards};
        check((70, 90), (10, 10), 20, Forwards, (None, Some(30)));
        check((80, 70), (30, 30), 20, Forwards, (Some(60), None));
        check((100, 100), (10, 0), 10, Forwards, (None, None));
        check((0, 0), (100, 100), 10, Forwards, (None, None));
        check((100, 100), (0, 0), 100, Forwards, (None, Some(100)));
        check((10, 0), (100, 100), 50, Forwards, (Some(0), None));
        check((100, 100), (0, 0), 0, Forwards, (None, None));
        check((40, 30), (70, 70), 10, Back, (None, None));
        check((40, 40), (70, 60), 10, Back, (None, Some(60)));
        check((40, 40), (60, 60), 10, Back, (Some(50), None));
        check((100, 100), (10, 0), 10, Back, (None, Some(0)));
        check((100, 100), (0, 0), 10, Back, (None, None));
    }
}
