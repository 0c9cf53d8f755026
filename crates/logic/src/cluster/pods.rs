//! The Pods of a cluster: suspended, recreated, handed to the scheduler, then head and workers.

use super::observed::Observed;
use super::plan::Draft;
use super::{gang, head, suspend, upgrade, workers};
use crate::config::Config;
use crate::names::Suffixes;
use crate::validate::ValidCluster;
use crate::view::PodView;
use jiff::{SignedDuration, Timestamp};

/// How long after its grace period a Pod that will not go is still waited for.
///
/// A kubelet that lives ends a Pod within its grace period. One that is dead never will, and
/// KubeRay would wait for it for ever (#4078).
const LOST_AFTER: SignedDuration = SignedDuration::from_secs(60);

pub(super) fn plan(seen: &Observed, valid: &ValidCluster<'_>, now: Timestamp, cfg: &Config, draft: &mut Draft) {
    if !suspend::plan(seen, cfg, draft) || !upgrade::plan(seen, draft) || !gang::plan(seen, cfg, draft) {
        return;
    }
    let mut suffixes = Suffixes::new(seen.seed);
    if head::plan(seen, valid, now, cfg, &mut suffixes, draft) == head::Next::Workers {
        workers::plan(seen, valid, now, cfg, &mut suffixes, draft);
    }
}

/// Whether a Pod should have been gone long ago: its node is dead or cut off.
///
/// If not, the plan wakes when that time comes.
pub(super) fn is_lost(pod: &PodView, now: Timestamp, draft: &mut Draft) -> bool {
    let Some(deleted) = pod.metadata.deletion_timestamp else { return false };
    let lost_at = deleted + LOST_AFTER;
    if now < lost_at {
        draft.wake_at(lost_at);
    }
    now >= lost_at
}
