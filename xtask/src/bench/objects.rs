//! The objects that scenarios create, and the parts of them that are looked at.

use k8s_openapi::api::core::v1::Pod;
use kube::api::ApiResource;
use kube::core::{GroupVersionKind, Object};
use kube::{Api, Client};
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

/// Where all objects are.
pub(super) const NAMESPACE: &str = "default";

/// A RayCluster.
pub(super) type Cluster = Object<ClusterSpec, ClusterStatus>;
/// A Pod; most of it is never decoded.
pub(super) type SmallPod = Object<Undecoded, PodStatus>;
/// A RayJob.
pub(super) type Job = Object<Undecoded, JobStatus>;
/// A RayService.
pub(super) type Service = Object<Undecoded, ServiceStatus>;

/// A part that nobody looks at.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
pub(super) struct Undecoded {}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClusterSpec {
    worker_group_specs: Vec<Group>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct Group {
    replicas: Option<usize>,
    num_of_hosts: Option<usize>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ClusterStatus {
    pub(super) state: Option<String>,
    pub(super) ready_worker_replicas: Option<usize>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
pub(super) struct PodStatus {
    conditions: Vec<Condition>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(default)]
struct Condition {
    #[serde(rename = "type")]
    kind: String,
    status: String,
    reason: String,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct JobStatus {
    pub(super) job_status: Option<String>,
    pub(super) job_status_check_failure_start_time: Option<String>,
}

#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct ServiceStatus {
    conditions: Vec<Condition>,
    pub(super) active_service_status: Slot,
    pub(super) pending_service_status: Slot,
}

/// One of the two RayClusters of a RayService.
#[derive(Debug, Clone, Default, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub(super) struct Slot {
    pub(super) ray_cluster_name: String,
}

/// Returns the number of workers that a RayCluster wants.
pub(super) fn wanted_workers(cluster: &Cluster) -> usize {
    let groups = cluster.spec.worker_group_specs.iter();
    groups.map(|group| group.replicas.unwrap_or(0) * group.num_of_hosts.unwrap_or(1)).sum()
}

/// Whether a RayCluster is reported ready.
pub(super) fn is_ready(cluster: &Cluster) -> bool {
    cluster.status.as_ref().is_some_and(|status| status.state.as_deref() == Some("ready"))
}

/// Returns the number of workers that are reported ready.
pub(super) fn ready_workers(cluster: &Cluster) -> usize {
    cluster.status.as_ref().and_then(|status| status.ready_worker_replicas).unwrap_or(0)
}

/// Whether a Pod is ready.
pub(super) fn is_pod_ready(pod: &SmallPod) -> bool {
    holds(pod.status.iter().flat_map(|status| &status.conditions), "Ready")
}

/// Whether a RayService is ready.
pub(super) fn is_service_ready(service: &Service) -> bool {
    holds(service.status.iter().flat_map(|status| &status.conditions), "Ready")
}

fn holds<'a>(mut conditions: impl Iterator<Item = &'a Condition>, kind: &str) -> bool {
    conditions.any(|condition| condition.kind == kind && condition.status == "True")
}

/// Returns the API of a Ray kind.
pub(super) fn ray<K: kube::Resource<DynamicType = ApiResource, Scope = kube::core::DynamicResourceScope>>(
    client: &Client,
    kind: &str,
) -> Api<K> {
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", kind));
    Api::namespaced_with(client.clone(), NAMESPACE, &resource)
}

/// Returns the API of Pods, reduced to what is looked at.
pub(super) fn pods(client: &Client) -> Api<SmallPod> {
    Api::namespaced_with(client.clone(), NAMESPACE, &ApiResource::erase::<Pod>(&()))
}

/// Returns the path of a Ray kind's objects.
pub(super) fn ray_path(plural: &str) -> String {
    format!("/apis/ray.io/v1/namespaces/{NAMESPACE}/{plural}")
}

/// Returns a RayCluster with one head and a group of this many workers.
pub(super) fn cluster(name: &str, workers: usize) -> Value {
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name},
        "spec": cluster_spec(&[group("workers", workers, 1)]),
    })
}

/// Returns a RayCluster with two empty groups, the second with four hosts to a replica.
pub(super) fn growing_cluster(name: &str) -> Value {
    let mut cluster = cluster(name, 0);
    cluster["spec"] = cluster_spec(&[group("workers", 0, 1), group("hosts", 0, 4)]);
    cluster
}

fn cluster_spec(groups: &[Value]) -> Value {
    json!({
        "rayVersion": "2.52.0",
        "headGroupSpec": {"rayStartParams": {"dashboard-host": "0.0.0.0"}, "template": template("ray-head")},
        "workerGroupSpecs": groups,
    })
}

fn group(name: &str, replicas: usize, hosts: usize) -> Value {
    json!({
        "groupName": name, "replicas": replicas, "minReplicas": 0, "maxReplicas": 100_000, "numOfHosts": hosts,
        "rayStartParams": {}, "template": template("ray-worker"),
    })
}

fn template(name: &str) -> Value {
    json!({"spec": {"containers": [{
        "name": name, "image": "rayproject/ray:2.52.0",
        "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
    }]}})
}

/// Returns a RayJob that runs on an existing RayCluster.
pub(super) fn job(name: &str, cluster: &str) -> Value {
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name},
        "spec": {
            "submissionMode": "HTTPMode",
            "entrypoint": "python train.py",
            "clusterSelector": {"ray.io/cluster": cluster},
        },
    })
}

/// Returns a RayService with a head and one worker.
pub(super) fn service(name: &str) -> Value {
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayService",
        "metadata": {"name": name},
        "spec": {
            "serveConfigV2": "applications:\n- name: app\n  import_path: app:app\n  route_prefix: /\n",
            "rayClusterConfig": cluster_spec(&[group("workers", 1, 1)]),
        },
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(status: Value) -> Cluster {
        let mut object = growing_cluster("a");
        object["spec"]["workerGroupSpecs"][0]["replicas"] = json!(3);
        object["spec"]["workerGroupSpecs"][1]["replicas"] = json!(2);
        object["status"] = status;
        serde_json::from_value(object).unwrap()
    }

    #[test]
    fn a_clusters_size_and_state_are_read() {
        for (status, ready, workers) in [
            (Value::Null, false, 0),
            (json!({"state": "ready", "readyWorkerReplicas": 11}), true, 11),
            (json!({"state": "suspended", "other": 1}), false, 0),
        ] {
            let cluster = parse(status);
            assert_eq!((is_ready(&cluster), ready_workers(&cluster), wanted_workers(&cluster)), (ready, workers, 11));
        }
    }

    #[test]
    fn only_the_ready_condition_makes_a_pod_ready() {
        for (conditions, ready) in [
            (json!([{"type": "Ready", "status": "True"}]), true),
            (json!([{"type": "Ready", "status": "False"}, {"type": "PodScheduled", "status": "True"}]), false),
            (json!([]), false),
        ] {
            let pod = json!({"metadata": {}, "spec": {"containers": []}, "status": {"conditions": conditions}});
            assert_eq!(is_pod_ready(&serde_json::from_value(pod).unwrap()), ready);
        }
    }
}
