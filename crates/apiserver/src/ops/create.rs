//! Create.

use serde_json::Value;

use super::{Cluster, WriteOptions, Written, body, commit_error, conversion, dry_run_entry};
use crate::error::ApiError;
use crate::names;
use crate::registry::{Custom, Resource};
use crate::store::{CommitError, ObjectKey, Write};

/// How often another suffix is tried before giving up on a name.
const NAME_TRIES: usize = 8;
/// `generateName` is cut so that the whole name fits into a label.
const GENERATED_BASE: usize = 58;

/// Writes who asks for a certificate into the request.
fn note_requestor(request: &mut Value, options: &WriteOptions) {
    let Some(user) = &options.user else { return };
    let info = user.to_value();
    for key in ["username", "uid", "groups", "extra"] {
        match &info[key] {
            Value::Null => {
                request["spec"].as_object_mut().map(|spec| spec.remove(key));
            }
            value => request["spec"][key] = value.clone(),
        }
    }
}

/// Returns the warnings for a client about what nothing acts on.
pub(super) fn unheeded(resource: &Resource, value: &Value, options: &WriteOptions) -> Vec<String> {
    if options.user.is_none() {
        return Vec::new();
    }
    let mut warnings: Vec<String> = resource.inert().into_iter().collect();
    warnings.extend(crate::registry::unsupported::warnings(&resource.table, value));
    warnings
}

impl Cluster {
    /// Creates an object; the namespace comes from the path.
    pub fn create(
        &self,
        resource: &std::sync::Arc<Resource>,
        namespace: &str,
        mut value: Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let warnings = body::normalize(resource, &mut value, options)?;
        let generated = self.prepare_create(resource, namespace, &mut value)?;
        self.track_managed_fields(resource, None, None, &mut value, options);
        self.finish_create(resource, namespace, value, generated.as_deref(), warnings, options)
    }

    /// Commits a body that is already in stored form; `generated` is its `generateName`.
    pub(super) fn finish_create(
        &self,
        resource: &std::sync::Arc<Resource>,
        namespace: &str,
        mut value: Value,
        generated: Option<&str>,
        mut warnings: Vec<String>,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        warnings.extend(unheeded(resource, &value, options));
        self.admit_create(resource, namespace, &mut value)?;
        if &*resource.plural == "certificatesigningrequests" {
            note_requestor(&mut value, options);
        }
        for _ in 0..NAME_TRIES {
            if let Some(base) = generated {
                let cut =
                    (0..=base.len().min(GENERATED_BASE)).rev().find(|end| base.is_char_boundary(*end)).unwrap_or(0);
                value["metadata"]["name"] = format!("{}{}", &base[..cut], self.clock.suffix(5)).into();
            }
            // Only a name that is drawn may have to be drawn again.
            let mut object = if generated.is_some() { value.clone() } else { std::mem::take(&mut value) };
            if let Some(builtin) = resource.builtin() {
                (builtin.create)(&mut object);
                (builtin.default)(&mut object);
            }
            self.validate(resource, &object, None, options.user.is_none())?;
            let _quota = self.admit_quota(resource, namespace, &object, None)?;
            if let Some(user) = &options.user {
                self.authority.check_escalation(user, resource, &object, None, self)?;
            }
            let mut object = conversion::stored(resource, object, options)?;
            let name = object["metadata"]["name"].as_str().unwrap_or("").to_owned();
            let key = ObjectKey::new(namespace, &name);
            let allocation = self.service_ips.allocate(resource, &mut object, None, self)?;
            if options.dry_run {
                if self.store.get(&resource.table, &key).is_some() {
                    return Err(ApiError::already_exists(resource.named(&name)));
                }
                return Ok(Written { entry: dry_run_entry(key, object, None), created: true, warnings });
            }
            match self.store.commit(&resource.table, key, Write::Create(object)) {
                Ok(entry) => {
                    allocation.commit();
                    return Ok(Written { entry, created: true, warnings });
                }
                Err(CommitError::AlreadyExists) if generated.is_some() => {}
                Err(error) => return Err(commit_error(resource, &name, error)),
            }
        }
        let name = value["metadata"]["name"].as_str().unwrap_or("");
        Err(ApiError::already_exists(resource.named(name)))
    }

    /// Sets the server's fields on a new object; returns its `generateName` if a name must be generated.
    pub(super) fn prepare_create(
        &self,
        resource: &Resource,
        namespace: &str,
        value: &mut Value,
    ) -> Result<Option<String>, ApiError> {
        let metadata = &mut value["metadata"];
        if !metadata["resourceVersion"].as_str().unwrap_or("").is_empty() {
            return Err(ApiError::untyped("resourceVersion should not be set on objects to be created".into()));
        }
        let given = metadata["namespace"].as_str().unwrap_or("");
        if resource.namespaced && !given.is_empty() && given != namespace {
            return Err(ApiError::bad_request(
                "the namespace of the provided object does not match the namespace sent on the request",
            ));
        }
        if let Some(metadata) = metadata.as_object_mut() {
            for key in [
                "resourceVersion",
                "selfLink",
                "deletionTimestamp",
                "deletionGracePeriodSeconds",
                "generation",
                "namespace",
            ] {
                metadata.remove(key);
            }
            if resource.namespaced {
                metadata.insert("namespace".into(), namespace.into());
            }
            metadata.insert("uid".into(), self.clock.uid().into());
            metadata.insert("creationTimestamp".into(), self.clock.stamp().into());
            if resource.has_generation() {
                metadata.insert("generation".into(), 1.into());
            }
        }
        // What is observed is not for clients to say, but for nodes, which register with what they observe.
        if resource.has_status()
            && &*resource.table != "nodes"
            && let Some(object) = value.as_object_mut()
        {
            object.remove("status");
            // A status may have a default of its own.
            if let Some(schema) = resource.custom().and_then(Custom::schema) {
                schema.default(value);
            }
        }
        let metadata = &value["metadata"];
        let unnamed = metadata["name"].as_str().unwrap_or("").is_empty();
        let base = metadata["generateName"].as_str().filter(|base| unnamed && !base.is_empty());
        Ok(base.map(str::to_owned))
    }

    /// Validates an object that is about to be stored; `observed` means that a controller of this server writes it.
    pub(super) fn validate(
        &self,
        resource: &Resource,
        new: &Value,
        old: Option<&Value>,
        observed: bool,
    ) -> Result<(), ApiError> {
        let mut errors = Vec::new();
        names::check_metadata(&new["metadata"], resource.name_rule(), resource.namespaced, &mut errors);
        match &resource.behaviour {
            crate::registry::Behaviour::Builtin(builtin) => {
                if &*resource.group != "apiextensions.k8s.io" {
                    names::check_finalizers(&new["metadata"], &mut errors);
                }
                // Where pods share the network of the machine, their addresses are loopback ones, which clients may not use.
                let holds_addresses = matches!(&*resource.table, "endpoints" | "endpointslices.discovery.k8s.io");
                if !(observed && holds_addresses) {
                    (builtin.validate)(new, old, &mut errors);
                }
            }
            crate::registry::Behaviour::Custom(custom) => {
                // The server itself may write an object at another version, which this schema does not describe.
                let described = custom.conversion.is_none() || new["apiVersion"] == *resource.api_version;
                if let Some(schema) = custom.schema().filter(|_| described) {
                    errors.extend(schema.validate(new, old));
                }
            }
        }
        if errors.is_empty() && resource.builtin().is_some() {
            errors.extend(crate::registry::unsupported::refusals(&resource.table, new, old));
        }
        if errors.is_empty() {
            return Ok(());
        }
        let name = new["metadata"]["name"].as_str().unwrap_or("");
        Err(ApiError::invalid(resource.kind_named(name), &errors))
    }
}
