//! `kubectl ray get cronjob`.

use super::{Query, Rows, Source, View, age, rows_of, text, time_cell};
use crate::resource::Kind;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DynamicObject;
use manta_api::RayCronJob;

pub(super) static VIEW: View = View {
    source: Source::Ray(Kind::CronJob),
    with_worker_pods: false,
    rows,
    not_found: |query, place| format!("Ray cron job {} not found {place}", query.name.as_deref().unwrap_or_default()),
};

fn rows(query: &Query, cronjobs: &[DynamicObject], _: &[Pod]) -> anyhow::Result<Rows> {
    let mut columns = vec!["Name", "Namespace", "Schedule", "Suspend", "Last Schedule", "Age"];
    if query.is_wide() {
        columns.extend(["Time Zone", "Entrypoint"]);
    }
    let rows = rows_of(cronjobs, "raycronjob.ray.io", |cronjob: &RayCronJob| {
        let spec = &cronjob.spec;
        let mut cells = vec![
            cronjob.name_any().into(),
            text(cronjob.namespace().as_deref()),
            spec.schedule.as_str().into(),
            spec.suspend.unwrap_or(false).to_string().into(),
            time_cell(cronjob.status.as_ref().and_then(|status| status.last_schedule_time.as_ref())),
            age(cronjob),
        ];
        if query.is_wide() {
            cells.extend([text(spec.time_zone.as_deref()), text(spec.job_template.entrypoint.as_deref())]);
        }
        cells
    })?;
    Ok(Rows { columns, rows })
}
