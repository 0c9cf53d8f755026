//! Update: replaces an object, or one of its subresources.

use std::sync::Arc;

use serde_json::{Map, Value, json};

use super::create::unheeded;
use super::{Cluster, Target, WriteOptions, Written, body, conversion, dry_run_entry, patch};
use crate::error::ApiError;
use crate::patch::apply::{Writer, track_update};
use crate::registry::{Behaviour, Resource};
use crate::schema::FieldError;
use crate::store::{Entry, Write};

/// The annotation of kubectl's client-side apply.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

impl Cluster {
    /// Replaces an object (or its status) by a body.
    pub fn update(
        &self,
        target: Target<'_>,
        subresource: Option<&str>,
        body: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        check_name(target, &body)?;
        let unconditional = body["metadata"]["resourceVersion"].as_str().unwrap_or("").is_empty();
        if unconditional && target.resource.custom().is_some() {
            let error = FieldError::invalid("metadata.resourceVersion", &json!(0), "must be specified for an update");
            return Err(ApiError::invalid(target.resource.named(target.name), &[error]));
        }
        self.modify(target, subresource, options, |_| Ok(body.clone()))
    }

    /// Applies `change` to the served form of an object and commits it, retrying on conflicts.
    ///
    /// A change that carries a resourceVersion is not retried: a conflict is then an error.
    pub(crate) fn modify(
        &self,
        target: Target<'_>,
        subresource: Option<&str>,
        options: &WriteOptions,
        mut change: impl FnMut(&Value) -> Result<Value, ApiError>,
    ) -> Result<Written, ApiError> {
        loop {
            let entry = self.get(target)?;
            let old = entry.shared_value();
            let is_served = target.resource.serves_stored_form() && old["apiVersion"] == *target.resource.api_version;
            let shown = if is_served {
                Arc::clone(&old)
            } else {
                Arc::new(conversion::served(target.resource, Value::clone(&old), options)?)
            };
            let new = change(&shown)?;
            check_name(target, &new)?;
            let wanted = new["metadata"]["resourceVersion"].as_str().unwrap_or("").to_owned();
            let pinned = !wanted.is_empty() && wanted != entry.revision.to_string();
            if pinned {
                return Err(target.modified());
            }
            // Only objects of the same version have the same fields.
            let old = if target.resource.conversion().is_some() { shown } else { old };
            match self.replace(target, subresource, &entry, &old, new, options) {
                Err(error) if error.is_conflict() && self.get(target)?.revision != entry.revision => {
                    // A change with a resourceVersion fails in the next round.
                }
                other => return other,
            }
        }
    }

    /// Updates an object on behalf of a built-in controller.
    pub(crate) fn edit(&self, target: Target<'_>, change: impl FnMut(&mut Value)) -> Result<Written, ApiError> {
        self.edit_at(target, None, change)
    }

    /// Updates an object's status on behalf of a built-in controller.
    pub(crate) fn edit_status(&self, target: Target<'_>, change: impl FnMut(&mut Value)) -> Result<Written, ApiError> {
        self.edit_at(target, Some("status"), change)
    }

    fn edit_at(
        &self,
        target: Target<'_>,
        subresource: Option<&str>,
        mut change: impl FnMut(&mut Value),
    ) -> Result<Written, ApiError> {
        self.modify(target, subresource, &WriteOptions::default(), |old| {
            let mut new = old.clone();
            change(&mut new);
            Ok(new)
        })
    }

    /// Replaces `old` by `new` if the object has not changed meanwhile.
    fn replace(
        &self,
        target: Target<'_>,
        subresource: Option<&str>,
        entry: &Entry,
        old: &Value,
        mut new: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let resource = target.resource;
        let metadata = body::fields(resource, &mut new)?.entry("metadata").or_insert(Value::Null);
        if metadata.is_null() {
            *metadata = json!({});
        }
        check_uid(target, &new, old)?;
        let mut warnings = body::normalize(resource, &mut new, options)?;
        preserve_fields(resource, subresource, old, &mut new);
        admit_update(resource, subresource, old, &mut new)?;
        check_metadata_update(resource, target.name, old, &new)?;
        match (subresource, &resource.behaviour) {
            (Some("status"), Behaviour::Custom(_)) if conversion::is_left_alone(resource, &new, options) => {}
            (Some("status"), Behaviour::Custom(custom)) => {
                let errors = custom.schema().map_or_else(Vec::new, |schema| schema.validate_status(&new, old));
                if !errors.is_empty() {
                    return Err(ApiError::invalid(resource.kind_named(target.name), &errors));
                }
            }
            (None, _) => self.validate(resource, &new, Some(old), options.user.is_none())?,
            // Controllers of this server write what they observe.
            (Some("status"), Behaviour::Builtin(builtin)) if options.user.is_some() => {
                let mut errors = Vec::new();
                (builtin.validate_status)(&new, old, &mut errors);
                if !errors.is_empty() {
                    return Err(ApiError::invalid(resource.kind_named(target.name), &errors));
                }
            }
            (Some("ephemeralcontainers"), _) => {
                let errors = crate::registry::ephemeral_errors(&new, old);
                if !errors.is_empty() {
                    return Err(ApiError::invalid(resource.kind_named(target.name), &errors));
                }
            }
            _ => {}
        }
        if let Some(user) = &options.user {
            self.authority.check_escalation(user, resource, &new, Some(old), self)?;
        }
        let _quota = match subresource {
            None => self.admit_quota(resource, target.namespace, &new, Some(old))?,
            Some(_) => None,
        };
        let allocation = self.service_ips.allocate(resource, &mut new, Some(old), self)?;
        if changes_desired_state(resource, old, &new) {
            warnings.extend(unheeded(resource, &new, options));
        }
        bump_generation(resource, old, &mut new);
        self.track_managed_fields(resource, subresource, Some(old), &mut new, options);
        let migrates = resource.conversion().is_some() && !entry.has_api_version(&resource.stored_api_version());
        let same = differ_by_revision(old, &new) && !(migrates && options.user.is_some());
        let new = conversion::stored(resource, new, options)?;
        if is_fully_deleted(resource, &new) {
            if options.dry_run {
                return Ok(Written {
                    entry: dry_run_entry(target.key(), new, Some(entry.revision)),
                    created: false,
                    warnings,
                });
            }
            let entry = self.remove(target, entry.revision, new)?;
            return Ok(Written { entry, created: false, warnings });
        }
        if same {
            let entry = self.get(target)?;
            return Ok(Written { entry, created: false, warnings });
        }
        if options.dry_run {
            return Ok(Written {
                entry: dry_run_entry(target.key(), new, Some(entry.revision)),
                created: false,
                warnings,
            });
        }
        match self.store.commit(&resource.table, target.key(), Write::Update(entry.revision, new)) {
            Ok(entry) => {
                allocation.commit();
                Ok(Written { entry, created: false, warnings })
            }
            Err(error) => Err(target.commit_error(error)),
        }
    }

    /// Updates `managedFields` on objects that are tracked.
    ///
    /// Tracking starts with the first apply, of either kind: kubectl's client-side apply leaves an annotation, and
    /// when such an object is later applied server-side, kubectl takes over what that annotation's owner owned.
    /// Were that owner to stand for everybody, kubectl would take, and then prune, what others have set.
    pub(super) fn track_managed_fields(
        &self,
        resource: &Resource,
        subresource: Option<&str>,
        old: Option<&Value>,
        new: &mut Value,
        options: &WriteOptions,
    ) {
        let fields = |value: &Value| value["metadata"]["managedFields"].clone();
        let tracked = old.is_some_and(|old| fields(old).is_array());
        // An apply has already written its own entry.
        let applied = fields(new).is_array() && Some(fields(new)) != old.map(fields);
        if applied || (!tracked && new["metadata"]["annotations"][LAST_APPLIED].is_null()) {
            return;
        }
        let time = self.clock.stamp();
        let writer = Writer {
            // Only the built-in controllers have no field manager.
            manager: if options.manager.is_empty() { "kube-controller-manager" } else { &options.manager },
            api_version: &resource.api_version,
            subresource: subresource.unwrap_or(""),
            time: &time,
            ignored: patch::ignored(resource, subresource),
        };
        let type_ref = patch::type_of(resource);
        let mut before = old.cloned();
        if let Some(before) = before.as_mut().filter(|_| !tracked) {
            let earlier = Writer { manager: "before-first-apply", subresource: "", ..writer };
            track_update(None, before, type_ref, &earlier);
        }
        track_update(before.as_ref(), new, type_ref, &writer);
    }

    /// Removes an object from the store.
    pub(super) fn remove(
        &self,
        target: Target<'_>,
        revision: u64,
        last: Value,
    ) -> Result<std::sync::Arc<Entry>, ApiError> {
        let freed = (&*target.resource.table == "services").then(|| last.clone());
        match self.store.commit(&target.resource.table, target.key(), Write::Delete(revision, last)) {
            Ok(entry) => {
                if let Some(service) = freed {
                    self.service_ips.release(&service);
                }
                Ok(entry)
            }
            Err(error) => Err(target.commit_error(error)),
        }
    }
}

/// Runs the built-in admission for an updated pod, service or definition.
fn admit_update(resource: &Resource, subresource: Option<&str>, old: &Value, new: &mut Value) -> Result<(), ApiError> {
    if &*resource.table == "services" && subresource.is_none() {
        super::service_ips::drop_fields_of_other_types(old, new);
    }
    if &*resource.table == "customresourcedefinitions.apiextensions.k8s.io" && subresource.is_none() {
        crate::registry::note_storage_version(new);
    }
    if &*resource.table != "pods" {
        return Ok(());
    }
    match subresource {
        None => crate::registry::add_default_tolerations(new),
        Some("resize") if old["status"]["qosClass"] != crate::registry::qos_class(&new["spec"]) => {
            let why = "Pod QOS Class may not change as a result of resizing";
            let error = FieldError::invalid("spec", &old["status"]["qosClass"], why);
            let name = old["metadata"]["name"].as_str().unwrap_or("");
            return Err(ApiError::invalid(resource.kind_named(name), &[error]));
        }
        Some("resize") if old["spec"] != new["spec"] => {
            let why = "this server's node does not change the resources of containers that exist; create the pod again";
            let name = old["metadata"]["name"].as_str().unwrap_or("");
            return Err(ApiError::invalid(resource.kind_named(name), &[FieldError::forbidden("spec", why)]));
        }
        Some(_) => {}
    }
    Ok(())
}

/// Checks that a body that has a uid means this very object.
pub(super) fn check_uid(target: Target<'_>, body: &Value, old: &Value) -> Result<(), ApiError> {
    let uid = body["metadata"]["uid"].as_str().unwrap_or("");
    if uid.is_empty() || old["metadata"]["uid"] == uid {
        return Ok(());
    }
    let why = format!(
        "StorageError: invalid object, Code: 4, Key: /registry/{}/{}/{}, ResourceVersion: 0, AdditionalErrorMsg: \
         Precondition failed: UID in precondition: {uid}, UID in object meta: {}",
        target.resource.plural,
        target.namespace,
        target.name,
        old["metadata"]["uid"].as_str().unwrap_or("")
    );
    Err(ApiError::conflict(target.resource.named(target.name), &why))
}

fn check_name(target: Target<'_>, body: &Value) -> Result<(), ApiError> {
    match body["metadata"]["name"].as_str() {
        Some(named) if !named.is_empty() && named != target.name => Err(ApiError::bad_request(format!(
            "the name of the object ({named}) does not match the name on the URL ({})",
            target.name
        ))),
        _ => Ok(()),
    }
}

/// Copies the fields that an update cannot change from the old object.
fn preserve_fields(resource: &Resource, subresource: Option<&str>, old: &Value, new: &mut Value) {
    let custom = resource.custom().is_some();
    match subresource {
        None => {
            if resource.has_status() {
                move_field(old, new, "status");
            }
            if &*resource.table == "namespaces" {
                move_field(old, new, "spec");
            }
        }
        Some("status") => {
            let status = new["status"].take();
            let managed = new["metadata"]["managedFields"].clone();
            let metadata = new["metadata"].clone();
            *new = old.clone();
            if status.is_null() {
                new.as_object_mut().map(|object| object.remove("status"));
            } else {
                new["status"] = status;
            }
            if custom {
                if managed.is_array() {
                    new["metadata"]["managedFields"] = managed;
                }
            } else {
                // Built-in kinds let labels, annotations and finalizers through on this path.
                let owners = old["metadata"]["ownerReferences"].clone();
                new["metadata"] = metadata;
                put(&mut new["metadata"], "ownerReferences", owners);
            }
        }
        Some("resize") => {
            let mut kept = old.clone();
            for list in ["containers", "initContainers"] {
                let wanted = new["spec"][list].as_array().cloned().unwrap_or_default();
                for container in kept["spec"].get_mut(list).and_then(Value::as_array_mut).into_iter().flatten() {
                    if let Some(found) = wanted.iter().find(|other| other["name"] == container["name"]) {
                        container["resources"] = found["resources"].clone();
                    }
                }
            }
            *new = kept;
        }
        Some("ephemeralcontainers") => {
            let added = new["spec"]["ephemeralContainers"].clone();
            *new = old.clone();
            put(&mut new["spec"], "ephemeralContainers", added);
        }
        Some("approval") => {
            let certificate = old["status"]["certificate"].clone();
            let (metadata, mut status) = (new["metadata"].clone(), new["status"].take());
            put(&mut status, "certificate", certificate);
            *new = old.clone();
            new["metadata"] = metadata;
            new["status"] = status;
        }
        Some("finalize") => {
            let finalizers = new["spec"]["finalizers"].clone();
            *new = old.clone();
            put(&mut new["spec"], "finalizers", finalizers);
        }
        Some(_) => {}
    }
    let metadata = &old["metadata"];
    for key in [
        "uid",
        "creationTimestamp",
        "namespace",
        "name",
        "generateName",
        "generation",
        "deletionTimestamp",
        "deletionGracePeriodSeconds",
        "selfLink",
    ] {
        put(&mut new["metadata"], key, metadata[key].clone());
    }
    if new["metadata"]["managedFields"].is_null() {
        put(&mut new["metadata"], "managedFields", metadata["managedFields"].clone());
    } else if new["metadata"]["managedFields"].as_array().is_some_and(|fields| {
        fields.is_empty() || (fields.len() == 1 && fields[0].as_object().is_some_and(serde_json::Map::is_empty))
    }) {
        put(&mut new["metadata"], "managedFields", Value::Null);
    }
    if let Some(metadata) = new["metadata"].as_object_mut() {
        metadata.remove("resourceVersion");
    }
}

fn move_field(old: &Value, new: &mut Value, key: &str) {
    put(new, key, old[key].clone());
}

/// Sets a field, or removes it when there is nothing to set.
fn put(object: &mut Value, key: &str, value: Value) {
    match (value, object.as_object_mut()) {
        (_, None) => {}
        (Value::Null, Some(object)) => {
            object.remove(key);
        }
        (value, Some(object)) => {
            object.insert(key.into(), value);
        }
    }
}

fn check_metadata_update(resource: &Resource, name: &str, old: &Value, new: &Value) -> Result<(), ApiError> {
    if !old["metadata"]["deletionTimestamp"].is_string() {
        return Ok(());
    }
    let list = |value: &Value| value["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let before = list(old);
    let added: Vec<String> = list(new).iter().filter(|one| !before.contains(one)).map(ToString::to_string).collect();
    if added.is_empty() {
        return Ok(());
    }
    let why = format!(
        "no new finalizers can be added if the object is being deleted, found new finalizers []string{{{}}}",
        added.join(", ")
    );
    Err(ApiError::invalid(resource.kind_named(name), &[FieldError::forbidden("metadata.finalizers", &why)]))
}

/// Returns whether two objects differ beyond their metadata and their status.
fn changes_desired_state(resource: &Resource, old: &Value, new: &Value) -> bool {
    let keeps_status = resource.has_status() || resource.builtin().is_some();
    let is_desired = |key: &str| match key {
        "metadata" | "apiVersion" => false,
        "status" => !keeps_status,
        _ => true,
    };
    !are_equal(old, new, is_desired)
}

/// Increments `metadata.generation` if the desired state changed.
fn bump_generation(resource: &Resource, old: &Value, new: &mut Value) {
    if resource.has_generation() && changes_desired_state(resource, old, new) {
        let next = old["metadata"]["generation"].as_i64().unwrap_or(0).saturating_add(1);
        new["metadata"]["generation"] = next.into();
    }
}

/// Returns whether two objects differ in their resourceVersion at most.
fn differ_by_revision(old: &Value, new: &Value) -> bool {
    are_equal(old, new, |key| key != "metadata")
        && are_equal(&old["metadata"], &new["metadata"], |key| key != "resourceVersion")
}

/// Returns whether two objects have equal fields, of those that count.
fn are_equal(old: &Value, new: &Value, counts: impl Fn(&str) -> bool) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return old == new };
    let those = |object: &Map<String, Value>| object.keys().filter(|key| counts(key)).count();
    those(old) == those(new)
        && old.iter().filter(|(key, _)| counts(key)).all(|(key, value)| new.get(key) == Some(value))
}

/// Returns whether an object that is being deleted can be removed.
fn is_fully_deleted(resource: &Resource, value: &Value) -> bool {
    let metadata = &value["metadata"];
    let none = |list: &Value| list.as_array().is_none_or(Vec::is_empty);
    metadata["deletionTimestamp"].is_string()
        && none(&metadata["finalizers"])
        && metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0) == 0
        && (&*resource.table != "namespaces" || none(&value["spec"]["finalizers"]))
}
