//! The deprecated `v1alpha1`, derived from the schemas of `v1`.
//!
//! It is served for clusters that still store it. It gets no new fields, so the fields of each object are listed here, and
//! new fields of `v1` do not appear in it.

use serde_json::{Value, json};

pub(super) const VERSION: &str = "v1alpha1";

/// The warning of the API server about the use of this version.
pub(super) fn warning(kind: &str) -> String {
    format!(
        "ray.io/v1alpha1 {kind} is deprecated; use ray.io/v1 {kind}. \
         v1alpha1 receives no new fields and will be unavailable in KubeRay 1.9."
    )
}

pub(super) fn cluster(mut root: Value) -> Value {
    cluster_spec(property(&mut root, "spec"));
    cluster_status(property(&mut root, "status"));
    root
}

pub(super) fn job(mut root: Value) -> Value {
    let spec = property(&mut root, "spec");
    keep(
        spec,
        &[
            "clusterSelector",
            "entrypoint",
            "entrypointNumCpus",
            "entrypointNumGpus",
            "entrypointResources",
            "jobId",
            "metadata",
            "rayClusterSpec",
            "runtimeEnvYAML",
            "shutdownAfterJobFinishes",
            "submitterPodTemplate",
            "suspend",
            "ttlSecondsAfterFinished",
        ],
    );
    require(spec, &["entrypoint"]);
    cluster_spec(property(spec, "rayClusterSpec"));
    let status = property(&mut root, "status");
    keep(
        status,
        &[
            "dashboardURL",
            "endTime",
            "jobDeploymentStatus",
            "jobId",
            "jobStatus",
            "message",
            "observedGeneration",
            "rayClusterName",
            "rayClusterStatus",
            "startTime",
        ],
    );
    cluster_status(property(status, "rayClusterStatus"));
    root
}

pub(super) fn service(mut root: Value) -> Value {
    let spec = property(&mut root, "spec");
    keep(
        spec,
        &[
            "deploymentUnhealthySecondThreshold",
            "rayClusterConfig",
            "serveConfigV2",
            "serveService",
            "serviceUnhealthySecondThreshold",
        ],
    );
    require(spec, &[]);
    cluster_spec(property(spec, "rayClusterConfig"));
    let status = property(&mut root, "status");
    keep(
        status,
        &["activeServiceStatus", "lastUpdateTime", "observedGeneration", "pendingServiceStatus", "serviceStatus"],
    );
    for which in ["activeServiceStatus", "pendingServiceStatus"] {
        let status = property(status, which);
        keep(status, &["applicationStatuses", "rayClusterName", "rayClusterStatus"]);
        cluster_status(property(status, "rayClusterStatus"));
        let application = value(property(status, "applicationStatuses"));
        add_health_time(application);
        add_health_time(value(property(application, "serveDeploymentStatuses")));
    }
    root
}

fn cluster_spec(spec: &mut Value) {
    keep(
        spec,
        &[
            "autoscalerOptions",
            "enableInTreeAutoscaling",
            "headGroupSpec",
            "headServiceAnnotations",
            "rayVersion",
            "suspend",
            "workerGroupSpecs",
        ],
    );
    drop(property(spec, "autoscalerOptions"), &["args", "command", "version"]);
    let head = property(spec, "headGroupSpec");
    keep(head, &["enableIngress", "headService", "rayStartParams", "serviceType", "template"]);
    require(head, &["rayStartParams", "template"]);
    let worker = item(property(spec, "workerGroupSpecs"));
    keep(
        worker,
        &["groupName", "maxReplicas", "minReplicas", "rayStartParams", "replicas", "scaleStrategy", "template"],
    );
    require(worker, &["groupName", "maxReplicas", "minReplicas", "rayStartParams", "template"]);
}

fn cluster_status(status: &mut Value) {
    drop(status, &["conditions", "stateTransitionTimes"]);
    keep(property(status, "head"), &["podIP", "serviceIP"]);
}

/// Adds the time at which applications and deployments were last healthy.
fn add_health_time(status: &mut Value) {
    status["properties"]["healthLastUpdateTime"] = json!({"type": "string", "format": "date-time"});
}

fn property<'a>(schema: &'a mut Value, name: &str) -> &'a mut Value {
    &mut schema["properties"][name]
}

fn item(schema: &mut Value) -> &mut Value {
    &mut schema["items"]
}

fn value(schema: &mut Value) -> &mut Value {
    &mut schema["additionalProperties"]
}

fn keep(schema: &mut Value, names: &[&str]) {
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.retain(|name, _| names.contains(&name.as_str()));
    }
}

fn drop(schema: &mut Value, names: &[&str]) {
    if let Some(properties) = schema["properties"].as_object_mut() {
        properties.retain(|name, _| !names.contains(&name.as_str()));
    }
}

/// Replaces the required properties.
fn require(schema: &mut Value, names: &[&str]) {
    if let Some(schema) = schema.as_object_mut() {
        schema.remove("required");
        if !names.is_empty() {
            schema.insert("required".to_owned(), names.into());
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::crd::{Versions, all};
    use serde_json::Value;
    use std::collections::BTreeMap;

    /// Returns the properties and the required ones at a path of a schema; `[]` is an item, `{}` the value of a map.
    fn at(mut schema: &Value, path: &str) -> (String, String) {
        for step in path.split('.') {
            schema = match step {
                "[]" => &schema["items"],
                "{}" => &schema["additionalProperties"],
                name => &schema["properties"][name],
            };
        }
        let properties: Vec<_> = schema["properties"].as_object().unwrap().keys().map(String::as_str).collect();
        let required = schema["required"].as_array().into_iter().flatten().filter_map(Value::as_str);
        (properties.join(" "), required.collect::<Vec<_>>().join(" "))
    }

    #[test]
    fn v1alpha1_has_the_old_fields_only() {
        let schemas: BTreeMap<String, Value> = all(Versions::V1AndV1alpha1)
            .iter()
            .filter_map(|crd| {
                let old = crd.spec.versions.get(1)?.schema.as_ref()?.open_api_v3_schema.as_ref()?;
                Some((crd.spec.names.kind.clone(), serde_json::to_value(old).unwrap()))
            })
            .collect();
        let check = |kind: &str, path: &str, properties: &str, required: &str| {
            assert_eq!(at(&schemas[kind], path), (properties.to_owned(), required.to_owned()), "{kind} {path}");
        };
        let cluster_spec = "autoscalerOptions enableInTreeAutoscaling headGroupSpec headServiceAnnotations rayVersion \
                            suspend workerGroupSpecs";
        let autoscaler = "env envFrom idleTimeoutSeconds image imagePullPolicy resources securityContext upscalingMode \
                          volumeMounts";
        let head = "enableIngress headService rayStartParams serviceType template";
        let worker = "groupName maxReplicas minReplicas rayStartParams replicas scaleStrategy template";
        let cluster_status = "availableWorkerReplicas desiredCPU desiredGPU desiredMemory desiredTPU \
                              desiredWorkerReplicas endpoints head lastUpdateTime maxWorkerReplicas minWorkerReplicas \
                              observedGeneration readyWorkerReplicas reason state";
        for (kind, spec, status) in [
            ("RayCluster", "spec", "status"),
            ("RayJob", "spec.rayClusterSpec", "status.rayClusterStatus"),
            ("RayService", "spec.rayClusterConfig", "status.activeServiceStatus.rayClusterStatus"),
            ("RayService", "spec.rayClusterConfig", "status.pendingServiceStatus.rayClusterStatus"),
        ] {
            check(kind, spec, cluster_spec, "headGroupSpec");
            check(kind, &format!("{spec}.autoscalerOptions"), autoscaler, "");
            check(kind, &format!("{spec}.headGroupSpec"), head, "rayStartParams template");
            let required = "groupName maxReplicas minReplicas rayStartParams template";
            check(kind, &format!("{spec}.workerGroupSpecs.[]"), worker, required);
            check(kind, status, cluster_status, "");
            check(kind, &format!("{status}.head"), "podIP serviceIP", "");
        }
        check(
            "RayJob",
            "spec",
            "clusterSelector entrypoint entrypointNumCpus entrypointNumGpus entrypointResources jobId metadata \
             rayClusterSpec runtimeEnvYAML shutdownAfterJobFinishes submitterPodTemplate suspend \
             ttlSecondsAfterFinished",
            "entrypoint",
        );
        check(
            "RayJob",
            "status",
            "dashboardURL endTime jobDeploymentStatus jobId jobStatus message observedGeneration rayClusterName \
             rayClusterStatus startTime",
            "",
        );
        check(
            "RayService",
            "spec",
            "deploymentUnhealthySecondThreshold rayClusterConfig serveConfigV2 serveService \
             serviceUnhealthySecondThreshold",
            "",
        );
        check(
            "RayService",
            "status",
            "activeServiceStatus lastUpdateTime observedGeneration pendingServiceStatus serviceStatus",
            "",
        );
        let application = "status.activeServiceStatus.applicationStatuses.{}";
        check("RayService", application, "healthLastUpdateTime message serveDeploymentStatuses status", "");
        let deployment = format!("{application}.serveDeploymentStatuses.{{}}");
        check("RayService", &deployment, "healthLastUpdateTime message status", "");
    }
}
