//! Patch: JSON patch, merge patch, strategic merge patch and server-side apply.

use serde_json::{Value, json};

use super::{Cluster, Target, WriteOptions, Written, body};
use crate::error::ApiError;
use crate::patch::apply::{self, ApplyError, Writer};
use crate::patch::{PatchError, json_patch, merge_patch, strategic_merge_patch};
use crate::registry::Resource;
use crate::schema::TypeRef;

/// The kinds of patches.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PatchKind {
    /// RFC 6902.
    Json,
    /// RFC 7396.
    Merge,
    /// Merge that knows the keys of lists; built-in kinds only.
    Strategic,
    /// Server-side apply.
    Apply,
}

impl PatchKind {
    /// Returns the patch type of a media type.
    pub fn of(content_type: &str) -> Option<PatchKind> {
        match content_type {
            "application/json-patch+json" => Some(PatchKind::Json),
            "application/merge-patch+json" => Some(PatchKind::Merge),
            "application/strategic-merge-patch+json" => Some(PatchKind::Strategic),
            "application/apply-patch+yaml" => Some(PatchKind::Apply),
            _ => None,
        }
    }

    /// Applies a patch to a plain value.
    pub(crate) fn run(self, value: Value, patch: &Value, type_ref: TypeRef<'_>) -> Result<Value, ApiError> {
        let result = match self {
            PatchKind::Json => json_patch(value, patch),
            PatchKind::Merge | PatchKind::Apply => merge_patch(value, patch),
            PatchKind::Strategic => strategic_merge_patch(value, patch, type_ref),
        };
        result.map_err(|error| match error {
            PatchError::Malformed(text) => ApiError::bad_request(text),
            PatchError::TooLarge(text) => ApiError::patch_too_large(text),
            PatchError::Inapplicable(text) => ApiError::patch_rejected(&text),
            PatchError::Failed(text) => ApiError::untyped(text),
        })
    }
}

/// Returns the type of a kind's objects, for patches that need it.
pub(super) fn type_of(resource: &Resource) -> TypeRef<'_> {
    match resource.custom() {
        Some(custom) => custom.schema().map_or_else(TypeRef::unknown, |schema| schema.type_ref()),
        None => TypeRef::of_kind(&resource.group, &resource.version, &resource.kind).unwrap_or_else(TypeRef::unknown),
    }
}

/// Returns the fields that a write to this path cannot change, and so cannot own.
pub(super) fn ignored(resource: &Resource, subresource: Option<&str>) -> &'static [&'static [&'static str]] {
    match (subresource, resource.custom().is_some(), resource.has_status()) {
        (Some("status"), true, _) => &[&["spec"], &["metadata"]],
        (Some("status"), false, _) => &[&["spec"]],
        (None, _, true) => &[&["status"]],
        _ => &[],
    }
}

impl Cluster {
    /// Patches an object, or the part of it that a subresource shows.
    pub fn patch(
        &self,
        target: Target<'_>,
        subresource: Option<&str>,
        kind: PatchKind,
        patch: &Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        match kind {
            PatchKind::Apply => self.apply(target, subresource, patch, options),
            PatchKind::Strategic if target.resource.custom().is_some() => Err(ApiError::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            )),
            _ => self.modify(target, subresource, options, |old| {
                let new = kind.run(old.clone(), patch, type_of(target.resource))?;
                body::check_shape(target.resource, &new).map_err(|why| ApiError::patch_unreadable(&new, &why))?;
                Ok(new)
            }),
        }
    }

    fn apply(
        &self,
        target: Target<'_>,
        subresource: Option<&str>,
        config: &Value,
        options: &WriteOptions,
    ) -> Result<Written, ApiError> {
        let resource = target.resource;
        if !config.is_object() {
            return Err(ApiError::bad_request("error decoding YAML: the configuration must be an object"));
        }
        let mut config = config.clone();
        check_type(resource, &config)?;
        if !config["metadata"].is_object() {
            config["metadata"] = json!({});
        }
        let named = config["metadata"]["name"].as_str().unwrap_or(target.name);
        if named != target.name {
            return Err(ApiError::bad_request(format!(
                "the name of the object ({named}) does not match the name on the URL ({})",
                target.name
            )));
        }
        config["metadata"]["name"] = target.name.into();
        if resource.namespaced {
            config["metadata"]["namespace"] = target.namespace.into();
        }
        let time = self.clock.stamp();
        let writer = Writer {
            manager: &options.manager,
            api_version: &resource.api_version,
            subresource: subresource.unwrap_or(""),
            time: &time,
            ignored: ignored(resource, subresource),
        };
        let apply = |live: Option<&Value>| {
            apply::apply(live, &config, type_of(resource), &writer, options.force).map_err(apply_error)
        };
        loop {
            if self.store.get(&resource.table, &target.key()).is_some() {
                return self.modify(target, subresource, options, |live| apply(Some(live)));
            }
            if subresource.is_some() {
                return Err(target.not_found());
            }
            let mut value = apply(None)?;
            let warnings = body::normalize(resource, &mut value, options)?;
            let generated = self.prepare_create(resource, target.namespace, &mut value)?;
            let made = self.finish_create(resource, target.namespace, value, generated.as_deref(), warnings, options);
            match made {
                Err(error) if error.reason() == "AlreadyExists" => {}
                other => return other,
            }
        }
    }
}

fn check_type(resource: &Resource, config: &Value) -> Result<(), ApiError> {
    let text = |key: &str| config[key].as_str().unwrap_or("");
    if text("apiVersion").is_empty() || text("kind").is_empty() {
        let message = format!("invalid object type: /{}, Kind={}", text("apiVersion"), text("kind"));
        return Err(ApiError::bad_request(message));
    }
    if config["apiVersion"] != *resource.api_version || config["kind"] != *resource.kind {
        return Err(ApiError::bad_request(format!(
            "incorrect version specified in apply patch. Specified patch type: {}, Kind={}, expected: {}, Kind={}",
            config["apiVersion"].as_str().unwrap_or(""),
            config["kind"].as_str().unwrap_or(""),
            resource.api_version,
            resource.kind
        )));
    }
    Ok(())
}

fn apply_error(error: ApplyError) -> ApiError {
    let message = error.to_string();
    match error {
        ApplyError::BadRequest(text) => ApiError::bad_request(text),
        ApplyError::Untyped(text) => ApiError::untyped(text),
        ApplyError::Conflicts(conflicts) => {
            let causes = conflicts.iter().map(|conflict| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with {}", conflict.manager),
                    "field": conflict.field})
            });
            ApiError::apply_conflict(message, causes.collect())
        }
    }
}
