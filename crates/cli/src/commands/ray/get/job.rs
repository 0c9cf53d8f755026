//! `kubectl ray get job`.

use super::{Query, Rows, Source, View, age, rows_of, text, time_cell};
use manta_logic::explain::one_line;
use crate::resource::Kind;
use crate::table::Cell;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DynamicObject;
use manta_api::RayJob;

pub(super) static VIEW: View = View {
    source: Source::Ray(Kind::Job),
    with_worker_pods: false,
    rows,
    not_found: |query, place| format!("Ray job {} not found {place}", query.name.as_deref().unwrap_or_default()),
};

fn rows(query: &Query, jobs: &[DynamicObject], _: &[Pod]) -> anyhow::Result<Rows> {
    let mut columns = vec![
        "Name",
        "Namespace",
        "Job Status",
        "Deployment Status",
        "Ray Cluster Name",
        "Start Time",
        "End Time",
        "Age",
    ];
    if query.is_wide() {
        columns.extend(["Job ID", "Reason", "Message"]);
    }
    let rows = rows_of(jobs, "rayjob.ray.io", |job: &RayJob| {
        let status = job.status.clone().unwrap_or_default();
        let mut cells = vec![
            job.name_any().into(),
            text(job.namespace().as_deref()),
            Cell::State(status.job_status.unwrap_or_default()),
            Cell::State(status.job_deployment_status.unwrap_or_default()),
            text(status.ray_cluster_name.as_deref()),
            time_cell(status.start_time.as_ref()),
            time_cell(status.end_time.as_ref()),
            age(job),
        ];
        if query.is_wide() {
            let message = status.message.as_deref().map(one_line);
            cells.extend([
                text(status.job_id.as_deref()),
                text(status.reason.as_deref()),
                text(message.as_deref()),
            ]);
        }
        cells
    })?;
    Ok(Rows { columns, rows })
}
