//! Whether a gradual upgrade goes forwards or back, and when going back is done.

use super::conditions::{self, ROLLBACK_IN_PROGRESS};
use super::plan::{Pass, Side};
use super::progress;
use super::serve;
use super::upgrade::{Match, compare};
use crate::action::Event;

const REASON: &str = "DesiredClusterSpecChanged";

/// Turns an upgrade around when the spec is not that of the pending cluster any more, and back again.
pub(super) fn decide(pass: &mut Pass<'_>) {
    if !pass.is_incremental {
        // The strategy was changed on the way: there are no weights to bring back.
        if pass.is_rolling_back() {
            conditions::remove(pass, ROLLBACK_IN_PROGRESS);
        }
        return;
    }
    if !pass.is_upgrading {
        return;
    }
    let Some(active) = pass.active else {
        pass.event(Event::warning(
            "RollbackImpossible",
            "Reconcile",
            "Active cluster not found, rollback cannot be initiated",
        ));
        conditions::remove(pass, ROLLBACK_IN_PROGRESS);
        return;
    };
    let Some(pending) = pass.pending else { return };
    if compare(pass, active) == Match::Same {
        start(pass, "Goal state reverted to original cluster, rolling back.");
    } else if compare(pass, pending) != Match::Other {
        if pass.is_rolling_back() && !progress::is_giving_up(pass) {
            conditions::remove(pass, ROLLBACK_IN_PROGRESS);
        }
    } else {
        start(pass, "Goal state changed mid-upgrade, rolling back to original cluster.");
    }
}

fn start(pass: &mut Pass<'_>, message: &str) {
    if !pass.is_rolling_back() {
        conditions::set(pass, ROLLBACK_IN_PROGRESS, "True", REASON, message);
    }
}

/// Ends a rollback once the active cluster has everything back.
pub(super) fn complete(pass: &mut Pass<'_>) {
    if !pass.is_incremental || !pass.is_rolling_back() {
        return;
    }
    let share = |slot: &manta_api::ClusterServeStatus| (slot.target_capacity, slot.traffic_routed_percent);
    // What no route says has never been shared.
    let (capacity, traffic) = share(pass.slot(Side::Active));
    let is_whole = capacity.unwrap_or(100) == 100 && traffic.unwrap_or(100) == 100;
    let pending = share(pass.slot(Side::Pending));
    let is_lost = pass.pending.is_none_or(|pending| !serve::is_head_ready(pass, pending));
    let is_drained = pending.0.unwrap_or(0) == 0 && pending.1.unwrap_or(0) == 0;
    if is_whole && (is_lost || is_drained) {
        progress::remember(pass);
        pass.drop_pending();
        conditions::remove(pass, ROLLBACK_IN_PROGRESS);
    }
}
