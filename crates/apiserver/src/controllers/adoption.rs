//! Ownership by selector: a controller adopts the orphans that its selector matches, and releases what it no longer matches.

use std::sync::Arc;

use serde_json::{Value, json};

use super::{controller_of, owner_reference};
use crate::ops::{Cluster, Target};
use crate::registry::Resource;
use crate::selector::{LabelRule, labels_match};
use crate::store::{Entry, ListRange, Uid};

/// Returns the objects of a kind whose controller is `owner`, after adopting and releasing; `mark` runs on an object
/// that is adopted (true) or released (false).
pub(super) fn claim(
    cluster: &Cluster,
    resource: &Arc<Resource>,
    owner: &Value,
    rules: &[LabelRule],
    mark: impl Fn(&mut Value, bool),
) -> Vec<Value> {
    let namespace = owner["metadata"]["namespace"].as_str().unwrap_or("");
    let uid = &owner["metadata"]["uid"];
    let wanted = Uid::parse(uid.as_str().unwrap_or(""));
    // Without rules a selector would match everything there is.
    let may_change = !owner["metadata"]["deletionTimestamp"].is_string() && !rules.is_empty();
    let fits = |entry: &Entry| labels_match(rules, entry) && !rules.is_empty();
    let range = ListRange { namespace: Some(namespace), ..ListRange::default() };
    // What has owners already is not parsed: many owners may share a selector.
    let concerns = |entry: &Entry| entry.owners.contains(&wanted) || (entry.owners.is_empty() && fits(entry));
    let found = cluster.store.list(&resource.table, &range, concerns);
    let mut claimed = Vec::new();
    for entry in found.map(|page| page.entries).unwrap_or_default() {
        let value = entry.value();
        let target = Target { resource, namespace, name: &entry.key.name };
        let controller = controller_of(&value);
        let ours = controller.is_some_and(|controller| controller["uid"] == *uid);
        let changed = match (ours, fits(&entry)) {
            (true, false) if may_change => cluster.edit(target, |object| {
                if let Some(owners) = object["metadata"]["ownerReferences"].as_array_mut() {
                    owners.retain(|owner| owner["uid"] != *uid);
                }
                mark(object, false);
            }),
            (false, true) if may_change && controller.is_none() && !entry.deleting => cluster.edit(target, |object| {
                if controller_of(object).is_some() {
                    return;
                }
                let mut owners = object["metadata"]["ownerReferences"].as_array().cloned().unwrap_or_default();
                owners.retain(|owner| owner["uid"] != *uid);
                owners.push(owner_reference(owner));
                object["metadata"]["ownerReferences"] = json!(owners);
                mark(object, true);
            }),
            (true, _) => {
                claimed.push(value);
                continue;
            }
            _ => continue,
        };
        match changed {
            Ok(written) => {
                let value = written.entry.value();
                if controller_of(&value).is_some_and(|controller| controller["uid"] == *uid) {
                    claimed.push(value);
                }
            }
            Err(error) => tracing::debug!(%error, name = &*entry.key.name, "cannot change the owner of an object"),
        }
    }
    claimed
}
