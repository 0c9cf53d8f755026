//! Everything that the decision about one RayJob depends on, besides time and settings.

use super::dashboard::JobDashboard;
use crate::observed_names::observed_names;
use crate::view::{JobView, MetaView, PodView, ServiceView, WholeView};
use manta_api::{RayCluster, RayJob};

/// A RayJob and what belongs to it, as the caches show it.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Observed {
    pub job: RayJob,
    /// The RayCluster of `status.rayClusterName`.
    pub cluster: Option<RayCluster>,
    /// The RayClusters that this RayJob, or an earlier one of its name, has made.
    pub clusters: Vec<MetaView>,
    /// The head Service of the cluster in the status, which the dashboard is reached through.
    pub cluster_head_service: Option<ServiceView>,
    /// The RayJob's own head Service.
    pub head_service: Option<ServiceView>,
    /// The batch scheduler's object for the RayJob and its cluster.
    pub pod_group: Option<WholeView>,
    /// The Kubernetes Job with the RayJob's name.
    pub submitter: Option<JobView>,
    /// The head Pods of the cluster.
    pub head_pods: Vec<PodView>,
    /// What the dashboard last replied.
    pub dashboard: JobDashboard,
    /// What names are drawn from.
    pub seed: u64,
}

observed_names!(job);

impl Observed {
    pub(super) fn uid(&self) -> &str {
        self.job.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns the RayCluster that `clusterSelector` names, if it names one.
    pub(super) fn selected_cluster(&self) -> Option<&str> {
        let selector = self.job.spec.cluster_selector.as_ref().filter(|selector| !selector.is_empty())?;
        Some(selector.get(crate::labels::CLUSTER).map_or("", String::as_str))
    }

    /// Returns the name of the RayCluster that the job runs on, empty until it is chosen.
    pub(super) fn cluster_name(&self) -> &str {
        self.job.status.as_ref().and_then(|status| status.ray_cluster_name.as_deref()).unwrap_or_default()
    }

    pub(super) fn is_suspended(&self) -> bool {
        self.job.spec.suspend.unwrap_or(false)
    }

    /// Returns the submitter Job, if it is this RayJob's own.
    pub(super) fn own_submitter(&self) -> Option<&JobView> {
        self.submitter.as_ref().filter(|submitter| submitter.metadata.is_controlled_by(self.uid()))
    }

    /// Returns the RayCluster, if it was made for this RayJob.
    pub(super) fn own_cluster(&self) -> Option<&RayCluster> {
        self.cluster.as_ref().filter(|cluster| {
            let owners = cluster.metadata.owner_references.iter().flatten();
            owners.into_iter().any(|owner| owner.controller == Some(true) && owner.uid == self.uid())
        })
    }
}
