//! What is known about one RayService when its next step is decided.

use super::dashboard::{ClusterKnown, Known};
use crate::action::ObjectKey;
use crate::cluster::LookedUp;
use crate::labels;
use crate::view::{EndpointSliceView, PodView, ServiceView, WholeView};
use manta_api::{RayCluster, RayService};
use std::collections::BTreeMap;
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
    /// What dashboards and proxies last said.
    pub serve: Known,
    /// Answers to what an earlier plan wanted looked up.
    pub looked_up: BTreeMap<ObjectKey, LookedUp>,
    /// Where random names come from.
    pub seed: u64,
}

impl Observed {
    pub(super) fn name(&self) -> &str {
        self.service.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.service.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// `<namespace>/<name>` of an object beside the RayService.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace())
    }

    /// One of its RayClusters that is not on its way out.
    pub(super) fn cluster(&self, name: &str) -> Option<&RayCluster> {
        let named = |cluster: &&Arc<RayCluster>| cluster.metadata.name.as_deref() == Some(name);
        let cluster = self.clusters.iter().find(named)?;
        cluster.metadata.deletion_timestamp.is_none().then_some(cluster)
    }

    /// Whether a RayCluster of this name is there, also one on its way out.
    pub(super) fn has_cluster(&self, name: &str) -> bool {
        self.clusters.iter().any(|cluster| cluster.metadata.name.as_deref() == Some(name))
    }

    pub(super) fn service(&self, name: &str) -> Option<&ServiceView> {
        self.services.iter().find(|service| service.metadata.name == name).map(|service| &**service)
    }

    /// Pods of a cluster that are not on their way out.
    pub(super) fn pods_of<'a>(&'a self, cluster: &'a str) -> impl Iterator<Item = &'a PodView> {
        let of =
            move |pod: &&Arc<PodView>| pod.metadata.label(labels::CLUSTER) == Some(cluster) && !pod.is_terminating();
        self.pods.iter().filter(of).map(|pod| &**pod)
    }

    /// The head Pod of a cluster, if there is exactly one.
    pub(super) fn head_of<'a>(&'a self, cluster: &'a str) -> Option<&'a PodView> {
        let mut heads = self.pods_of(cluster).filter(|pod| pod.metadata.label(labels::NODE_TYPE) == Some(labels::HEAD));
        heads.next().filter(|_| heads.next().is_none())
    }

    /// What is known of Serve on a cluster.
    pub(super) fn known(&self, cluster: &str) -> Option<&ClusterKnown> {
        self.serve.get(cluster)
    }
}
