//! The objects of a cluster in memory, on which planned writes take effect.

use crate::owners;
use crate::raw_object::RawObject;
use crate::stores::{Stores, Table};
use crate::watched_object::View;
use jiff::Timestamp;
use manta_logic::action::{Accept, Action, Kind, ObjectKey, Step, merge};
use manta_logic::pass::StepResult;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Objects, and the stores that show them to an observation.
#[derive(Default)]
pub(super) struct World {
    pub(super) stores: Stores,
    objects: BTreeMap<ObjectKey, Value>,
    deleted: BTreeSet<ObjectKey>,
    /// How many versions the writes have made.
    versions: u64,
}

/// What a write did.
pub(super) struct Effect {
    pub(super) result: StepResult,
    pub(super) before: Option<Value>,
    pub(super) after: Option<Value>,
    /// Objects that went with their owner.
    pub(super) collected: Vec<(ObjectKey, Value)>,
}

impl World {
    /// Returns an object, or `None` where nothing is known about it.
    pub(super) fn get(&self, key: &ObjectKey) -> Option<&Value> {
        self.objects.get(key)
    }

    /// Returns whether a write has deleted an object.
    pub(super) fn is_deleted(&self, key: &ObjectKey) -> bool {
        self.deleted.contains(key)
    }

    /// Returns the keys of the Ray objects.
    pub(super) fn ray_objects(&self) -> Vec<ObjectKey> {
        self.objects.keys().filter(|key| key.kind.is_ray()).cloned().collect()
    }

    #[cfg(test)]
    pub(super) fn all(&self) -> impl Iterator<Item = (&ObjectKey, &Value)> {
        self.objects.iter()
    }

    /// Takes note that all objects of a kind are here.
    pub(super) fn set_listed(&self, kind: Kind) {
        fn listed<V: View>(table: &Table<V>) {
            // No watch is left that could bring more.
            table.expect_listings(0);
        }
        let stores = &self.stores;
        match kind {
            Kind::RayCluster => listed(&stores.clusters),
            Kind::RayJob => listed(&stores.jobs),
            Kind::RayService => listed(&stores.services),
            Kind::RayCronJob => listed(&stores.cron_jobs),
            Kind::Pod => listed(&stores.pods),
            Kind::Service => listed(&stores.kube_services),
            Kind::Job => listed(&stores.kube_jobs),
            Kind::EndpointSlice => listed(&stores.slices),
            kind => listed(&stores.related(kind)),
        }
    }

    /// Stores an object as it is.
    pub(super) fn put(&mut self, key: &ObjectKey, object: Value) {
        self.show(key, &object);
        self.deleted.remove(key);
        self.objects.insert(key.clone(), object);
    }

    /// Stores an object of a user: a new one, or a new spec of one that is there.
    pub(super) fn apply(&mut self, key: &ObjectKey, mut applied: Value, now: Timestamp) {
        applied["metadata"]["namespace"] = json!(key.namespace);
        let Some(mut object) = self.objects.get(key).cloned() else { return drop(self.create(key, applied, now)) };
        let metadata = applied["metadata"].take();
        for field in ["labels", "annotations"] {
            merge(&mut object["metadata"][field], &metadata[field]);
        }
        for (field, value) in applied.as_object().into_iter().flatten() {
            if !matches!(field.as_str(), "metadata" | "status" | "apiVersion" | "kind") {
                object[field] = value.clone();
            }
        }
        self.update(key, object);
    }

    /// Replaces the status of an object. Returns whether that changed it.
    pub(super) fn set_status(&mut self, key: &ObjectKey, status: Value) -> bool {
        let Some(mut object) = self.objects.get(key).cloned() else { return false };
        if object["status"] == status {
            return false;
        }
        object["status"] = status;
        self.store(key, object);
        true
    }

    /// Lets a step take effect, as the API server would.
    pub(super) fn write(&mut self, step: &Step, now: Timestamp) -> Effect {
        let key = step.action.key();
        let before = self.objects.get(key).cloned();
        let effect = |result| Effect { result, before: before.clone(), after: None, collected: Vec::new() };
        match (&step.action, &before) {
            (Action::Ray { .. }, _) => effect(StepResult::Done),
            (Action::Create { body, .. }, None) => {
                let after = self.create(key, body.value(), now);
                Effect { after: Some(after), ..effect(StepResult::Done) }
            }
            (Action::Create { .. }, Some(_)) if step.accept == Accept::AlreadyExists => effect(StepResult::Unchanged),
            (Action::Create { .. }, Some(_)) => effect(StepResult::Failed(format!("{} already exists", key.name))),
            (_, None) if step.accept == Accept::NotFound => effect(StepResult::Unchanged),
            (_, None) => effect(StepResult::Failed(format!("{} not found", key.name))),
            (Action::Replace { body, .. }, Some(old)) => {
                let mut object = body.value();
                object["metadata"]["uid"] = old["metadata"]["uid"].clone();
                object["status"] = old["status"].clone();
                Effect { after: Some(self.update(key, object)), ..effect(StepResult::Done) }
            }
            (Action::Merge { patch, .. }, Some(old)) => {
                let mut object = old.clone();
                merge(&mut object, patch);
                Effect { after: Some(self.update(key, object)), ..effect(StepResult::Done) }
            }
            (Action::Delete { .. }, Some(old)) => {
                let mut object = old.clone();
                object["metadata"]["deletionTimestamp"] = json!(now.to_string());
                self.store(key, object);
                let collected = if self.objects.contains_key(key) { Vec::new() } else { self.collect(old) };
                Effect { collected, ..effect(StepResult::Done) }
            }
        }
    }

    fn create(&mut self, key: &ObjectKey, mut object: Value, now: Timestamp) -> Value {
        let metadata = &mut object["metadata"];
        metadata["uid"] = json!(format!("preview-{}", self.versions));
        metadata["creationTimestamp"] = json!(now.to_string());
        metadata["namespace"] = json!(key.namespace);
        if key.kind.is_ray() {
            metadata["generation"] = json!(1);
        }
        // The API server gives every other Service an address, and plans wait for it.
        if key.kind == Kind::Service && object["spec"]["clusterIP"].is_null() {
            object["spec"]["clusterIP"] = json!("0.0.0.0");
        }
        self.store(key, object)
    }

    /// Stores a changed object; a new spec gets a new generation.
    fn update(&mut self, key: &ObjectKey, mut object: Value) -> Value {
        let old = self.objects.get(key).unwrap_or(&Value::Null);
        if let Some(generation) = old["metadata"]["generation"].as_i64().filter(|_| object["spec"] != old["spec"]) {
            object["metadata"]["generation"] = json!(generation + 1);
        }
        self.store(key, object)
    }

    /// Stores a new version of an object; removes one that is being deleted and has no finalizer.
    fn store(&mut self, key: &ObjectKey, mut object: Value) -> Value {
        self.versions += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(format!("preview-{}", self.versions));
        let is_held = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        if !metadata["deletionTimestamp"].is_null() && !is_held {
            self.remove(key);
        } else {
            self.put(key, object.clone());
        }
        object
    }

    /// Removes what belongs to an object that is gone, as the garbage collector does.
    fn collect(&mut self, owner: &Value) -> Vec<(ObjectKey, Value)> {
        let uid = &owner["metadata"]["uid"];
        let is_owned = |object: &Value| {
            let mut owners = object["metadata"]["ownerReferences"].as_array().into_iter().flatten();
            owners.any(|owner| owner["uid"] == *uid)
        };
        let owned: Vec<ObjectKey> =
            self.objects.iter().filter(|(_, object)| is_owned(object)).map(|(key, _)| key.clone()).collect();
        let mut collected = Vec::new();
        for key in owned {
            // Collecting one may have taken another along.
            if let Some(object) = self.remove(&key) {
                let rest = self.collect(&object);
                collected.push((key, object));
                collected.extend(rest);
            }
        }
        collected
    }

    fn remove(&mut self, key: &ObjectKey) -> Option<Value> {
        let (stores, namespace, name) = (&self.stores, &key.namespace, &key.name);
        match key.kind {
            Kind::RayCluster => stores.clusters.remove(namespace, name),
            Kind::RayJob => stores.jobs.remove(namespace, name),
            Kind::RayService => stores.services.remove(namespace, name),
            Kind::RayCronJob => stores.cron_jobs.remove(namespace, name),
            Kind::Pod => stores.pods.remove(namespace, name),
            Kind::Service => stores.kube_services.remove(namespace, name),
            Kind::Job => stores.kube_jobs.remove(namespace, name),
            Kind::EndpointSlice => stores.slices.remove(namespace, name),
            kind => stores.related(kind).remove(namespace, name),
        };
        self.deleted.insert(key.clone());
        self.objects.remove(key)
    }

    /// Shows an object to observations. One that cannot be read is left out, as the operator leaves it alone.
    fn show(&self, key: &ObjectKey, object: &Value) {
        fn put<V: View>(table: &Table<V>, object: &Value, owners: impl FnOnce(&V) -> Vec<ObjectKey>) {
            if let Ok(view) = serde_json::from_str::<V>(&object.to_string()) {
                let owners = owners(&view);
                table.put(0, Arc::new(view), owners);
            }
        }
        fn raw<K: 'static>(table: &Table<RawObject<K>>, object: &Value, kind: Kind) {
            put(table, object, |view: &RawObject<K>| view.owners(kind));
        }
        let stores = &self.stores;
        match key.kind {
            Kind::RayCluster => raw(&stores.clusters, object, key.kind),
            Kind::RayJob => raw(&stores.jobs, object, key.kind),
            Kind::RayService => raw(&stores.services, object, key.kind),
            Kind::RayCronJob => raw(&stores.cron_jobs, object, key.kind),
            Kind::Pod => put(&stores.pods, object, owners::pod_owners),
            Kind::Service => put(&stores.kube_services, object, owners::service_owners),
            Kind::Job => put(&stores.kube_jobs, object, owners::job_owners),
            Kind::EndpointSlice => put(&stores.slices, object, |slice| owners::slice_owners(stores, slice)),
            kind => put(&stores.related(kind), object, |object| owners::related_owners(kind, object)),
        }
    }
}
