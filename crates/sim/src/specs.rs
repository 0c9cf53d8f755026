//! The specs of what users create.

use crate::script::{Feature, Rules};
use serde_json::{Value, json};

/// Returns the change that makes the spec of a cluster invalid.
pub(crate) fn without_containers() -> Value {
    json!({"headGroupSpec": {"template": {"spec": {"containers": []}}}})
}

/// Returns whether an object is as `without_containers`, or an unknown schedule, made it, or suspends what an autoscaler
/// sizes.
pub(crate) fn is_invalid(object: &Value) -> bool {
    let spec = &object["spec"];
    let is_empty = |cluster: &Value| cluster["headGroupSpec"]["template"]["spec"]["containers"] == json!([]);
    let is_refused = |cluster: &Value| is_empty(cluster) || suspends_sized_group(cluster);
    [spec, &spec["rayClusterSpec"], &spec["rayClusterConfig"]].into_iter().any(is_refused)
        || spec["schedule"] == "every now and then"
}

/// Returns whether the spec of a cluster suspends workers that an autoscaler sizes, which is invalid.
pub(crate) fn suspends_sized_group(cluster: &Value) -> bool {
    let mut groups = cluster["workerGroupSpecs"].as_array().into_iter().flatten();
    cluster["enableInTreeAutoscaling"] == true && groups.any(|group| group["suspend"] == true)
}

pub(crate) fn with_feature(mut spec: Value, feature: Feature) -> Value {
    match feature {
        Feature::Ingress => spec["headGroupSpec"]["enableIngress"] = json!(true),
        Feature::Storage => spec["gcsFaultToleranceOptions"] = durable("DeleteWithCluster"),
        Feature::RetainedStorage => spec["gcsFaultToleranceOptions"] = durable("Retain"),
        Feature::MultiHost => spec["workerGroupSpecs"][0]["numOfHosts"] = json!(2),
        Feature::FourHosts => spec["workerGroupSpecs"][0]["numOfHosts"] = json!(4),
        Feature::Isolation => spec["networkPolicy"] = json!({"mode": "DenyAll"}),
        Feature::ManagedElsewhere => spec["managedBy"] = json!("kueue.x-k8s.io/multikueue"),
    }
    spec
}

/// Returns options with a volume for what a head knows.
pub(crate) fn durable(policy: &str) -> Value {
    json!({"backend": "rocksdb", "storage": {"size": "1Gi", "deletionPolicy": policy}})
}

pub(crate) fn deletion_strategy(rules: Rules) -> Value {
    let rule = |policy: &str, seconds: u64| {
        ["Complete", "Failed"]
            .map(|phase| json!({"policy": policy, "condition": {"jobDeploymentStatus": phase, "ttlSeconds": seconds}}))
    };
    let staged: Vec<Value> =
        [rule("DeleteWorkers", 10), rule("DeleteCluster", 25), rule("DeleteSelf", 40)].into_iter().flatten().collect();
    match rules {
        Rules::Workers => json!({"deletionRules": rule("DeleteWorkers", 10)}),
        Rules::Cluster => json!({"deletionRules": rule("DeleteCluster", 20)}),
        Rules::Itself => json!({"deletionRules": rule("DeleteSelf", 30)}),
        Rules::Staged => json!({"deletionRules": staged}),
        Rules::ByOutcome => {
            json!({"onSuccess": {"policy": "DeleteCluster"}, "onFailure": {"policy": "DeleteWorkers"}})
        }
    }
}

pub(crate) fn job_spec(http: bool, fails: bool) -> Value {
    json!({
        "entrypoint": if fails { "fail" } else { "succeed" },
        "submissionMode": if http { "HTTPMode" } else { "K8sJobMode" },
        "rayClusterSpec": cluster_spec(1),
    })
}

pub(crate) fn cluster_spec(workers: u8) -> Value {
    let container = |name: &str| json!({"name": name, "image": "rayproject/ray:2.53.0"});
    json!({
        "rayVersion": "2.53.0",
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [container("ray-head")]}}},
        "workerGroupSpecs": [{
            "groupName": "small", "replicas": workers, "minReplicas": 0, "maxReplicas": 10, "rayStartParams": {},
            "template": {"spec": {"containers": [container("ray-worker")]}},
        }],
    })
}
