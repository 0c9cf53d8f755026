//! The RayClusters of the slots: made from the spec, and brought up to date in place where that is enough.

use super::serve_config;
use super::upgrade::{Match, compare};
use super::{Planner, Side};
use crate::action::{Accept, Kind, Step};
use crate::build::owner::controller_reference;
use crate::cluster_spec;
use crate::config::KUBERAY_VERSION;
use crate::go;
use crate::labels::{self, annotation};
use crate::reasons;
use manta_api::{API_VERSION, RayCluster, RayClusterSpec, RayService};
use serde_json::json;
use std::collections::BTreeMap;

/// Creates the pending cluster, or updates both clusters in place.
pub(super) fn plan(planner: &mut Planner<'_>) {
    if let Some(name) = planner.draft.pending_name().map(str::to_owned)
        && planner.draft.pending.is_none()
    {
        // One of that name may still be terminating.
        if !planner.seen.has_cluster(&name) {
            create(planner, &name);
        }
        return;
    }
    if let Some(active) = planner.draft.active
        && !planner.draft.is_upgrading
        && (cluster_spec::annotation(active, annotation::KUBERAY_VERSION) != Some(KUBERAY_VERSION)
            || compare(planner, active) == Match::GroupsAdded)
    {
        update(planner, Side::Active, active);
    }
    if let Some(pending) = planner.draft.pending
        && compare(planner, pending) == Match::GroupsAdded
    {
        update(planner, Side::Pending, pending);
    }
}

fn create(planner: &mut Planner<'_>, name: &str) {
    let path = planner.seen.path(name);
    let mut spec = planner.seen.service.spec.ray_cluster_config.clone();
    // It grows as the other one shrinks. Without another one it needs all of its workers at once.
    if planner.draft.is_incremental && planner.draft.active.is_some() {
        for group in spec.worker_group_specs.iter_mut().flatten() {
            group.replicas = None;
        }
        reset_shares(planner);
    }
    let service = &planner.seen.service;
    let body = json!({
        "apiVersion": API_VERSION,
        "kind": RayCluster::KIND,
        "metadata": {
            "name": name,
            "namespace": service.metadata.namespace,
            "labels": cluster_labels(service),
            "annotations": cluster_annotations(planner),
            "ownerReferences": [controller_reference(RayService::KIND, &service.metadata)],
        },
        "spec": go::cluster_spec(&spec),
    });
    planner.then(
        Step::create(planner.seen.key(Kind::RayCluster, name), &body, "the service needs a cluster")
            .on_success(reasons::CREATED_RAY_CLUSTER, format!("Created the RayCluster {path}"))
            .on_failure(reasons::FAILED_TO_CREATE_RAY_CLUSTER, format!("Failed to create the RayCluster {path}: "))
            // Only this slot has the name, so the cluster is from an earlier pass that the watch does not show yet.
            .accept(Accept::AlreadyExists),
    );
    planner.wait_for(format!("RayCluster {path} to be made"));
}

/// A cluster that is made again has neither the capacity nor the traffic of the one that was lost.
fn reset_shares(planner: &mut Planner<'_>) {
    let slot = planner.draft.slot(Side::Pending);
    slot.target_capacity = Some(0);
    slot.traffic_routed_percent = None;
    slot.last_traffic_migrated_time = None;
}

fn update(planner: &mut Planner<'_>, side: Side, cluster: &RayCluster) {
    let (name, service) = (cluster_spec::name(cluster), &planner.seen.service);
    let path = planner.seen.path(name);
    let mut spec = service.spec.ray_cluster_config.clone();
    spec.suspend = cluster.spec.suspend;
    if cluster_spec::is_autoscaling(&spec) {
        keep_replicas(&mut spec, &cluster.spec);
    }
    let mut metadata = cluster.metadata.clone();
    metadata.labels = Some(cluster_labels(service));
    metadata.annotations = Some(cluster_annotations(planner));
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
    let why = "the spec has changed in a way that the cluster can follow";
    planner.then(
        Step::replace(planner.seen.key(Kind::RayCluster, name), &body, why)
            .on_success(reasons::UPDATED_RAY_CLUSTER, format!("Updated the {word} RayCluster {path}"))
            .on_failure(
                reasons::FAILED_TO_UPDATE_RAY_CLUSTER,
                format!("Failed to update the {word} RayCluster {path}: "),
            ),
    );
}

/// The sizes of groups belong to the autoscaler, unlike in KubeRay, which sets them back.
fn keep_replicas(spec: &mut RayClusterSpec, live: &RayClusterSpec) {
    for group in spec.worker_group_specs.iter_mut().flatten() {
        let known = cluster_spec::worker_groups(live).iter().find(|known| known.group_name == group.group_name);
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

fn cluster_annotations(planner: &Planner<'_>) -> BTreeMap<String, String> {
    let service = &planner.seen.service;
    let spec = &service.spec.ray_cluster_config;
    let mut annotations = service.metadata.annotations.clone().unwrap_or_default();
    let groups = cluster_spec::worker_groups(spec).len();
    annotations.insert(annotation::SERVICE_HASH.to_owned(), planner.draft.goal.clone());
    annotations.insert(annotation::NUM_WORKER_GROUPS.to_owned(), groups.to_string());
    annotations.insert(annotation::KUBERAY_VERSION.to_owned(), KUBERAY_VERSION.to_owned());
    let config = service.spec.serve_config_v2.as_deref().unwrap_or_default();
    let location = serve_config::proxy_location(config);
    if let Some(location) = location.filter(|location| cluster_spec::leaves_workers_without_proxy(location)) {
        annotations.insert(annotation::SERVE_PROXY_LOCATION.to_owned(), location);
    }
    annotations
}
