//! The direction of an incremental upgrade, and the end of a rollback.

use super::conditions;
use super::gateway::Routed;
use super::promotion;
use super::serve;
use super::stalled_upgrade;
use super::upgrade::{Match, compare};
use super::{Planner, Side};
use crate::action::Event;
use crate::conditions::ROLLBACK_IN_PROGRESS;
use crate::reasons;
use manta_api::RayCluster;

const REASON: &str = "DesiredClusterSpecChanged";

/// Rolls an upgrade back when the spec is not that of the pending cluster any more, and resumes it when it is again.
pub(super) fn decide(planner: &mut Planner<'_>) {
    if !planner.draft.is_incremental {
        // The strategy was changed on the way: there are no weights to bring back.
        if planner.draft.is_rolling_back() {
            conditions::remove(planner, ROLLBACK_IN_PROGRESS);
        }
        return;
    }
    if !planner.draft.is_upgrading {
        return;
    }
    let Some(active) = planner.draft.active else {
        planner.event(Event::warning(
            reasons::ROLLBACK_IMPOSSIBLE,
            "Reconcile",
            "Active cluster not found, rollback cannot be initiated",
        ));
        conditions::remove(planner, ROLLBACK_IN_PROGRESS);
        return;
    };
    let Some(pending) = planner.draft.pending else { return };
    if compare(planner, active) == Match::Same {
        start(planner, "Goal state reverted to original cluster, rolling back.");
    } else if compare(planner, pending) != Match::Other {
        if planner.draft.is_rolling_back() && !stalled_upgrade::is_giving_up(planner) {
            conditions::remove(planner, ROLLBACK_IN_PROGRESS);
        }
    } else if serve::has_lost_applications(planner, active) {
        give_up(planner, pending);
    } else {
        start(planner, "Goal state changed mid-upgrade, rolling back to original cluster.");
    }
}

/// Ends a rollback to a cluster that has nothing left to serve.
fn give_up(planner: &mut Planner<'_>, pending: &RayCluster) {
    if planner.draft.is_rolling_back() {
        planner.event(Event::warning(
            reasons::ROLLBACK_IMPOSSIBLE,
            "Reconcile",
            "Active cluster has lost its applications, rollback cannot be completed",
        ));
        conditions::remove(planner, ROLLBACK_IN_PROGRESS);
    }
    if !serve::may_serve(planner, pending) {
        planner.draft.drop_pending();
        // The next pending cluster would take over the traffic of this one.
        promotion::copy_shares(planner, Routed { active: 100, pending: None });
    }
}

/// Returns whether an upgrade goes on to its pending cluster, although the spec asks for a third one: only there something
/// serves.
pub(super) fn is_impossible(planner: &Planner<'_>) -> bool {
    let draft = &planner.draft;
    let (Some(active), Some(pending)) = (draft.active, draft.pending) else { return false };
    draft.is_incremental
        && draft.is_upgrading
        && serve::has_lost_applications(planner, active)
        && serve::may_serve(planner, pending)
}

fn start(planner: &mut Planner<'_>, message: &str) {
    if !planner.draft.is_rolling_back() {
        conditions::set(planner, ROLLBACK_IN_PROGRESS, "True", REASON, message);
    }
}

/// Ends a rollback once the active cluster has everything back.
pub(super) fn complete(planner: &mut Planner<'_>) {
    if !planner.draft.is_incremental || !planner.draft.is_rolling_back() {
        return;
    }
    let share = |slot: &manta_api::ClusterServeStatus| (slot.target_capacity, slot.traffic_routed_percent);
    // Without a weight in the route the cluster has never received traffic.
    let (capacity, traffic) = share(planner.draft.slot(Side::Active));
    let is_whole = capacity.unwrap_or(100) == 100 && traffic.unwrap_or(100) == 100;
    let pending = share(planner.draft.slot(Side::Pending));
    let is_lost = planner.draft.pending.is_none_or(|pending| !serve::is_head_ready(planner, pending));
    let is_drained = pending.0.unwrap_or(0) == 0 && pending.1.unwrap_or(0) == 0;
    if is_whole && (is_lost || is_drained) {
        stalled_upgrade::remember(planner);
        planner.draft.drop_pending();
        conditions::remove(planner, ROLLBACK_IN_PROGRESS);
    }
}
