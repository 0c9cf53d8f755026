//! The Pods of a cluster: suspended, recreated, handed to the scheduler, then head and workers.

use super::{Planner, gang, head, suspend, upgrade, workers};
use crate::names::Suffixes;
use crate::validate::ValidCluster;
use crate::view::PodView;
use jiff::SignedDuration;

/// How long after its grace period a Pod that will not go is still waited for.
///
/// A kubelet that lives ends a Pod within its grace period. One that is dead never will, and
/// KubeRay would wait for it for ever (#4078).
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(60);

pub(super) fn plan(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    if !suspend::plan(planner) || !upgrade::plan(planner) || !gang::plan(planner) {
        return;
    }
    let mut suffixes = Suffixes::new(planner.seen.seed);
    if head::plan(planner, valid, &mut suffixes) {
        workers::plan(planner, valid, &mut suffixes);
    }
}

/// Returns whether a Pod should have been gone long ago, because its node is dead or cut off; if not, asks for a
/// pass when that time comes.
pub(super) fn lost_or_wake(planner: &mut Planner<'_>, pod: &PodView) -> bool {
    pod.metadata.deletion_timestamp.is_some_and(|deleted| planner.reached_or_wake_at(deleted + LOST_AFTER))
}
