//! Rules for the head group and the worker groups: containers, resources, labels, replicas, priority.

use super::ensure;
use super::pod::ray_env;
use crate::cluster_spec::{self, is_autoscaling, ray_container};
use crate::names::reserved::AUTOSCALER_V2_ENV;
use crate::validate::cluster::auth::check_ray_version;
use crate::validate::kubernetes_names::{label_key, label_value};
use crate::version::RayVersion;
use manta_api::{RayClusterSpec, WorkerGroupSpec};
use std::collections::BTreeMap;

type StringMap = BTreeMap<String, String>;

pub(super) fn check(spec: &RayClusterSpec) -> Result<(), String> {
    let head = &spec.head_group_spec;
    ensure(ray_container(&head.template).is_some(), || "headGroupSpec should have at least one container".to_owned())?;
    check_params("Head", head.ray_start_params.as_ref(), head.resources.as_ref(), head.labels.as_ref())?;
    cluster_spec::worker_groups(spec).iter().try_for_each(|group| check_workers(spec, group))
}

fn check_workers(spec: &RayClusterSpec, group: &WorkerGroupSpec) -> Result<(), String> {
    let name = &group.group_name;
    ensure(ray_container(&group.template).is_some(), || {
        "workerGroupSpec should have at least one container".to_owned()
    })?;
    check_replicas(spec, group)?;
    check_params(name, group.ray_start_params.as_ref(), group.resources.as_ref(), group.labels.as_ref())?;
    if let Some(seconds) = group.idle_timeout_seconds {
        ensure(seconds >= 0, || {
            format!("worker group {name}: idleTimeoutSeconds must be non-negative, got {seconds}")
        })?;
        ensure(uses_autoscaler_v2(spec), || {
            format!(
                "worker group {name}: idleTimeoutSeconds is set, but autoscaler v2 is not enabled. Please set \
                 .spec.autoscalerOptions.version to 'v2' (or set RAY_enable_autoscaler_v2 environment variable to \
                 'true' in the head pod if using KubeRay < 1.4.0)"
            )
        })?;
    }
    match group.priority {
        None | Some(0) => Ok(()),
        Some(priority) => check_priority(spec, name, priority),
    }
}

/// Checks the bounds; the number of replicas itself is clamped to them.
fn check_replicas(spec: &RayClusterSpec, group: &WorkerGroupSpec) -> Result<(), String> {
    let name = &group.group_name;
    let (min, max) = (group.min_replicas, group.max_replicas);
    ensure(is_autoscaling(spec) || (min.is_some() && max.is_some()), || {
        format!("worker group {name} must set both minReplicas and maxReplicas when autoscaling is disabled")
    })?;
    if let Some(min) = min {
        ensure(min >= 0, || format!("worker group {name} has negative minReplicas {min}"))?;
    }
    if let Some(max) = max {
        ensure(max >= 0, || format!("worker group {name} has negative maxReplicas {max}"))?;
    }
    match (min, max) {
        (Some(min), Some(max)) => {
            ensure(min <= max, || format!("worker group {name} has minReplicas {min} greater than maxReplicas {max}"))
        }
        _ => Ok(()),
    }
}

/// Checks that Ray and its autoscaler support priorities.
fn check_priority(spec: &RayClusterSpec, name: &str, priority: i32) -> Result<(), String> {
    let what = format!("worker group {name}: priority is set, but");
    check_ray_version(spec, &what, RayVersion::new(2, 56, 0), "2.56.0")?;
    ensure(uses_autoscaler_v2(spec), || {
        format!(
            "worker group {name}: priority is set to {priority}, but autoscaler v2 is not enabled. Priority is only \
             supported with autoscaler v2 enabled"
        )
    })
}

/// Returns whether autoscaler v2 is selected by its field or by the environment variable of older versions.
fn uses_autoscaler_v2(spec: &RayClusterSpec) -> bool {
    cluster_spec::is_autoscaler_v2(spec) || autoscaler_v2_env(spec).is_some()
}

/// Returns the value of the environment variable if it enables autoscaler v2.
pub(super) fn autoscaler_v2_env(spec: &RayClusterSpec) -> Option<&str> {
    let value = ray_env(&spec.head_group_spec.template, AUTOSCALER_V2_ENV)?.value.as_deref()?;
    matches!(value, "1" | "true").then_some(value)
}

/// Checks that resources and labels are set in one field each.
fn check_params(
    group: &str,
    params: Option<&StringMap>,
    resources: Option<&StringMap>,
    labels: Option<&StringMap>,
) -> Result<(), String> {
    const RESOURCE_PARAMS: [&str; 4] = ["num-cpus", "num-gpus", "memory", "resources"];
    let param = |name: &str| params.and_then(|params| params.get(name));
    let in_params = RESOURCE_PARAMS.iter().any(|name| param(name).is_some_and(|value| !value.is_empty()));
    let in_resources = resources.is_some_and(|resources| !resources.is_empty());
    ensure(!(in_params && in_resources), || {
        format!(
            "resource fields should not be set in both rayStartParams and Resources for {group} group; please use only \
             one"
        )
    })?;
    ensure(param("labels").is_none(), || {
        format!(
            "rayStartParams['labels'] is not supported for {group} group; please use the top-level Labels field instead"
        )
    })?;
    check_labels(group, labels)
}

fn check_labels(group: &str, labels: Option<&StringMap>) -> Result<(), String> {
    let mut problems = Vec::new();
    for (key, value) in labels.into_iter().flatten() {
        for problem in label_key(key) {
            problems.push(format!("invalid label key for {group} group: '{key}', error: {problem}"));
        }
        for problem in label_value(value) {
            problems.push(format!("invalid label value for key '{key}' in {group} group: '{value}', error: {problem}"));
        }
    }
    ensure(problems.is_empty(), || problems.join("; "))
}
