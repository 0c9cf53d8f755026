//! The operator against a real kube-apiserver: RayJobs, where needed with a fake Ray behind the API server's proxy.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "not every test needs all of it")]
mod fake_ray;
#[allow(dead_code, reason = "not every test needs all of it")]
mod harness;

use anyhow::{Context, Result, ensure};
use fake_ray::FakeRayClusters;
use futures::FutureExt;
use harness::{Harness, small_cluster};
use http::{Method, Request};
use kube::api::{Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use manta_api::{RayJob, RayJobStatus};
use manta_operator::Settings;
use manta_operator::dashboard::Route;
use manta_testkit::{eventually, within};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::sync::Notify;

fn jobs(harness: &Harness) -> Api<RayJob> {
    Api::namespaced(harness.client.clone(), &harness.namespace)
}

async fn create(harness: &Harness, name: &str, more: Value) -> Result<RayJob, kube::Error> {
    let mut spec = json!({"entrypoint": "true", "rayClusterSpec": small_cluster()});
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    let job = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap();
    jobs(harness).create(&PostParams::default(), &job).await
}

fn refusal(error: kube::Error) -> String {
    match error {
        kube::Error::Api(status) => format!("{} {}", status.reason, status.message),
        other => other.to_string(),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managed_by_is_validated_and_immutable() -> Result<()> {
    let harness = Harness::new("managed-by").await?;
    let refused = create(&harness, "bad", json!({"managedBy": "invalid.com/controller"})).await;
    let text = refused.map_err(refusal).err().context("it was accepted")?;
    assert!(text.starts_with("Invalid ") && text.contains("the managedBy field value must be either"), "{text}");

    create(&harness, "kueue", json!({"managedBy": "kueue.x-k8s.io/multikueue"})).await?;
    let patch = Patch::Merge(json!({"spec": {"managedBy": "ray.io/kuberay-operator"}}));
    let refused = jobs(&harness).patch("kueue", &PatchParams::default(), &patch).await;
    let text = refused.map_err(refusal).err().context("it was changed")?;
    assert!(text.contains("the managedBy field is immutable"), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_rejected_submitter_job_is_reported_as_an_event() -> Result<()> {
    let harness = Harness::new("refused").await?;
    let operator = harness.start_operator(harness.client.clone());
    let template = json!({"spec": {"containers": [{"name": "mine", "image": "rayproject/ray:2.53.0"}]}});
    create(&harness, "train", json!({"submitterPodTemplate": template})).await?;
    let note = harness.until_event("FailedToCreateRayJobSubmitter").await?;
    let expect = format!("Failed to create new Kubernetes Job {}/train: ", harness.namespace);
    assert!(note.starts_with(&expect) && note.contains("restartPolicy"), "{note}");
    let status = jobs(&harness).get("train").await?.status.context("no status")?;
    assert_eq!(status.job_deployment_status.as_deref(), Some("Initializing"));
    operator.stop().await
}

/// Returns a client that hangs when it writes the status of a RayJob after a submission to Ray.
fn crashing_client(client: Client, ray_clusters: &Arc<FakeRayClusters>, crashed: &Arc<Notify>) -> Client {
    let (ray_clusters, crashed) = (Arc::clone(ray_clusters), Arc::clone(crashed));
    let service = tower::service_fn(move |request: Request<Body>| {
        let path = request.uri().path();
        let is_status = request.method() != Method::GET && path.contains("/rayjobs/") && path.ends_with("/status");
        let (stop, client, crashed) = (is_status && ray_clusters.was_posted_to(), client.clone(), Arc::clone(&crashed));
        async move {
            if stop {
                crashed.notify_one();
                return std::future::pending().await;
            }
            client.send(request).await
        }
        .boxed()
    });
    Client::new(service, "default")
}

async fn until(jobs: &Api<RayJob>, wanted: impl Fn(&RayJobStatus) -> bool) -> Result<RayJobStatus> {
    eventually("the job to meet the condition", async || {
        let status = jobs.get("train").await?.status.unwrap_or_default();
        ensure!(wanted(&status), "{status:?}");
        Ok(status)
    })
    .await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_restart_between_submission_and_status_submits_once_and_records_the_end() -> Result<()> {
    let harness = Harness::new("job-once").await?;
    let (ray_clusters, crashed) = (FakeRayClusters::new(false), Arc::new(Notify::new()));
    let settings = || Settings { dashboard_route: Route::ApiServerProxy, ..Settings::default() };
    let jobs = jobs(&harness);
    let reaching = ray_clusters.client(harness.client.clone());
    let first = harness.start_operator_with(crashing_client(reaching.clone(), &ray_clusters, &crashed), settings());
    create(&harness, "train", json!({"submissionMode": "HTTPMode"})).await?;
    within("the crash", crashed.notified()).await?;
    first.kill().await;

    let status = jobs.get("train").await?.status.unwrap_or_default();
    let (cluster, id) = (status.ray_cluster_name.unwrap(), status.job_id.unwrap());
    assert_eq!(status.job_status, None, "the submission is not recorded");
    ray_clusters.with(&cluster, |ray| ray.set_job(&id, &json!({"status": "SUCCEEDED"}))).await?;
    let second = harness.start_operator_with(reaching, settings());
    let end = until(&jobs, |status| status.job_deployment_status.as_deref() == Some("Complete")).await?;
    assert_eq!((end.job_status.as_deref(), end.job_id), (Some("SUCCEEDED"), Some(id)));
    let writes = ray_clusters.with(&cluster, |ray| ray.writes()).await?;
    let submitted = writes.iter().filter(|write| write.method == "POST" && write.path == "/api/jobs/").count();
    assert_eq!((submitted, harness.clusters().list(&Default::default()).await?.items.len()), (1, 1), "{writes:?}");
    second.stop().await
}
