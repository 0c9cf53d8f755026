//! Specs as KubeRay writes them: Go prints structs that are not pointers even when they are empty.
//!
//! Objects that the operator makes, or writes back, carry these empty parts so that they are equal to
//! those of KubeRay, and so that going back to KubeRay changes nothing.

use manta_api::{RayClusterSpec, RayJobSpec, RayServiceSpec};
use serde::Serialize;
use serde_json::{Map, Value, json};

/// Fields of a RayJob that are no pointers in Go: their empty values are not printed.
const LEFT_OUT_WHEN_EMPTY: [&str; 11] = [
    "metadata",
    "clusterSelector",
    "entrypoint",
    "runtimeEnvYAML",
    "jobId",
    "submissionMode",
    "entrypointResources",
    "entrypointNumCpus",
    "entrypointNumGpus",
    "shutdownAfterJobFinishes",
    "suspend",
];

/// A RayCluster's spec.
pub fn cluster_spec(spec: &RayClusterSpec) -> Value {
    let mut value = plain(spec);
    shape_cluster(&mut value);
    value
}

/// A RayJob's spec.
pub fn job_spec(spec: &RayJobSpec) -> Value {
    let mut value = plain(spec);
    at(&mut value, "rayClusterSpec", shape_cluster);
    at(&mut value, "submitterPodTemplate", shape_template);
    for key in LEFT_OUT_WHEN_EMPTY {
        if value.get(key).is_some_and(is_empty) {
            value.as_object_mut().map(|fields| fields.remove(key));
        }
    }
    value
}

/// A RayService's spec.
pub fn service_spec(spec: &RayServiceSpec) -> Value {
    let mut value = plain(spec);
    at(&mut value, "rayClusterConfig", shape_cluster);
    at(&mut value, "serveService", shape_service);
    value
}

fn plain(spec: &impl Serialize) -> Value {
    // The types hold nothing but what came from JSON.
    serde_json::to_value(spec).unwrap_or_default()
}

fn shape_cluster(spec: &mut Value) {
    at(spec, "headGroupSpec", |head| {
        insert_empty(head, "template");
        at(head, "template", shape_template);
        at(head, "headService", shape_service);
    });
    each(spec, "workerGroupSpecs", |group| {
        insert_empty(group, "scaleStrategy");
        insert_empty(group, "template");
        at(group, "template", shape_template);
    });
}

fn shape_service(service: &mut Value) {
    insert_empty(service, "metadata");
    insert_empty(service, "spec");
    insert_empty(service, "status");
    at(service, "status", |status| insert_empty(status, "loadBalancer"));
    at(service, "spec", |spec| each(spec, "ports", |port| insert(port, "targetPort", json!(0))));
}

fn shape_template(template: &mut Value) {
    insert_empty(template, "metadata");
    insert_empty(template, "spec");
    at(template, "spec", |pod| {
        for containers in ["containers", "initContainers", "ephemeralContainers"] {
            each(pod, containers, shape_container);
        }
        each(pod, "volumes", |volume| {
            at(volume, "ephemeral", |ephemeral| {
                at(ephemeral, "volumeClaimTemplate", |claim| {
                    insert_empty(claim, "metadata");
                    at(claim, "spec", |spec| insert_empty(spec, "resources"));
                });
            });
            at(volume, "downwardAPI", |source| each(source, "items", shape_resource_reference));
        });
    });
}

fn shape_container(container: &mut Value) {
    insert_empty(container, "resources");
    each(container, "env", |variable| at(variable, "valueFrom", shape_resource_reference));
}

fn shape_resource_reference(holder: &mut Value) {
    at(holder, "resourceFieldRef", |reference| insert(reference, "divisor", json!("0")));
}

fn is_empty(value: &Value) -> bool {
    match value {
        Value::Bool(set) => !set,
        Value::String(text) => text.is_empty(),
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::Object(fields) => fields.is_empty(),
        Value::Null | Value::Array(_) => false,
    }
}

fn at(value: &mut Value, key: &str, shape: impl FnOnce(&mut Value)) {
    if let Some(inner) = value.get_mut(key).filter(|inner| inner.is_object()) {
        shape(inner);
    }
}

fn each(value: &mut Value, key: &str, shape: impl Fn(&mut Value)) {
    value.get_mut(key).and_then(Value::as_array_mut).into_iter().flatten().for_each(shape);
}

fn insert_empty(value: &mut Value, key: &str) {
    insert(value, key, Value::Object(Map::new()));
}

fn insert(value: &mut Value, key: &str, default: Value) {
    if let Some(object) = value.as_object_mut() {
        object.entry(key).or_insert(default);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_structs_appear_where_go_prints_them() {
        let spec: RayJobSpec = serde_json::from_value(json!({
            "rayClusterSpec": {
                "headGroupSpec": {
                    "headService": {"metadata": {"name": "custom"}},
                    "template": {"spec": {"containers": [{"name": "ray"}]}},
                },
                "workerGroupSpecs": [{"groupName": "a", "template": {"spec": {"containers": []}}}],
            },
            "submitterPodTemplate": {"spec": {"containers": [{"name": "mine", "resources": {"limits": {"cpu": "1"}}}]}},
            "shutdownAfterJobFinishes": false,
            "jobId": "",
            "suspend": true,
        }))
        .unwrap();
        assert_eq!(
            job_spec(&spec),
            json!({
                "rayClusterSpec": {
                    "headGroupSpec": {
                        "headService": {"metadata": {"name": "custom"}, "spec": {}, "status": {"loadBalancer": {}}},
                        "template": {"metadata": {}, "spec": {"containers": [{"name": "ray", "resources": {}}]}},
                    },
                    "workerGroupSpecs": [
                        {"groupName": "a", "scaleStrategy": {}, "template": {"metadata": {}, "spec": {"containers": []}}},
                    ],
                },
                "suspend": true,
                "submitterPodTemplate": {
                    "metadata": {},
                    "spec": {"containers": [{"name": "mine", "resources": {"limits": {"cpu": "1"}}}]},
                },
            })
        );
    }
}
