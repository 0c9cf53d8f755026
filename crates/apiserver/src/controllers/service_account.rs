//! Creates the default service account and the `kube-root-ca.crt` ConfigMap of every namespace, and fills the Secrets
//! that ask for a token.

use std::collections::BTreeSet;
use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use serde_json::{Value, json};

use super::{Informer, Worker};
use crate::ops::{Cluster, DeleteOptions, Target, WriteOptions};
use crate::store::{Change, ListRange, ObjectKey};

const CA_MAP: &str = "kube-root-ca.crt";
/// The type of Secrets that hold a token of a service account.
const TOKEN_TYPE: &str = "kubernetes.io/service-account-token";
/// The annotations that name the account of such a Secret.
const ACCOUNT_NAME: &str = "kubernetes.io/service-account.name";
const ACCOUNT_UID: &str = "kubernetes.io/service-account.uid";

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker, ca: String) {
    let mut namespaces = Informer::new(&cluster, "namespaces");
    let mut accounts = Informer::new(&cluster, "serviceaccounts");
    let mut maps = Informer::new(&cluster, "configmaps");
    let mut secrets = Informer::new(&cluster, "secrets");
    loop {
        let mut due: BTreeSet<ObjectKey> = BTreeSet::new();
        // Both objects are restored when they are deleted or altered, as long as their namespace exists.
        let again = tokio::select! {
            biased;
            _ = namespaces.next() => true,
            events = accounts.next() => {
                let gone: Vec<_> = events.iter().filter(|event| event.change == Change::Deleted).collect();
                due.extend(gone.iter().flat_map(|event| token_secrets(&cluster, &event.entry.key)));
                gone.iter().any(|event| &*event.entry.key.name == "default")
            }
            events = maps.next() => events.iter().any(|event| &*event.entry.key.name == CA_MAP),
            events = secrets.next() => {
                let live = events.iter().filter(|event| event.change != Change::Deleted);
                due.extend(live.map(|event| ObjectKey::clone(&event.entry.key)));
                false
            }
        };
        for key in due {
            worker.handle("secrets", &key, || fill_token(&cluster, &key, &ca));
        }
        if again {
            ensure_defaults(&cluster, &ca, &mut worker);
        }
    }
}

fn ensure_defaults(cluster: &Cluster, ca: &str, worker: &mut Worker) {
    let page = cluster.store.list("namespaces", &ListRange::default(), |entry| !entry.deleting);
    for namespace in page.map(|page| page.entries).unwrap_or_default() {
        worker.handle("namespaces", &namespace.key, || ensure_namespace(cluster, &namespace.key.name, ca));
    }
}

fn ensure_namespace(cluster: &Cluster, name: &str, ca: &str) {
    ensure(cluster, "serviceaccounts", name, json!({"metadata": {"name": "default"}}));
    let note = "Contains a CA bundle that can be used to verify the kube-apiserver when using internal endpoints \
                such as the internal service IP or kubernetes.default.svc. No other usage is guaranteed across \
                distributions of Kubernetes clusters.";
    let map = json!({"metadata": {"name": CA_MAP, "annotations": {"kubernetes.io/description": note}},
        "data": {"ca.crt": ca}});
    ensure(cluster, "configmaps", name, map);
}

/// Creates an object, or restores its data.
fn ensure(cluster: &Cluster, plural: &str, namespace: &str, value: Value) {
    let resource = cluster.registry.builtin("", plural);
    let name = value["metadata"]["name"].as_str().unwrap_or("");
    let written = match cluster.store.get(&resource.table, &ObjectKey::new(namespace, name)) {
        Some(found) if found.value()["data"] == value["data"] => return,
        Some(_) => {
            let target = Target { resource: &resource, namespace, name };
            cluster.edit(target, |found| found["data"] = value["data"].clone())
        }
        None => cluster.create(&resource, namespace, value, &WriteOptions::default()),
    };
    if let Err(error) = written {
        tracing::debug!(%error, namespace, plural, "cannot create the default objects of a namespace");
    }
}

/// Returns the Secrets that hold a token of a service account.
fn token_secrets(cluster: &Cluster, account: &ObjectKey) -> Vec<ObjectKey> {
    let range = ListRange { namespace: Some(&account.namespace), ..ListRange::default() };
    let names = |secret: &Value| {
        secret["type"] == TOKEN_TYPE && secret["metadata"]["annotations"][ACCOUNT_NAME] == *account.name
    };
    let page = cluster.store.list("secrets", &range, |secret| names(&secret.shared_value()));
    page.map(|page| page.entries).unwrap_or_default().iter().map(|entry| ObjectKey::clone(&entry.key)).collect()
}

/// Fills a Secret that asks for the token of a service account, or deletes it if there is no such account.
fn fill_token(cluster: &Cluster, key: &ObjectKey, ca: &str) {
    let Some(entry) = cluster.store.get("secrets", key) else { return };
    let secret = entry.shared_value();
    if secret["type"] != TOKEN_TYPE || entry.deleting {
        return;
    }
    let annotation = |name: &str| secret["metadata"]["annotations"][name].as_str().unwrap_or("");
    let account = cluster.store.get("serviceaccounts", &ObjectKey::new(&key.namespace, annotation(ACCOUNT_NAME)));
    let account = account.map(|account| account.value());
    let is_meant = |account: &Value| {
        let uid = annotation(ACCOUNT_UID);
        uid.is_empty() || account["metadata"]["uid"] == uid
    };
    let resource = cluster.registry.builtin("", "secrets");
    let target = Target { resource: &resource, namespace: &key.namespace, name: &key.name };
    let Some(account) = account.filter(is_meant) else {
        if let Err(error) = cluster.delete(target, &DeleteOptions::default()) {
            tracing::debug!(%error, name = &*key.name, "cannot delete the token of a service account that is gone");
        }
        return;
    };
    let mut data = json!({"ca.crt": BASE64.encode(ca), "namespace": BASE64.encode(&*key.namespace)});
    if secret["data"]["token"].as_str().unwrap_or("").is_empty() {
        data["token"] = BASE64.encode(cluster.authority.issue_for_secret(&account, &secret, &cluster.clock)).into();
    }
    let is_set = data.as_object().into_iter().flatten().all(|(key, value)| secret["data"][key.as_str()] == *value);
    if is_set && annotation(ACCOUNT_UID) == account["metadata"]["uid"] {
        return;
    }
    let written = cluster.edit(target, |secret| {
        for (key, value) in data.as_object().into_iter().flatten() {
            secret["data"][key.as_str()] = value.clone();
        }
        secret["metadata"]["annotations"][ACCOUNT_UID] = account["metadata"]["uid"].clone();
    });
    if let Err(error) = written {
        tracing::debug!(%error, name = &*key.name, "cannot fill the token of a service account");
    }
}
