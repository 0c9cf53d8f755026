//! Delete: one object or a collection, at once or gracefully.
//!
//! An object with finalizers, or a pod on a node, is only marked. It is removed with its last finalizer,
//! or when the node reports that the pod has stopped.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{Cluster, Target, dry_run_entry, is_dry_run};
use crate::clock::{add_seconds, seconds};
use crate::error::ApiError;
use crate::registry::Resource;
use crate::schema::FieldError;
use crate::selector::Selection;
use crate::store::{CommitError, Entry, ListRange, Write};

/// The namespaces that cannot be deleted: without them the server could not create its own objects.
const PERMANENT_NAMESPACES: [&str; 3] = ["default", "kube-system", "kube-public"];
const DEFINITIONS: &str = "customresourcedefinitions.apiextensions.k8s.io";

/// The propagation policy of a deletion.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents are deleted after the owner.
    Background,
    /// Dependents are deleted before the owner.
    Foreground,
    /// Dependents lose the owner reference and stay.
    Orphan,
}

/// The options of a deletion.
#[derive(Clone, Debug, Default)]
pub struct DeleteOptions {
    /// The grace period of a pod; the pod's own by default.
    pub grace_seconds: Option<i64>,
    /// The uid precondition.
    pub uid: Option<String>,
    /// The resourceVersion precondition.
    pub resource_version: Option<String>,
    /// The propagation policy.
    pub propagation: Option<Propagation>,
    /// Validates without deleting.
    pub dry_run: bool,
}

/// The result of a deletion.
#[derive(Debug)]
pub struct Deleted {
    /// The object as it is now, or its last state.
    pub entry: Arc<Entry>,
    /// Whether it was removed, not only marked.
    pub gone: bool,
}

impl DeleteOptions {
    /// Parses a `DeleteOptions` body.
    pub fn parse(body: &Value) -> Result<DeleteOptions, ApiError> {
        let mut options = DeleteOptions::default();
        if body.is_null() {
            return Ok(options);
        }
        check_types(body)?;
        let text = |value: &Value| value.as_str().map(str::to_owned);
        options.grace_seconds = body["gracePeriodSeconds"].as_i64();
        options.uid = text(&body["preconditions"]["uid"]);
        options.resource_version = text(&body["preconditions"]["resourceVersion"]);
        let stages = body["dryRun"].as_array().into_iter().flatten();
        options.dry_run = is_dry_run(stages.map(|stage| stage.as_str().unwrap_or("")), "DeleteOptions")?;
        if let Some(name) = body["propagationPolicy"].as_str() {
            options.propagation = Some(Propagation::parse(name)?);
        } else if let Some(orphan) = body["orphanDependents"].as_bool() {
            options.propagation = Some(if orphan { Propagation::Orphan } else { Propagation::Background });
        }
        Ok(options)
    }
}

/// Refuses options of other types: a precondition or a dry run that is not understood must not delete anything.
fn check_types(body: &Value) -> Result<(), ApiError> {
    type Fits = fn(&Value) -> bool;
    const FIELDS: &[(&str, &str, Fits)] = &[
        ("", "an object", Value::is_object),
        ("/gracePeriodSeconds", "an integer", Value::is_i64),
        ("/preconditions", "an object", Value::is_object),
        ("/preconditions/uid", "a string", Value::is_string),
        ("/preconditions/resourceVersion", "a string", Value::is_string),
        ("/dryRun", "a list of strings", |value| {
            value.as_array().is_some_and(|stages| stages.iter().all(Value::is_string))
        }),
        ("/propagationPolicy", "a string", Value::is_string),
        ("/orphanDependents", "a boolean", Value::is_boolean),
    ];
    let wrong = FIELDS
        .iter()
        .find(|(pointer, _, fits)| body.pointer(pointer).is_some_and(|value| !(value.is_null() || fits(value))));
    let Some((pointer, expected, _)) = wrong else { return Ok(()) };
    let field = format!("DeleteOptions{}", pointer.replace('/', "."));
    Err(ApiError::bad_request(format!("the body cannot be read as DeleteOptions: {field} must be {expected}")))
}

impl Propagation {
    /// Parses a propagation policy.
    pub fn parse(name: &str) -> Result<Propagation, ApiError> {
        match name {
            "Background" => Ok(Propagation::Background),
            "Foreground" => Ok(Propagation::Foreground),
            "Orphan" => Ok(Propagation::Orphan),
            other => {
                let known = ["Foreground", "Background", "Orphan", "nil"];
                let error = FieldError::not_supported("propagationPolicy", &other.into(), &known);
                Err(ApiError::invalid_options("DeleteOptions", error))
            }
        }
    }
}

impl Cluster {
    /// Deletes one object, or marks it for deletion.
    pub fn delete(&self, target: Target<'_>, options: &DeleteOptions) -> Result<Deleted, ApiError> {
        if &*target.resource.table == "namespaces" && PERMANENT_NAMESPACES.contains(&target.name) {
            let named = target.resource.named(target.name);
            return Err(ApiError::forbidden(named, "this namespace may not be deleted"));
        }
        loop {
            let entry = self.get(target)?;
            let old = entry.shared_value();
            check_preconditions(target, &entry, &old, options)?;
            let mut new = Value::clone(&old);
            let gone = self.mark_for_deletion(target.resource, &mut new, options);
            if options.dry_run {
                return Ok(Deleted { entry: dry_run_entry(target.key(), new, Some(entry.revision)), gone });
            }
            if gone {
                match self.remove(target, entry.revision, new) {
                    Ok(entry) => return Ok(Deleted { entry, gone }),
                    Err(error) if error.is_conflict() => continue,
                    Err(error) => return Err(error),
                }
            }
            if new == *old {
                return Ok(Deleted { entry, gone });
            }
            match self.store.commit(&target.resource.table, target.key(), Write::Update(entry.revision, new)) {
                Ok(entry) => return Ok(Deleted { entry, gone }),
                Err(CommitError::Conflict) => {}
                Err(error) => return Err(target.commit_error(error)),
            }
        }
    }

    /// Deletes the selected objects of one or all namespaces.
    pub fn delete_collection(
        &self,
        resource: &Arc<Resource>,
        selection: &Selection,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Entry>>, ApiError> {
        let span = ListRange { namespace: selection.namespace.as_deref(), ..ListRange::default() };
        let page = self.store.list(&resource.table, &span, |entry| selection.matches(entry));
        self.delete_all(resource, page.map(|page| page.entries).unwrap_or_default(), options)
    }

    /// Deletes these objects, of which some may be gone by now.
    pub(crate) fn delete_all(
        &self,
        resource: &Arc<Resource>,
        entries: Vec<Arc<Entry>>,
        options: &DeleteOptions,
    ) -> Result<Vec<Arc<Entry>>, ApiError> {
        let mut deleted = Vec::new();
        for entry in entries {
            let target = Target { resource, namespace: &entry.key.namespace, name: &entry.key.name };
            match self.delete(target, options) {
                Ok(done) => deleted.push(done.entry),
                Err(error) if error.is_not_found() => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }

    /// Marks an object for deletion; returns true if it can be removed at once.
    fn mark_for_deletion(&self, resource: &Resource, value: &mut Value, options: &DeleteOptions) -> bool {
        let grace = grace(resource, value, options);
        set_finalizers(resource, value, options.propagation);
        let marked = value["metadata"]["deletionTimestamp"].is_string();
        let table = &*resource.table;
        if table == DEFINITIONS && !marked {
            self.add_cleanup_finalizer(value);
        }
        let held = value["metadata"]["finalizers"].as_array().is_some_and(|list| !list.is_empty())
            || (table == "namespaces" && value["spec"]["finalizers"].as_array().is_some_and(|list| !list.is_empty()));
        if table == "namespaces" && held {
            value["status"]["phase"] = "Terminating".into();
        }
        let metadata = &mut value["metadata"];
        let before = metadata["deletionGracePeriodSeconds"].as_i64();
        if marked {
            // A second deletion can only hurry the first.
            if before.is_some_and(|before| grace < before) {
                self.set_deletion_timestamp(metadata, grace);
            }
        } else if held || grace > 0 || table == "pods" {
            self.set_deletion_timestamp(metadata, grace);
            if let Some(generation) = metadata["generation"].as_i64().filter(|generation| *generation > 0) {
                metadata["generation"] = generation.saturating_add(1).into();
            }
            // Definitions and namespaces are deleted by code paths of their own, which leave these alone.
            if (table == DEFINITIONS || table == "namespaces")
                && let Some(metadata) = metadata.as_object_mut()
            {
                metadata.remove("deletionGracePeriodSeconds");
                if let Some(generation) = metadata.get_mut("generation") {
                    *generation = generation.as_i64().unwrap_or(1).saturating_sub(1).into();
                }
            }
        }
        let wait = metadata["deletionGracePeriodSeconds"].as_i64().unwrap_or(0);
        !held && (grace == 0 || wait == 0)
    }

    /// Adds the finalizer under which the objects of a CRD are deleted first.
    fn add_cleanup_finalizer(&self, definition: &mut Value) {
        let mut finalizers = definition["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
        finalizers.push("customresourcecleanup.apiextensions.k8s.io".into());
        definition["metadata"]["finalizers"] = finalizers.into();
        let mut conditions = definition["status"]["conditions"].as_array().cloned().unwrap_or_default();
        conditions.retain(|condition| condition["type"] != "Terminating");
        conditions.push(json!({
            "type": "Terminating",
            "status": "True",
            "reason": "InstanceDeletionPending",
            "message": "CustomResourceDefinition marked for deletion; CustomResource deletion will begin soon",
            "lastTransitionTime": self.clock.stamp(),
        }));
        definition["status"]["conditions"] = conditions.into();
    }

    fn set_deletion_timestamp(&self, metadata: &mut Value, grace: i64) {
        metadata["deletionTimestamp"] = seconds(add_seconds(self.clock.now(), grace)).into();
        metadata["deletionGracePeriodSeconds"] = grace.into();
    }
}

/// Returns the grace period of an object: zero for everything but running pods.
fn grace(resource: &Resource, value: &Value, options: &DeleteOptions) -> i64 {
    if &*resource.table != "pods" {
        return 0;
    }
    let placed = value["spec"]["nodeName"].as_str().is_some_and(|node| !node.is_empty());
    let over = matches!(value["status"]["phase"].as_str(), Some("Succeeded" | "Failed"));
    if !placed || over {
        return 0;
    }
    let wish = value["spec"]["terminationGracePeriodSeconds"].as_i64().unwrap_or(30);
    options.grace_seconds.unwrap_or(wish).max(0)
}

fn set_finalizers(resource: &Resource, value: &mut Value, propagation: Option<Propagation>) {
    let list = value["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    let has = |name: &str| list.iter().any(|finalizer| finalizer == name);
    let default = match resource.builtin().is_some_and(|builtin| builtin.orphans_by_default) {
        true => Propagation::Orphan,
        false => Propagation::Background,
    };
    let wanted = propagation.unwrap_or_else(|| match (has("orphan"), has("foregroundDeletion")) {
        (true, _) => Propagation::Orphan,
        (_, true) => Propagation::Foreground,
        _ => default,
    });
    let mut kept: Vec<Value> =
        list.iter().filter(|finalizer| *finalizer != "orphan" && *finalizer != "foregroundDeletion").cloned().collect();
    match wanted {
        Propagation::Background => {}
        Propagation::Foreground => kept.push("foregroundDeletion".into()),
        Propagation::Orphan => kept.push("orphan".into()),
    }
    match (kept.is_empty(), value["metadata"].as_object_mut()) {
        (true, Some(metadata)) => {
            metadata.remove("finalizers");
        }
        (false, Some(metadata)) => {
            metadata.insert("finalizers".into(), kept.into());
        }
        (_, None) => {}
    }
}

fn check_preconditions(
    target: Target<'_>,
    entry: &Entry,
    old: &Value,
    options: &DeleteOptions,
) -> Result<(), ApiError> {
    let uid = old["metadata"]["uid"].as_str().unwrap_or("");
    if let Some(wanted) = options.uid.as_deref().filter(|wanted| *wanted != uid) {
        let why = format!(
            "the UID in the precondition ({wanted}) does not match the UID in record ({uid}). The object might have \
             been deleted and then recreated"
        );
        return Err(ApiError::conflict(target.resource.kind_named(target.name), &why));
    }
    let revision = entry.revision.to_string();
    if let Some(wanted) = options.resource_version.as_deref().filter(|wanted| *wanted != revision) {
        let why = format!(
            "the ResourceVersion in the precondition ({wanted}) does not match the ResourceVersion in record \
             ({revision}). The object might have been modified"
        );
        return Err(ApiError::conflict(target.resource.kind_named(target.name), &why));
    }
    Ok(())
}

/// Returns the `Status` for a removed object.
pub fn success(target: Target<'_>, uid: &str) -> Value {
    let mut details = json!({"name": target.name, "kind": &*target.resource.plural, "uid": uid});
    if !target.resource.group.is_empty() {
        details["group"] = (*target.resource.group).into();
    }
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": details})
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn options_that_are_not_understood_are_refused() {
        let check = |body: Value, expect: Result<bool, &str>| {
            let got = DeleteOptions::parse(&body).map(|options| options.dry_run).map_err(|error| error.to_string());
            match (got, expect) {
                (Ok(got), Ok(expect)) => assert_eq!(got, expect, "{body}"),
                (Err(got), Err(expect)) => assert!(got.contains(expect), "{body}: {got}"),
                (got, expect) => panic!("{body}: {got:?} instead of {expect:?}"),
            }
        };
        check(Value::Null, Ok(false));
        check(json!({"dryRun": null, "preconditions": null}), Ok(false));
        check(json!({"dryRun": []}), Ok(false));
        check(json!({"dryRun": ["All"]}), Ok(true));
        check(json!({"dryRun": ["all"]}), Err(r#"supported values: "All""#));
        check(json!({"dryRun": ["All", "Some"]}), Err(r#"supported values: "All""#));
        check(json!({"dryRun": "All"}), Err("DeleteOptions.dryRun must be a list of strings"));
        check(json!({"dryRun": [true]}), Err("DeleteOptions.dryRun must be a list of strings"));
        check(json!({"preconditions": {"uid": 1}}), Err("DeleteOptions.preconditions.uid must be a string"));
        check(json!({"preconditions": "u"}), Err("DeleteOptions.preconditions must be an object"));
        check(json!({"gracePeriodSeconds": "0"}), Err("DeleteOptions.gracePeriodSeconds must be an integer"));
        check(json!([]), Err("DeleteOptions must be an object"));
    }
}
