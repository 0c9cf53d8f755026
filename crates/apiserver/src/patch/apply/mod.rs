//! Server-side apply, and the ownership of fields that it rests on.
//!
//! ```text
//!   apply:   merged = live + config, minus what this manager applied before and nobody else owns
//!            changed fields that others own are conflicts, unless forced
//!   update:  whatever a write changed belongs to the writer from then on
//! ```

mod field_set;
mod kubectl;
mod managers;
#[cfg(test)]
mod properties;
#[cfg(test)]
mod tests;
mod typed;

use std::sync::LazyLock;

use serde_json::{Value, json};

use self::field_set::{Element, FieldSet, show_path};
use self::managers::{Entry, Operation};
use self::typed::Comparison;
use crate::schema::{TypeRef, go_text};

/// Stands for whoever set fields before the first apply, where nobody was tracked.
const BEFORE_FIRST_APPLY: &str = "before-first-apply";

/// Fields that the server sets: no manager owns them.
static SERVER_FIELDS: LazyLock<FieldSet> = LazyLock::new(|| FieldSet::of_fields(SERVER_PATHS));

const SERVER_PATHS: &[&[&str]] = &[
    &["apiVersion"],
    &["kind"],
    &["metadata"],
    &["metadata", "name"],
    &["metadata", "namespace"],
    &["metadata", "creationTimestamp"],
    &["metadata", "selfLink"],
    &["metadata", "uid"],
    &["metadata", "clusterName"],
    &["metadata", "generation"],
    &["metadata", "managedFields"],
    &["metadata", "resourceVersion"],
];

/// Who writes.
#[derive(Debug, Clone, Copy)]
pub struct Writer<'a> {
    /// The field manager; `unknown` if empty.
    pub manager: &'a str,
    pub api_version: &'a str,
    /// Such as `status`, or empty.
    pub subresource: &'a str,
    /// Now, in RFC 3339 with seconds.
    pub time: &'a str,
    /// Fields that this request cannot change, such as `status` outside of its subresource.
    pub ignored: &'a [&'a [&'a str]],
}

impl Writer<'_> {
    fn entry(&self, operation: Operation, fields: FieldSet) -> Entry {
        Entry {
            manager: if self.manager.is_empty() { "unknown".to_owned() } else { self.manager.to_owned() },
            operation,
            api_version: self.api_version.to_owned(),
            subresource: self.subresource.to_owned(),
            time: None,
            fields,
        }
    }
}

/// A changed field that someone else owns.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Conflict {
    /// The owner, as the message names it.
    pub manager: String,
    /// The field, as in `.spec.replicas`.
    pub field: String,
}

/// Why an apply failed.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ApplyError {
    /// 400 BadRequest.
    #[error("{0}")]
    BadRequest(String),
    /// 409 Conflict with one cause of type `FieldManagerConflict` each.
    #[error("{}", conflict_message(.0))]
    Conflicts(Vec<Conflict>),
    /// The applied object does not fit its type: 500, as the real server answers.
    #[error("{0}")]
    Untyped(String),
}

/// Applies a configuration to the live object, or to nothing.
///
/// The result has its `managedFields`; defaults are not filled in yet.
pub fn apply(
    live: Option<&Value>,
    config: &Value,
    type_ref: TypeRef<'_>,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, ApplyError> {
    let result = apply_once(live, config, type_ref, writer, force);
    let result = match result {
        Err((ApplyError::Conflicts(_), paths)) if kubectl::may_take_over(live, &paths, type_ref, writer) => {
            apply_once(live, config, type_ref, writer, true)
        }
        other => other,
    };
    let mut object = result.map_err(|(error, _)| error)?;
    kubectl::refresh_annotation(&mut object, config, writer);
    Ok(object)
}

/// A failure, and the paths in conflict.
type Failure = (ApplyError, Vec<Vec<Element>>);

fn apply_once(
    live: Option<&Value>,
    config: &Value,
    type_ref: TypeRef<'_>,
    writer: &Writer<'_>,
    force: bool,
) -> Result<Value, Failure> {
    let refuse = |error: ApplyError| (error, Vec::new());
    if config.pointer("/metadata/managedFields").is_some_and(|fields| !fields.is_null()) {
        return Err(refuse(ApplyError::BadRequest("metadata.managedFields must be nil".to_owned())));
    }
    check_type(config, type_ref).map_err(refuse)?;
    let empty = json!({"apiVersion": config.get("apiVersion"), "kind": config.get("kind")});
    let mut live_object = live.unwrap_or(&empty).clone();
    let mut entries = managers::decode(&live_object)
        .ok_or_else(|| refuse(ApplyError::Untyped("failed to decode managed fields".to_owned())))?;
    managers::clear(&mut live_object);
    if entries.is_empty() && live.is_some() {
        let before = Writer { manager: BEFORE_FIRST_APPLY, ..*writer };
        update_entries(&empty, &live_object, type_ref, &before, &mut entries);
    }
    let ignored = FieldSet::of_fields(writer.ignored);
    let merged = typed::merge(&live_object, config, type_ref);
    let fields = typed::fields_of(config, type_ref).recursive_difference(&ignored);
    let mut own = writer.entry(Operation::Apply, fields);
    let last = entries.iter().position(|entry| entry.is_same_manager(&own)).map(|at| entries.swap_remove(at));
    own.time = last.as_ref().and_then(|last| last.time.clone());
    let object = match last.map(|last| last.fields).filter(|last| !last.is_empty()) {
        // Values that pruning left empty are removed, unless they are applied as empty: hence the second merge.
        Some(last) => typed::merge(&prune(&merged, &entries, &own, &last, type_ref), config, type_ref),
        None => merged,
    };
    let comparison = typed::compare(&live_object, &object, type_ref).without(&ignored);
    take_fields(&comparison, &mut entries, force)?;
    own.fields = own.fields.difference(&SERVER_FIELDS);
    if object != live_object {
        own.time = Some(writer.time.to_owned());
    }
    if !own.fields.is_empty() {
        entries.push(own);
    }
    let mut object = object;
    managers::encode(&mut object, entries);
    Ok(object)
}

fn check_type(config: &Value, type_ref: TypeRef<'_>) -> Result<(), ApplyError> {
    let errors = typed::check(config, type_ref);
    let listed = match errors.as_slice() {
        [] => return Ok(()),
        [only] => only.clone(),
        many => format!("errors:\n{}", many.iter().map(|e| format!("  {e}")).collect::<Vec<_>>().join("\n")),
    };
    let text = |path: &str| config.pointer(path).and_then(Value::as_str).unwrap_or_default();
    let (version, kind) = (text("/apiVersion"), text("/kind"));
    // The group comes first, even where it is empty.
    let slash = if version.contains('/') { "" } else { "/" };
    let (namespace, name) = (text("/metadata/namespace"), text("/metadata/name"));
    Err(ApplyError::Untyped(format!(
        "failed to create typed patch object ({namespace}/{name}; {slash}{version}, Kind={kind}): {listed}"
    )))
}

/// Removes what the manager applied last time, does not apply now, and nobody else owns.
fn prune(merged: &Value, others: &[Entry], own: &Entry, last: &FieldSet, type_ref: TypeRef<'_>) -> Value {
    let named = |set: &FieldSet| set.with_named_parents(type_ref);
    let without = |gone: &FieldSet| typed::remove(merged, gone, type_ref).unwrap_or_else(|| json!({}));
    let last = named(last);
    let owned = others.iter().fold(own.fields.clone(), |all, entry| all.union(&entry.fields));
    let all = named(&typed::fields_of(merged, type_ref));
    let left = named(&typed::fields_of(&without(&last), type_ref));
    let with_owned = without(&all.difference(&left.union(&named(&owned))));
    let left = named(&typed::fields_of(&with_owned, type_ref));
    without(&all.difference(&left).intersection(&last))
}

/// Takes every changed field from the other managers, or returns the conflicts.
fn take_fields(comparison: &Comparison, others: &mut Vec<Entry>, force: bool) -> Result<(), Failure> {
    if others.is_empty() {
        return Ok(());
    }
    let changed = comparison.modified.union(&comparison.added);
    if !force {
        let mut conflicts = Vec::new();
        let mut paths = Vec::new();
        for entry in others.iter() {
            for path in entry.fields.intersection(&changed).paths() {
                conflicts.push(Conflict { manager: manager_text(entry), field: show_path(&path) });
                paths.push(path);
            }
        }
        if !conflicts.is_empty() {
            return Err((ApplyError::Conflicts(conflicts), paths));
        }
    }
    for entry in others.iter_mut() {
        entry.fields = entry.fields.difference(&entry.fields.intersection(&changed)).difference(&comparison.removed);
    }
    others.retain(|entry| !entry.fields.is_empty());
    Ok(())
}

/// Brings `managedFields` of an object up to date after a write that is not an apply.
///
/// An object whose managers were never tracked stays so.
pub fn track_update(live: Option<&Value>, new: &mut Value, type_ref: TypeRef<'_>, writer: &Writer<'_>) {
    let of_live = || live.and_then(managers::decode).unwrap_or_default();
    let mut entries = if !writer.subresource.is_empty() {
        of_live()
    } else if managers::is_reset(new) {
        Vec::new()
    } else {
        // Clients that know nothing of managedFields must not delete them by leaving them out.
        managers::decode(new).filter(|entries| !entries.is_empty()).unwrap_or_else(of_live)
    };
    managers::clear(new);
    if entries.is_empty() && live.is_some() {
        return;
    }
    let empty = json!({"apiVersion": new.get("apiVersion"), "kind": new.get("kind")});
    update_entries(live.unwrap_or(&empty), new, type_ref, writer, &mut entries);
    managers::encode(new, entries);
}

/// The live object may still hold its managedFields: nobody owns those, so that they are missing in the new one
/// is nobody's loss.
fn update_entries(live: &Value, new: &Value, type_ref: TypeRef<'_>, writer: &Writer<'_>, entries: &mut Vec<Entry>) {
    let comparison = typed::compare(live, new, type_ref).without(&FieldSet::of_fields(writer.ignored));
    // Forced, so it cannot fail.
    let _ = take_fields(&comparison, entries, true);
    let fields = comparison.modified.union(&comparison.added).difference(&SERVER_FIELDS);
    if !fields.is_empty() {
        let mut own = writer.entry(Operation::Update, fields);
        own.time = Some(writer.time.to_owned());
        if let Some(at) = entries.iter().position(|entry| entry.is_same_manager(&own)) {
            own.fields = own.fields.union(&entries.swap_remove(at).fields);
        }
        entries.push(own);
    }
    managers::fold_old_updaters(entries);
}

fn manager_text(entry: &Entry) -> String {
    let mut text = go_text::quote(&entry.manager);
    if !entry.subresource.is_empty() {
        text.push_str(&format!(" with subresource {}", go_text::quote(&entry.subresource)));
    }
    if entry.operation == Operation::Update {
        text.push_str(&format!(" using {}", entry.api_version));
    }
    text
}

fn conflict_message(conflicts: &[Conflict]) -> String {
    if let [only] = conflicts {
        return format!("Apply failed with 1 conflict: conflict with {}: {}", only.manager, only.field);
    }
    let mut managers: Vec<&str> = conflicts.iter().map(|conflict| conflict.manager.as_str()).collect();
    managers.sort_unstable();
    managers.dedup();
    let mut lines = Vec::new();
    for manager in managers {
        lines.push(format!("conflicts with {manager}:"));
        lines.extend(conflicts.iter().filter(|c| c.manager == manager).map(|c| format!("- {}", c.field)));
    }
    format!("Apply failed with {} conflicts: {}", conflicts.len(), lines.join("\n"))
}
