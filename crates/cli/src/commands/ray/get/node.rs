//! `kubectl ray get node`: the Pods of Ray clusters.

use super::{Query, Rows, Source, View, age, rows_of, text};
use crate::table::Cell;
use k8s_openapi::api::core::v1::{Container, Pod};
use kube::ResourceExt;
use kube::api::DynamicObject;
use manta_logic::build::is_gpu;
use manta_quantity::Quantity;

pub(super) static VIEW: View = View {
    source: Source::Nodes,
    with_worker_pods: false,
    rows,
    not_found: |query, place| {
        let node = query.name.as_deref().unwrap_or_default();
        match &query.cluster {
            Some(cluster) => format!("Ray node {node} not found for Ray cluster {cluster} {place}"),
            None => format!("Ray node {node} not found {place}"),
        }
    },
};

fn rows(query: &Query, pods: &[DynamicObject], _: &[Pod]) -> anyhow::Result<Rows> {
    let mut columns = if query.all_namespaces { vec!["Namespace"] } else { Vec::new() };
    columns.extend(["Name", "CPUs", "GPUs", "TPUs", "Memory", "Cluster", "Type", "Worker Group", "Age"]);
    if query.is_wide() {
        columns.extend(["Phase", "IP", "Kubernetes Node", "Image"]);
    }
    let rows = rows_of(pods, "pod", |pod: &Pod| {
        let label = |name: &str| text(pod.labels().get(name).map(String::as_str));
        let ray = pod.spec.as_ref().and_then(|spec| spec.containers.first());
        let mut cells = if query.all_namespaces { vec![text(pod.namespace().as_deref())] } else { Vec::new() };
        cells.extend([
            pod.name_any().into(),
            requested(ray, |name| name == "cpu"),
            requested(ray, is_gpu),
            requested(ray, |name| name == "google.com/tpu"),
            requested(ray, |name| name == "memory"),
            label("ray.io/cluster"),
            label("ray.io/node-type"),
            label("ray.io/group"),
            age(pod),
        ]);
        if query.is_wide() {
            let status = pod.status.clone().unwrap_or_default();
            cells.extend([
                Cell::State(status.phase.unwrap_or_default()),
                text(status.pod_ip.as_deref()),
                text(pod.spec.as_ref().and_then(|spec| spec.node_name.as_deref())),
                text(ray.and_then(|container| container.image.as_deref())),
            ]);
        }
        cells
    })?;
    Ok(Rows { columns, rows })
}

/// Returns what a container requests of the resources with such a name.
fn requested(container: Option<&Container>, is: impl Fn(&str) -> bool) -> Cell {
    let requests = container.and_then(|container| container.resources.as_ref()?.requests.as_ref());
    let mut sum = Quantity::ZERO;
    for (_, amount) in requests.into_iter().flatten().filter(|(name, _)| is(name)) {
        sum += &Quantity::parse_or_zero(&amount.0);
    }
    sum.to_string().into()
}
