//! RayCluster: spec and status.

use crate::ServiceTemplate;
use crate::kind::ray_kind;
use crate::numeric_quantities::reads_numeric_quantities;
use crate::string_enum::string_enum;
use k8s_openapi::api::core::v1::{
    EnvFromSource, EnvVar, EnvVarSource, PodTemplateSpec, ResourceRequirements, SecurityContext, VolumeMount,
};
use k8s_openapi::api::networking::v1::{IngressTLS, NetworkPolicyEgressRule, NetworkPolicyIngressRule};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

ray_kind! {
    /// A Ray cluster: one head Pod and groups of workers.
    RayCluster, "rayclusters", RayClusterSpec, RayClusterStatus
}

/// The spec of a RayCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct RayClusterSpec {
    /// What happens to running Pods when the spec changes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upgrade_strategy: Option<RayClusterUpgradeStrategy>,
    /// Token authentication of Ray's APIs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auth_options: Option<AuthOptions>,
    /// Whether the cluster is stopped: its Pods are deleted, and created again when this becomes false.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The controller in charge: ray.io/kuberay-operator (the default) or kueue.x-k8s.io/multikueue. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = managed_by_rules()))]
    pub managed_by: Option<String>,
    /// Settings of the autoscaler container in the head Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub autoscaler_options: Option<AutoscalerOptions>,
    /// Annotations of the head Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_service_annotations: Option<BTreeMap<String, String>>,
    /// Whether Ray's autoscaler runs beside the head and changes the number of workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_in_tree_autoscaling: Option<bool>,
    /// Storage outside of the head's memory, so that the cluster survives the loss of its head.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub gcs_fault_tolerance_options: Option<GcsFaultToleranceOptions>,
    /// What the history server collects.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub history_server_options: Option<HistoryServerOptions>,
    /// NetworkPolicies that isolate the cluster's Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub network_policy: Option<NetworkPolicyConfig>,
    /// TLS between the cluster's Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls_options: Option<TlsOptions>,
    /// The head: its Pod, Service and Ingress.
    #[serde(default)]
    #[schemars(!default)]
    pub head_group_spec: HeadGroupSpec,
    /// The version of Ray in the images, such as 2.60.0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ray_version: Option<String>,
    /// The groups of workers; each group has its own Pod template.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker_group_specs: Option<Vec<WorkerGroupSpec>>,
}

/// The treatment of running Pods when the spec changes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct RayClusterUpgradeStrategy {
    /// Recreate deletes all Pods and creates them from the new spec; None (the default) leaves them alone.
    #[serde(rename = "type", default, skip_serializing_if = "Option::is_none")]
    pub type_: Option<UpgradeType>,
}

/// Token authentication of the Ray cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AuthOptions {
    /// Whether Kubernetes tokens are accepted instead of the token in the Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_k8s_token_auth: Option<bool>,
    /// The Secret with the token, under the key auth_token; by default one is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_name: Option<String>,
    /// Whether Ray requires a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mode: Option<AuthMode>,
}

/// Settings of the autoscaler container in the head Pod.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AutoscalerOptions {
    /// Requests and limits of the container; 500m and 512Mi by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// The image; that of the head by default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When to pull the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// The security context of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub security_context: Option<SecurityContext>,
    /// How long a worker must be idle before the autoscaler removes it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<i32>,
    /// How fast workers are added.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub upscaling_mode: Option<UpscalingMode>,
    /// The version of the autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub version: Option<AutoscalerVersion>,
    /// Environment variables of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,
    /// ConfigMaps and Secrets that become environment variables.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env_from: Option<Vec<EnvFromSource>>,
    /// Volumes of the head Pod that the container mounts.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub volume_mounts: Option<Vec<VolumeMount>>,
    /// The command, instead of the one that starts the autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub command: Option<Vec<String>>,
    /// The arguments of the command.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub args: Option<Vec<String>>,
}

/// The storage of Ray's global control store (GCS), so that the cluster survives the loss of its head.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsFaultToleranceOptions {
    /// Where Ray stores its state: redis (the default) or rocksdb. Immutable.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = [{"rule": "self == oldSelf", "message": "gcsFaultToleranceOptions.backend is immutable"}]))]
    pub backend: Option<GcsBackend>,
    /// The user at Redis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis_username: Option<RedisCredential>,
    /// The password at Redis.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis_password: Option<RedisCredential>,
    /// The prefix of all keys in Redis; by default the UID of the RayCluster.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external_storage_namespace: Option<String>,
    /// The address of Redis, as host:port or redis://host:port.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub redis_address: Option<String>,
    /// The volume of the backend rocksdb.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage: Option<GcsStorage>,
}

/// A Redis username or password, literal or from a reference.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct RedisCredential {
    /// Where to read the value, such as a key of a Secret.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value_from: Option<EnvVarSource>,
    /// The value itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub value: Option<String>,
}

/// The volume of the embedded (RocksDB) backend.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct GcsStorage {
    /// An existing PersistentVolumeClaim; without it, one is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub claim_name: Option<String>,
    /// The size of the claim that is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub size: Option<Quantity>,
    /// The storage class of the claim that is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub storage_class_name: Option<String>,
    /// The access modes of the claim that is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub access_modes: Option<Vec<String>>,
    /// The folder in the volume.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub_path: Option<String>,
    /// What happens to the claim when the cluster is deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deletion_policy: Option<StorageDeletionPolicy>,
}

/// The options of the history server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HistoryServerOptions {
    /// The sidecar that collects logs and events.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub collector_options: Option<CollectorOptions>,
}

/// The sidecar that collects logs and events for the history server.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CollectorOptions {
    /// The image of the sidecar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image: Option<String>,
    /// When to pull the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub image_pull_policy: Option<String>,
    /// Requests and limits of the sidecar.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<ResourceRequirements>,
    /// Environment variables of the sidecar; they choose the storage.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub env: Option<Vec<EnvVar>>,
}

/// Network isolation of the cluster's Pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyConfig {
    /// The directions that are closed: DenyAll, DenyAllIngress or DenyAllEgress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = "DenyAll"))]
    pub mode: Option<NetworkPolicyMode>,
    /// Connections of the head that are allowed in addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<NetworkPolicyRules>,
    /// Connections of all workers that are allowed in addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub worker: Option<NetworkPolicyRules>,
    /// Rules for single worker groups, instead of those for all workers.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["groupName"]))]
    pub worker_groups: Option<Vec<WorkerGroupNetworkPolicy>>,
}

/// Rules in addition to those within the cluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct NetworkPolicyRules {
    /// Incoming connections that are allowed in addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_rules: Option<Vec<NetworkPolicyIngressRule>>,
    /// Outgoing connections that are allowed in addition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub egress_rules: Option<Vec<NetworkPolicyEgressRule>>,
}

/// Rules for one worker group, which replace those for all workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerGroupNetworkPolicy {
    /// The name of the worker group.
    #[serde(default)]
    #[schemars(!default)]
    pub group_name: String,
    #[serde(flatten)]
    pub rules: NetworkPolicyRules,
}

/// TLS between the cluster's Pods.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct TlsOptions {
    /// Whether Ray's processes encrypt their connections, with certificates from cert-manager.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enabled: Option<bool>,
}

/// The head Pod, its Service and its Ingress.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct HeadGroupSpec {
    /// The Pod of the head; its first container runs Ray.
    #[serde(default)]
    #[schemars(!default)]
    pub template: PodTemplateSpec,
    /// The Service of the head, where it should differ from the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head_service: Option<ServiceTemplate>,
    /// Whether an Ingress for the dashboard is created.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub enable_ingress: Option<bool>,
    /// Settings of the Ingress.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ingress_options: Option<IngressOptions>,
    /// Ray's resources of this node, instead of those of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<BTreeMap<String, String>>,
    /// Labels of this node in Ray, and of its Pod.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Flags of ray start, such as dashboard-host: "0.0.0.0"; the values are strings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ray_start_params: Option<BTreeMap<String, String>>,
    /// The type of the head Service: ClusterIP (the default), NodePort or LoadBalancer.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub service_type: Option<String>,
}

/// The Ingress for the dashboard.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct IngressOptions {
    /// The host name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub host: Option<String>,
    /// The path of the dashboard.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// How the path is matched.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path_type: Option<IngressPathType>,
    /// Certificates for HTTPS.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tls: Option<Vec<IngressTLS>>,
}

/// A group of equal workers.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct WorkerGroupSpec {
    /// Whether the Pods of this group are deleted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub suspend: Option<bool>,
    /// The name of the group; unique in the cluster.
    #[serde(default)]
    #[schemars(!default)]
    pub group_name: String,
    /// How many replicas to run; the autoscaler changes this number.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub replicas: Option<i32>,
    /// The least number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(!default, !skip_serializing_if, required, extend("default" = 0))]
    pub min_replicas: Option<i32>,
    /// The largest number of replicas.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(!default, !skip_serializing_if, required, extend("default" = i32::MAX))]
    pub max_replicas: Option<i32>,
    /// The same as in autoscalerOptions, for this group; needs version v2 of the autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub idle_timeout_seconds: Option<i32>,
    /// The priority of the group for the autoscaler; needs version v2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 0))]
    pub priority: Option<i32>,
    /// Ray's resources of each worker, instead of those of the container.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resources: Option<BTreeMap<String, String>>,
    /// Labels of the workers in Ray, and of their Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub labels: Option<BTreeMap<String, String>>,
    /// Flags of ray start, such as num-gpus: "1"; the values are strings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ray_start_params: Option<BTreeMap<String, String>>,
    /// The Pod of each worker; its first container runs Ray.
    #[serde(default)]
    #[schemars(!default)]
    pub template: PodTemplateSpec,
    /// Which workers to delete.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub scale_strategy: Option<ScaleStrategy>,
    /// How many Pods form one replica; they are created and deleted together.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = 1))]
    pub num_of_hosts: Option<i32>,
}

/// The workers that the autoscaler deletes.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct ScaleStrategy {
    /// Names of Pods to delete, set by the autoscaler.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workers_to_delete: Option<Vec<String>>,
}

/// The status of a RayCluster.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase", remote = "Self")]
pub struct RayClusterStatus {
    /// ready or suspended; not set before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<String>,
    /// The CPUs that all Pods together request.
    #[serde(rename = "desiredCPU", default, skip_serializing_if = "Option::is_none")]
    pub desired_cpu: Option<Quantity>,
    /// The memory that all Pods together request.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_memory: Option<Quantity>,
    /// The GPUs that all Pods together request.
    #[serde(rename = "desiredGPU", default, skip_serializing_if = "Option::is_none")]
    pub desired_gpu: Option<Quantity>,
    /// The TPUs that all Pods together request.
    #[serde(rename = "desiredTPU", default, skip_serializing_if = "Option::is_none")]
    pub desired_tpu: Option<Quantity>,
    /// When the status was last written.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("nullable" = true))]
    pub last_update_time: Option<Time>,
    /// When each state was entered last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state_transition_times: Option<BTreeMap<String, Time>>,
    /// The ports of the head Service by name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoints: Option<BTreeMap<String, String>>,
    /// The head Pod and its Service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub head: Option<HeadInfo>,
    /// Why the cluster is not ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// HeadPodReady, RayClusterProvisioned, RayClusterReplicaFailure and others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-list-type" = "map", "x-kubernetes-list-map-keys" = ["type"]))]
    pub conditions: Option<Vec<Condition>>,
    /// How many worker Pods are ready.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready_worker_replicas: Option<i32>,
    /// How many worker Pods are running.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub available_worker_replicas: Option<i32>,
    /// How many worker Pods there should be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub desired_worker_replicas: Option<i32>,
    /// The least number of worker Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_worker_replicas: Option<i32>,
    /// The largest number of worker Pods.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub max_worker_replicas: Option<i32>,
    /// The generation of the spec that this status describes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub observed_generation: Option<i64>,
}

/// The head Pod and its Service.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
pub struct HeadInfo {
    /// The address of the head Pod.
    #[serde(rename = "podIP", default, skip_serializing_if = "Option::is_none")]
    pub pod_ip: Option<String>,
    /// The address of the head Service.
    #[serde(rename = "serviceIP", default, skip_serializing_if = "Option::is_none")]
    pub service_ip: Option<String>,
    /// The name of the head Pod.
    #[serde(rename = "podName", default, skip_serializing_if = "Option::is_none")]
    pub pod_name: Option<String>,
    /// The name of the head Service.
    #[serde(rename = "serviceName", default, skip_serializing_if = "Option::is_none")]
    pub service_name: Option<String>,
}

string_enum! {
    /// The effect of a spec change on running Pods.
    UpgradeType { Recreate = "Recreate", None = "None" }
}
string_enum! {
    /// Whether Ray requires a token.
    AuthMode { Disabled = "disabled", Token = "token" }
}
string_enum! {
    /// How fast the autoscaler adds workers.
    UpscalingMode { Default = "Default", Aggressive = "Aggressive", Conservative = "Conservative" }
}
string_enum! {
    /// The version of the autoscaler.
    AutoscalerVersion { V1 = "v1", V2 = "v2" }
}
string_enum! {
    /// The storage backend of the GCS.
    GcsBackend { Redis = "redis", Rocksdb = "rocksdb" }
}
string_enum! {
    /// What happens to the storage when the cluster is deleted.
    StorageDeletionPolicy { DeleteWithCluster = "DeleteWithCluster", Retain = "Retain" }
}
string_enum! {
    /// The directions that are closed except within the cluster.
    NetworkPolicyMode { DenyAll = "DenyAll", DenyAllIngress = "DenyAllIngress", DenyAllEgress = "DenyAllEgress" }
}
string_enum! {
    /// How the Ingress matches its path.
    IngressPathType { Exact = "Exact", Prefix = "Prefix", ImplementationSpecific = "ImplementationSpecific" }
}

/// Returns the CEL rules of `managedBy`, which three kinds have.
pub(crate) fn managed_by_rules() -> serde_json::Value {
    serde_json::json!([
        {"rule": "self == oldSelf", "message": "the managedBy field is immutable"},
        {
            "rule": "self in ['ray.io/kuberay-operator', 'kueue.x-k8s.io/multikueue']",
            "message": "the managedBy field value must be either 'ray.io/kuberay-operator' or \
                'kueue.x-k8s.io/multikueue'"
        },
    ])
}

reads_numeric_quantities!(RayClusterSpec, RayClusterStatus);
