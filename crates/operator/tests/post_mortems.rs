//! Post-mortems against a real kube-apiserver: what is left of RayJobs and RayClusters after their end.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "not every test needs all of it")]
mod fake_ray;
#[allow(dead_code, reason = "not every test needs all of it")]
mod harness;

use anyhow::{Context, Result, ensure};
use fake_ray::FakeRayClusters;
use harness::{Harness, small_cluster};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client, ResourceExt};
use manta_api::RayJob;
use manta_logic::explain::Subject;
use manta_logic::post_mortem::Limits;
use manta_operator::Settings;
use manta_operator::dashboard::{self, Route};
use manta_operator::evidence::Sources;
use manta_operator::record_files;
use manta_operator::records::{self, Explained};
use manta_testkit::{Play, eventually};
use serde_json::json;

const TRACEBACK: &str = "Job entrypoint command failed with exit code 1, last available logs (truncated to 20,000 chars):\n\
    Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\nValueError: marker-env-value is no number\n";

fn settings(limits: Limits) -> Settings {
    Settings { dashboard_route: Route::ApiServerProxy, post_mortems: Some(limits), ..Settings::default() }
}

async fn explained(client: &Client, namespace: &str, kind: &str, name: &str) -> Result<Option<Explained>> {
    let sources = Sources {
        client: client.clone(),
        dashboards: dashboard::Client::new(client.clone(), Route::ApiServerProxy),
        cluster_domain: String::new(),
        workloads: true,
    };
    let (kind, namespace, name) = (kind.to_owned(), namespace.to_owned(), name.to_owned());
    let subject = Subject { kind, namespace, name, uid: String::new() };
    Ok(records::explained(&sources, &subject, Timestamp::now()).await?)
}

async fn records(harness: &Harness) -> Result<Vec<ConfigMap>> {
    let api: Api<ConfigMap> = Api::namespaced(harness.client.clone(), &harness.namespace);
    Ok(api.list(&ListParams::default().labels("ray.io/post-mortem")).await?.items)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_job_is_explained_after_its_cluster_and_itself_are_gone() -> Result<()> {
    let harness = Harness::new("post-mortem").await?;
    let ray_clusters = FakeRayClusters::new(false);
    let reaching = ray_clusters.client(harness.client.clone());
    let operator = harness.start_operator_with(reaching.clone(), settings(Limits::default()));
    let jobs: Api<RayJob> = Api::namespaced(harness.client.clone(), &harness.namespace);
    let mut cluster = small_cluster();
    cluster["headGroupSpec"]["template"]["spec"]["containers"][0]["env"] =
        json!([{"name": "A", "value": "marker-env-value"}]);
    let spec = json!({"entrypoint": "python train.py", "submissionMode": "HTTPMode", "rayClusterSpec": cluster,
        "shutdownAfterJobFinishes": true, "ttlSecondsAfterFinished": 0});
    let job = serde_json::from_value(json!({"metadata": {"name": "train"}, "spec": spec}))?;
    jobs.create(&PostParams::default(), &job).await?;

    let status = eventually("the submission", async || {
        let status = jobs.get("train").await?.status.unwrap_or_default();
        ensure!(ray_clusters.was_posted_to(), "{status:?}");
        Ok(status)
    })
    .await?;
    let (name, id) = (status.ray_cluster_name.unwrap(), status.job_id.unwrap());
    let failed = json!({"status": "FAILED", "message": TRACEBACK, "driver_exit_code": 1});
    ray_clusters.with(&name, |ray| ray.set_job(&id, &failed)).await?;
    eventually("the cluster to be gone", async || {
        ensure!(harness.clusters().get_opt(&name).await?.is_none());
        Ok(())
    })
    .await?;

    let first_line = "RayJob train failed because its program raised ValueError: ";
    let live = explained(&reaching, &harness.namespace, "RayJob", "train").await?.context("it exists")?;
    assert!(live.explanation.cause.summary.starts_with(first_line), "{:?}", live.explanation.cause);
    assert_eq!(live.recorded, None);
    let kept: Vec<&str> = live.explanation.timeline.iter().map(|entry| entry.object.as_str()).collect();
    assert!(kept.iter().any(|object| object.starts_with("Pod ")), "its Pods are known: {kept:?}");

    jobs.delete("train", &DeleteParams::default()).await?;
    eventually("the job to be gone", async || {
        ensure!(jobs.get_opt("train").await?.is_none());
        Ok(())
    })
    .await?;
    let gone = explained(&reaching, &harness.namespace, "RayJob", "train").await?.context("there is a record")?;
    assert!(gone.recorded.is_some());
    let cause = &gone.explanation.cause;
    assert_eq!(cause.summary, format!("{first_line}[redacted] is no number."));
    assert!(cause.details.contains("File \"train.py\", line 3"), "{}", cause.details);
    let of_cluster = explained(&reaching, &harness.namespace, "RayCluster", &name).await?;
    assert!(of_cluster.is_some(), "the cluster's name leads to the record of its job");

    let records = records(&harness).await?;
    assert_eq!(records.len(), 1, "the deletion of a job that has ended adds nothing");
    assert_eq!(records[0].metadata.owner_references, None);
    assert!(!serde_json::to_string(&records)?.contains("marker-env-value"));
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn failed_heads_and_deleted_clusters_leave_bounded_records() -> Result<()> {
    let harness = Harness::new("post-mortems").await?;
    let ray_clusters = FakeRayClusters::new(false);
    let reaching = ray_clusters.client(harness.client.clone());
    let operator = harness.start_operator_with(reaching.clone(), settings(Limits { count: 2, ..Limits::default() }));
    harness.create("one", small_cluster()).await?;
    harness.until_ready("one").await?;
    let is_head = |pod: &Pod| pod.name_any().contains("-head");
    let head = harness.pods().await?.iter().find(|pod| is_head(pod)).context("a head")?.name_any();
    harness.kubelet.rule(move |pod| (pod.name_any() == head).then_some(Play::Failed { exit_code: 139 })).await?;
    let summary = eventually("the record of the head", async || {
        let found = records::summaries(&harness.client, Some(&harness.namespace)).await?;
        found.into_iter().find(|record| record.occasion == "failed").context("no record yet")
    })
    .await?;
    assert_eq!((summary.kind.as_str(), summary.name.as_str()), ("RayCluster", "one"));
    assert_eq!(summary.reason, "SegmentationFault", "{}", summary.cause);
    eventually("the new head", async || {
        let live = explained(&reaching, &harness.namespace, "RayCluster", "one").await?.context("it exists")?;
        let cause = &live.explanation.cause;
        ensure!(
            cause.summary.starts_with("RayCluster one is ready again. ") && cause.reason == "SegmentationFault",
            "{cause:?}"
        );
        ensure!(cause.summary.contains(" The Pod was replaced at "), "{cause:?}");
        Ok(())
    })
    .await?;

    for name in ["two", "three"] {
        harness.create(name, small_cluster()).await?;
        harness.until_ready(name).await?;
        harness.clusters().delete(name, &DeleteParams::default()).await?;
        eventually("the record of the deletion", async || {
            let found = explained(&reaching, &harness.namespace, "RayCluster", name).await?;
            ensure!(found.is_some_and(|found| found.recorded.is_some()));
            Ok(())
        })
        .await?;
    }
    eventually("two records", async || {
        ensure!(records(&harness).await?.len() == 2, "{}", records(&harness).await?.len());
        Ok(())
    })
    .await?;
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_directory_takes_the_place_of_config_maps() -> Result<()> {
    let harness = Harness::new("post-mortem-files").await?;
    let ray_clusters = FakeRayClusters::new(false);
    let reaching = ray_clusters.client(harness.client.clone());
    let folder = tempfile::tempdir()?;
    let directory = folder.path().join("records");
    let settings = Settings { post_mortem_directory: Some(directory.clone()), ..settings(Limits::default()) };
    let operator = harness.start_operator_with(reaching, settings);
    harness.create("one", small_cluster()).await?;
    harness.until_ready("one").await?;
    harness.clusters().delete("one", &DeleteParams::default()).await?;
    let found = eventually("the record of the deletion", async || {
        let found = record_files::summaries(&directory, Some(&harness.namespace))?;
        found.into_iter().next().context("no record yet")
    })
    .await?;
    assert_eq!((found.kind.as_str(), found.name.as_str(), found.occasion.as_str()), ("RayCluster", "one", "deleted"));
    assert_eq!(records(&harness).await?, []);
    operator.stop().await
}
