//! `kubectl ray get workergroup`: the worker groups of Ray clusters, with their ready Pods.

use super::{Query, Row, Rows, Source, View, text};
use crate::resource::Kind;
use crate::table::Cell;
use anyhow::Context;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DynamicObject;
use manta_api::{RayCluster, WorkerGroupSpec};
use manta_logic::cluster::counts::{desired_pods, requests_of_group};
use serde::Deserialize;
use serde_json::json;

pub(super) static VIEW: View = View {
    source: Source::Ray(Kind::Cluster),
    with_worker_pods: true,
    rows,
    not_found: |query, place| {
        let group = query.name.as_deref().unwrap_or_default();
        match &query.cluster {
            Some(cluster) => format!("Ray worker group {group} not found {place} in Ray cluster {cluster}"),
            None => format!("Ray worker group {group} not found {place} in any Ray cluster"),
        }
    },
};

fn rows(query: &Query, clusters: &[DynamicObject], pods: &[Pod]) -> anyhow::Result<Rows> {
    let mut columns = if query.all_namespaces { vec!["Namespace"] } else { Vec::new() };
    columns.extend(["Name", "Min", "Max", "Replicas", "CPUs", "GPUs", "TPUs", "Memory", "Cluster"]);
    if query.is_wide() {
        columns.extend(["Hosts", "Suspended", "Image"]);
    }
    let mut rows = Vec::new();
    for object in clusters {
        let value = serde_json::to_value(object)?;
        let cluster = RayCluster::deserialize(&value)
            .with_context(|| format!("cannot read raycluster/{}", object.name_any()))?;
        let groups = cluster.spec.worker_group_specs.iter().flatten();
        let wanted = groups.filter(|group| query.name.as_ref().is_none_or(|name| *name == group.group_name));
        rows.extend(wanted.map(|group| row(query, &cluster, group, pods)));
    }
    Ok(Rows { columns, rows })
}

fn row(query: &Query, cluster: &RayCluster, group: &WorkerGroupSpec, pods: &[Pod]) -> Row {
    let (namespace, cluster_name) = (cluster.namespace().unwrap_or_default(), cluster.name_any());
    let (ready, desired) = (ready_pods(&namespace, &cluster_name, &group.group_name, pods), desired_pods(group));
    let resources = requests_of_group(group);
    let (min, max) = (group.min_replicas.unwrap_or(0), group.max_replicas.unwrap_or(i32::MAX));
    let hosts = group.num_of_hosts.unwrap_or(1);
    let mut cells: Vec<Cell> = if query.all_namespaces { vec![namespace.as_str().into()] } else { Vec::new() };
    cells.extend::<[Cell; 9]>([
        group.group_name.as_str().into(),
        min.to_string().into(),
        max.to_string().into(),
        format!("{ready}/{desired}").into(),
        resources.cpu.to_string().into(),
        resources.gpu.to_string().into(),
        resources.tpu.to_string().into(),
        resources.memory.to_string().into(),
        cluster_name.as_str().into(),
    ]);
    if query.is_wide() {
        let image = group.template.spec.as_ref().and_then(|spec| spec.containers.first()?.image.as_deref());
        cells.extend([
            hosts.to_string().into(),
            group.suspend.unwrap_or(false).to_string().into(),
            text(image),
        ]);
    }
    let object = json!({
        "namespace": namespace, "cluster": cluster_name, "name": group.group_name,
        "minReplicas": min, "maxReplicas": max, "numOfHosts": hosts, "readyPods": ready, "desiredPods": desired,
        "cpu": resources.cpu.to_string(), "gpu": resources.gpu.to_string(), "tpu": resources.tpu.to_string(),
        "memory": resources.memory.to_string(), "spec": group,
    });
    let key = format!("{namespace}/{cluster_name}/{}", group.group_name);
    Row { key, name: format!("workergroup/{}", group.group_name), cells, object }
}

fn ready_pods(namespace: &str, cluster: &str, group: &str, pods: &[Pod]) -> usize {
    let has = |pod: &Pod, label: &str, value: &str| pod.labels().get(label).is_some_and(|found| found == value);
    let of_group = pods.iter().filter(|pod| {
        pod.namespace().as_deref() == Some(namespace)
            && has(pod, "ray.io/cluster", cluster)
            && has(pod, "ray.io/group", group)
    });
    of_group.filter(|pod| is_ready(pod)).count()
}

fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|status| status.conditions.iter().flatten());
    conditions.into_iter().any(|condition| condition.type_ == "Ready" && condition.status == "True")
}
