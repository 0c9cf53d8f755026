//! The RayJob of a submission, from flags or from a file.

use super::super::create::{ClusterConfig, cluster_spec};
use anyhow::{Context, ensure};
use serde_json::{Map, Value, json};

/// Returns a RayJob in InteractiveMode.
pub(in crate::commands) fn from_flags(
    name: &str,
    cluster: &ClusterConfig,
    entrypoint: &str,
    id: &str,
    ttl: Option<u32>,
) -> Value {
    let mut job = json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayJob",
        "metadata": {"name": name},
        "spec": {
            "submissionMode": "InteractiveMode",
            "entrypoint": entrypoint,
            "jobId": id,
            "rayClusterSpec": cluster_spec(cluster),
        },
    });
    if let Some(seconds) = ttl {
        job["spec"]["ttlSecondsAfterFinished"] = seconds.into();
        job["spec"]["shutdownAfterJobFinishes"] = true.into();
    }
    job
}

/// Returns the RayJob of a file, with the id of the submission.
pub(super) fn from_file(text: &str, id: &str) -> anyhow::Result<Value> {
    let mut job: Value = serde_saphyr::from_str(text).context("it is not YAML")?;
    ensure!(job["kind"] == "RayJob", "it holds no RayJob");
    let spec = job["spec"].as_object_mut().context("the RayJob has no spec")?;
    ensure!(
        spec.get("submissionMode").and_then(Value::as_str) == Some("InteractiveMode"),
        "Submission mode of the Ray Job must be set to 'InteractiveMode'"
    );
    let retries = spec.get("backoffLimit").and_then(Value::as_i64).unwrap_or(0);
    ensure!(retries == 0, "BackoffLimit is incompatible with InteractiveMode");
    spec.insert("jobId".into(), id.into());
    Ok(job)
}

/// Returns the runtime environment in a RayJob.
pub(super) fn runtime_env(job: &Value) -> anyhow::Result<Map<String, Value>> {
    match job["spec"]["runtimeEnvYAML"].as_str().filter(|text| !text.trim().is_empty()) {
        Some(text) => serde_saphyr::from_str(text).context("runtimeEnvYAML is not a YAML mapping"),
        None => Ok(Map::new()),
    }
}
