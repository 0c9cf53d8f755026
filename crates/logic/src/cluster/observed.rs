//! What is known about one RayCluster when its next step is decided.

use crate::action::{Kind, ObjectKey, PodsOf, Step};
use crate::labels;
use crate::observed_names::observed_names;
use crate::view::{JobView, MetaView, PodView, ServiceView, WholeView};
use jiff::Timestamp;
use manta_api::RayCluster;
use std::collections::HashSet;
use std::sync::Arc;

/// One RayCluster and everything around it, as the watches show it.
#[derive(Clone, Debug)]
pub struct Observed {
    pub cluster: Arc<RayCluster>,
    /// Pods labelled with the cluster's name, sorted by name.
    pub pods: Vec<Arc<PodView>>,
    /// The Pods that are left of an earlier cluster of this name.
    pub earlier_pods: Vec<Arc<PodView>>,
    /// Services that belong to the cluster by label.
    pub services: Vec<Arc<ServiceView>>,
    /// Redis clean-up Jobs.
    pub cleanup_jobs: Vec<Arc<JobView>>,
    /// ServiceAccounts, Roles, Ingresses, claims, policies … labelled with the cluster's name.
    pub related: Vec<(Kind, Arc<WholeView>)>,
    /// Our writes that the watches do not show yet.
    pub in_flight: InFlight,
    /// Where random names come from.
    pub seed: u64,
}

/// Writes that were acknowledged but have not come back through a watch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InFlight {
    /// Objects that were created, and which Pods they count among.
    pub creating: Vec<(ObjectKey, Option<PodsOf>)>,
    /// UIDs of objects that were deleted but still look alive.
    pub deleting: HashSet<String>,
    /// UIDs of objects whose deletion broke off and may still take effect.
    pub broken_deletions: HashSet<String>,
    /// Pods whose creation broke off and may still take effect, as they were to be created.
    pub broken_creations: Vec<MetaView>,
    /// When the oldest of these writes is taken for lost.
    pub expires: Option<Timestamp>,
}

impl InFlight {
    /// Returns whether the head Pod was created but is not visible yet.
    pub fn is_creating_head(&self) -> bool {
        self.creating.iter().any(|(_, of)| *of == Some(PodsOf::Head))
    }

    /// Returns whether Pods of this worker group were created that are not visible yet.
    pub fn is_creating_in(&self, group: &str) -> bool {
        self.creating.iter().any(|(_, of)| matches!(of, Some(PodsOf::Group(name)) if name == group))
    }

    /// Returns whether this object was created but is not visible yet.
    pub fn is_creating(&self, kind: Kind, name: &str) -> bool {
        self.creating.iter().any(|(key, _)| key.kind == kind && key.name == name)
    }
}

observed_names!(cluster);

impl Observed {
    /// Returns the observation with these Pods. Those of an earlier cluster of this name, which look like this cluster's by
    /// their labels until they are deleted, are kept apart.
    pub fn with_pods(mut self, pods: Vec<Arc<PodView>>) -> Self {
        let uid = self.uid();
        let is_earlier = |pod: &Arc<PodView>| {
            pod.metadata.controller().is_some_and(|owner| {
                owner.kind == RayCluster::KIND && owner.name == self.name() && !owner.uid.is_empty() && owner.uid != uid
            })
        };
        (self.earlier_pods, self.pods) = pods.into_iter().partition(is_earlier);
        self
    }

    /// Returns the cluster's UID.
    pub fn uid(&self) -> &str {
        self.cluster.metadata.uid.as_deref().unwrap_or_default()
    }

    /// Returns an annotation of the cluster.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.cluster.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the value of a label of the cluster.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.cluster.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns the head Pods, terminating ones included.
    pub fn head_pods(&self) -> impl Iterator<Item = &Arc<PodView>> {
        self.pods.iter().filter(|pod| pod.metadata.label(labels::NODE_TYPE) == Some(labels::HEAD))
    }

    /// Returns the Pods of a worker group, terminating ones included.
    pub fn group_pods<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Arc<PodView>> {
        self.pods.iter().filter(move |pod| pod.metadata.label(labels::GROUP) == Some(group))
    }

    /// Returns whether a Pod is terminating, or was deleted by us.
    pub fn is_going(&self, pod: &PodView) -> bool {
        pod.is_terminating() || self.in_flight.deleting.contains(pod.metadata.uid.as_str())
    }

    /// Deletes a Pod of the cluster.
    pub(super) fn delete_pod(&self, pod: &PodView, why: impl Into<String>) -> Step {
        Step::delete(self.key(Kind::Pod, &pod.metadata.name), &pod.metadata.uid, why)
    }

    /// Returns the related object with this kind and name, if it carries the cluster's label.
    pub fn related(&self, kind: Kind, name: &str) -> Option<&Arc<WholeView>> {
        self.related.iter().find(|(of, object)| *of == kind && object.metadata.name == name).map(|(_, object)| object)
    }

    /// Returns whether a related object exists or is being created.
    pub fn has_related(&self, kind: Kind, name: &str) -> bool {
        self.related(kind, name).is_some() || self.in_flight.is_creating(kind, name)
    }

    /// Returns the Services that carry all of these labels.
    pub fn services_with<'a>(&'a self, wanted: &'a [(&'a str, String)]) -> impl Iterator<Item = &'a Arc<ServiceView>> {
        self.services.iter().filter(move |service| {
            wanted.iter().all(|(key, value)| service.metadata.label(key) == Some(value.as_str()))
        })
    }
}
