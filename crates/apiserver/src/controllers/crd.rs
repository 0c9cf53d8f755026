//! Serves the kinds of CRDs, and deletes the objects of deleted ones.

use std::sync::Arc;
use std::time::Duration;

use serde_json::Value;

use super::{Informer, Worker, remove_finalizer};
use crate::ops::{Cluster, DeleteOptions, Target};
use crate::registry::{Acceptance, Resource, accept};
use crate::selector::Selection;
use crate::store::{ListRange, ObjectKey};

const TABLE: &str = "customresourcedefinitions.apiextensions.k8s.io";
const CLEANUP: &str = "customresourcecleanup.apiextensions.k8s.io";
/// How often a CRD that is being deleted is checked for remaining objects.
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker) {
    let mut feed = Informer::new(&cluster, TABLE);
    loop {
        if reconcile(&cluster, &mut worker) {
            let _ = tokio::time::timeout(RETRY_INTERVAL, feed.next()).await;
        } else {
            feed.next().await;
        }
        feed.poll();
    }
}

/// Serves and establishes every stored CRD; returns whether one of them is still being deleted.
///
/// Parsed definitions take megabytes, so none may be held while waiting for the next change.
fn reconcile(cluster: &Cluster, worker: &mut Worker) -> bool {
    let definitions = stored(cluster);
    let accepted = accept(&definitions);
    define(cluster, &definitions, &accepted);
    let ending = end(cluster, &definitions, worker);
    establish(cluster, &definitions, &accepted, worker);
    ending
}

/// Serves every stored CRD.
pub(crate) fn serve_stored(cluster: &Cluster) {
    let definitions = stored(cluster);
    define(cluster, &definitions, &accept(&definitions));
}

/// Serves exactly these CRDs, under the names that were accepted.
fn define(cluster: &Cluster, definitions: &[Value], accepted: &[Acceptance]) {
    let served: Vec<(&Value, &Acceptance)> =
        definitions.iter().zip(accepted).filter(|(definition, accepted)| accepted.is_served(definition)).collect();
    let renamed: Vec<Option<Value>> =
        served.iter().map(|(definition, accepted)| accepted.renamed(definition)).collect();
    let shown: Vec<&Value> =
        served.iter().zip(&renamed).map(|((definition, _), renamed)| renamed.as_ref().unwrap_or(definition)).collect();
    cluster.registry.define(&shown);
}

/// Deletes the objects of CRDs that are being deleted; returns whether one of them is not gone yet.
fn end(cluster: &Cluster, definitions: &[Value], worker: &mut Worker) -> bool {
    let terminating = |definition: &&Value| definition["metadata"]["deletionTimestamp"].is_string();
    let mut ending = false;
    for definition in definitions.iter().filter(terminating) {
        ending |= worker.handle(TABLE, &key_of(definition), || !clean_up(cluster, definition)).unwrap_or(false);
    }
    ending
}

fn key_of(definition: &Value) -> ObjectKey {
    ObjectKey::new("", definition["metadata"]["name"].as_str().unwrap_or(""))
}

fn stored(cluster: &Cluster) -> Vec<Value> {
    let page = cluster.store.list(TABLE, &ListRange::default(), |_| true);
    page.map(|page| page.entries).unwrap_or_default().iter().map(|entry| entry.value()).collect()
}

/// Says of these definitions whether they are served. One stored since then has to wait for its turn: a client
/// that sees it established asks for its objects at once.
fn establish(cluster: &Cluster, definitions: &[Value], accepted: &[Acceptance], worker: &mut Worker) {
    let resource = cluster.registry.builtin("apiextensions.k8s.io", "customresourcedefinitions");
    for (definition, accepted) in definitions.iter().zip(accepted) {
        if definition["metadata"]["deletionTimestamp"].is_string() {
            continue;
        }
        worker.handle(TABLE, &key_of(definition), || {
            let status = accepted.status(definition, &cluster.clock.stamp());
            if definition["status"] == status {
                return;
            }
            let name = definition["metadata"]["name"].as_str().unwrap_or("");
            let target = Target { resource: &resource, namespace: "", name };
            if let Err(error) = cluster.edit_status(target, |value| value["status"] = status.clone()) {
                tracing::debug!(%error, name, "cannot establish a definition");
            }
        });
    }
}

/// Deletes the objects of a CRD; returns true once none is left and the CRD itself is gone.
fn clean_up(cluster: &Cluster, definition: &Value) -> bool {
    let name = definition["metadata"]["name"].as_str().unwrap_or("");
    let now = cluster.registry.now();
    let is_table = |resource: &&Arc<Resource>| &*resource.table == name;
    // A definition that names a built-in resource has no objects of its own.
    let has_objects = || {
        cluster.store.count(name) > 0
            && !now.resources.iter().filter(is_table).any(|resource| resource.builtin().is_some())
    };
    if has_objects() {
        // Without a served version nothing can be deleted.
        let Some(custom) = now.resources.iter().find(is_table) else { return true };
        if let Err(error) = cluster.delete_collection(custom, &Selection::default(), &DeleteOptions::default()) {
            tracing::debug!(%error, name, "cannot delete the objects of a definition");
        }
        if has_objects() {
            return false;
        }
    }
    let resource = cluster.registry.builtin("apiextensions.k8s.io", "customresourcedefinitions");
    let target = Target { resource: &resource, namespace: "", name };
    let freed = remove_finalizer(cluster, target, CLEANUP);
    freed.is_ok_and(|_| cluster.store.get(TABLE, &ObjectKey::new("", name)).is_none())
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::ops::WriteOptions;
    use crate::{Options, Server};

    /// An earlier version has let such definitions in.
    #[tokio::test]
    async fn a_definition_that_names_a_built_in_resource_takes_no_objects_with_it() {
        let server = Server::start(Options::default()).await.expect("starts");
        let cluster = server.cluster();
        let roles = cluster.registry.builtin("rbac.authorization.k8s.io", "roles");
        let role = json!({"metadata": {"name": "r"}, "rules": []});
        cluster.create(&roles, "default", role, &WriteOptions::default()).expect("created");
        let definition = json!({"metadata": {"name": &*roles.table, "deletionTimestamp": "2026-01-01T00:00:00Z"},
            "spec": {"group": &*roles.group, "scope": "Namespaced", "names": {"plural": "roles", "kind": "Role"},
                "versions": [{"name": "v1", "served": true, "storage": true}]}});
        cluster.registry.define(std::slice::from_ref(&definition));
        let before = cluster.store.count(&roles.table);
        clean_up(cluster, &definition);
        assert_eq!((before > 0, cluster.store.count(&roles.table)), (true, before));
    }
}
