//! Maps an object to the Ray objects whose plans read it and that are woken when it changes.

use crate::stores::Stores;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::labels;
use manta_logic::scheduler;
use manta_logic::view::{EndpointSliceView, JobView, MetaView, PodView, ServiceView, WholeView};

/// Returns the RayCluster that a Pod belongs to.
pub(crate) fn pod_owners(pod: &PodView) -> Vec<ObjectKey> {
    by_cluster_label(&pod.metadata).into_iter().collect()
}

/// Returns the controller of a Service and the cluster in its labels.
pub(crate) fn service_owners(service: &ServiceView) -> Vec<ObjectKey> {
    let meta = &service.metadata;
    let labelled = by_cluster_label(meta)
        .or_else(|| by_label(meta, labels::HEADLESS_WORKER_SERVICE, Kind::RayCluster))
        .or_else(|| match meta.label(labels::ORIGINATED_FROM_CRD) {
            Some("RayCluster") => by_label(meta, labels::ORIGINATED_FROM_CR_NAME, Kind::RayCluster),
            _ => None,
        });
    merged(by_controller(meta), labelled)
}

/// Returns the RayJob of a submitter Job, or the RayCluster of a clean-up Job.
pub(crate) fn job_owners(job: &JobView) -> Vec<ObjectKey> {
    merged(by_controller(&job.metadata), by_cluster_label(&job.metadata))
}

/// Returns the controller of a related object, the cluster in its labels, and the objects whose scheduler reads it.
pub(crate) fn related_owners(kind: Kind, object: &WholeView) -> Vec<ObjectKey> {
    let meta = &object.metadata;
    let mut owners = merged(by_controller(meta), by_cluster_label(meta));
    for reader in scheduler::readers(kind, &meta.namespace, &meta.name) {
        if !owners.contains(&reader) {
            owners.push(reader);
        }
    }
    owners
}

/// Returns the RayService whose traffic an EndpointSlice carries; none for the slices of other Services.
///
/// A slice made by the EndpointSlice controller has the labels of its Service. For others, the name identifies the
/// RayService, one of its clusters, or a cached Service.
pub(crate) fn slice_owners(stores: &Stores, slice: &EndpointSliceView) -> Vec<ObjectKey> {
    let meta = &slice.metadata;
    let Some(service) = slice.service() else { return Vec::new() };
    let mut owners = Vec::new();
    if let Some(base) = service.strip_suffix("-serve-svc") {
        owners.extend(stores.services.owners_of(&meta.namespace, base));
        owners.extend(stores.clusters.owners_of(&meta.namespace, base));
    }
    if meta.label(labels::ORIGINATED_FROM_CRD) == Some("RayService")
        && let Some(name) = meta.label(labels::ORIGINATED_FROM_CR_NAME)
    {
        owners.push(ObjectKey::new(Kind::RayService, &meta.namespace, name));
    }
    owners.extend(stores.kube_services.owners_of(&meta.namespace, service));
    owners.retain(|owner| owner.kind == Kind::RayService);
    owners.sort();
    owners.dedup();
    owners
}

fn by_cluster_label(meta: &MetaView) -> Option<ObjectKey> {
    by_label(meta, labels::CLUSTER, Kind::RayCluster)
}

fn by_label(meta: &MetaView, label: &str, kind: Kind) -> Option<ObjectKey> {
    meta.label(label).map(|name| ObjectKey::new(kind, &meta.namespace, name))
}

fn by_controller(meta: &MetaView) -> Option<ObjectKey> {
    let owner = meta.controller()?;
    Some(ObjectKey::new(Kind::of_ray(&owner.kind)?, &meta.namespace, &owner.name))
}

fn merged(first: Option<ObjectKey>, second: Option<ObjectKey>) -> Vec<ObjectKey> {
    let mut owners: Vec<ObjectKey> = first.into_iter().collect();
    owners.extend(second.filter(|key| !owners.contains(key)));
    owners
}
