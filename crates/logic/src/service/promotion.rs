//! Promotion: the pending cluster becomes the active one.
//!
//! It waits until the Services lead there, or, in an incremental upgrade, until all of the traffic does and the
//! active cluster has no capacity left.

use super::gateway::Routed;
use super::{Planner, Side};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

/// Copies the weights of the route, and promotes the pending cluster if it is due. `serving` is the cluster
/// that the Services lead to after this pass.
pub(super) fn plan(planner: &mut Planner<'_>, serving: &str, routed: Option<Routed>) {
    if let Some(routed) = routed {
        copy_shares(planner, routed);
    }
    if is_promoted(planner, serving) {
        promote(planner);
    }
}

/// Copies the weights of the route into the slots.
pub(super) fn copy_shares(planner: &mut Planner<'_>, routed: Routed) {
    let now = Time(planner.now);
    for (side, share) in [(Side::Active, Some(routed.active)), (Side::Pending, routed.pending)] {
        let slot = planner.draft.slot(side);
        if share.is_some() && slot.traffic_routed_percent != share {
            slot.traffic_routed_percent = share;
            slot.last_traffic_migrated_time = Some(now.clone());
        }
    }
}

/// Returns whether the pending cluster takes the active one's place.
fn is_promoted(planner: &mut Planner<'_>, serving: &str) -> bool {
    if !planner.draft.is_incremental || planner.draft.active.is_none() {
        return planner.draft.pending_name() == Some(serving) && planner.draft.active_name() != Some(serving);
    }
    let drained = planner.draft.slot(Side::Active).target_capacity == Some(0);
    let full = planner.draft.slot(Side::Pending).traffic_routed_percent == Some(100);
    planner.draft.is_upgrading && !planner.draft.is_rolling_back() && planner.draft.pending.is_some() && drained && full
}

fn promote(planner: &mut Planner<'_>) {
    let lost = planner.draft.active_name().is_some() && planner.draft.active.is_none();
    planner.draft.status.active_service_status = planner.draft.status.pending_service_status.take();
    if planner.draft.is_incremental && lost {
        // No other cluster shares the traffic any more.
        let slot = planner.draft.slot(Side::Active);
        slot.target_capacity = Some(100);
        slot.traffic_routed_percent = None;
    }
    // From here on both slots name other clusters than the observed ones; only the endpoint count reads them.
    planner.draft.pending = planner.draft.pending.filter(|_| planner.draft.is_incremental);
}
