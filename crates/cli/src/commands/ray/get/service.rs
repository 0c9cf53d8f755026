//! `kubectl ray get service`.

use super::{Query, Rows, Source, View, age, rows_of, text};
use crate::resource::Kind;
use crate::table::Cell;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DynamicObject;
use manta_api::{ClusterServeStatus, RayService};

pub(super) static VIEW: View = View {
    source: Source::Ray(Kind::Service),
    with_worker_pods: false,
    rows,
    not_found: |query, place| format!("Ray service {} not found {place}", query.name.as_deref().unwrap_or_default()),
};

fn rows(query: &Query, services: &[DynamicObject], _: &[Pod]) -> anyhow::Result<Rows> {
    let mut columns = vec!["Name", "Namespace", "Status", "Num Serve Endpoints", "Applications", "Age"];
    if query.is_wide() {
        columns.extend(["Active Cluster", "Pending Cluster"]);
    }
    let rows = rows_of(services, "rayservice.ray.io", |service: &RayService| {
        let status = service.status.clone().unwrap_or_default();
        let active = status.active_service_status.unwrap_or_default();
        let mut cells = vec![
            service.name_any().into(),
            text(service.namespace().as_deref()),
            Cell::State(status.service_status.unwrap_or_default()),
            status.num_serve_endpoints.unwrap_or(0).to_string().into(),
            running_applications(&active).into(),
            age(service),
        ];
        if query.is_wide() {
            let pending = status.pending_service_status.unwrap_or_default();
            cells.extend([text(active.ray_cluster_name.as_deref()), text(pending.ray_cluster_name.as_deref())]);
        }
        cells
    })?;
    Ok(Rows { columns, rows })
}

/// Returns how many applications run, of how many.
fn running_applications(status: &ClusterServeStatus) -> String {
    let all = status.application_statuses.iter().flatten();
    let running = all.clone().filter(|(_, application)| application.status.as_deref() == Some("RUNNING")).count();
    format!("{running}/{}", all.count())
}
