//! How many Pods answer requests: ready endpoints of the serve Services, each Pod once.

use super::Planner;
use super::observed::Observed;
use super::services;
use crate::cluster_spec;
use crate::labels::SERVE;
use crate::names;
use crate::view::PodView;
use manta_api::RayCluster;
use std::collections::BTreeSet;

/// Returns the number for the status.
pub(super) fn count(planner: &Planner<'_>) -> i32 {
    let seen = planner.seen;
    let own = |cluster: &RayCluster| names::serve_service(cluster_spec::name(cluster));
    let main = match planner.draft.active.filter(|_| planner.draft.is_incremental) {
        Some(active) => own(active),
        None => services::serve_name(&seen.service),
    };
    let pending =
        planner.draft.pending.filter(|_| planner.draft.is_incremental).map(|pending| of_service(seen, &own(pending)));
    i32::try_from(of_service(seen, &main) + pending.unwrap_or(0)).unwrap_or(i32::MAX)
}

/// Returns the number of Pods behind a Service that are ready.
pub(super) fn of_service(seen: &Observed, service: &str) -> usize {
    let slices = seen.slices.iter().filter(|slice| slice.service() == Some(service));
    let ready = slices.flat_map(|slice| &slice.endpoints).filter(|endpoint| endpoint.conditions.ready == Some(true));
    ready.filter_map(|endpoint| endpoint.uid()).collect::<BTreeSet<_>>().len()
}

/// Returns how many Pods of a cluster would be endpoints of a serve Service.
pub(super) fn of_cluster(seen: &Observed, cluster: &str) -> usize {
    let proxy = seen.serve_of(cluster).and_then(|known| known.proxy.as_ref());
    // The label that takes it out may be on its way.
    let has_failed = |pod: &PodView| proxy.is_some_and(|(uid, healthy)| !healthy && *uid == pod.metadata.uid);
    let serves =
        |pod: &&PodView| pod.metadata.label(SERVE) == Some("true") && pod.is_running_and_ready() && !has_failed(pod);
    seen.pods_of(cluster).filter(serves).count()
}

/// Returns how many Pods of a cluster are meant to be endpoints.
pub(super) fn expected(seen: &Observed, cluster: &RayCluster) -> usize {
    let workers = cluster.status.as_ref().and_then(|status| status.desired_worker_replicas).unwrap_or(0);
    let head = seen.service.spec.exclude_head_pod_from_serve_svc != Some(true);
    usize::try_from(workers).unwrap_or(0) + usize::from(head)
}
