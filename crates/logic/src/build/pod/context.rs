//! The input that all steps of a Ray Pod share.

use crate::cluster_spec::{self, Creator};
use crate::config::Config;
use crate::labels::{self, annotation};
use manta_api::RayCluster;

/// The type of a Ray node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NodeType {
    Head,
    Worker,
}

impl NodeType {
    /// Returns the type as it is written in labels and names.
    pub(super) fn as_str(self) -> &'static str {
        match self {
            NodeType::Head => labels::HEAD,
            NodeType::Worker => labels::WORKER,
        }
    }
}

/// The cluster and the settings that a Pod is built from.
pub(super) struct PodContext<'a> {
    pub(super) cluster: &'a RayCluster,
    pub(super) config: &'a Config,
    pub(super) node_type: NodeType,
    pub(super) creator: Creator,
    /// The domain name of the head Service.
    pub(super) fqdn: String,
    /// The port of the GCS.
    pub(super) head_port: &'a str,
}

impl<'a> PodContext<'a> {
    pub(super) fn new(cluster: &'a RayCluster, config: &'a Config, node_type: NodeType) -> Self {
        Self {
            cluster,
            config,
            node_type,
            creator: cluster_spec::creator(cluster),
            fqdn: cluster_spec::head_fqdn(cluster, config),
            head_port: cluster_spec::head_port(&cluster.spec),
        }
    }

    /// Returns the name of the cluster.
    pub(super) fn cluster_name(&self) -> &'a str {
        cluster_spec::name(self.cluster)
    }

    /// Returns the name of the head Service: the first part of its domain name.
    pub(super) fn head_service(&self) -> &str {
        self.fqdn.split('.').next().unwrap_or_default()
    }

    /// Returns whether the Pod is a worker of a RayService that receives requests, so that its readiness depends on Serve.
    pub(super) fn is_serve_worker(&self) -> bool {
        self.creator == Creator::RayService
            && self.node_type == NodeType::Worker
            && !cluster_spec::annotation(self.cluster, annotation::SERVE_PROXY_LOCATION)
                .is_some_and(cluster_spec::leaves_workers_without_proxy)
    }
}
