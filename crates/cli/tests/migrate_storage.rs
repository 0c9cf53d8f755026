//! `manta migrate-storage` on a real kube-apiserver: from objects stored in v1alpha1 to CRDs that lack it.

#![allow(clippy::unwrap_used)]

use anyhow::ensure;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Patch, PatchParams};
use kube::{Api, Client, ResourceExt};
use manta_api::crd::{self, Versions};
use manta_api::{RayCluster, RayJob};
use manta_testkit::{ControlPlane, eventually};
use serde_json::{Value, json};
use std::process::{Command, Output};

/// More than one page of the list.
const CLUSTERS: usize = 120;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn objects_of_v1alpha1_are_migrated_to_v1() {
    let plane = ControlPlane::start().unwrap();
    let client = plane.client().await.unwrap();
    // As KubeRay installed them before 1.0, and then upgraded them.
    apply(&client, Versions::V1AndV1alpha1, "v1alpha1").await.unwrap();
    let namespace = plane.namespace("migration").await.unwrap();
    create_objects(&client, &namespace).await;
    apply(&client, Versions::V1AndV1alpha1, "v1").await.unwrap();
    let refused = apply(&client, Versions::V1, "v1").await.unwrap_err().to_string();
    assert!(refused.contains("storedVersions"), "{refused}");

    let clusters: Api<RayCluster> = Api::namespaced(client.clone(), &namespace);
    let before = clusters.list(&Default::default()).await.unwrap().items;
    let dry = migrate(&plane, &["--dry-run"]);
    assert!(dry.status.success(), "{dry:?}");
    assert!(text(&dry).contains("rayclusters.ray.io: 120 objects may be stored in v1alpha1\n"), "{}", text(&dry));
    assert_eq!(stored_versions(&client, "rayclusters.ray.io").await, ["v1alpha1", "v1"]);

    let done = migrate(&plane, &[]);
    assert!(done.status.success(), "{done:?}");
    let expect = "rayclusters.ray.io: rewrote 120 objects; none is stored in v1alpha1 any more\n";
    assert!(text(&done).contains(expect), "{}", text(&done));
    assert!(text(&done).contains("rayjobs.ray.io: rewrote 1 objects;"), "{}", text(&done));
    assert!(text(&done).contains("raycronjobs.ray.io: all objects are stored in v1\n"), "{}", text(&done));
    for name in ["rayclusters.ray.io", "rayjobs.ray.io", "rayservices.ray.io", "raycronjobs.ray.io"] {
        assert_eq!(stored_versions(&client, name).await, ["v1"], "{name}");
    }
    let after = clusters.list(&Default::default()).await.unwrap().items;
    assert_eq!(after.len(), CLUSTERS);
    for (before, after) in before.iter().zip(&after) {
        assert_eq!((before.uid(), &before.spec), (after.uid(), &after.spec));
        assert_eq!(before.metadata.generation, after.metadata.generation);
        assert_ne!(before.resource_version(), after.resource_version(), "it was stored again");
    }

    apply(&client, Versions::V1, "v1").await.unwrap();
    assert_eq!(clusters.list(&Default::default()).await.unwrap().items.len(), CLUSTERS);
    let again = migrate(&plane, &[]);
    assert!(text(&again).contains("rayclusters.ray.io: all objects are stored in v1\n"), "{}", text(&again));
}

/// Applies the CRDs with another storage version, and waits until they are served.
async fn apply(client: &Client, versions: Versions, storage: &str) -> kube::Result<()> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    for mut crd in crd::all(versions) {
        let has_version = crd.spec.versions.iter().any(|version| version.name == storage);
        for version in &mut crd.spec.versions {
            // RayCronJob came later and has only ever been stored in v1.
            version.storage = if has_version { version.name == storage } else { version.name == "v1" };
        }
        let params = PatchParams::apply("test").force();
        crds.patch(&crd.name_any(), &params, &Patch::Apply(&crd)).await?;
        let established = eventually("the CRD is established", async || {
            let status = crds.get(&crd.name_any()).await?.status.unwrap_or_default();
            let mut conditions = status.conditions.iter().flatten();
            ensure!(conditions.any(|it| it.type_ == "Established" && it.status == "True"), "{:?}", status.conditions);
            Ok(())
        });
        established.await.unwrap();
    }
    Ok(())
}

async fn create_objects(client: &Client, namespace: &str) {
    let container = json!({"name": "ray-head", "image": "ray"});
    let head = json!({"rayStartParams": {}, "template": {"spec": {"containers": [container]}}});
    let clusters: Api<RayCluster> = Api::namespaced(client.clone(), namespace);
    for number in 0..CLUSTERS {
        let object: Value =
            json!({"metadata": {"name": format!("c{number}")}, "spec": {"headGroupSpec": head.clone()}});
        clusters.create(&Default::default(), &serde_json::from_value(object).unwrap()).await.unwrap();
    }
    let jobs: Api<RayJob> = Api::namespaced(client.clone(), namespace);
    let job =
        json!({"metadata": {"name": "j"}, "spec": {"entrypoint": "ls", "rayClusterSpec": {"headGroupSpec": head}}});
    jobs.create(&Default::default(), &serde_json::from_value(job).unwrap()).await.unwrap();
}

async fn stored_versions(client: &Client, name: &str) -> Vec<String> {
    let crds: Api<CustomResourceDefinition> = Api::all(client.clone());
    crds.get(name).await.unwrap().status.unwrap().stored_versions.unwrap()
}

fn migrate(plane: &ControlPlane, args: &[&str]) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manta"));
    command.arg("migrate-storage").arg("--kubeconfig").arg(plane.kubeconfig_path()).args(args).output().unwrap()
}

fn text(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}
