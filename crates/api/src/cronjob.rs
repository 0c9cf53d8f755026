//! RayCronJob: spec and status.

use crate::RayJobSpec;
use crate::kind::ray_kind;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};

ray_kind! {
    /// RayJobs on a schedule.
    RayCronJob, "raycronjobs", RayCronJobSpec, RayCronJobStatus
}

/// The spec of a RayCronJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayCronJobSpec {
    /// The spec of the RayJobs that are created.
    #[serde(default)]
    #[schemars(!default)]
    pub job_template: RayJobSpec,
    /// When to create a RayJob, in cron format, such as "0 3 * * *".
    #[serde(default)]
    #[schemars(!default)]
    pub schedule: String,
    /// The time zone of the schedule, such as Europe/Berlin; that of the operator by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub time_zone: Option<String>,
    /// Whether no RayJobs are created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
}

/// The status of a RayCronJob.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayCronJobStatus {
    /// When the last RayJob was due.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_schedule_time: Option<Time>,
}
