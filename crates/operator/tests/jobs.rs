//! The operator against a real kube-apiserver: RayJobs.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
mod scene;

use anyhow::{Context, Result, bail};
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use manta_api::RayJob;
use scene::{Scene, small_cluster};
use serde_json::{Value, json};
use std::time::Duration;

const PATIENCE: Duration = Duration::from_secs(60);

fn jobs(scene: &Scene) -> Api<RayJob> {
    Api::namespaced(scene.client.clone(), &scene.namespace)
}

async fn create(scene: &Scene, name: &str, more: Value) -> Result<RayJob, kube::Error> {
    let mut spec = json!({"entrypoint": "true", "rayClusterSpec": small_cluster()});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let job = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    jobs(scene).create(&PostParams::default(), &job).await
}

fn refusal(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} {}", status.reason, status.message),
        other => other.to_string(),
    }
}

/// Waits for the first event with this reason.
async fn until_told(scene: &Scene, reason: &str) -> Result<String> {
    let found = tokio::time::timeout(PATIENCE, async {
        loop {
            if let Some(note) = scene.notes(reason).await?.pop() {
                return Ok::<_, anyhow::Error>(note);
            }
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    });
    match found.await {
        Ok(found) => found,
        Err(_) => bail!("{reason} was never told"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edge_15_managed_by_is_one_of_two_and_stays() -> Result<()> {
    let scene = Scene::new("managed-by").await?;
    let refused = create(&scene, "bad", json!({"managedBy": "invalid.com/controller"})).await;
    let text = refused.map_err(refusal).err().context("it was taken")?;
    assert!(text.starts_with("Invalid ") && text.contains("the managedBy field value must be either"), "{text}");

    create(&scene, "kueue", json!({"managedBy": "kueue.x-k8s.io/multikueue"})).await?;
    let patch = Patch::Merge(json!({"spec": {"managedBy": "ray.io/kuberay-operator"}}));
    let refused = jobs(&scene).patch("kueue", &PatchParams::default(), &patch).await;
    let text = refused.map_err(refusal).err().context("it was changed")?;
    assert!(text.contains("the managedBy field is immutable"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn edge_23_a_submitter_that_the_server_refuses_is_told() -> Result<()> {
    let scene = Scene::new("refused").await?;
    let operator = scene.start_operator(scene.client.clone());
    let template = json!({"spec": {"containers": [{"name": "mine", "image": "rayproject/ray:2.53.0"}]}});
    create(&scene, "train", json!({"submitterPodTemplate": template})).await?;
    let note = until_told(&scene, "FailedToCreateRayJobSubmitter").await?;
    let expect = format!("Failed to create new Kubernetes Job {}/train: ", scene.namespace);
    assert!(note.starts_with(&expect) && note.contains("restartPolicy"), "{note}");
    let status = jobs(&scene).get("train").await?.status.context("no status")?;
    assert_eq!(status.job_deployment_status.as_deref(), Some("Initializing"));
    operator.stop().await
}
