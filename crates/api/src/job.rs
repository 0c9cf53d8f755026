//! RayJob: spec and status.

use crate::cluster::managed_by_rules;
use crate::kind::ray_kind;
use crate::numeric_quantities::reads_numeric_quantities;
use crate::string_enum::string_enum;
use crate::{RayClusterSpec, RayClusterStatus};
use k8s_openapi::api::core::v1::PodTemplateSpec;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

ray_kind! {
    /// A Ray job on its own cluster or on an existing one.
    RayJob, "rayjobs", RayJobSpec, RayJobStatus
}

/// The spec of a RayJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct RayJobSpec {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub backoff_limit: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ray_cluster_spec: Option<RayClusterSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitter_pod_template: Option<PodTemplateSpec>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub metadata: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_selector: Option<BTreeMap<String, String>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub submitter_config: Option<SubmitterConfig>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = managed_by_rules()))]
    pub managed_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_strategy: Option<DeletionStrategy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint: Option<String>,
    #[serde(rename = "runtimeEnvYAML", default, skip_serializing_if = "Option::is_none")]
    pub runtime_env_yaml: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "K8sJobMode"))]
    pub submission_mode: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint_resources: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint_num_cpus: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub entrypoint_num_gpus: Option<f64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub ttl_seconds_after_finished: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 1))]
    pub pre_running_deadline_seconds: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub shutdown_after_job_finishes: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

/// Settings of the submitter Job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubmitterConfig {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
}

/// The deletions after the job has finished.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!((has(self.onSuccess) || has(self.onFailure)) && has(self.deletionRules))",
        "message": "legacy policies (onSuccess/onFailure) and deletionRules cannot be used together within the same \
            deletionStrategy"
    },
    {
        "rule": "((has(self.onSuccess) && has(self.onFailure)) || has(self.deletionRules))",
        "message": "deletionStrategy requires either BOTH onSuccess and onFailure, OR the deletionRules field (cannot \
            be empty)"
    },
]))]
pub struct DeletionStrategy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_success: Option<DeletionPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_failure: Option<DeletionPolicy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1), extend("x-kubernetes-list-type" = "atomic"))]
    pub deletion_rules: Option<Vec<DeletionRule>>,
}

/// The legacy form: one policy per outcome.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeletionPolicy {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub policy: Option<DeletionPolicyType>,
}

/// A deletion with its condition and TTL.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct DeletionRule {
    pub policy: DeletionPolicyType,
    #[serde(default)]
    #[schemars(!default)]
    pub condition: DeletionCondition,
}

/// The condition of a deletion rule.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = [
    {
        "rule": "!(has(self.jobStatus) && has(self.jobDeploymentStatus))",
        "message": "JobStatus and JobDeploymentStatus cannot be used together within the same deletion condition."
    },
    {
        "rule": "has(self.jobStatus) || has(self.jobDeploymentStatus)",
        "message": "the deletion condition requires either the JobStatus or the JobDeploymentStatus field."
    },
]))]
pub struct DeletionCondition {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_status: Option<DeletionJobStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_deployment_status: Option<DeletionDeploymentStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0), extend("default" = 0))]
    pub ttl_seconds: Option<i32>,
}

/// The status of a RayJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayJobStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ray_job_info: Option<RayJobInfo>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_id: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ray_cluster_name: Option<String>,
    #[serde(rename = "dashboardURL", default, skip_serializing_if = "Option::is_none")]
    pub dashboard_url: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_deployment_status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub succeeded: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub failed: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ray_cluster_status: Option<RayClusterStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub job_status_check_failure_start_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// Start and end of the Ray job as reported by Ray.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayJobInfo {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end_time: Option<Time>,
}

string_enum! {
    /// The objects that a deletion policy deletes.
    DeletionPolicyType {
        DeleteCluster = "DeleteCluster",
        DeleteWorkers = "DeleteWorkers",
        DeleteSelf = "DeleteSelf",
        DeleteNone = "DeleteNone",
    }
}
string_enum! {
    /// The job statuses that a deletion rule can wait for.
    DeletionJobStatus { Succeeded = "SUCCEEDED", Failed = "FAILED" }
}
string_enum! {
    /// The deployment statuses that a deletion rule can wait for.
    DeletionDeploymentStatus { Failed = "Failed" }
}

reads_numeric_quantities!(RayJobSpec);
