//! What a plan for a RayService works out: the status, and the clusters of its two slots.

use super::conditions;
use super::observed::Observed;
use crate::conditions::{ROLLBACK_IN_PROGRESS, UPGRADE_IN_PROGRESS};
use crate::config::Config;
use crate::hash::service_hash;
use crate::validate::service::is_incremental_upgrade;
use manta_api::{ClusterServeStatus, RayCluster, RayServiceStatus};

/// One of the two clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Active,
    Pending,
}

/// The status in the making, and what it is about.
pub struct Draft<'a> {
    pub(super) status: RayServiceStatus,
    /// The active RayCluster, unless it is terminating.
    pub(super) active: Option<&'a RayCluster>,
    /// The pending RayCluster, unless it is terminating.
    pub(super) pending: Option<&'a RayCluster>,
    /// The hash of the cluster that is wanted now.
    pub(super) goal: String,
    /// Whether upgrades move traffic step by step.
    pub(super) is_incremental: bool,
    /// Whether an upgrade was in progress before this pass, by the status.
    pub(super) is_upgrading: bool,
}

impl<'a> Draft<'a> {
    pub(super) fn of(seen: &'a Observed, config: &Config) -> Self {
        let status = seen.service.status.clone().unwrap_or_default();
        let cluster = |slot: &Option<ClusterServeStatus>| seen.cluster(name_of(slot)?);
        Self {
            active: cluster(&status.active_service_status),
            pending: cluster(&status.pending_service_status),
            goal: service_hash(&seen.service.spec.ray_cluster_config),
            is_incremental: is_incremental_upgrade(&seen.service.spec, config),
            is_upgrading: conditions::is_true(&status, UPGRADE_IN_PROGRESS),
            status,
        }
    }

    pub(super) fn active_name(&self) -> Option<&str> {
        name_of(&self.status.active_service_status)
    }

    pub(super) fn pending_name(&self) -> Option<&str> {
        name_of(&self.status.pending_service_status)
    }

    pub(super) fn has_pending_name(&self) -> bool {
        self.pending_name().is_some()
    }

    pub(super) fn cluster(&self, side: Side) -> Option<&'a RayCluster> {
        match side {
            Side::Active => self.active,
            Side::Pending => self.pending,
        }
    }

    pub(super) fn slot(&mut self, side: Side) -> &mut ClusterServeStatus {
        match side {
            Side::Active => self.status.active_service_status.get_or_insert_default(),
            Side::Pending => self.status.pending_service_status.get_or_insert_default(),
        }
    }

    /// Drops the pending cluster; it is deleted after a delay.
    pub(super) fn drop_pending(&mut self) {
        self.status.pending_service_status = None;
        self.pending = None;
    }

    pub(super) fn is_rolling_back(&self) -> bool {
        conditions::is_true(&self.status, ROLLBACK_IN_PROGRESS)
    }
}

/// Returns the cluster that a slot names.
pub(super) fn name_of(slot: &Option<ClusterServeStatus>) -> Option<&str> {
    slot.as_ref()?.ray_cluster_name.as_deref().filter(|name| !name.is_empty())
}
