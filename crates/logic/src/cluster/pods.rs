//! The Pods of a cluster: suspended, recreated, handed to the scheduler, then head and workers.

use super::{Planner, auth, gang, head, suspend, upgrade, workers};
use crate::labels::REPLICA_NAME;
use crate::names::Suffixes;
use crate::validate::ValidCluster;
use crate::view::PodView;
use jiff::SignedDuration;

/// How long a Pod may stay terminating after its grace period.
///
/// A working kubelet stops a Pod within its grace period. A dead one never does, and KubeRay waits
/// forever (#4078).
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(60);

pub(super) fn plan(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    if !planner.seen.earlier_pods.is_empty() {
        // The head Service would send requests to both heads.
        return planner.wait_for("the Pods of an earlier cluster of this name to be deleted");
    }
    if auth::must_wait(planner) {
        return;
    }
    if !suspend::plan(planner) {
        return gang::release(planner);
    }
    if !upgrade::plan(planner) || !gang::plan(planner) {
        return;
    }
    let seen = planner.seen;
    let shown = seen.pods.iter().map(|pod| pod.metadata.name.as_str());
    let in_flight = seen.in_flight.creating.iter().map(|(key, _)| key.name.as_str());
    // Names of replicas are drawn too: two replicas of one name would count as one.
    let replicas = seen.pods.iter().filter_map(|pod| pod.metadata.label(REPLICA_NAME));
    let mut suffixes = Suffixes::avoiding(seen.seed, shown.chain(in_flight).chain(replicas));
    if head::plan(planner, valid, &mut suffixes) {
        workers::plan(planner, valid, &mut suffixes);
    }
}

/// Returns whether a Pod is overdue because its node is dead or unreachable; if not, requests a pass for when it
/// would be.
pub(super) fn lost_or_wake(planner: &mut Planner<'_>, pod: &PodView) -> bool {
    pod.metadata.deletion_timestamp.is_some_and(|deleted| planner.reached_or_wake_at(deleted + LOST_AFTER))
}
