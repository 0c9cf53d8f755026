//! Provisions claims: each pending claim gets a directory of its own below one root.
//!
//! Without a directory claims stay pending, but those that are deleted still go once no pod uses them.

use std::path::{Path, PathBuf};
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
            biased;
            events = claims.next() => {
                for event in events {
                    worker.handle_event("persistentvolumeclaims", &event, || handle_event(&cluster, directory.as_deref(), &event));
                }
            }
            events = pods.next() => {
                // A deleted claim is released with the last pod that uses it.
                for event in events.iter().filter(|event| event.change == Change::Deleted) {
                    for name in claims_of(&event.entry.shared_value()) {
                        let key = ObjectKey::new(&event.entry.key.namespace, &name);
                        if let Some(claim) = cluster.store.get("persistentvolumeclaims", &key).filter(|claim| claim.deleting) {
                            worker.handle("persistentvolumeclaims", &key, || release(&cluster, &claim.shared_value()));
                        }
                    }
                }
            }
        }
    }
}

fn handle_event(cluster: &Cluster, directory: Option<&Path>, event: &Event) {
    let claim = event.entry.shared_value();
    if event.change == Change::Deleted {
        return reclaim(cluster, directory, &claim);
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

fn bind(cluster: &Cluster, directory: &Path, claim: &Value) {
    let metadata = &claim["metadata"];
    let text = |key: &str| metadata[key].as_str().unwrap_or("");
    let volume = volume_name(text("uid"));
    let path = directory_of(directory, claim);
    if let Err(error) = std::fs::create_dir_all(&path) {
        let message = format!("cannot create the directory {}: {error}", path.display());
        return record(cluster, claim, "manta-volumes", "Warning", "ProvisioningFailed", &message);
    }
    let capacity = json!({"storage": claim["spec"]["resources"]["requests"]["storage"]});
    let object = json!({
        "metadata": {"name": volume},
        "spec": {
            "capacity": capacity,
            "accessModes": claim["spec"]["accessModes"],
            "persistentVolumeReclaimPolicy": reclaim_policy(cluster, claim),
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

/// Returns what becomes of the volume after its claim, as the class of the claim says.
fn reclaim_policy(cluster: &Cluster, claim: &Value) -> Value {
    let class = claim["spec"]["storageClassName"].as_str().unwrap_or("");
    let class = cluster.store.get("storageclasses.storage.k8s.io", &ObjectKey::new("", class));
    let policy = class.map(|class| class.value()["reclaimPolicy"].clone());
    policy.filter(Value::is_string).unwrap_or_else(|| "Delete".into())
}

fn claims_of(pod: &Value) -> Vec<String> {
    let volumes = pod["spec"]["volumes"].as_array().into_iter().flatten();
    volumes.filter_map(|volume| volume["persistentVolumeClaim"]["claimName"].as_str().map(str::to_owned)).collect()
}

/// Removes the protection finalizer of a claim that no pod uses.
fn release(cluster: &Cluster, claim: &Value) {
    let text = |key: &str| claim["metadata"][key].as_str().unwrap_or("");
    let span = crate::store::ListRange { namespace: Some(text("namespace")), ..Default::default() };
    let used =
        cluster.store.list("pods", &span, |pod| claims_of(&pod.shared_value()).iter().any(|name| name == text("name")));
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

/// Deletes the volume and the directory of a deleted claim, unless they are to be retained.
///
/// Both are derived from the claim's uid, which only the server sets: what clients wrote into the claim or the
/// volume does not decide which directory is removed.
fn reclaim(cluster: &Cluster, root: Option<&Path>, claim: &Value) {
    let uid = claim["metadata"]["uid"].as_str().unwrap_or("");
    let name = volume_name(uid);
    let Some(volume) = cluster.store.get("persistentvolumes", &ObjectKey::new("", &name)) else { return };
    let volume = volume.value();
    if volume["spec"]["claimRef"]["uid"] != uid {
        return;
    }
    let volumes = cluster.registry.builtin("", "persistentvolumes");
    let target = Target { resource: &volumes, namespace: "", name: &name };
    if volume["spec"]["persistentVolumeReclaimPolicy"] != "Delete" {
        if let Err(error) = cluster.edit_status(target, |volume| volume["status"]["phase"] = "Released".into()) {
            tracing::debug!(%error, volume = name, "cannot release a PersistentVolume");
        }
        return;
    }
    if let Some(root) = root
        && let Err(error) = remove_directory(root, &directory_of(root, claim))
    {
        tracing::warn!(%error, volume = name, "cannot remove the directory of a claim");
    }
    if let Err(error) = cluster.delete(target, &DeleteOptions::default()) {
        tracing::debug!(%error, volume = name, "cannot delete a PersistentVolume");
    }
}

/// Returns the name of the volume that is provisioned for a claim.
fn volume_name(uid: &str) -> String {
    format!("pvc-{uid}")
}

/// Returns the directory of a claim: `<namespace>-<name>-<uid>` below the root.
fn directory_of(root: &Path, claim: &Value) -> PathBuf {
    let text = |key: &str| claim["metadata"][key].as_str().unwrap_or("");
    root.join(format!("{}-{}-{}", text("namespace"), text("name"), text("uid")))
}

/// Removes a directory directly below the root; anything else, and links, are refused.
fn remove_directory(root: &Path, directory: &Path) -> std::io::Result<()> {
    let inside = directory.parent() == Some(root) && directory.file_name().is_some_and(|name| name != "..");
    let metadata = match directory.symlink_metadata() {
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        other => other?,
    };
    if !inside || !metadata.is_dir() {
        let message = format!("{} is not a directory below {}", directory.display(), root.display());
        return Err(std::io::Error::other(message));
    }
    std::fs::remove_dir_all(directory)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_directories_below_the_root_are_removed() {
        let folder = tempfile::tempdir().expect("a directory");
        let (root, victim) = (folder.path().join("claims"), folder.path().join("victim"));
        for directory in [&root, &victim] {
            std::fs::create_dir_all(directory.join("data")).expect("made");
        }
        assert!(remove_directory(&root, &victim).is_err());
        assert!(remove_directory(&root, &root.join("../victim")).is_err());
        assert!(remove_directory(&root, &root.join("..")).is_err());
        assert!(remove_directory(&root, &root).is_err());
        std::os::unix::fs::symlink(&victim, root.join("link")).expect("linked");
        assert!(remove_directory(&root, &root.join("link")).is_err());
        std::os::unix::fs::symlink(&victim, root.join("data/link")).expect("linked");
        assert!(remove_directory(&root, &root.join("data")).is_ok());
        assert!(remove_directory(&root, &root.join("data")).is_ok(), "it is gone already");
        assert!(victim.join("data").is_dir(), "nothing else was touched");
        assert!(!root.join("data").exists());
    }
}
