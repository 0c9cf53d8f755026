//! Provisions claims: each pending claim gets a directory of its own below one root.
//!
//! Without a directory claims stay pending, but those that are deleted still go once no pod uses them.

use std::path::PathBuf;
use std::sync::Arc;

use serde_json::{Value, json};

use super::{Informer, Worker, record, remove_finalizer};
use crate::ops::{Cluster, DeleteOptions, Target, WriteOptions};
use crate::store::{Change, Event, ObjectKey};

const PROTECTION: &str = "kubernetes.io/pvc-protection";

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker, directory: Option<PathBuf>) {
    let mut claims = Informer::new(&cluster, "persistentvolumeclaims");
    let mut pods = Informer::new(&cluster, "pods");
    loop {
        tokio::select! {
            events = claims.next() => {
                for event in events {
                    worker.handle_event("persistentvolumeclaims", &event, || handle_event(&cluster, directory.as_deref(), &event));
                }
            }
            events = pods.next() => {
                // A deleted claim is released with the last pod that uses it.
                for event in events.iter().filter(|event| event.change == Change::Deleted) {
                    for name in claims_of(&event.entry.value()) {
                        let key = ObjectKey::new(&event.entry.key.namespace, &name);
                        if let Some(claim) = cluster.store.get("persistentvolumeclaims", &key).filter(|claim| claim.deleting) {
                            worker.handle("persistentvolumeclaims", &key, || release(&cluster, &claim.value()));
                        }
                    }
                }
            }
        }
    }
}

fn handle_event(cluster: &Cluster, directory: Option<&std::path::Path>, event: &Event) {
    let claim = event.entry.value();
    if event.change == Change::Deleted {
        return reclaim(cluster, &claim);
    }
    if event.entry.deleting {
        return release(cluster, &claim);
    }
    if let Some(directory) = directory
        && claim["status"]["phase"] == "Pending"
        && claim["spec"]["volumeName"].is_null()
    {
        bind(cluster, directory, &claim);
    }
}

fn bind(cluster: &Cluster, directory: &std::path::Path, claim: &Value) {
    let metadata = &claim["metadata"];
    let text = |key: &str| metadata[key].as_str().unwrap_or("");
    let volume = format!("pvc-{}", text("uid"));
    let path = directory.join(format!("{}-{}-{}", text("namespace"), text("name"), text("uid")));
    if let Err(error) = std::fs::create_dir_all(&path) {
        let message = format!("cannot make the folder {}: {error}", path.display());
        return record(cluster, claim, "manta-volumes", "Warning", "ProvisioningFailed", &message);
    }
    let capacity = json!({"storage": claim["spec"]["resources"]["requests"]["storage"]});
    let object = json!({
        "metadata": {"name": volume},
        "spec": {
            "capacity": capacity,
            "accessModes": claim["spec"]["accessModes"],
            "persistentVolumeReclaimPolicy": "Delete",
            "storageClassName": claim["spec"]["storageClassName"].as_str().unwrap_or(""),
            "hostPath": {"path": path.display().to_string(), "type": "DirectoryOrCreate"},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": text("namespace"),
                "name": text("name"), "uid": text("uid")},
        },
    });
    let volumes = cluster.registry.builtin("", "persistentvolumes");
    match cluster.create(&volumes, "", object, &WriteOptions::default()) {
        Err(error) if error.reason() != "AlreadyExists" => {
            return tracing::warn!(%error, claim = text("name"), "cannot create a PersistentVolume");
        }
        _ => {}
    }
    let phase = |value: &mut Value| value["status"]["phase"] = "Bound".into();
    let target = Target { resource: &volumes, namespace: "", name: &volume };
    let claims = cluster.registry.builtin("", "persistentvolumeclaims");
    let claim_target = Target { resource: &claims, namespace: text("namespace"), name: text("name") };
    let bound = cluster
        .edit_status(target, phase)
        .and_then(|_| cluster.edit(claim_target, |claim| claim["spec"]["volumeName"] = volume.as_str().into()));
    let bound = bound.and_then(|_| {
        cluster.edit_status(claim_target, |value| {
            value["status"] =
                json!({"phase": "Bound", "accessModes": claim["spec"]["accessModes"], "capacity": capacity});
        })
    });
    if let Err(error) = bound {
        tracing::warn!(%error, claim = text("name"), "cannot bind a claim");
    }
}

fn claims_of(pod: &Value) -> Vec<String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned)).collect()
}

/// Removes the protection finalizer of a claim that no pod uses.
fn release(cluster: &Cluster, claim: &Value) {
    let text = |key: &str| claim["metadata"][key].as_str().unwrap_or("");
    let span = crate::store::ListRange { namespace: Some(text("namespace")), ..Default::default() };
    let used = cluster.store.list("pods", &span, |pod| claims_of(&pod.value()).iter().any(|name| name == text("name")));
    if used.is_ok_and(|page| !page.entries.is_empty()) {
        return;
    }
    let claims = cluster.registry.builtin("", "persistentvolumeclaims");
    let target = Target { resource: &claims, namespace: text("namespace"), name: text("name") };
    if let Err(error) = remove_finalizer(cluster, target, PROTECTION)
        && !error.is_not_found()
    {
        tracing::debug!(%error, claim = text("name"), "cannot release a claim");
    }
}

/// Deletes the volume and the directory of a deleted claim.
fn reclaim(cluster: &Cluster, claim: &Value) {
    let Some(volume) = claim["spec"]["volumeName"].as_str() else { return };
    let Some(found) = cluster.store.get("persistentvolumes", &ObjectKey::new("", volume)) else { return };
    let found = found.value();
    let ours = found["spec"]["claimRef"]["uid"] == claim["metadata"]["uid"]
        && found["spec"]["persistentVolumeReclaimPolicy"] == "Delete";
    if !ours {
        return;
    }
    if let Some(path) = found["spec"]["hostPath"]["path"].as_str()
        && let Err(error) = std::fs::remove_dir_all(path)
    {
        tracing::warn!(%error, path, "cannot remove the directory of a claim");
    }
    let volumes = cluster.registry.builtin("", "persistentvolumes");
    let target = Target { resource: &volumes, namespace: "", name: volume };
    if let Err(error) = cluster.delete(target, &DeleteOptions::default()) {
        tracing::debug!(%error, volume, "cannot delete a volume");
    }
}
