//! Rules for the autoscaler and for suspended worker groups.

use super::ensure;
use super::groups::autoscaler_v2_env;
use super::pod::{find_env, may_restart, ray_env};
use crate::cluster_spec::{autoscaler_version, is_autoscaler_v2, is_autoscaling, is_suspended, worker_groups};
use crate::config::FeatureGates;
use crate::names::reserved::{AUTOSCALER_START_COMMAND_ENV, AUTOSCALER_V2_ENV};
use manta_api::RayClusterSpec;

pub(super) fn check(spec: &RayClusterSpec, gates: &FeatureGates) -> Result<(), String> {
    let suspended = worker_groups(spec).iter().find(|group| is_suspended(group)).map(|group| &group.group_name);
    if let (Some(name), false) = (suspended, gates.ray_job_deletion_policy) {
        return Err(format!(
            "worker group {name} can be suspended only when the RayJobDeletionPolicy feature gate is enabled"
        ));
    }
    if is_autoscaling(spec) {
        if let Some(name) = suspended {
            return Err(format!("worker group {name} cannot be suspended with Autoscaler enabled"));
        }
        check_version(spec)?;
    } else if let Some(value) = autoscaler_v2_env(spec) {
        return Err(format!(
            "environment variable {AUTOSCALER_V2_ENV} cannot be set to '{value}' when enableInTreeAutoscaling is \
             false. Please set enableInTreeAutoscaling: true to use autoscaler v2"
        ));
    }
    check_options(spec)
}

/// Checks that only one field selects the version, and that v2 does not find restarted Pods.
fn check_version(spec: &RayClusterSpec) -> Result<(), String> {
    let head = &spec.head_group_spec.template;
    ensure(autoscaler_version(spec).is_none() || ray_env(head, AUTOSCALER_V2_ENV).is_none(), || {
        format!(
            "both .spec.autoscalerOptions.version and head Pod env var {AUTOSCALER_V2_ENV} are set, please only use \
             the former"
        )
    })?;
    if !is_autoscaler_v2(spec) {
        return Ok(());
    }
    ensure(!may_restart(head), || {
        "restartPolicy for head Pod should be Never or unset when using autoscaler V2".to_owned()
    })?;
    let restarting = worker_groups(spec).iter().find(|group| may_restart(&group.template));
    restarting.map_or(Ok(()), |group| {
        let name = &group.group_name;
        Err(format!("restartPolicy for worker group {name} should be Never or unset when using autoscaler V2"))
    })
}

/// Checks the options, which must be valid even if the autoscaler is disabled.
fn check_options(spec: &RayClusterSpec) -> Result<(), String> {
    let Some(options) = &spec.autoscaler_options else { return Ok(()) };
    if let Some(seconds) = options.idle_timeout_seconds.filter(|seconds| *seconds < 0) {
        return Err(format!("autoscalerOptions.idleTimeoutSeconds must be non-negative, got {seconds}"));
    }
    ensure(find_env(options.env.as_deref(), AUTOSCALER_START_COMMAND_ENV).is_none(), || {
        format!(
            "autoscalerOptions.env must not contain {AUTOSCALER_START_COMMAND_ENV}: it is managed by KubeRay and injected \
             automatically into the autoscaler container"
        )
    })
}
