//! Clusters and queries on Pods for the tests of builders.

use super::{HeadIdentity, WorkerIdentity, head_pod, worker_pod};
use crate::config::Config;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::{Container, Pod};
use manta_api::RayCluster;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// The spec hash of head Pods in tests.
pub(crate) const HASH: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUV";

/// Parses an object.
pub(crate) fn yaml<T: DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).unwrap()
}

/// Returns the cluster as a valid one.
pub(crate) fn valid(cluster: &RayCluster) -> ValidCluster<'_> {
    ValidCluster::assume(cluster)
}

/// Returns the head Pod with the suffix `*`.
pub(crate) fn head(cluster: &RayCluster, config: &Config) -> Pod {
    head_pod(&valid(cluster), config, HeadIdentity { suffix: "*", spec_hash: HASH })
}

/// Returns the first worker of the first group with the suffix `*`.
pub(crate) fn worker(cluster: &RayCluster, config: &Config) -> Pod {
    let group = &cluster.spec.worker_group_specs.as_ref().unwrap()[0];
    let identity = WorkerIdentity { suffix: "*", replica_index: 0, replica_name: "", host_index: 0 };
    worker_pod(&valid(cluster), group, config, identity)
}

/// Returns the cluster `test-cluster` with one group `small` and these additions to the required fields.
///
/// Keys of `given`: `metadata` and `spec` of the cluster, `head` and `worker` for the groups,
/// `pod` and `workerPod` for the specs of their Pods, `ray` and `workerRay` for the Ray containers,
/// `both` for both containers.
pub(crate) fn cluster(given: Value) -> RayCluster {
    let part = |key: &str| given.get(key).cloned().unwrap_or_else(|| json!({}));
    let group = |group: &str, pod: &str, ray: &str| {
        let mut container = json!({"name": "ray", "image": "rayproject/ray:2.52.0"});
        merge(&mut container, part("both"));
        merge(&mut container, part(ray));
        let mut pod_spec = json!({"containers": [container]});
        let mut more = part(pod);
        if let Some(sidecars) = more.as_object_mut().and_then(|pod| pod.remove("sidecars")) {
            pod_spec["containers"].as_array_mut().unwrap().extend(sidecars.as_array().unwrap().iter().cloned());
        }
        merge(&mut pod_spec, more);
        let mut spec = json!({"template": {"spec": pod_spec}});
        merge(&mut spec, part(group));
        spec
    };
    let mut worker = group("worker", "workerPod", "workerRay");
    merge(&mut worker, json!({"groupName": "small"}));
    let mut object = json!({
        "metadata": {"name": "test-cluster", "namespace": "test-ns", "uid": "test-uid"},
        "spec": {"headGroupSpec": group("head", "pod", "ray"), "workerGroupSpecs": [worker]},
    });
    merge(&mut object["metadata"], part("metadata"));
    merge(&mut object["spec"], part("spec"));
    serde_json::from_value(object).unwrap()
}

fn merge(into: &mut Value, from: Value) {
    match (into, from) {
        (Value::Object(into), Value::Object(from)) => {
            for (key, value) in from {
                merge(into.entry(key).or_insert_with(|| json!({})), value);
            }
        }
        (into, from) => *into = from,
    }
}

/// Returns the Ray container of a Pod.
pub(crate) fn ray(pod: &Pod) -> &Container {
    &pod.spec.as_ref().unwrap().containers[0]
}

/// Returns a container or init container of a Pod by its name.
pub(crate) fn container<'a>(pod: &'a Pod, name: &str) -> &'a Container {
    let spec = pod.spec.as_ref().unwrap();
    let mut all = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    all.find(|container| container.name == name).unwrap()
}

/// Returns the value of an environment variable; the last one of a name wins, as in Kubernetes.
pub(crate) fn env<'a>(container: &'a Container, name: &str) -> Option<&'a str> {
    let entry = container.env.iter().flatten().rfind(|entry| entry.name == name)?;
    let Some(source) = &entry.value_from else { return entry.value.as_deref().or(Some("")) };
    let field = source.field_ref.as_ref().map(|field| field.field_path.as_str());
    field.or_else(|| source.secret_key_ref.as_ref().map(|secret| secret.name.as_str()))
}

/// Returns the names of the environment variables in order.
pub(crate) fn env_names(container: &Container) -> Vec<&str> {
    container.env.iter().flatten().map(|entry| entry.name.as_str()).collect()
}

/// Returns the only argument of a container.
pub(crate) fn arg(container: &Container) -> &str {
    match container.args.as_deref() {
        Some([arg]) => arg,
        other => panic!("not one argument: {other:?}"),
    }
}

/// Returns the mount paths in order.
pub(crate) fn mounts(container: &Container) -> Vec<&str> {
    container.volume_mounts.iter().flatten().map(|mount| mount.mount_path.as_str()).collect()
}

/// Returns the names of a Pod's volumes in order.
pub(crate) fn volumes(pod: &Pod) -> Vec<&str> {
    pod.spec.as_ref().unwrap().volumes.iter().flatten().map(|volume| volume.name.as_str()).collect()
}

/// Returns a label of a Pod.
pub(crate) fn label<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.labels.as_ref()?.get(key).map(String::as_str)
}

/// Returns an annotation of a Pod.
pub(crate) fn annotation<'a>(pod: &'a Pod, key: &str) -> Option<&'a str> {
    pod.metadata.annotations.as_ref()?.get(key).map(String::as_str)
}
