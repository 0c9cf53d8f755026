//! The RayClusters of the slots: made from the spec, and brought up to date in place where that is enough.

use super::plan::{Pass, Side};
use super::upgrade::{Match, compare};
use crate::action::{Accept, Action, Body, Event, Kind, Step};
use crate::build::cluster_facts as facts;
use crate::build::owner::controller_reference;
use crate::config::KUBERAY_VERSION;
use crate::go;
use crate::labels::{self, annotation};
use manta_api::{API_VERSION, RayCluster, RayClusterSpec, RayService};
use serde_json::json;
use std::collections::BTreeMap;

/// Makes the pending cluster, or brings both clusters up to date.
pub(super) fn plan(pass: &mut Pass<'_>) {
    if let Some(name) = pass.pending_name().map(str::to_owned)
        && pass.pending.is_none()
    {
        // One of that name may still be on its way out.
        if !pass.seen.has_cluster(&name) {
            create(pass, &name);
        }
        return;
    }
    if let Some(active) = pass.active
        && !pass.is_upgrading
        && (facts::annotation(active, annotation::KUBERAY_VERSION) != Some(KUBERAY_VERSION)
            || compare(pass, active) == Match::GroupsAdded)
    {
        update(pass, Side::Active, active);
    }
    if let Some(pending) = pass.pending
        && compare(pass, pending) == Match::GroupsAdded
    {
        update(pass, Side::Pending, pending);
    }
}

fn create(pass: &mut Pass<'_>, name: &str) {
    let path = pass.seen.path(name);
    let mut spec = pass.seen.service.spec.ray_cluster_config.clone();
    // It grows as the other one shrinks. Without another one it needs all of its workers at once.
    if pass.is_incremental && pass.active.is_some() {
        for group in spec.worker_group_specs.iter_mut().flatten() {
            group.replicas = None;
        }
        begin_anew(pass);
    }
    let service = &pass.seen.service;
    let body = json!({
        "apiVersion": API_VERSION,
        "kind": RayCluster::KIND,
        "metadata": {
            "name": name,
            "namespace": service.metadata.namespace,
            "labels": cluster_labels(service),
            "annotations": cluster_annotations(pass),
            "ownerReferences": [controller_reference(RayService::KIND, &service.metadata)],
        },
        "spec": go::cluster_spec(&spec),
    });
    let action = Action::Create { key: pass.key(Kind::RayCluster, name), body: Body::of(&body) };
    pass.then(
        Step::new(action, "the service needs a cluster")
            .done(Event::normal("CreatedRayCluster", "Create", format!("Created the RayCluster {path}")))
            .failed(Event::warning(
                "FailedToCreateRayCluster",
                "Create",
                format!("Failed to create the RayCluster {path}: "),
            ))
            // The name is this slot's alone: it is the cluster of a pass whose watch is late.
            .accept(Accept::AlreadyExists),
    );
    pass.wait_for(format!("RayCluster {path} to be made"));
}

/// A cluster that is made again has neither the capacity nor the traffic of the one that was lost.
fn begin_anew(pass: &mut Pass<'_>) {
    let slot = pass.slot(Side::Pending);
    slot.target_capacity = Some(0);
    slot.traffic_routed_percent = None;
    slot.last_traffic_migrated_time = None;
}

fn update(pass: &mut Pass<'_>, side: Side, cluster: &RayCluster) {
    let (name, service) = (facts::name(cluster), &pass.seen.service);
    let path = pass.seen.path(name);
    let mut spec = service.spec.ray_cluster_config.clone();
    spec.suspend = cluster.spec.suspend;
    if facts::is_autoscaling(&spec) {
        keep_replicas(&mut spec, &cluster.spec);
    }
    let mut metadata = cluster.metadata.clone();
    metadata.labels = Some(cluster_labels(service));
    metadata.annotations = Some(cluster_annotations(pass));
    metadata.managed_fields = None;
    let body = json!({
        "apiVersion": API_VERSION,
        "kind": RayCluster::KIND,
        "metadata": metadata,
        "spec": go::cluster_spec(&spec),
    });
    let word = match side {
        Side::Active => "active",
        Side::Pending => "pending",
    };
    let action = Action::Replace { key: pass.key(Kind::RayCluster, name), body: Body::of(&body) };
    pass.then(
        Step::new(action, "the spec has changed in a way that the cluster can follow")
            .done(Event::normal("UpdatedRayCluster", "Update", format!("Updated the {word} RayCluster {path}")))
            .failed(Event::warning(
                "FailedToUpdateRayCluster",
                "Update",
                format!("Failed to update the {word} RayCluster {path}: "),
            )),
    );
}

/// The sizes of groups belong to the autoscaler, unlike in KubeRay, which sets them back.
fn keep_replicas(spec: &mut RayClusterSpec, live: &RayClusterSpec) {
    for group in spec.worker_group_specs.iter_mut().flatten() {
        let known = facts::worker_groups(live).iter().find(|known| known.group_name == group.group_name);
        if let Some(known) = known {
            group.replicas = known.replicas;
        }
    }
}

fn cluster_labels(service: &RayService) -> BTreeMap<String, String> {
    let mut labels = service.metadata.labels.clone().unwrap_or_default();
    let name = service.metadata.name.clone().unwrap_or_default();
    labels.insert(labels::ORIGINATED_FROM_CR_NAME.to_owned(), name);
    labels.insert(labels::ORIGINATED_FROM_CRD.to_owned(), RayService::KIND.to_owned());
    labels
}

fn cluster_annotations(pass: &Pass<'_>) -> BTreeMap<String, String> {
    let service = &pass.seen.service;
    let spec = &service.spec.ray_cluster_config;
    let mut annotations = service.metadata.annotations.clone().unwrap_or_default();
    let groups = facts::worker_groups(spec).len();
    annotations.insert(annotation::SERVICE_HASH.to_owned(), pass.goal.clone());
    annotations.insert(annotation::NUM_WORKER_GROUPS.to_owned(), groups.to_string());
    annotations.insert(annotation::KUBERAY_VERSION.to_owned(), KUBERAY_VERSION.to_owned());
    annotations
}
