//! What is known about one RayCluster when its next step is decided.

use crate::action::{Kind, ObjectKey};
use crate::labels;
use crate::view::{JobView, PodView, ServiceView, WholeView};
use manta_api::RayCluster;
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;

/// One RayCluster and everything around it, as the watches show it.
#[derive(Clone, Debug)]
pub struct Observed {
    pub cluster: Arc<RayCluster>,
    /// Pods labelled with the cluster's name, sorted by name.
    pub pods: Vec<Arc<PodView>>,
    /// Services that belong to the cluster by label.
    pub services: Vec<Arc<ServiceView>>,
    /// Redis clean-up Jobs.
    pub cleanup_jobs: Vec<Arc<JobView>>,
    /// ServiceAccounts, Roles, Ingresses, claims, policies … labelled with the cluster's name.
    pub related: Vec<(Kind, Arc<WholeView>)>,
    /// Answers to what an earlier plan wanted looked up.
    pub looked_up: BTreeMap<ObjectKey, LookedUp>,
    /// Writes of ours that the watches do not show yet.
    pub in_flight: InFlight,
    /// Where random names come from.
    pub seed: u64,
}

/// What a look at one object found.
#[derive(Clone, Debug, PartialEq)]
pub enum LookedUp {
    Absent,
    Found(Arc<Value>),
    /// The API server refused or failed; the text is its message.
    Failed(String),
}

/// Writes that were acknowledged but have not come back through a watch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct InFlight {
    /// Objects that were created; for Pods with their group.
    pub creating: Vec<(ObjectKey, Option<String>)>,
    /// UIDs of objects that were deleted but still look alive.
    pub deleting: Vec<String>,
}

impl InFlight {
    /// Whether Pods of this group were created that are not visible yet.
    pub fn is_creating_in(&self, group: &str) -> bool {
        self.creating.iter().any(|(_, of)| of.as_deref() == Some(group))
    }

    /// Whether this object was created but is not visible yet.
    pub fn is_creating(&self, kind: Kind, name: &str) -> bool {
        self.creating.iter().any(|(key, _)| key.kind == kind && key.name == name)
    }
}

impl Observed {
    /// The cluster's name.
    pub fn name(&self) -> &str {
        self.cluster.metadata.name.as_deref().unwrap_or_default()
    }

    /// The cluster's namespace.
    pub fn namespace(&self) -> &str {
        self.cluster.metadata.namespace.as_deref().unwrap_or_default()
    }

    /// The cluster's UID.
    pub fn uid(&self) -> &str {
        self.cluster.metadata.uid.as_deref().unwrap_or_default()
    }

    /// `<namespace>/<name>` of an object beside the cluster.
    pub fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.namespace())
    }

    /// An annotation of the cluster.
    pub fn annotation(&self, key: &str) -> Option<&str> {
        self.cluster.metadata.annotations.as_ref()?.get(key).map(String::as_str)
    }

    /// The value of a label of the cluster.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.cluster.metadata.labels.as_ref()?.get(key).map(String::as_str)
    }

    /// An object in the cluster's namespace.
    pub fn key(&self, kind: Kind, name: &str) -> ObjectKey {
        ObjectKey::new(kind, self.namespace(), name)
    }

    /// Head Pods, those on their way out included.
    pub fn head_pods(&self) -> impl Iterator<Item = &Arc<PodView>> {
        self.pods.iter().filter(|pod| pod.metadata.label(labels::NODE_TYPE) == Some(labels::HEAD))
    }

    /// Pods of a worker group, those on their way out included.
    pub fn group_pods<'a>(&'a self, group: &'a str) -> impl Iterator<Item = &'a Arc<PodView>> {
        self.pods.iter().filter(move |pod| pod.metadata.label(labels::GROUP) == Some(group))
    }

    /// Whether a Pod is on its way out, as far as we know.
    pub fn is_going(&self, pod: &PodView) -> bool {
        pod.is_terminating() || self.in_flight.deleting.contains(&pod.metadata.uid)
    }

    /// The related object with this kind and name, if it carries the cluster's label.
    pub fn related(&self, kind: Kind, name: &str) -> Option<&Arc<WholeView>> {
        self.related.iter().find(|(of, object)| *of == kind && object.metadata.name == name).map(|(_, object)| object)
    }

    /// Whether a related object exists or is just being made.
    pub fn has_related(&self, kind: Kind, name: &str) -> bool {
        self.related(kind, name).is_some() || self.in_flight.is_creating(kind, name)
    }

    /// Services that carry all of these labels.
    pub fn services_with<'a>(&'a self, wanted: &'a [(&'a str, String)]) -> impl Iterator<Item = &'a Arc<ServiceView>> {
        self.services.iter().filter(move |service| {
            wanted.iter().all(|(key, value)| service.metadata.label(key) == Some(value.as_str()))
        })
    }
}
