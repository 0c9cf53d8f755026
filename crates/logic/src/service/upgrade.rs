//! What a change of the spec asks for: nothing, more groups in place, or a new cluster.

use super::{Planner, rollback};
use crate::cluster_spec;
use crate::config::Config;
use crate::hash::service_hash_of_groups;
use crate::labels::annotation::{NUM_WORKER_GROUPS, SERVICE_HASH};
use manta_api::{RayCluster, RayServiceSpec};

/// How a cluster compares with what is wanted now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Match {
    Same,
    /// The same, but for worker groups that were added at the end.
    GroupsAdded,
    Other,
}

/// Compares a cluster with what is wanted now, by the annotations from its creation.
pub(super) fn compare(planner: &Planner<'_>, cluster: &RayCluster) -> Match {
    let spec = &planner.seen.service.spec.ray_cluster_config;
    let stored = cluster_spec::annotation(cluster, SERVICE_HASH).unwrap_or_default();
    if stored == planner.draft.goal {
        return Match::Same;
    }
    match cluster_spec::annotation(cluster, NUM_WORKER_GROUPS).and_then(|count| count.parse().ok()) {
        // Without a recorded hash it is updated in place.
        None => Match::GroupsAdded,
        Some(count) if service_hash_of_groups(spec, count).as_deref() == Some(stored) => Match::GroupsAdded,
        Some(_) => Match::Other,
    }
}

/// Returns whether a change may build a new cluster at all.
pub(super) fn is_zero_downtime(spec: &RayServiceSpec, config: &Config) -> bool {
    match spec.upgrade_strategy.as_ref().and_then(|strategy| strategy.type_.as_deref()) {
        Some("NewCluster") => true,
        Some("NewClusterWithIncrementalUpgrade") => config.gates.ray_service_incremental_upgrade,
        Some(_) => false,
        None => config.zero_downtime,
    }
}

/// Returns whether this pass asks for a new pending cluster.
///
/// A name that is reserved counts as the cluster: its object is made from the spec of that moment.
pub(super) fn needs_new_cluster(planner: &mut Planner<'_>) -> bool {
    let spec = &planner.seen.service.spec;
    let is_reserved = planner.draft.pending.is_none() && planner.draft.has_pending_name();
    if planner.draft.is_rolling_back() || is_reserved || rollback::is_impossible(planner) {
        return false;
    }
    let Some(current) = planner.draft.pending.or(planner.draft.active) else { return true };
    compare(planner, current) == Match::Other
        && is_zero_downtime(spec, planner.config)
        && !super::stalled_upgrade::was_given_up(planner)
}

/// Returns whether an upgrade without traffic is obsolete because the spec is that of the active cluster again.
///
/// KubeRay compares the pending cluster only, and builds a third one.
pub(super) fn is_reverted(planner: &Planner<'_>) -> bool {
    let is_wanted = |cluster| compare(planner, cluster) != Match::Other;
    !planner.draft.is_incremental
        && planner.draft.has_pending_name()
        && planner.draft.active.is_some_and(is_wanted)
        && planner.seen.served_cluster() != planner.draft.pending_name()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_strategy_type_overrides_the_environment() {
        let check = |type_: Option<&str>, zero_downtime: bool, gate: bool, expect: bool| {
            let strategy = type_.map(|type_| manta_api::RayServiceUpgradeStrategy {
                type_: Some(type_.to_owned()),
                ..Default::default()
            });
            let spec = RayServiceSpec { upgrade_strategy: strategy, ..RayServiceSpec::default() };
            let mut config = Config { zero_downtime, ..Config::default() };
            config.gates.ray_service_incremental_upgrade = gate;
            assert_eq!(is_zero_downtime(&spec, &config), expect, "{type_:?} {zero_downtime} {gate}");
        };
        check(None, true, true, true);
        check(None, false, true, false);
        check(Some("NewCluster"), false, false, true);
        check(Some("None"), true, true, false);
        check(Some("NewClusterWithIncrementalUpgrade"), false, true, true);
        check(Some("NewClusterWithIncrementalUpgrade"), true, false, false);
    }
}
