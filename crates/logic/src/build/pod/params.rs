//! What `ray start` is told beyond what the user wrote.

use super::draft::{Draft, Node, Role};
use super::resources;
use std::collections::BTreeMap;

/// Takes over the group's own `labels`, in place of what `labels` said.
pub(super) fn apply_labels(params: &mut BTreeMap<String, String>, labels: Option<&BTreeMap<String, String>>) {
    let pairs: Vec<String> = labels.into_iter().flatten().map(|(key, value)| format!("{key}={value}")).collect();
    if !pairs.is_empty() {
        params.insert("labels".to_owned(), pairs.join(","));
    }
}

/// Fills in what the user left open.
pub(super) fn fill_defaults(node: &Node<'_>, draft: &mut Draft) {
    let params = &mut draft.params;
    match node.role {
        Role::Head => set_default(params, "dashboard-host", || "0.0.0.0".to_owned()),
        Role::Worker => set_default(params, "address", || format!("{}:{}", node.fqdn, node.head_port)),
    }
    set_default(params, "metrics-export-port", || "8080".to_owned());
    set_default(params, "dashboard-agent-listen-port", || "52365".to_owned());
    // Without it the container would end as soon as Ray has started.
    params.insert("block".to_owned(), "true".to_owned());
    resources::apply_container(params, draft.ray.resources.as_ref());
}

fn set_default(params: &mut BTreeMap<String, String>, key: &str, value: impl FnOnce() -> String) {
    if !params.contains_key(key) {
        params.insert(key.to_owned(), value());
    }
}
