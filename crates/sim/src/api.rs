//! The API server as players use it: in process and at once, without the operators' network in between.

use manta_apiserver::error::ApiError;
use manta_apiserver::ops::{Cluster, DeleteOptions, PatchKind, Propagation, Target, WriteOptions, Written};
use manta_apiserver::registry::Resource;
use manta_apiserver::store::{Event, Follower, ListRange};
use serde_json::{Value, json};
use std::sync::Arc;

/// Where everything happens.
pub(crate) const NAMESPACE: &str = "default";

/// The kinds that players use, and where they are. A kind may have several homes, of which a world serves one.
const KINDS: [(&str, &str); 25] = [
    ("Pod", "v1"),
    ("Service", "v1"),
    ("Secret", "v1"),
    ("ConfigMap", "v1"),
    ("Event", "v1"),
    ("EndpointSlice", "discovery.k8s.io/v1"),
    ("Job", "batch/v1"),
    ("RayCluster", "ray.io/v1"),
    ("RayJob", "ray.io/v1"),
    ("RayService", "ray.io/v1"),
    ("RayCronJob", "ray.io/v1"),
    ("PodGroup", "scheduling.volcano.sh/v1beta1"),
    ("PodGroup", "scheduling.x-k8s.io/v1alpha1"),
    ("PodGroup", "scheduling.k8s.io/v1alpha2"),
    ("Workload", "scheduling.k8s.io/v1alpha2"),
    ("Ingress", "networking.k8s.io/v1"),
    ("NetworkPolicy", "networking.k8s.io/v1"),
    ("PersistentVolumeClaim", "v1"),
    ("ServiceAccount", "v1"),
    ("Role", "rbac.authorization.k8s.io/v1"),
    ("RoleBinding", "rbac.authorization.k8s.io/v1"),
    ("Gateway", "gateway.networking.k8s.io/v1"),
    ("HTTPRoute", "gateway.networking.k8s.io/v1"),
    ("Issuer", "cert-manager.io/v1"),
    ("Certificate", "cert-manager.io/v1"),
];

/// The revision of an API server that nobody has written to.
const NOTHING_WRITTEN: u64 = 1;
/// How many changes are taken at once.
const BATCH: usize = 1024;

/// The API server.
#[derive(Clone)]
pub(crate) struct Api(Arc<Cluster>);

impl Api {
    pub(crate) fn new(cluster: Arc<Cluster>) -> Self {
        Self(cluster)
    }

    /// Returns an object.
    pub(crate) fn get(&self, kind: &str, name: &str) -> Option<Arc<Value>> {
        let resource = self.resource(kind)?;
        Some(self.0.get(target(&resource, name)).ok()?.shared_value())
    }

    /// Returns the names of all objects of a kind, in order.
    pub(crate) fn names(&self, kind: &str) -> Vec<String> {
        let Some(resource) = self.resource(kind) else { return Vec::new() };
        let range = ListRange { namespace: Some(NAMESPACE), ..ListRange::default() };
        let page = self.0.store.list(&resource.table, &range, |_| true);
        page.map(|page| page.entries.iter().map(|entry| entry.key.name.to_string()).collect()).unwrap_or_default()
    }

    /// Returns all objects of a kind, in order of their names.
    pub(crate) fn list(&self, kind: &str) -> Vec<Arc<Value>> {
        self.names(kind).iter().filter_map(|name| self.get(kind, name)).collect()
    }

    /// Creates an object. Returns whether that was possible.
    pub(crate) fn create(&self, kind: &str, metadata: Value, fields: Value) -> bool {
        let Some(resource) = self.resource(kind) else { return false };
        let mut object = json!({"apiVersion": &*resource.api_version, "kind": kind, "metadata": metadata});
        for (key, value) in fields.as_object().into_iter().flatten() {
            object[key] = value.clone();
        }
        self.0.create(&resource, NAMESPACE, object, &WriteOptions::default()).is_ok()
    }

    /// Deletes an object with what belongs to it, if it is there.
    pub(crate) fn delete(&self, kind: &str, name: &str) {
        let Some(resource) = self.resource(kind) else { return };
        let options = DeleteOptions { propagation: Some(Propagation::Background), ..DeleteOptions::default() };
        // It may be gone already.
        let _ = self.0.delete(target(&resource, name), &options);
    }

    /// Merges a patch into an object. Returns whether that was possible.
    pub(crate) fn patch(&self, kind: &str, name: &str, patch: &Value) -> bool {
        self.merge(kind, name, None, patch).is_some_and(|result| result.is_ok())
    }

    /// Merges a patch into the status of an object. Returns whether that was possible.
    pub(crate) fn patch_status(&self, kind: &str, name: &str, status: &Value) -> bool {
        self.merge(kind, name, Some("status"), &json!({"status": status})).is_some_and(|result| result.is_ok())
    }

    fn merge(
        &self,
        kind: &str,
        name: &str,
        subresource: Option<&str>,
        patch: &Value,
    ) -> Option<Result<Written, ApiError>> {
        let resource = self.resource(kind)?;
        let options = WriteOptions::default();
        Some(self.0.patch(target(&resource, name), subresource, PatchKind::Merge, patch, &options))
    }

    /// Returns all changes of a kind, from the first on; none if it is not served in this world.
    pub(crate) fn changes(&self, kind: &str) -> Option<Changes> {
        let resource = self.resource(kind)?;
        Some(Changes(self.0.store.follow(&resource.table, NOTHING_WRITTEN)))
    }

    /// Returns the revision of the last write that everybody sees.
    pub(crate) fn revision(&self) -> u64 {
        self.0.store.visible()
    }

    fn resource(&self, kind: &str) -> Option<Arc<Resource>> {
        let now = self.0.registry.now();
        let mut homes = KINDS.iter().filter(|(known, _)| *known == kind);
        homes.find_map(|(_, version)| now.find_kind(version, kind).cloned())
    }
}

fn target<'a>(resource: &'a Arc<Resource>, name: &'a str) -> Target<'a> {
    Target { resource, namespace: NAMESPACE, name }
}

/// The changes of one kind.
pub(crate) struct Changes(Follower);

impl Changes {
    /// Waits for the next changes.
    pub(crate) async fn next(&mut self) -> Vec<Arc<Event>> {
        loop {
            // The history of a world is never compacted.
            match self.0.poll(BATCH) {
                Ok(events) if !events.is_empty() => return events,
                _ => self.0.changed().await,
            }
        }
    }
}
