//! Claims and their directories, and what clients cannot make the server do to other directories.

use std::path::Path;

use anyhow::ensure;
use k8s_openapi::api::core::v1::{PersistentVolume, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::StorageClass;
use kube::Api;
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use manta_apiserver::{Options, Server};
use manta_testkit::eventually;
use serde_json::{Value, json};

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("a valid object")
}

fn directories(root: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(root).into_iter().flatten().flatten();
    entries.map(|entry| entry.file_name().to_string_lossy().into_owned()).collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn data_lives_and_dies_with_its_claim_and_nothing_else_does() {
    let folder = tempfile::tempdir().expect("a directory");
    let (root, victim) = (folder.path().join("claims"), folder.path().join("victim"));
    std::fs::create_dir_all(&victim).expect("made");
    std::fs::write(victim.join("file"), "precious").expect("written");
    let server = Server::start(Options { volumes: Some(root.clone()), ..Options::default() }).await.expect("starts");
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(server.client());
    let volumes: Api<PersistentVolume> = Api::all(server.client());
    let claim: PersistentVolumeClaim = object(json!({"metadata": {"name": "data"}, "spec": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}));
    let created = claims.create(&PostParams::default(), &claim).await.expect("created");
    let uid = created.metadata.uid.expect("a uid");
    let is_bound = async || {
        let claim = claims.get("data").await?;
        ensure!(claim.status.and_then(|status| status.phase).as_deref() == Some("Bound"));
        Ok(())
    };
    eventually("the claim is bound", is_bound).await.expect("bound");
    assert_eq!(directories(&root), [format!("default-data-{uid}")]);

    // The source of a volume cannot be redirected, nor a bound claim be given another volume.
    let volume = format!("pvc-{uid}");
    let redirect = json!({"spec": {"hostPath": {"path": victim}}});
    let refused = volumes.patch(&volume, &PatchParams::default(), &Patch::Merge(&redirect)).await;
    assert!(refused.is_err_and(|error| error.to_string().contains("immutable")));
    let evil: PersistentVolume = object(json!({"metadata": {"name": "evil"}, "spec": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"], "persistentVolumeReclaimPolicy": "Delete",
        "hostPath": {"path": victim},
        "claimRef": {"namespace": "default", "name": "data", "uid": uid}}}));
    volumes.create(&PostParams::default(), &evil).await.expect("created");
    let rebind = json!({"spec": {"volumeName": "evil"}});
    assert!(claims.patch("data", &PatchParams::default(), &Patch::Merge(&rebind)).await.is_err());

    // A claim that names a forged volume from the start reclaims nothing when it goes.
    let mut forged = claim.clone();
    forged.metadata.name = Some("forged".into());
    forged.spec.as_mut().expect("a spec").volume_name = Some("evil".into());
    claims.create(&PostParams::default(), &forged).await.expect("created");
    for name in ["forged", "data"] {
        claims.delete(name, &DeleteParams::default()).await.expect("deleted");
    }
    let has_directories = async |count: usize| {
        let seen = directories(&root);
        ensure!(seen.len() == count, "{seen:?}");
        Ok(())
    };
    eventually("the directory is removed", async || has_directories(0).await).await.expect("removed");
    assert_eq!(std::fs::read_to_string(victim.join("file")).expect("still there"), "precious");

    // A claim of the same name starts empty.
    claims.create(&PostParams::default(), &claim).await.expect("created");
    eventually("the new claim has a directory", async || has_directories(1).await).await.expect("made");
    let fresh = root.join(&directories(&root)[0]);
    assert_eq!(directories(&fresh), [] as [String; 0]);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_class_of_a_claim_may_retain_its_data() {
    let folder = tempfile::tempdir().expect("a directory");
    let options = Options { volumes: Some(folder.path().to_owned()), ..Options::default() };
    let server = Server::start(options).await.expect("starts");
    let classes: Api<StorageClass> = Api::all(server.client());
    let class = json!({"metadata": {"name": "kept"}, "provisioner": "example.com/p", "reclaimPolicy": "Retain"});
    classes.create(&PostParams::default(), &object(class)).await.expect("created");
    let claims: Api<PersistentVolumeClaim> = Api::default_namespaced(server.client());
    let claim = json!({"metadata": {"name": "data"}, "spec": {"storageClassName": "kept",
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}});
    let claim = claims.create(&PostParams::default(), &object(claim)).await.expect("created");
    let volumes: Api<PersistentVolume> = Api::all(server.client());
    let volume = format!("pvc-{}", claim.metadata.uid.expect("a uid"));
    let has_phase = async |phase: &str| {
        let status = volumes.get(&volume).await?.status;
        ensure!(status.and_then(|status| status.phase).as_deref() == Some(phase));
        Ok(())
    };
    eventually("the volume is bound", async || has_phase("Bound").await).await.expect("bound");
    claims.delete("data", &DeleteParams::default()).await.expect("deleted");
    eventually("the volume is released", async || has_phase("Released").await).await.expect("released");
    assert_eq!(directories(folder.path()).len(), 1, "the data is still there");
    server.stop().await;
}
