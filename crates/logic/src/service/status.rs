//! The status that a pass leaves behind: copies, counts, and what is worth a write.

use super::gateway::Routed;
use super::{Planner, Side};
use super::{conditions, endpoints, promotion, rollback, upgrade};
use crate::cluster::fill_go_zeroes;
use crate::conditions::READY;
use crate::names::Suffixes;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manta_api::{ClusterServeStatus, RayClusterStatus, RayServiceStatus};

/// Works the status out. `serving` is the cluster that the Services lead to after this pass.
pub(super) fn finish(planner: &mut Planner<'_>, serving: Option<&str>, routed: Option<Routed>) {
    planner.draft.status.observed_generation = planner.seen.service.metadata.generation;
    for side in [Side::Active, Side::Pending] {
        let status = planner.draft.cluster(side).and_then(|cluster| cluster.status.clone());
        planner.draft.slot(side).ray_cluster_status = status;
    }
    let is_pending_serving = serving.is_some() && planner.draft.pending_name() == serving;
    if let Some(serving) = serving {
        promotion::plan(planner, serving, routed);
    }
    rollback::complete(planner);
    if !is_pending_serving && upgrade::needs_new_cluster(planner) {
        reserve(planner);
    }
    planner.draft.status.num_serve_endpoints = Some(endpoints::count(planner)).filter(|count| *count != 0);
    conditions::finish(planner);
    let ready = conditions::is_true(&planner.draft.status, READY);
    planner.draft.status.service_status = ready.then(|| "Running".to_owned());
}

/// Returns a status that says when traffic has moved: once the route was written, which may take long. Capacity follows only
/// some time after that.
pub(super) fn with_traffic_moved(
    mut status: RayServiceStatus,
    planned: Timestamp,
    executed: Timestamp,
) -> RayServiceStatus {
    for slot in [&mut status.active_service_status, &mut status.pending_service_status].into_iter().flatten() {
        if slot.last_traffic_migrated_time == Some(Time(planned)) {
            slot.last_traffic_migrated_time = Some(Time(executed));
        }
    }
    status
}

/// Reserves the name of a new pending cluster; the next pass makes it.
fn reserve(planner: &mut Planner<'_>) {
    let name = format!("{}-{}", planner.seen.name(), Suffixes::new(planner.seen.seed).draw());
    let capacity = match planner.draft.active {
        None => 100,
        Some(_) => 0,
    };
    planner.draft.status.pending_service_status = Some(ClusterServeStatus {
        ray_cluster_name: Some(name),
        target_capacity: planner.draft.is_incremental.then_some(capacity),
        ..ClusterServeStatus::default()
    });
}

/// Returns the status in the making, if it differs from the old one in what is worth a write.
pub(super) fn changed(planner: &Planner<'_>) -> Option<RayServiceStatus> {
    let before = planner.seen.service.status.clone().unwrap_or_default();
    let compared = |status| compared(status, planner.draft.is_incremental);
    (compared(&before) != compared(&planner.draft.status))
        .then(|| in_go_form(planner.draft.status.clone(), planner.now))
}

/// Returns what is worth a write. The copies of the clusters' statuses are not, except in incremental services,
/// which KubeRay writes in every pass, so that the copies are always fresh.
fn compared(status: &RayServiceStatus, with_clusters: bool) -> RayServiceStatus {
    let slot = |slot: &Option<ClusterServeStatus>| {
        let slot = slot_in_go_form(slot.clone().unwrap_or_default());
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

/// Returns the status as KubeRay writes it: parts that are not pointers in Go are always there.
fn in_go_form(mut status: RayServiceStatus, now: Timestamp) -> RayServiceStatus {
    status.last_update_time = Some(Time(now));
    for slot in [&mut status.active_service_status, &mut status.pending_service_status] {
        *slot = Some(slot_in_go_form(slot.take().unwrap_or_default()));
    }
    status
}

fn slot_in_go_form(mut slot: ClusterServeStatus) -> ClusterServeStatus {
    fill_go_zeroes(slot.ray_cluster_status.get_or_insert_with(RayClusterStatus::default));
    slot
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn traffic_has_moved_once_the_route_is_written() {
        let at = |second| Time(Timestamp::from_second(second).unwrap());
        let slot = |second| {
            Some(ClusterServeStatus { last_traffic_migrated_time: Some(at(second)), ..ClusterServeStatus::default() })
        };
        let planned = RayServiceStatus {
            active_service_status: slot(5),
            pending_service_status: slot(20),
            ..RayServiceStatus::default()
        };
        let written = with_traffic_moved(planned.clone(), at(20).0, at(33).0);
        assert_eq!(written.active_service_status, slot(5), "it moved earlier");
        assert_eq!(written.pending_service_status, slot(33));
    }
}
