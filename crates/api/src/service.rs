//! RayService: spec and status.

use crate::cluster::managed_by_rules;
use crate::kind::ray_kind;
use crate::numeric_quantities::reads_numeric_quantities;
use crate::{RayClusterSpec, RayClusterStatus, ServiceTemplate};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

ray_kind! {
    /// Ray Serve applications and the cluster that they run on.
    RayService, "rayservices", RayServiceSpec, RayServiceStatus
}

/// The spec of a RayService.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct RayServiceSpec {
    #[serde(default)]
    #[schemars(!default)]
    pub ray_cluster_config: RayClusterSpec,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve_config_v2: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve_service: Option<ServiceTemplate>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_strategy: Option<RayServiceUpgradeStrategy>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ray_cluster_deletion_delay_seconds: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_head_pod_from_serve_svc: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = managed_by_rules()))]
    pub managed_by: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_unhealthy_second_threshold: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_unhealthy_second_threshold: Option<i32>,
}

/// The effect of a spec change on the running cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayServiceUpgradeStrategy {
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_upgrade_options: Option<ClusterUpgradeOptions>,
}

/// The steps of an incremental upgrade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUpgradeOptions {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 100))]
    pub max_surge_percent: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(!default, !skip_serializing_if, required)]
    pub step_size_percent: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(!default, !skip_serializing_if, required)]
    pub interval_seconds: Option<i32>,
    #[serde(default)]
    #[schemars(!default)]
    pub gateway_class_name: String,
}

/// The status of a RayService.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayServiceStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_service_status: Option<ClusterServeStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_service_status: Option<ClusterServeStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_serve_endpoints: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The status of one of the two clusters of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterServeStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ray_cluster_name: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ray_cluster_status: Option<RayClusterStatus>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_statuses: Option<BTreeMap<String, ApplicationStatus>>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_capacity: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_routed_percent: Option<i32>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_traffic_migrated_time: Option<Time>,
}

/// A Serve application as reported by Ray.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve_deployment_statuses: Option<BTreeMap<String, DeploymentStatus>>,
}

/// A deployment of a Serve application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentStatus {
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

reads_numeric_quantities!(RayServiceSpec);
