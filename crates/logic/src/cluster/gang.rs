//! The batch scheduler's objects, which are created before the Pods.

use super::Planner;
use crate::scheduler;

/// Creates what the batch scheduler needs. Returns whether Pods may be created.
pub(super) fn plan(planner: &mut Planner<'_>) -> bool {
    let gang = scheduler::plan_cluster_gang(planner.seen, planner.config);
    for step in gang.steps {
        planner.then(step);
    }
    let Some(blocked) = gang.blocked else { return true };
    if let Some(event) = blocked.event {
        planner.event(event);
    }
    planner.halt(blocked.error);
    false
}

/// Frees the share that a suspended cluster has in its scheduler's queue.
pub(super) fn release(planner: &mut Planner<'_>) {
    if let Some(step) = scheduler::shrink_suspended_gang(planner.seen, planner.config) {
        planner.then(step);
    }
}
