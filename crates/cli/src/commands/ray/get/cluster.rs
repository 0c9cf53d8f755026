//! `kubectl ray get cluster`.

use super::{Query, Rows, Source, View, age, rows_of, text};
use crate::resource::Kind;
use crate::table::Cell;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use kube::ResourceExt;
use kube::api::DynamicObject;
use manta_api::{RayCluster, RayClusterStatus};

pub(super) static VIEW: View = View {
    source: Source::Ray(Kind::Cluster),
    with_worker_pods: false,
    rows,
    not_found: |query, place| format!("Ray cluster {} not found {place}", query.name.as_deref().unwrap_or_default()),
};

/// The conditions in the order in which one is chosen to be shown.
const CONDITIONS: [&str; 5] =
    ["RayClusterProvisioned", "HeadPodReady", "ReplicaFailure", "RayClusterSuspended", "RayClusterSuspending"];

fn rows(query: &Query, clusters: &[DynamicObject], _: &[Pod]) -> anyhow::Result<Rows> {
    let mut columns = vec![
        "Name",
        "Namespace",
        "Desired Workers",
        "Available Workers",
        "CPUs",
        "GPUs",
        "TPUs",
        "Memory",
        "Condition",
        "Status",
        "Age",
    ];
    if query.is_wide() {
        columns.extend(["Ray Version", "Head Pod", "Head IP", "Reason"]);
    }
    let rows = rows_of(clusters, "raycluster.ray.io", |cluster: &RayCluster| {
        let status = cluster.status.clone().unwrap_or_default();
        let mut cells = vec![
            cluster.name_any().into(),
            text(cluster.namespace().as_deref()),
            status.desired_worker_replicas.unwrap_or(0).to_string().into(),
            status.available_worker_replicas.unwrap_or(0).to_string().into(),
            amount(status.desired_cpu.as_ref()),
            amount(status.desired_gpu.as_ref()),
            amount(status.desired_tpu.as_ref()),
            amount(status.desired_memory.as_ref()),
            text(condition(&status)),
            Cell::State(status.state.clone().unwrap_or_default()),
            age(cluster),
        ];
        if query.is_wide() {
            let head = status.head.unwrap_or_default();
            cells.extend([
                text(cluster.spec.ray_version.as_deref()),
                text(head.pod_name.as_deref()),
                text(head.pod_ip.as_deref()),
                text(status.reason.as_deref()),
            ]);
        }
        cells
    })?;
    Ok(Rows { columns, rows })
}

fn amount(quantity: Option<&Quantity>) -> Cell {
    quantity.map_or("0", |quantity| quantity.0.as_str()).into()
}

/// Returns the first of the known conditions that is true.
fn condition(status: &RayClusterStatus) -> Option<&'static str> {
    let is_true = |name: &str| {
        status.conditions.iter().flatten().any(|condition| condition.type_ == name && condition.status == "True")
    };
    CONDITIONS.into_iter().find(|name| is_true(name))
}
