//! The batch scheduler's objects: they stand before the Pods that they are for.

use super::observed::Observed;
use super::plan::Draft;
use crate::config::Config;
use crate::scheduler;

/// Makes what the batch scheduler needs. Answers whether Pods may be made.
pub(super) fn plan(seen: &Observed, cfg: &Config, draft: &mut Draft) -> bool {
    let gang = scheduler::plan_cluster_gang(seen, cfg);
    draft.end_stage();
    draft.stages.extend(gang.stages);
    let Some(blocked) = gang.blocked else { return true };
    draft.events.extend(blocked.event);
    draft.halt(blocked.error);
    false
}
