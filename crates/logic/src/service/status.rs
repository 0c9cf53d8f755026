//! The status that a pass leaves behind: promotion, reservation, counts, and what is worth a write.

use super::gateway::Routed;
use super::plan::{Pass, Plan, Side};
use super::{conditions, endpoints, rollback, upgrade};
use crate::action::Outcome;
use crate::names::Suffixes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manta_api::{ClusterServeStatus, HeadInfo, RayClusterStatus, RayServiceStatus};

/// The status to write after a plan has been carried out. A pass that failed leaves none, so that nothing is claimed
/// that did not happen.
pub fn settle(plan: &Plan, outcome: &Outcome) -> Option<RayServiceStatus> {
    plan.status.clone().filter(|_| outcome.failure.is_none())
}

/// Works the status out. `serving` is the cluster that the Services lead to after this pass.
pub(super) fn finish(pass: &mut Pass<'_>, serving: Option<&str>, routed: Option<Routed>) {
    pass.status.observed_generation = pass.seen.service.metadata.generation;
    for side in [Side::Active, Side::Pending] {
        let status = pass.cluster(side).and_then(|cluster| cluster.status.clone());
        pass.slot(side).ray_cluster_status = status;
    }
    let is_pending_serving = serving.is_some() && pass.pending_name() == serving;
    if let Some(serving) = serving {
        if let Some(routed) = routed {
            take_over_shares(pass, routed);
        }
        if is_promoted(pass, serving) {
            promote(pass);
        }
    }
    rollback::complete(pass);
    if !is_pending_serving && upgrade::needs_new_cluster(pass) {
        reserve(pass);
    }
    pass.status.num_serve_endpoints = Some(endpoints::count(pass)).filter(|count| *count != 0);
    conditions::work_out(pass);
    let ready = conditions::is_true(&pass.status, conditions::READY);
    pass.status.service_status = ready.then(|| "Running".to_owned());
}

fn take_over_shares(pass: &mut Pass<'_>, routed: Routed) {
    let now = Time(pass.now);
    for (side, share) in [(Side::Active, Some(routed.active)), (Side::Pending, routed.pending)] {
        let slot = pass.slot(side);
        if share.is_some() && slot.traffic_routed_percent != share {
            slot.traffic_routed_percent = share;
            slot.last_traffic_migrated_time = Some(now.clone());
        }
    }
}

/// Whether the pending cluster takes the active one's place.
fn is_promoted(pass: &mut Pass<'_>, serving: &str) -> bool {
    if !pass.is_incremental || pass.active.is_none() {
        return pass.pending_name() == Some(serving) && pass.active_name() != Some(serving);
    }
    let drained = pass.slot(Side::Active).target_capacity == Some(0);
    let full = pass.slot(Side::Pending).traffic_routed_percent == Some(100);
    pass.is_upgrading && !pass.is_rolling_back() && pass.pending.is_some() && drained && full
}

fn promote(pass: &mut Pass<'_>) {
    let lost = pass.active_name().is_some() && pass.active.is_none();
    pass.status.active_service_status = pass.status.pending_service_status.take();
    if pass.is_incremental && lost {
        // There is nobody to share with any more.
        let slot = pass.slot(Side::Active);
        slot.target_capacity = Some(100);
        slot.traffic_routed_percent = None;
    }
    // From here on both names are about other clusters than those at hand; only the counting still looks at them.
    pass.pending = pass.pending.filter(|_| pass.is_incremental);
}

/// Reserves the name of a new pending cluster; the next pass makes it.
fn reserve(pass: &mut Pass<'_>) {
    let name = format!("{}-{}", pass.seen.name(), Suffixes::new(pass.seen.seed).draw());
    let capacity = match pass.active {
        None => 100,
        Some(_) => 0,
    };
    pass.status.pending_service_status = Some(ClusterServeStatus {
        ray_cluster_name: Some(name),
        target_capacity: pass.is_incremental.then_some(capacity),
        ..ClusterServeStatus::default()
    });
}

/// The status in the making, if it says something that the old one does not.
pub(super) fn news(pass: &Pass<'_>) -> Option<RayServiceStatus> {
    let before = pass.seen.service.status.clone().unwrap_or_default();
    let said = |status| said(status, pass.is_incremental);
    (said(&before) != said(&pass.status)).then(|| wire(pass.status.clone(), pass.now))
}

/// What is worth a write. What a cluster says about itself is only copied along, save for gradual services, which
/// KubeRay writes in every pass, so that the copies are always fresh.
fn said(status: &RayServiceStatus, with_clusters: bool) -> RayServiceStatus {
    let slot = |slot: &Option<ClusterServeStatus>| {
        let slot = whole(slot.clone().unwrap_or_default());
        Some(ClusterServeStatus {
            ray_cluster_status: slot.ray_cluster_status.filter(|_| with_clusters),
            ray_cluster_name: slot.ray_cluster_name.filter(|name| !name.is_empty()),
            application_statuses: slot.application_statuses.filter(|apps| !apps.is_empty()),
            ..slot
        })
    };
    RayServiceStatus {
        conditions: Some(status.conditions.clone().unwrap_or_default()),
        last_update_time: None,
        observed_generation: None,
        service_status: status.service_status.clone().filter(|status| !status.is_empty()),
        active_service_status: slot(&status.active_service_status),
        pending_service_status: slot(&status.pending_service_status),
        num_serve_endpoints: status.num_serve_endpoints.filter(|count| *count != 0),
    }
}

/// The form that KubeRay gives to a status: parts that are not pointers in Go are always there.
fn wire(mut status: RayServiceStatus, now: Timestamp) -> RayServiceStatus {
    status.last_update_time = Some(Time(now));
    for slot in [&mut status.active_service_status, &mut status.pending_service_status] {
        *slot = Some(whole(slot.take().unwrap_or_default()));
    }
    status
}

fn whole(mut slot: ClusterServeStatus) -> ClusterServeStatus {
    let cluster = slot.ray_cluster_status.get_or_insert_with(RayClusterStatus::default);
    let sums =
        [&mut cluster.desired_cpu, &mut cluster.desired_memory, &mut cluster.desired_gpu, &mut cluster.desired_tpu];
    for quantity in sums {
        quantity.get_or_insert_with(|| Quantity("0".to_owned()));
    }
    cluster.head.get_or_insert_with(HeadInfo::default);
    slot
}
