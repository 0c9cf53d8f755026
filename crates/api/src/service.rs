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
    /// The cluster that the applications run on; a change creates a second cluster, which takes over once it serves.
    #[serde(default)]
    #[schemars(!default)]
    pub ray_cluster_config: RayClusterSpec,
    /// The configuration of Ray Serve as YAML; a change updates the running cluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve_config_v2: Option<String>,
    /// The Service of the applications, where it should differ from the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve_service: Option<ServiceTemplate>,
    /// How a change of the cluster is carried out.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_strategy: Option<RayServiceUpgradeStrategy>,
    /// How long the old cluster stays after an upgrade; 60 by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ray_cluster_deletion_delay_seconds: Option<i32>,
    /// Whether no request goes to the head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub exclude_head_pod_from_serve_svc: Option<bool>,
    /// Whether the service is stopped and its clusters deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The controller in charge: ray.io/kuberay-operator (the default) or kueue.x-k8s.io/multikueue. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = managed_by_rules()))]
    pub managed_by: Option<String>,
    /// Deprecated, without effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_unhealthy_second_threshold: Option<i32>,
    /// Deprecated, without effect.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deployment_unhealthy_second_threshold: Option<i32>,
}

/// The effect of a spec change on the running cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayServiceUpgradeStrategy {
    /// NewCluster (the default), NewClusterWithIncrementalUpgrade, or None for no upgrades.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<String>,
    /// The steps of NewClusterWithIncrementalUpgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cluster_upgrade_options: Option<ClusterUpgradeOptions>,
}

/// The steps of an incremental upgrade.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterUpgradeOptions {
    /// How much capacity the new cluster gains, and the old one loses, at a time, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 100))]
    pub max_surge_percent: Option<i32>,
    /// How much traffic moves in one step, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(!default, !skip_serializing_if, required)]
    pub step_size_percent: Option<i32>,
    /// The time between two steps.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(!default, !skip_serializing_if, required)]
    pub interval_seconds: Option<i32>,
    /// The GatewayClass of the Gateway that splits the traffic.
    #[serde(default)]
    #[schemars(!default)]
    pub gateway_class_name: String,
}

/// The status of a RayService.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RayServiceStatus {
    /// Ready, UpgradeInProgress and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// When the status was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_update_time: Option<Time>,
    /// Running once the service has been ready; empty before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_status: Option<String>,
    /// The cluster that serves.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub active_service_status: Option<ClusterServeStatus>,
    /// The cluster that is to take over.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub pending_service_status: Option<ClusterServeStatus>,
    /// How many Pods receive requests.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub num_serve_endpoints: Option<i32>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The status of one of the two clusters of a service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ClusterServeStatus {
    /// The name of the RayCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ray_cluster_name: Option<String>,
    /// The status of the RayCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ray_cluster_status: Option<RayClusterStatus>,
    /// The Serve applications by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application_statuses: Option<BTreeMap<String, ApplicationStatus>>,
    /// The capacity that Serve scales to, in percent, during an incremental upgrade.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub target_capacity: Option<i32>,
    /// The share of the traffic that the cluster receives, in percent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traffic_routed_percent: Option<i32>,
    /// When traffic was last moved.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_traffic_migrated_time: Option<Time>,
}

/// A Serve application as reported by Ray.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ApplicationStatus {
    /// The status in Serve: DEPLOYING, RUNNING, DEPLOY_FAILED, UNHEALTHY and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// What Serve says about the application.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
    /// The deployments by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub serve_deployment_statuses: Option<BTreeMap<String, DeploymentStatus>>,
}

/// A deployment of a Serve application.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct DeploymentStatus {
    /// The status in Serve: UPDATING, HEALTHY, UNHEALTHY and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub status: Option<String>,
    /// What Serve says about the deployment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

reads_numeric_quantities!(RayServiceSpec);
