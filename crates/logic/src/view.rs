//! Views: the parts of watched objects that plans read.
//!
//! Watches decode straight into these types, and the caches hold thousands of them: rare fields are boxed, short strings
//! need no allocation, equal labels and owners are shared, what can have few values is no text, and lists have no spare
//! capacity. `tests/memory.rs` counts what a Pod takes.

use crate::recent::Recent;
use crate::text_map::TextMap;
use jiff::Timestamp;
use serde::Deserialize;
use smol_str::SmolStr;
use std::ops::Deref;
use std::sync::Arc;

/// The part of `metadata` that plans read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct MetaView {
    pub name: SmolStr,
    pub namespace: SmolStr,
    pub uid: SmolStr,
    pub resource_version: SmolStr,
    pub labels: TextMap,
    /// The annotations of Ray; others can be long.
    #[serde(deserialize_with = "ray_annotations")]
    pub annotations: TextMap,
    pub generation: Option<i64>,
    pub creation_timestamp: Option<Timestamp>,
    pub deletion_timestamp: Option<Timestamp>,
    pub deletion_grace_period_seconds: Option<i64>,
    pub owner_references: OwnersView,
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

/// The owner references of an object, shared among objects that have the same ones.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct OwnersView(Option<Arc<Vec<OwnerView>>>);

thread_local! {
    static LAST_OWNERS: Recent<Vec<OwnerView>> = Recent::default();
}

impl From<Vec<OwnerView>> for OwnersView {
    fn from(mut owners: Vec<OwnerView>) -> Self {
        owners.shrink_to_fit();
        Self((!owners.is_empty()).then(|| LAST_OWNERS.with(|recent| recent.share(owners))))
    }
}

impl Deref for OwnersView {
    type Target = [OwnerView];

    fn deref(&self) -> &[OwnerView] {
        self.0.as_deref().map_or(&[], Vec::as_slice)
    }
}

impl<'de> Deserialize<'de> for OwnersView {
    fn deserialize<D: serde::Deserializer<'de>>(inner: D) -> Result<Self, D::Error> {
        null_as_default::<D, Vec<OwnerView>>(inner).map(Self::from)
    }
}

/// An owner reference.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct OwnerView {
    /// Whether the kind is one of Ray's.
    #[serde(rename = "apiVersion", deserialize_with = "is_of_ray")]
    pub is_ray: bool,
    pub kind: SmolStr,
    pub name: SmolStr,
    pub uid: SmolStr,
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
    pub restart_policy: SmolStr,
    pub node_name: SmolStr,
    /// The name of the Ray container, which is the first one.
    #[serde(rename = "containers", deserialize_with = "first_name")]
    pub ray_container: SmolStr,
}

/// The part of a Pod's status that plans read.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(default)]
pub struct PodStatusView {
    pub phase: SmolStr,
    pub reason: SmolStr,
    pub message: SmolStr,
    #[serde(rename = "podIP")]
    pub pod_ip: SmolStr,
    pub conditions: PodConditionsView,
    #[serde(rename = "initContainerStatuses", deserialize_with = "compact_vec")]
    pub init_container_statuses: Vec<ContainerStatusView>,
    #[serde(rename = "containerStatuses", deserialize_with = "compact_vec")]
    pub container_statuses: Vec<ContainerStatusView>,
}

/// Those of a Pod's conditions that plans read.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PodConditionsView {
    pub ready: Option<PodConditionView>,
    pub scheduled: Option<PodConditionView>,
}

/// A Pod's condition.
#[derive(Clone, Debug, PartialEq)]
pub struct PodConditionView {
    pub status: ConditionStatus,
    /// Reason and message; most conditions that are true have neither.
    text: Option<Box<(SmolStr, SmolStr)>>,
}

/// Whether a condition is true.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ConditionStatus {
    True,
    False,
    Unknown,
}

impl ConditionStatus {
    /// Returns the status as in an object.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::True => "True",
            Self::False => "False",
            Self::Unknown => "Unknown",
        }
    }
}

impl PodConditionView {
    /// Returns whether the condition is true.
    pub fn is_true(&self) -> bool {
        self.status == ConditionStatus::True
    }

    /// Returns the reason, which may be empty.
    pub fn reason(&self) -> &str {
        self.text.as_deref().map_or("", |(reason, _)| reason)
    }

    /// Returns the message, which may be empty.
    pub fn message(&self) -> &str {
        self.text.as_deref().map_or("", |(_, message)| message)
    }
}

impl<'de> Deserialize<'de> for PodConditionsView {
    fn deserialize<D: serde::Deserializer<'de>>(inner: D) -> Result<Self, D::Error> {
        #[derive(Default, Deserialize)]
        #[serde(default)]
        struct Condition {
            #[serde(rename = "type")]
            type_: SmolStr,
            status: SmolStr,
            reason: SmolStr,
            message: SmolStr,
        }
        let mut conditions = Self::default();
        for Condition { type_, status, reason, message } in null_as_default::<D, Vec<Condition>>(inner)? {
            let place = match type_.as_str() {
                "Ready" => &mut conditions.ready,
                "PodScheduled" => &mut conditions.scheduled,
                _ => continue,
            };
            let status = match status.as_str() {
                "True" => ConditionStatus::True,
                "False" => ConditionStatus::False,
                _ => ConditionStatus::Unknown,
            };
            let text = (!reason.is_empty() || !message.is_empty()).then(|| Box::new((reason, message)));
            // The first one of a type counts.
            place.get_or_insert(PodConditionView { status, text });
        }
        Ok(conditions)
    }
}

/// A container's state.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatusView {
    pub name: SmolStr,
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
    pub reason: SmolStr,
    pub message: SmolStr,
}

/// How a container ended.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct TerminatedView {
    pub exit_code: i32,
    pub signal: i32,
    pub reason: SmolStr,
    pub message: SmolStr,
    pub started_at: Option<Timestamp>,
    pub finished_at: Option<Timestamp>,
    #[serde(rename = "containerID")]
    pub container_id: SmolStr,
}

impl PodView {
    /// Returns whether the Pod is being deleted.
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Returns whether the Pod runs and its Ready condition is True.
    pub fn is_running_and_ready(&self) -> bool {
        self.status.phase == "Running" && self.status.conditions.ready.as_ref().is_some_and(PodConditionView::is_true)
    }

    /// Returns how the Ray container (the first one) ended, if it did.
    pub fn ray_container_terminated(&self) -> Option<&TerminatedView> {
        let ray = &self.spec.ray_container;
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
    pub cluster_ip: SmolStr,
    pub selector: TextMap,
    #[serde(deserialize_with = "compact_vec")]
    pub ports: Vec<ServicePortView>,
}

/// A port of a Service.
#[derive(Clone, Debug, Default, PartialEq, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServicePortView {
    pub name: SmolStr,
    pub port: i32,
    pub node_port: i32,
    pub target_port: Option<IntOrText>,
}

/// A number or a name.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(untagged)]
pub enum IntOrText {
    Int(i32),
    Text(SmolStr),
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
    pub type_: SmolStr,
    pub status: SmolStr,
    pub reason: SmolStr,
    pub message: SmolStr,
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
    pub uid: SmolStr,
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

/// Reads the name of the first object of a list.
fn first_name<'de, D: serde::Deserializer<'de>>(inner: D) -> Result<SmolStr, D::Error> {
    #[derive(Default, Deserialize)]
    #[serde(default)]
    struct Named {
        name: SmolStr,
    }
    let named: Vec<Named> = null_as_default(inner)?;
    Ok(named.into_iter().next().unwrap_or_default().name)
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

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    #[test]
    fn equal_owners_are_shared() {
        let read = |uid: &str| -> OwnersView {
            let owner = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "a", "uid": uid});
            serde_json::from_value(json!([owner])).unwrap()
        };
        let (one, equal, other) = (read("u-1"), read("u-1"), read("u-2"));
        assert!(std::ptr::eq(one.as_ptr(), equal.as_ptr()));
        assert_eq!((&*one[0].uid, &*other[0].uid, one[0].is_ray), ("u-1", "u-2", true));
        assert!(serde_json::from_value::<OwnersView>(json!(null)).unwrap().is_empty());
    }

    #[test]
    fn conditions_that_plans_read_keep_their_text() {
        let check = |conditions: Value, ready: Option<(&str, &str, &str)>, is_scheduled: bool| {
            let read: PodConditionsView = serde_json::from_value(conditions).unwrap();
            let found = read.ready.as_ref().map(|ready| (ready.status.as_str(), ready.reason(), ready.message()));
            assert_eq!(found, ready);
            assert_eq!(read.scheduled.as_ref().is_some_and(PodConditionView::is_true), is_scheduled);
        };
        let ready = |status: &str| json!({"type": "Ready", "status": status});
        let scheduled = json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null});
        let failed = json!({"type": "Ready", "status": "False", "reason": "r", "message": "m"});
        check(json!(null), None, false);
        check(json!([{"type": "Other", "status": "True"}, scheduled]), None, true);
        check(json!([ready("True"), failed]), Some(("True", "", "")), false);
        check(json!([failed, scheduled]), Some(("False", "r", "m")), true);
        check(json!([ready("anything")]), Some(("Unknown", "", "")), false);
    }
}
