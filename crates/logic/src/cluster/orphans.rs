//! Pods of worker groups that the spec does not have any more.
//!
//! As in KubeRay they keep running, and nothing scales or replaces them. A Warning reports them, as proposed for KubeRay
//! (#5143).

use super::Planner;
use super::observed::Observed;
use crate::action::Event;
use crate::cluster_spec;
use crate::labels::{GROUP, NODE_TYPE, WORKER};
use crate::reasons;
use std::collections::BTreeSet;

/// Reports Pods of removed groups.
pub(super) fn plan(planner: &mut Planner<'_>) {
    if let Some(message) = explain(planner.seen) {
        planner.event(Event::warning(reasons::ORPHANED_WORKER_GROUP_PODS_DETECTED, "Reconcile", message));
    }
}

/// Returns the message about such Pods, if there are any.
fn explain(seen: &Observed) -> Option<String> {
    let groups = cluster_spec::worker_groups(&seen.cluster.spec);
    let workers = seen.pods.iter().filter(|pod| pod.metadata.label(NODE_TYPE) == Some(WORKER) && !seen.is_going(pod));
    let orphans: Vec<&str> = workers
        .filter_map(|pod| pod.metadata.label(GROUP))
        .filter(|group| groups.iter().all(|known| known.group_name != *group))
        .collect();
    let names: BTreeSet<&str> = orphans.iter().copied().collect();
    let names: Vec<&str> = names.into_iter().collect();
    (!orphans.is_empty()).then(|| {
        format!(
            "{} Pods belong to worker groups that are not in the spec: {}. Delete them, or add the groups again",
            orphans.len(),
            names.join(", ")
        )
    })
}
