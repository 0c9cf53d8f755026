//! Fills the rules of aggregated ClusterRoles from the roles that their `aggregationRule` selects.

use std::sync::Arc;

use serde_json::Value;

use super::{Informer, Worker};
use crate::ops::{Cluster, Target};
use crate::selector::{LabelRule, labels_match};
use crate::store::{Entry, ListRange};

const TABLE: &str = "clusterroles.rbac.authorization.k8s.io";
/// Aggregated roles may select each other; longer chains than this are left to the next change.
const MAX_ROUNDS: usize = 10;

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker) {
    let mut roles = Informer::new(&cluster, TABLE);
    loop {
        let events = roles.next().await;
        if let Some(event) = events.last() {
            worker.handle_event(TABLE, event, || aggregate(&cluster));
        }
    }
}

/// Brings the rules of all aggregated roles up to date.
pub(crate) fn aggregate(cluster: &Cluster) {
    for _ in 0..MAX_ROUNDS {
        let page = cluster.store.list(TABLE, &ListRange::default(), |_| true);
        let entries = page.map(|page| page.entries).unwrap_or_default();
        if !entries.iter().map(|entry| update(cluster, entry, &entries)).fold(false, |any, changed| any | changed) {
            return;
        }
    }
}

/// Updates one role; returns whether it changed.
fn update(cluster: &Cluster, entry: &Entry, all: &[Arc<Entry>]) -> bool {
    // Most roles are not aggregated, and need no parsing.
    if !entry.json.windows(17).any(|piece| piece == b"\"aggregationRule\"") {
        return false;
    }
    let role = entry.value();
    let Some(selectors) = role["aggregationRule"]["clusterRoleSelectors"].as_array() else { return false };
    let selectors: Vec<Vec<LabelRule>> = selectors.iter().map(LabelRule::from_object).collect();
    let mut rules: Vec<Value> = Vec::new();
    for other in all.iter().filter(|other| other.key != entry.key) {
        if selectors.iter().any(|selector| labels_match(selector, other)) {
            for rule in other.value()["rules"].as_array().into_iter().flatten() {
                if !rules.contains(rule) {
                    rules.push(rule.clone());
                }
            }
        }
    }
    let known = role["rules"].as_array().cloned().unwrap_or_default();
    if known == rules {
        return false;
    }
    let resource = cluster.registry.builtin("rbac.authorization.k8s.io", "clusterroles");
    let target = Target { resource: &resource, namespace: "", name: &entry.key.name };
    match cluster.edit(target, |role| role["rules"] = rules.clone().into()) {
        Ok(_) => true,
        Err(error) => {
            tracing::debug!(%error, role = &*entry.key.name, "cannot aggregate a ClusterRole");
            false
        }
    }
}
