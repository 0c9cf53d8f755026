//! Which objects of ours an object belongs to: whose plans read it, and who is woken when it changes.

use crate::stores::Stores;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::labels;
use manta_logic::scheduler;
use manta_logic::view::{EndpointSliceView, JobView, MetaView, PodView, ServiceView, WholeView};

/// The RayCluster that a Pod belongs to.
pub(crate) fn pod_owners(pod: &PodView) -> Vec<ObjectKey> {
    by_cluster_label(&pod.metadata).into_iter().collect()
}

/// The object whose Service this is: the owner that controls it, and the cluster that it is labelled with.
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

/// The RayJob that a submitter Job belongs to, or the RayCluster that a clean-up Job does.
pub(crate) fn job_owners(job: &JobView) -> Vec<ObjectKey> {
    merged(by_controller(&job.metadata), by_cluster_label(&job.metadata))
}

/// The RayCluster that a related object is labelled with, its controller, and whose batch scheduler reads it.
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

/// The RayService whose requests an EndpointSlice is about; none for the slices of other Services.
///
/// The slice carries the labels of its Service, where a real controller made it. Where not, the name leads to the
/// RayService, to one of its clusters, or to a Service that is known.
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
