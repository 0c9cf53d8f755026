//! Views: the parts of watched objects that plans read.
//!
//! Watches decode straight into these types, and the caches hold thousands of them: rare fields are boxed, and lists
//! have no spare capacity. A cache entry of a Pod is about a kilobyte.

use crate::text_map::TextMap;
use jiff::Timestamp;
use serde::Deserialize;

/// The part of `metadata` that plans read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetaView {
    pub name: String,
    pub namespace: String,
    pub uid: String,
    pub resource_version: String,
    pub labels: TextMap,
    /// The annotations of Ray; others can be long.
    #[serde(deserialize_with = "ray_annotations")]
    pub annotations: TextMap,
    pub generation: Option<i64>,
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
    #[serde(deserialize_with = "compact_vec")]
    pub owner_references: Vec<OwnerView>,
}

impl MetaView {
    /// Returns the value of a label, or nothing.
    pub fn label(&self, key: &str) -> Option<&str> {
        self.labels.get(key)
    }

    /// Returns the owner that controls this object.
    pub fn controller(&self) -> Option<&OwnerView> {
        self.owner_references.iter().find(|owner| owner.controller)
    }

    /// Returns whether the object with this UID controls this one.
    pub fn is_controlled_by(&self, uid: &str) -> bool {
        self.controller().is_some_and(|owner| owner.uid == uid)
    }
}

/// An owner reference.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerView {
    /// Whether the kind is one of Ray's.
    #[serde(rename = "apiVersion", deserialize_with = "is_of_ray")]
    pub is_ray: bool,
    pub kind: String,
    pub name: String,
    pub uid: String,
    pub controller: bool,
}

/// A Pod.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodView {
    pub metadata: MetaView,
    pub spec: PodSpecView,
    pub status: PodStatusView,
}

/// The part of a Pod's spec that plans read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpecView {
    pub restart_policy: String,
    pub node_name: String,
    #[serde(deserialize_with = "compact_vec")]
    pub containers: Vec<NameView>,
}

/// A part of which only the name is read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct NameView {
    pub name: String,
}

/// The part of a Pod's status that plans read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodStatusView {
    pub phase: String,
    pub reason: String,
    pub message: String,
    #[serde(rename = "podIP")]
    pub pod_ip: String,
    /// Only `Ready` and `PodScheduled`, which plans read.
    #[serde(deserialize_with = "relevant_conditions")]
    pub conditions: Vec<PodConditionView>,
    #[serde(rename = "initContainerStatuses", deserialize_with = "compact_vec")]
    pub init_container_statuses: Vec<ContainerStatusView>,
    #[serde(rename = "containerStatuses", deserialize_with = "compact_vec")]
    pub container_statuses: Vec<ContainerStatusView>,
}

/// A Pod's condition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodConditionView {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: String,
    pub message: String,
}

/// A container's state.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatusView {
    pub name: String,
    pub restart_count: i32,
    pub state: ContainerStateView,
    pub last_state: ContainerStateView,
}

/// Waiting, terminated, or (neither) running.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ContainerStateView {
    pub waiting: Option<Box<WaitingView>>,
    pub terminated: Option<Box<TerminatedView>>,
}

/// The reason why a container waits.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct WaitingView {
    pub reason: String,
    pub message: String,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminatedView {
    pub exit_code: i32,
    pub signal: i32,
    pub reason: String,
    pub message: String,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    #[serde(rename = "containerID")]
    pub container_id: String,
}

impl PodView {
    /// Returns whether the Pod is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns the condition of a type.
    pub fn condition(&self, type_: &str) -> Option<&PodConditionView> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }

    /// Returns whether the Pod runs and its Ready condition is True.
    pub fn is_running_and_ready(&self) -> bool {
        self.status.phase == "Running" && self.condition("Ready").is_some_and(|ready| ready.status == "True")
    }

    /// Returns how the Ray container (the first one) ended, if it did.
    pub fn ray_container_terminated(&self) -> Option<&TerminatedView> {
        let ray = &self.spec.containers.first()?.name;
        let status = self.status.container_statuses.iter().find(|status| &status.name == ray)?;
        status.state.terminated.as_deref()
    }
}

/// A Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServiceView {
    pub metadata: MetaView,
    pub spec: ServiceSpecView,
}

/// The part of a Service's spec that plans read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct ServiceSpecView {
    #[serde(rename = "clusterIP")]
    pub cluster_ip: String,
    pub selector: TextMap,
    #[serde(deserialize_with = "compact_vec")]
    pub ports: Vec<ServicePortView>,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePortView {
    pub name: String,
    pub port: i32,
    pub node_port: i32,
    pub target_port: Option<IntOrText>,
}

/// A number or a name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum IntOrText {
    Int(i32),
    Text(String),
}

/// A batch/v1 Job.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct JobView {
    pub metadata: MetaView,
    pub status: JobStatusView,
}

/// The part of a Job's status that plans read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct JobStatusView {
    #[serde(deserialize_with = "compact_vec")]
    pub conditions: Vec<JobConditionView>,
}

/// A Job's condition.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobConditionView {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    pub reason: String,
    pub message: String,
    pub last_transition_time: Option<Timestamp>,
}

/// A part of the endpoints of a Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EndpointSliceView {
    pub metadata: MetaView,
    #[serde(deserialize_with = "compact_vec")]
    pub endpoints: Vec<EndpointView>,
}

/// One endpoint.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct EndpointView {
    #[serde(deserialize_with = "null_as_default")]
    pub conditions: EndpointConditionsView,
    pub target_ref: Option<TargetRefView>,
}

/// The conditions of an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct EndpointConditionsView {
    pub ready: Option<bool>,
}

/// The Pod behind an endpoint.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct TargetRefView {
    pub uid: String,
}

impl EndpointSliceView {
    /// Returns the Service that the endpoints belong to.
    pub fn service(&self) -> Option<&str> {
        self.metadata.label("kubernetes.io/service-name")
    }
}

impl EndpointView {
    /// Returns the UID of the Pod, if there is one.
    pub fn uid(&self) -> Option<&str> {
        self.target_ref.as_ref().map(|target| target.uid.as_str()).filter(|uid| !uid.is_empty())
    }
}

/// An object of a kind of which there are few, complete except for `managedFields`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct WholeView {
    pub metadata: MetaView,
    pub object: serde_json::Value,
}

impl<'de> Deserialize<'de> for WholeView {
    fn deserialize<D: serde::Deserializer<'de>>(inner: D) -> Result<Self, D::Error> {
        let mut object = serde_json::Value::deserialize(inner)?;
        if let Some(metadata) = object.get_mut("metadata").and_then(serde_json::Value::as_object_mut) {
            metadata.remove("managedFields");
        }
        let metadata = MetaView::deserialize(&object["metadata"]).map_err(serde::de::Error::custom)?;
        Ok(Self { metadata, object })
    }
}

/// Reads a list without spare capacity; null is an empty one.
fn compact_vec<'de, D: serde::Deserializer<'de>, T: Deserialize<'de>>(inner: D) -> Result<Vec<T>, D::Error> {
    let mut list: Vec<T> = null_as_default(inner)?;
    list.shrink_to_fit();
    Ok(list)
}

fn relevant_conditions<'de, D: serde::Deserializer<'de>>(inner: D) -> Result<Vec<PodConditionView>, D::Error> {
    let mut conditions: Vec<PodConditionView> = null_as_default(inner)?;
    conditions.retain(|condition| matches!(condition.type_.as_str(), "Ready" | "PodScheduled"));
    conditions.shrink_to_fit();
    Ok(conditions)
}

fn ray_annotations<'de, D: serde::Deserializer<'de>>(inner: D) -> Result<TextMap, D::Error> {
    TextMap::read(inner, |key| key.starts_with("ray.io/"))
}

fn is_of_ray<'de, D: serde::Deserializer<'de>>(inner: D) -> Result<bool, D::Error> {
    Ok(<std::borrow::Cow<'_, str>>::deserialize(inner)?.starts_with("ray.io/"))
}

fn null_as_default<'de, D: serde::Deserializer<'de>, T: Default + Deserialize<'de>>(inner: D) -> Result<T, D::Error> {
    Ok(Option::deserialize(inner)?.unwrap_or_default())
}
