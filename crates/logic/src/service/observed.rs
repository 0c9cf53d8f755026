//! What is known about one RayService when its next step is decided.

use super::dashboard::{ClusterState, ServeState};
use crate::labels;
use crate::names;
use crate::observed_names::observed_names;
use crate::view::{EndpointSliceView, PodView, ServiceView, WholeView};
use manta_api::{RayCluster, RayService};
use std::sync::Arc;

/// One RayService and everything around it, as the watches and the pollers show it.
#[derive(Clone, Debug, Default)]
pub struct Observed {
    pub service: Arc<RayService>,
    /// The RayClusters that it controls, sorted by name.
    pub clusters: Vec<Arc<RayCluster>>,
    /// Pods of these clusters.
    pub pods: Vec<Arc<PodView>>,
    /// Services that it or one of its clusters controls.
    pub services: Vec<Arc<ServiceView>>,
    /// The endpoints of its serve Services.
    pub slices: Vec<Arc<EndpointSliceView>>,
    pub gateway: Option<Arc<WholeView>>,
    pub http_route: Option<Arc<WholeView>>,
    /// Whether Gateways and HTTPRoutes can be seen at all.
    pub gateway_api: bool,
    /// What dashboards and proxies last replied.
    pub serve: ServeState,
    /// Where random names come from.
    pub seed: u64,
}

observed_names!(service);

impl Observed {
    /// Returns the cluster that the head Service leads to.
    pub(super) fn served_cluster(&self) -> Option<&str> {
        self.service(&names::owner_head_service(self.name()))?.spec.selector.get(labels::CLUSTER)
    }

    /// Returns one of its RayClusters that is not terminating.
    pub(super) fn cluster(&self, name: &str) -> Option<&RayCluster> {
        let named = |cluster: &&Arc<RayCluster>| cluster.metadata.name.as_deref() == Some(name);
        let cluster = self.clusters.iter().find(named)?;
        cluster.metadata.deletion_timestamp.is_none().then_some(cluster)
    }

    /// Returns whether a RayCluster of this name is there, also a terminating one.
    pub(super) fn has_cluster(&self, name: &str) -> bool {
        self.clusters.iter().any(|cluster| cluster.metadata.name.as_deref() == Some(name))
    }

    pub(super) fn service(&self, name: &str) -> Option<&ServiceView> {
        self.services.iter().find(|service| service.metadata.name == name).map(|service| &**service)
    }

    /// Returns the Pods of a cluster that are not terminating.
    pub(super) fn pods_of<'a>(&'a self, cluster: &'a str) -> impl Iterator<Item = &'a PodView> {
        let of =
            move |pod: &&Arc<PodView>| pod.metadata.label(labels::CLUSTER) == Some(cluster) && !pod.is_terminating();
        self.pods.iter().filter(of).map(|pod| &**pod)
    }

    /// Returns the head Pod of a cluster, if there is exactly one.
    pub(super) fn head_of<'a>(&'a self, cluster: &'a str) -> Option<&'a PodView> {
        let mut heads = self.pods_of(cluster).filter(|pod| pod.metadata.label(labels::NODE_TYPE) == Some(labels::HEAD));
        heads.next().filter(|_| heads.next().is_none())
    }

    /// Returns what is known of Serve on a cluster.
    pub(super) fn serve_of(&self, cluster: &str) -> Option<&ClusterState> {
        self.serve.get(cluster)
    }
}
