//! Prints a preview: as a diff, as a summary, or as JSON.

use super::diff;
use crate::output::{to_yaml, without_controls};
use manta_logic::action::{Action, Kind, ObjectKey};
use manta_logic::dashboard::RayRequest;
use manta_operator::preview::{Change, Preview, RemarkKind};
use serde::Serialize;
use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Metadata that the API server writes.
const SERVER_METADATA: [&str; 6] =
    ["managedFields", "uid", "resourceVersion", "creationTimestamp", "generation", "selfLink"];
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// How many Pods come and go.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(super) struct PodCounts {
    pub(super) created: usize,
    pub(super) deleted: usize,
    /// Deleted Pods whose group gets a new one.
    pub(super) restarted: usize,
}

/// Returns the plan as a diff from the live objects to those that the operator would leave.
pub(super) fn as_diff(preview: &Preview, colour: bool) -> anyhow::Result<String> {
    let mut out = String::new();
    for change in &preview.changes {
        out.push_str(&format!("# {}\n", sentence(change)));
        if let Action::Ray { .. } = change.action {
            continue;
        }
        let (before, after) = visible(change);
        let name = file_name(change.action.key());
        out.push_str(&format!(
            "diff -u -N LIVE/{name} PLANNED/{name}\n--- LIVE/{name}\n+++ PLANNED/{name}\n{}",
            diff::unified(&yaml(before.as_ref())?, &yaml(after.as_ref())?)
        ));
    }
    out.push_str(&closing(preview));
    Ok(paint(&without_controls(&out), colour))
}

/// Returns one line per change.
pub(super) fn as_summary(preview: &Preview) -> String {
    let lines = preview.changes.iter().map(|change| format!("{}\n", sentence(change)));
    without_controls(&(lines.collect::<String>() + &closing(preview)))
}

/// Returns the plan as JSON.
pub(super) fn as_json(preview: &Preview) -> Value {
    let changes = preview.changes.iter().map(|change| {
        let (before, after) = visible(change);
        let key = change.action.key();
        json!({
            "action": verb(&change.action), "apiVersion": key.kind.resource().api_version(),
            "kind": key.kind.resource().kind, "namespace": key.namespace, "name": key.name, "reason": change.why,
            "owner": object(&change.owner), "before": before, "after": after,
        })
    });
    let remarks = |kind| {
        let of_kind = preview.remarks.iter().filter(move |remark| remark.kind == kind);
        of_kind.map(|remark| json!({"object": object(&remark.object), "message": remark.text})).collect::<Vec<_>>()
    };
    json!({
        "objects": preview.objects,
        "changes": changes.collect::<Vec<_>>(),
        "pods": count_pods(preview),
        "warnings": remarks(RemarkKind::Warning),
        "waiting": remarks(RemarkKind::Waiting),
        "unreadable": preview.unreadable,
    })
}

/// Counts the Pods that come and go.
pub(super) fn count_pods(preview: &Preview) -> PodCounts {
    let mut groups: BTreeMap<(String, String, String), PodCounts> = BTreeMap::new();
    let mut count = |pod: &Value, add: fn(&mut PodCounts)| {
        let label = |name: &str| pod["metadata"]["labels"][name].as_str().unwrap_or_default().to_owned();
        let namespace = pod["metadata"]["namespace"].as_str().unwrap_or_default().to_owned();
        add(groups.entry((namespace, label("ray.io/cluster"), label("ray.io/group"))).or_default());
    };
    for change in preview.changes.iter().filter(|change| change.action.key().kind == Kind::Pod) {
        match (&change.action, &change.before, &change.after) {
            (Action::Create { .. }, _, Some(pod)) => count(pod, |counts| counts.created += 1),
            (Action::Delete { .. }, Some(pod), _) => count(pod, |counts| counts.deleted += 1),
            _ => {}
        }
    }
    preview.collected_pods.iter().for_each(|pod| count(pod, |counts| counts.deleted += 1));
    groups.into_values().fold(PodCounts::default(), |sum, group| PodCounts {
        created: sum.created + group.created,
        deleted: sum.deleted + group.deleted,
        restarted: sum.restarted + group.created.min(group.deleted),
    })
}

fn sentence(change: &Change) -> String {
    let key = change.action.key();
    let owner = &change.owner;
    let what = match &change.action {
        Action::Ray { request, .. } => format!("ask the Ray of {} to {}", key.name, request_words(request)),
        action => format!("{} {} {}/{}", verb(action), key.kind.resource().kind, key.namespace, key.name),
    };
    let for_whom = match key == owner {
        true => String::new(),
        false => format!(" for {} {}", owner.kind.resource().kind, owner.name),
    };
    format!("{what}{for_whom}: {}", change.why)
}

/// Returns the lines after the changes: what is in the way, what is waited for, and the sums.
fn closing(preview: &Preview) -> String {
    let mut out = String::new();
    for remark in &preview.remarks {
        let word = match remark.kind {
            RemarkKind::Warning => "warning",
            RemarkKind::Waiting => "waiting",
        };
        let key = &remark.object;
        out.push_str(&format!("# {word}: {} {}/{}: {}\n", key.kind.resource().kind, key.namespace, key.name, remark.text));
    }
    let plural = |count: usize, word: &str| format!("{count} {word}{}", if count == 1 { "" } else { "s" });
    if preview.changes.is_empty() {
        if preview.unreadable.is_empty() {
            out.push_str(&format!("# nothing to do for {}\n", plural(preview.objects, "object")));
        }
        return out;
    }
    let mut verbs: BTreeMap<&str, usize> = BTreeMap::new();
    preview.changes.iter().for_each(|change| *verbs.entry(verb(&change.action)).or_default() += 1);
    let verbs: Vec<String> = verbs.iter().map(|(verb, count)| format!("{count} to {verb}")).collect();
    let PodCounts { created, deleted, restarted } = count_pods(preview);
    out.push_str(&format!(
        "# {} for {}: {}; pods: {created} created, {deleted} deleted, {restarted} restarted\n",
        plural(preview.changes.len(), "change"),
        plural(preview.objects, "object"),
        verbs.join(", "),
    ));
    out
}

fn verb(action: &Action) -> &'static str {
    match action {
        Action::Create { .. } => "create",
        Action::Replace { .. } => "replace",
        Action::Merge { .. } => "patch",
        Action::Delete { .. } => "delete",
        Action::Ray { .. } => "request",
    }
}

fn request_words(request: &RayRequest) -> String {
    match request {
        RayRequest::SubmitJob { job_id, .. } => format!("run job {job_id}"),
        RayRequest::StopJob { job_id } => format!("stop job {job_id}"),
        RayRequest::ConfigureServe { .. } => "deploy the Serve configuration".to_owned(),
    }
}

fn object(key: &ObjectKey) -> Value {
    json!({"kind": key.kind.resource().kind, "namespace": key.namespace, "name": key.name})
}

fn file_name(key: &ObjectKey) -> String {
    let resource = key.kind.resource();
    format!("{}.{}.{}.{}", resource.api_version().replace('/', "."), resource.kind, key.namespace, key.name)
}

fn yaml(object: Option<&Value>) -> anyhow::Result<String> {
    object.map_or_else(|| Ok(String::new()), to_yaml)
}

/// Returns the object before and after a change, without what the API server adds and with Secrets redacted.
fn visible(change: &Change) -> (Option<Value>, Option<Value>) {
    let key = change.action.key();
    let after = change.after.as_ref().filter(|_| !matches!(change.action, Action::Delete { .. }));
    let (mut before, mut after) = (change.before.as_ref().map(own_fields), after.map(own_fields));
    for object in [&mut before, &mut after].into_iter().flatten() {
        object["apiVersion"] = key.kind.resource().api_version().into();
        object["kind"] = key.kind.resource().kind.into();
    }
    if key.kind == Kind::Secret {
        redact(&mut before, &mut after);
    }
    (before, after)
}

/// Returns what a user or the operator has written into an object.
fn own_fields(object: &Value) -> Value {
    let mut object = object.clone();
    let Some(fields) = object.as_object_mut() else { return object };
    fields.remove("status");
    if let Some(metadata) = fields.get_mut("metadata").and_then(Value::as_object_mut) {
        metadata.retain(|name, value| !SERVER_METADATA.contains(&name.as_str()) && !value.is_null());
        if let Some(annotations) = metadata.get_mut("annotations").and_then(Value::as_object_mut) {
            annotations.remove(LAST_APPLIED);
        }
        for owner in metadata.get_mut("ownerReferences").and_then(Value::as_array_mut).into_iter().flatten() {
            owner.as_object_mut().map(|owner| owner.remove("uid"));
        }
    }
    object
}

/// Hides the values of a Secret, as `kubectl diff` does: those that change are told apart.
fn redact(before: &mut Option<Value>, after: &mut Option<Value>) {
    for field in ["data", "stringData"] {
        let values = |object: &Option<Value>| object.as_ref().and_then(|object| object[field].as_object().cloned());
        let (old, new) = (values(before).unwrap_or_default(), values(after).unwrap_or_default());
        mask(before, field, &new, "before");
        mask(after, field, &old, "after");
    }
}

fn mask(object: &mut Option<Value>, field: &str, other: &Map<String, Value>, word: &str) {
    let values = object.as_mut().and_then(|object| object.get_mut(field)?.as_object_mut());
    for (name, value) in values.into_iter().flatten() {
        let differs = other.get(name).is_some_and(|other| other != value);
        *value = if differs { format!("*** ({word})") } else { "***".to_owned() }.into();
    }
}

/// Colours the lines of a diff.
fn paint(text: &str, colour: bool) -> String {
    if !colour {
        return text.to_owned();
    }
    let paint = |line: &str| match line.as_bytes().first() {
        _ if line.starts_with("---") || line.starts_with("+++") || line.starts_with("diff ") => format!("\x1b[1m{line}\x1b[0m\n"),
        Some(b'+') => format!("\x1b[32m{line}\x1b[0m\n"),
        Some(b'-') => format!("\x1b[31m{line}\x1b[0m\n"),
        Some(b'@') => format!("\x1b[36m{line}\x1b[0m\n"),
        Some(b'#') => format!("\x1b[33m{line}\x1b[0m\n"),
        _ => format!("{line}\n"),
    };
    text.lines().map(paint).collect()
}

#[cfg(test)]
mod tests;
