//! Builds RayClusters from their description.

use super::config::{Autoscaler, AutoscalerVersion, ClusterConfig, Gcsfuse, Group, Head};
use manta_quantity::Quantity;
use serde_json::{Map, Value, json};

/// The volume of a bucket.
const STORAGE: &str = "cluster-storage";

/// Returns the spec of a RayCluster; the description is complete.
pub(in crate::commands) fn cluster_spec(config: &ClusterConfig) -> Value {
    let groups = config.worker_groups.iter().flatten().map(|group| worker_group(config, group));
    let mut spec = json!({
        "rayVersion": config.ray_version,
        "headGroupSpec": {
            "rayStartParams": config.head.ray_start_params,
            "template": template(config, head_container(config, &config.head), &config.head.node_selectors),
        },
        "workerGroupSpecs": groups.collect::<Vec<Value>>(),
    });
    if let Some(Autoscaler { version }) = &config.autoscaler {
        spec["enableInTreeAutoscaling"] = true.into();
        let version = match version {
            AutoscalerVersion::V1 => "v1",
            AutoscalerVersion::V2 => "v2",
        };
        spec["autoscalerOptions"] = json!({"version": version});
    }
    spec
}

/// Returns the whole RayCluster.
pub(super) fn cluster(config: &ClusterConfig, name: &str, namespace: &str) -> Value {
    let mut metadata = json!({"name": name, "namespace": namespace});
    for (key, map) in [("labels", &config.labels), ("annotations", &config.annotations)] {
        if !map.is_empty() {
            metadata[key] = json!(map);
        }
    }
    json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": metadata, "spec": cluster_spec(config)})
}

fn head_container(config: &ClusterConfig, head: &Head) -> Value {
    let amounts = [
        ("cpu", head.cpu.as_deref()),
        ("memory", head.memory.as_deref()),
        ("ephemeral-storage", head.ephemeral_storage.as_deref()),
        ("nvidia.com/gpu", head.gpu.as_deref()),
    ];
    json!({
        "name": "ray-head",
        "image": config.image,
        "ports": [
            {"containerPort": 6379, "name": "gcs-server"},
            {"containerPort": 8265, "name": "dashboard"},
            {"containerPort": 10001, "name": "client"},
        ],
        "resources": resources(&amounts),
    })
}

fn worker_group(config: &ClusterConfig, group: &Group) -> Value {
    let amounts = [
        ("cpu", group.cpu.as_deref()),
        ("memory", group.memory.as_deref()),
        ("ephemeral-storage", group.ephemeral_storage.as_deref()),
        ("nvidia.com/gpu", group.gpu.as_deref()),
        ("google.com/tpu", group.tpu.as_deref()),
    ];
    let container = json!({"name": "ray-worker", "image": config.image, "resources": resources(&amounts)});
    let mut built = json!({
        "groupName": group.name,
        "replicas": group.replicas,
        "rayStartParams": group.ray_start_params,
        "template": template(config, container, &group.node_selectors),
    });
    if let Some(hosts) = group.num_of_hosts {
        built["numOfHosts"] = hosts.into();
    }
    built
}

/// Returns requests, and the same limits except for the CPU: a container may use what others leave.
fn resources(amounts: &[(&str, Option<&str>)]) -> Value {
    let requests = non_zero(amounts);
    let limits: Map<String, Value> = requests.clone().into_iter().filter(|(name, _)| name != "cpu").collect();
    json!({"requests": requests, "limits": limits})
}

/// Returns the amounts that are not zero.
pub(super) fn non_zero(amounts: &[(&str, Option<&str>)]) -> Map<String, Value> {
    let given = amounts.iter().filter_map(|(name, amount)| Some((name, (*amount)?)));
    let given = given.filter(|(_, amount)| !Quantity::parse_or_zero(amount).is_zero());
    given.map(|(name, amount)| ((*name).to_owned(), amount.into())).collect()
}

fn template(config: &ClusterConfig, mut container: Value, selectors: &super::config::Labels) -> Value {
    let mut spec = Map::new();
    let mut metadata = Map::new();
    if let Some(account) = &config.service_account {
        spec.insert("serviceAccountName".into(), account.as_str().into());
    }
    if !selectors.is_empty() {
        spec.insert("nodeSelector".into(), json!(selectors));
    }
    if let Some(bucket) = config.gke.as_ref().and_then(|gke| gke.gcsfuse.as_ref()) {
        container["volumeMounts"] = json!([{"name": STORAGE, "mountPath": bucket.mount_path}]);
        spec.insert("volumes".into(), json!([bucket_volume(bucket)]));
        metadata.insert("annotations".into(), bucket_annotations(bucket));
    }
    spec.insert("containers".into(), json!([container]));
    let mut template = json!({"spec": spec});
    if !metadata.is_empty() {
        template["metadata"] = metadata.into();
    }
    template
}

fn bucket_volume(bucket: &Gcsfuse) -> Value {
    let mut attributes = json!({"bucketName": bucket.bucket_name});
    if let Some(options) = &bucket.mount_options {
        attributes["mountOptions"] = options.as_str().into();
    }
    let switches = [
        ("disableMetrics", bucket.disable_metrics),
        ("gcsfuseMetadataPrefetchOnMount", bucket.gcsfuse_metadata_prefetch_on_mount),
        ("skipCSIBucketAccessCheck", bucket.skip_csi_bucket_access_check),
    ];
    for (key, value) in switches {
        if let Some(value) = value {
            attributes[key] = value.to_string().into();
        }
    }
    json!({"name": STORAGE, "csi": {"driver": "gcsfuse.csi.storage.gke.io", "volumeAttributes": attributes}})
}

fn bucket_annotations(bucket: &Gcsfuse) -> Value {
    let mut annotations = json!({"gke-gcsfuse/volumes": "true"});
    let resources = &bucket.resources;
    let amounts = [
        (&["gke-gcsfuse/cpu-request"][..], &resources.cpu),
        (&["gke-gcsfuse/memory-limit", "gke-gcsfuse/memory-request"], &resources.memory),
        (
            &["gke-gcsfuse/ephemeral-storage-limit", "gke-gcsfuse/ephemeral-storage-request"],
            &resources.ephemeral_storage,
        ),
    ];
    for (keys, amount) in amounts {
        if let Some(amount) = amount {
            keys.iter().for_each(|key| annotations[*key] = amount.as_str().into());
        }
    }
    annotations
}

#[cfg(test)]
mod tests;
