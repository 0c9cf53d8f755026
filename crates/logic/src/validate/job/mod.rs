//! Rules for RayJobs: metadata, spec and status, in this order.
//!
//! They are checked in every state, so a change can stop the reconciliation of a running job.

mod deletion;
#[cfg(test)]
mod tests;

use super::cluster::{check_name, may_restart, validate_cluster_spec};
use super::{Invalid, Part, ensure, invalid};
use crate::cluster_spec::is_k8s_token_auth;
use crate::config::Config;
use crate::go::yaml;
use crate::job::Mode;
use crate::labels::CLUSTER;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::{RayJob, RayJobSpec};
use std::collections::BTreeMap;

/// The maximum length of names; the name of a cluster is six characters longer.
pub(crate) const MAX_NAME: usize = 47;
const SPEC: &str = "The RayJob spec is invalid:";

/// Checks metadata, spec and status of a RayJob; returns its submission mode.
pub fn validate_job(job: &RayJob, config: &Config) -> Result<Mode, Invalid> {
    let metadata = &job.metadata;
    check_job_name(metadata).map_err(invalid(Part::JobMetadata))?;
    let mode = validate_job_spec(&job.spec, metadata.annotations.as_ref(), config).map_err(invalid(Part::JobSpec))?;
    check_status(job).map_err(invalid(Part::JobStatus))?;
    Ok(mode)
}

/// Checks the name of a RayJob.
fn check_job_name(metadata: &ObjectMeta) -> Result<(), String> {
    check_name("RayJob", metadata.name.as_deref().unwrap_or_default(), MAX_NAME)
        .map_err(|text| format!("The RayJob metadata is invalid: {text}"))
}

/// Checks the spec of a job with the annotations of its object; returns its submission mode, or the first broken rule.
pub fn validate_job_spec(
    spec: &RayJobSpec,
    annotations: Option<&BTreeMap<String, String>>,
    config: &Config,
) -> Result<Mode, String> {
    let shutdown = spec.shutdown_after_job_finishes == Some(true);
    let suspend = spec.suspend == Some(true);
    let ttl = spec.ttl_seconds_after_finished.unwrap_or_default();
    // KubeRay requires shutdownAfterJobFinishes, which deletion rules exclude although they delete the cluster too.
    let has_rules = spec
        .deletion_strategy
        .as_ref()
        .is_some_and(|strategy| strategy.deletion_rules.as_ref().is_some_and(|rules| !rules.is_empty()));
    ensure(!suspend || shutdown || has_rules, || {
        format!("{SPEC} a RayJob with shutdownAfterJobFinishes set to false is not allowed to be suspended")
    })?;
    ensure(ttl >= 0, || format!("{SPEC} TTLSecondsAfterFinished must be a non-negative integer"))?;
    ensure(shutdown || ttl <= 0, || {
        format!("{SPEC} a RayJob with shutdownAfterJobFinishes set to false cannot have TTLSecondsAfterFinished")
    })?;
    deletion::check(spec, config)?;
    ensure(!suspend || !has_selector(spec), || {
        format!("{SPEC} the ClusterSelector mode doesn't support the suspend operation")
    })?;
    ensure(spec.ray_cluster_spec.is_some() || has_selector(spec), || {
        format!("{SPEC} one of RayClusterSpec or ClusterSelector must be set")
    })?;
    check_selector(spec)?;
    check_mode(spec)?;
    check_cluster(spec, annotations, config)?;
    check_runtime_env(spec)?;
    check_limits(spec)?;
    Mode::of(spec).map_err(|unknown| {
        format!("{SPEC} submissionMode {unknown:?} is not one of K8sJobMode, HTTPMode, InteractiveMode and SidecarMode")
    })
}

fn check_selector(spec: &RayJobSpec) -> Result<(), String> {
    if !has_selector(spec) {
        return Ok(());
    }
    let cluster = spec.cluster_selector.as_ref().and_then(|selector| selector.get(CLUSTER));
    ensure(cluster.is_some_and(|name| !name.is_empty()), || {
        "cluster name in ClusterSelector should not be empty".to_owned()
    })?;
    ensure(Mode::of(spec) != Ok(Mode::Sidecar), || "ClusterSelector is not supported in SidecarMode".to_owned())?;
    ensure(!has_retries(spec), || format!("{SPEC} BackoffLimit is incompatible with ClusterSelector mode"))
}

fn check_mode(spec: &RayJobSpec) -> Result<(), String> {
    ensure(Mode::of(spec) != Ok(Mode::Interactive) || !has_retries(spec), || {
        format!("{SPEC} BackoffLimit is incompatible with InteractiveMode")
    })?;
    if Mode::of(spec) != Ok(Mode::Sidecar) {
        return Ok(());
    }
    ensure(spec.submitter_pod_template.is_none(), || {
        "Currently, SidecarMode doesn't support SubmitterPodTemplate".to_owned()
    })?;
    ensure(spec.submitter_config.is_none(), || "Currently, SidecarMode doesn't support SubmitterConfig".to_owned())?;
    let head = spec.ray_cluster_spec.as_ref().map(|cluster| &cluster.head_group_spec.template);
    ensure(!head.is_some_and(may_restart), || {
        "restartPolicy for head Pod should be Never or unset when using SidecarMode".to_owned()
    })
}

fn check_cluster(
    spec: &RayJobSpec,
    annotations: Option<&BTreeMap<String, String>>,
    config: &Config,
) -> Result<(), String> {
    let Some(cluster) = &spec.ray_cluster_spec else { return Ok(()) };
    ensure(!is_k8s_token_auth(cluster), || {
        format!("{SPEC} K8s token auth mode is currently not supported for RayJob")
    })?;
    validate_cluster_spec(cluster, annotations, config).map_err(|text| format!("{SPEC} {text}"))
}

fn check_runtime_env(spec: &RayJobSpec) -> Result<(), String> {
    let Some(text) = &spec.runtime_env_yaml else { return Ok(()) };
    match yaml::mapping(text, "types.RuntimeEnvType") {
        Ok(_) => Ok(()),
        Err(error) => Err(format!("failed to unmarshal RuntimeEnvYAML: {text}: {error}")),
    }
}

fn check_limits(spec: &RayJobSpec) -> Result<(), String> {
    let is_positive = |seconds: Option<i32>| seconds.is_none_or(|seconds| seconds > 0);
    ensure(is_positive(spec.active_deadline_seconds), || {
        format!("{SPEC} activeDeadlineSeconds must be a positive integer")
    })?;
    ensure(is_positive(spec.pre_running_deadline_seconds), || {
        format!("{SPEC} preRunningDeadlineSeconds must be a positive integer")
    })?;
    ensure(spec.backoff_limit.is_none_or(|limit| limit >= 0), || {
        format!("{SPEC} backoffLimit must be a positive integer")
    })
}

/// Checks that only an interactive job is `Waiting`.
fn check_status(job: &RayJob) -> Result<(), String> {
    let status = job.status.as_ref().and_then(|status| status.job_deployment_status.as_deref());
    ensure(status != Some("Waiting") || Mode::of(&job.spec) == Ok(Mode::Interactive), || {
        "The RayJob status is invalid: JobDeploymentStatus cannot be `Waiting` when SubmissionMode is not \
         InteractiveMode"
            .to_owned()
    })
}

/// Returns whether the job runs on an existing cluster that it selects.
pub(crate) fn has_selector(spec: &RayJobSpec) -> bool {
    spec.cluster_selector.as_ref().is_some_and(|selector| !selector.is_empty())
}

fn has_retries(spec: &RayJobSpec) -> bool {
    spec.backoff_limit.is_some_and(|limit| limit > 0)
}
