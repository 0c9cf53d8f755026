//! What a plan asks the operator to do, as data.
//!
//! A [`Plan`](crate::plan::Plan) holds [`Stage`]s. Stages run in order; the steps of one stage are
//! independent and may run side by side; a stage with a failure is the last one of its controller.
//! Names, times and suffixes are already chosen: the executor decides nothing.

use crate::dashboard::{DashboardEndpoint, RayRequest};
use serde::Serialize;
use serde_json::Value;

/// The kinds of objects that plans touch.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Kind {
    Pod,
    Service,
    EndpointSlice,
    Secret,
    ServiceAccount,
    PersistentVolumeClaim,
    Role,
    RoleBinding,
    Ingress,
    NetworkPolicy,
    Route,
    Job,
    Issuer,
    Certificate,
    Gateway,
    HttpRoute,
    /// Volcano's, scheduler-plugins' or another scheduler's group; the API group distinguishes them.
    PodGroup(PodGroupApi),
    Workload,
    RayCluster,
    RayJob,
    RayService,
    RayCronJob,
}

/// Who defines a `PodGroup`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum PodGroupApi {
    Volcano,
    SchedulerPlugins,
    KubernetesWorkloads,
}

/// The API resource of a kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Resource {
    pub group: &'static str,
    pub version: &'static str,
    pub kind: &'static str,
    pub plural: &'static str,
}

impl Kind {
    /// Returns group, version, kind and plural.
    pub fn resource(self) -> Resource {
        let (group, version, kind, plural) = match self {
            Kind::Pod => ("", "v1", "Pod", "pods"),
            Kind::Service => ("", "v1", "Service", "services"),
            Kind::EndpointSlice => ("discovery.k8s.io", "v1", "EndpointSlice", "endpointslices"),
            Kind::Secret => ("", "v1", "Secret", "secrets"),
            Kind::ServiceAccount => ("", "v1", "ServiceAccount", "serviceaccounts"),
            Kind::PersistentVolumeClaim => ("", "v1", "PersistentVolumeClaim", "persistentvolumeclaims"),
            Kind::Role => ("rbac.authorization.k8s.io", "v1", "Role", "roles"),
            Kind::RoleBinding => ("rbac.authorization.k8s.io", "v1", "RoleBinding", "rolebindings"),
            Kind::Ingress => ("networking.k8s.io", "v1", "Ingress", "ingresses"),
            Kind::NetworkPolicy => ("networking.k8s.io", "v1", "NetworkPolicy", "networkpolicies"),
            Kind::Route => ("route.openshift.io", "v1", "Route", "routes"),
            Kind::Job => ("batch", "v1", "Job", "jobs"),
            Kind::Issuer => ("cert-manager.io", "v1", "Issuer", "issuers"),
            Kind::Certificate => ("cert-manager.io", "v1", "Certificate", "certificates"),
            Kind::Gateway => ("gateway.networking.k8s.io", "v1", "Gateway", "gateways"),
            Kind::HttpRoute => ("gateway.networking.k8s.io", "v1", "HTTPRoute", "httproutes"),
            Kind::PodGroup(PodGroupApi::Volcano) => ("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"),
            Kind::PodGroup(PodGroupApi::SchedulerPlugins) => {
                ("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups")
            }
            Kind::PodGroup(PodGroupApi::KubernetesWorkloads) => {
                ("scheduling.k8s.io", "v1alpha2", "PodGroup", "podgroups")
            }
            Kind::Workload => ("scheduling.k8s.io", "v1alpha2", "Workload", "workloads"),
            Kind::RayCluster => ("ray.io", "v1", "RayCluster", "rayclusters"),
            Kind::RayJob => ("ray.io", "v1", "RayJob", "rayjobs"),
            Kind::RayService => ("ray.io", "v1", "RayService", "rayservices"),
            Kind::RayCronJob => ("ray.io", "v1", "RayCronJob", "raycronjobs"),
        };
        Resource { group, version, kind, plural }
    }
}

impl Kind {
    /// Every kind.
    pub const ALL: [Kind; 24] = [
        Kind::Pod,
        Kind::Service,
        Kind::EndpointSlice,
        Kind::Secret,
        Kind::ServiceAccount,
        Kind::PersistentVolumeClaim,
        Kind::Role,
        Kind::RoleBinding,
        Kind::Ingress,
        Kind::NetworkPolicy,
        Kind::Route,
        Kind::Job,
        Kind::Issuer,
        Kind::Certificate,
        Kind::Gateway,
        Kind::HttpRoute,
        Kind::PodGroup(PodGroupApi::Volcano),
        Kind::PodGroup(PodGroupApi::SchedulerPlugins),
        Kind::PodGroup(PodGroupApi::KubernetesWorkloads),
        Kind::Workload,
        Kind::RayCluster,
        Kind::RayJob,
        Kind::RayService,
        Kind::RayCronJob,
    ];

    /// Returns the kind of an object with this `apiVersion` and `kind`; its version does not matter.
    pub fn of_object(api_version: &str, name: &str) -> Option<Self> {
        let group = api_version.split_once('/').map_or("", |(group, _)| group);
        Self::ALL.into_iter().find(|kind| (kind.resource().group, kind.resource().kind) == (group, name))
    }

    /// Returns whether the kind is one of Ray's.
    pub fn is_ray(self) -> bool {
        matches!(self, Kind::RayCluster | Kind::RayJob | Kind::RayService | Kind::RayCronJob)
    }

    /// Returns the Ray kind with this name.
    pub fn of_ray(name: &str) -> Option<Self> {
        let kinds = [Kind::RayCluster, Kind::RayJob, Kind::RayService, Kind::RayCronJob];
        kinds.into_iter().find(|kind| kind.resource().kind == name)
    }
}

impl Resource {
    /// Returns `apiVersion` as in a manifest.
    pub fn api_version(&self) -> String {
        if self.group.is_empty() { self.version.to_owned() } else { format!("{}/{}", self.group, self.version) }
    }
}

/// One object on the API server.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ObjectKey {
    pub kind: Kind,
    pub namespace: String,
    pub name: String,
}

impl ObjectKey {
    /// Returns the key of the object with this kind, namespace and name.
    pub fn new(kind: Kind, namespace: &str, name: &str) -> Self {
        Self { kind, namespace: namespace.to_owned(), name: name.to_owned() }
    }
}

/// Stands for a fresh token of 32 random bytes in a Secret to be created.
///
/// The executor fills in the token, because a plan may be printed and must be deterministic.
pub const DRAWN_WHEN_WRITTEN: &str = "<drawn when written>";

/// One write, to the API server or to Ray.
#[derive(Clone, Debug, PartialEq)]
pub enum Action {
    /// Creates an object. `body` is the whole object, `metadata.name` included.
    Create { key: ObjectKey, body: Body },
    /// Replaces an object; `body` carries the `metadata.resourceVersion` that was seen.
    Replace { key: ObjectKey, body: Body },
    /// Changes some fields by JSON merge patch. With a `resourceVersion` in it, only the version that was seen.
    Merge { key: ObjectKey, patch: Box<Value> },
    /// Deletes exactly the object that was seen. `force` skips the grace period (a Pod whose node is dead).
    Delete { key: ObjectKey, uid: String, force: bool },
    /// Sends a request to the Ray of a RayCluster.
    Ray { key: ObjectKey, endpoint: DashboardEndpoint, request: RayRequest },
}

impl Action {
    /// Returns the object that the action is about; for Ray the RayCluster.
    pub fn key(&self) -> &ObjectKey {
        match self {
            Action::Create { key, .. }
            | Action::Replace { key, .. }
            | Action::Merge { key, .. }
            | Action::Delete { key, .. }
            | Action::Ray { key, .. } => key,
        }
    }

    /// Returns whether the action is for Ray.
    pub fn is_ray(&self) -> bool {
        matches!(self, Action::Ray { .. })
    }

    /// Returns the `action` of events about it.
    fn event_action(&self) -> &'static str {
        match self {
            Action::Create { .. } => "Create",
            Action::Delete { .. } => "Delete",
            Action::Replace { .. } | Action::Merge { .. } | Action::Ray { .. } => "Update",
        }
    }
}

/// A whole object as JSON text.
///
/// Plans hold the objects to create until they are written. A Pod takes 5 KB as text, and ten times as much as a tree
/// of values.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Body(Box<str>);

impl Body {
    /// Returns the body of a typed object.
    pub fn of<T: Serialize>(object: &T) -> Self {
        Self(serde_json::to_string(object).unwrap_or_default().into())
    }

    /// Returns the JSON text.
    pub fn text(&self) -> &str {
        &self.0
    }

    /// Returns the parsed JSON.
    pub fn value(&self) -> Value {
        serde_json::from_str(&self.0).unwrap_or_default()
    }
}

/// Returns the merge patch from one JSON value to another, without the fields that are equal.
pub fn merge_difference(from: &Value, to: &Value) -> Value {
    let (Value::Object(from), Value::Object(to)) = (from, to) else { return to.clone() };
    let removed = from.keys().filter(|key| !to.contains_key(*key)).map(|key| (key.clone(), Value::Null));
    let changed = to.iter().filter(|(key, value)| from.get(*key) != Some(value)).map(|(key, value)| {
        let difference = from.get(key).map_or_else(|| value.clone(), |before| merge_difference(before, value));
        (key.clone(), difference)
    });
    Value::Object(removed.chain(changed).collect())
}

/// Applies a merge patch, as the API server does; the inverse of [`merge_difference`].
pub fn merge(object: &mut Value, patch: &Value) {
    let Value::Object(fields) = patch else {
        object.clone_from(patch);
        return;
    };
    if !object.is_object() {
        *object = Value::Object(serde_json::Map::new());
    }
    for (key, value) in fields {
        match object.as_object_mut() {
            Some(object) if value.is_null() => drop(object.remove(key)),
            _ => merge(&mut object[key], value),
        }
    }
}

/// An action with its reason and what follows from it.
#[derive(Clone, Debug, PartialEq)]
pub struct Step {
    pub action: Action,
    /// Why, for logs, events and `explain`.
    pub why: String,
    /// The event when it succeeds.
    pub done: Option<Event>,
    /// The event when it fails; the error's text is appended to the note.
    pub failed: Option<Event>,
    /// The error that counts as success, without event.
    pub accept: Accept,
    /// How a failure shows in the status, e.g. `FailedCreateHeadPod`.
    pub failure_reason: Option<&'static str>,
    /// Whose count the action changes; such actions are remembered until the watch shows them.
    pub pods_of: Option<PodsOf>,
    /// Its failure is reported and the step tried again, but stops nothing else.
    pub is_independent: bool,
}

/// The Pods that are counted together.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum PodsOf {
    Head,
    Group(String),
}

impl Step {
    /// Returns a step without events that accepts no error.
    pub fn new(action: Action, why: impl Into<String>) -> Self {
        Self {
            action,
            why: why.into(),
            done: None,
            failed: None,
            accept: Accept::Nothing,
            failure_reason: None,
            pods_of: None,
            is_independent: false,
        }
    }

    /// Creates an object.
    pub fn create<T: Serialize>(key: ObjectKey, object: &T, why: impl Into<String>) -> Self {
        Self::new(Action::Create { key, body: Body::of(object) }, why)
    }

    /// Replaces an object.
    pub fn replace<T: Serialize>(key: ObjectKey, object: &T, why: impl Into<String>) -> Self {
        Self::new(Action::Replace { key, body: Body::of(object) }, why)
    }

    /// Changes some fields of an object.
    pub fn merge(key: ObjectKey, patch: Value, why: impl Into<String>) -> Self {
        Self::new(Action::Merge { key, patch: Box::new(patch) }, why)
    }

    /// Deletes the object with this UID; an absent object counts as deleted.
    pub fn delete(key: ObjectKey, uid: &str, why: impl Into<String>) -> Self {
        Self::new(Action::Delete { key, uid: uid.to_owned(), force: false }, why).accept(Accept::NotFound)
    }

    /// Deletes the object with this UID without waiting for its grace period.
    pub fn force_delete(key: ObjectKey, uid: &str, why: impl Into<String>) -> Self {
        Self::new(Action::Delete { key, uid: uid.to_owned(), force: true }, why).accept(Accept::NotFound)
    }

    /// Publishes this event when the step succeeds.
    pub fn done(mut self, event: Event) -> Self {
        self.done = Some(event);
        self
    }

    /// Publishes this event when the step fails.
    pub fn failed(mut self, event: Event) -> Self {
        self.failed = Some(event);
        self
    }

    /// Publishes a normal event when the step succeeds.
    pub fn on_success(self, reason: &'static str, note: impl Into<String>) -> Self {
        let action = self.action.event_action();
        self.done(Event::normal(reason, action, note))
    }

    /// Publishes a warning when the step fails.
    pub fn on_failure(self, reason: &'static str, note: impl Into<String>) -> Self {
        let action = self.action.event_action();
        self.failed(Event::warning(reason, action, note))
    }

    /// Treats an error as success.
    pub fn accept(mut self, accept: Accept) -> Self {
        self.accept = accept;
        self
    }

    /// Shows a failure in the status with this reason.
    pub fn failure_reason(mut self, reason: &'static str) -> Self {
        self.failure_reason = Some(reason);
        self
    }

    /// Stops nothing else by its failure.
    pub fn independent(mut self) -> Self {
        self.is_independent = true;
        self
    }

    /// Counts among these Pods.
    pub fn counts_among(mut self, pods: PodsOf) -> Self {
        self.pods_of = Some(pods);
        self
    }
}

/// An error that means that there is nothing left to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Accept {
    Nothing,
    AlreadyExists,
    NotFound,
}

/// Steps of one controller that do not depend on each other.
#[derive(Clone, Debug, PartialEq)]
pub struct Stage {
    pub controller: &'static str,
    pub steps: Vec<Step>,
}

impl Stage {
    /// Returns a stage whose events name this controller.
    pub fn new(controller: &'static str, mut steps: Vec<Step>) -> Self {
        for event in steps.iter_mut().flat_map(|step| [&mut step.done, &mut step.failed]).flatten() {
            event.controller = controller;
        }
        Self { controller, steps }
    }
}

impl<'a> IntoIterator for &'a Stage {
    type Item = &'a Step;
    type IntoIter = std::slice::Iter<'a, Step>;

    fn into_iter(self) -> Self::IntoIter {
        self.steps.iter()
    }
}

/// An event to publish about the object that was planned.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Event {
    /// The controller that reports it, e.g. `raycluster-controller`; the planner fills it in.
    pub controller: &'static str,
    pub kind: EventKind,
    pub reason: &'static str,
    pub action: &'static str,
    pub note: String,
}

/// The type of an event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    Normal,
    Warning,
}

impl Event {
    /// Returns a normal event.
    pub fn normal(reason: &'static str, action: &'static str, note: impl Into<String>) -> Self {
        Self { controller: "", kind: EventKind::Normal, reason, action, note: note.into() }
    }

    /// Returns a warning.
    pub fn warning(reason: &'static str, action: &'static str, note: impl Into<String>) -> Self {
        Self { controller: "", kind: EventKind::Warning, reason, action, note: note.into() }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_merge_difference_holds_what_changed() {
        let check = |from: Value, to: Value, expect: Value| assert_eq!(merge_difference(&from, &to), expect);
        check(
            json!({"a": 1, "b": {"c": 2, "d": 3}}),
            json!({"a": 1, "b": {"c": 4}}),
            json!({"b": {"c": 4, "d": null}}),
        );
        check(json!({"a": []}), json!({}), json!({"a": null}));
        check(json!({"a": [1, 2]}), json!({"a": [1, 3]}), json!({"a": [1, 3]}));
        check(json!({}), json!({"a": {"b": {}}}), json!({"a": {"b": {}}}));
        check(json!({"a": 1}), json!({"a": 1}), json!({}));
    }
}
