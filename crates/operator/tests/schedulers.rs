//! The operator against a real kube-apiserver: batch schedulers.

#![allow(clippy::unwrap_used)]

#[allow(dead_code)]
mod harness;

use anyhow::{Context, Result, ensure};
use harness::{Harness, RequestCounts, counting_client, small_cluster};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use manta_api::{RayCluster, RayJob};
use manta_logic::config::{BatchScheduler, Config};
use manta_operator::Settings;
use manta_operator::args::Arguments;
use manta_operator::process;
use manta_testkit::{ControlPlane, eventually};
use serde_json::{Value, json};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

async fn harness(name: &str) -> Result<Harness> {
    let harness = Harness::new(name).await?;
    ControlPlane::shared().install_scheduler_crds().await?;
    Ok(harness)
}

fn with(scheduler: BatchScheduler) -> Settings {
    let config = Config { batch_scheduler: Some(scheduler), ..Config::default() };
    Settings { config, ..Settings::default() }
}

fn pod_groups(harness: &Harness, group: &str, version: &str) -> Api<DynamicObject> {
    let resource = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk(group, version, "PodGroup"), "podgroups");
    Api::namespaced_with(harness.client.clone(), &harness.namespace, &resource)
}

/// Waits until a PodGroup has this size.
async fn until_size(groups: &Api<DynamicObject>, name: &str, size: i64) -> Result<Value> {
    eventually(&format!("PodGroup {name} of {size} Pods"), async || {
        let spec = groups.get(name).await?.data["spec"].take();
        ensure!(spec["minMember"] == json!(size), "{spec}");
        Ok(spec)
    })
    .await
}

async fn set_replicas(harness: &Harness, name: &str, replicas: i32) -> Result<()> {
    let mut spec = small_cluster();
    spec["workerGroupSpecs"][0]["replicas"] = json!(replicas);
    let patch = Patch::Merge(json!({"spec": {"workerGroupSpecs": spec["workerGroupSpecs"]}}));
    harness.clusters().patch(name, &PatchParams::default(), &patch).await?;
    Ok(())
}

async fn create(harness: &Harness, name: &str, labels: Value) -> Result<()> {
    let cluster = json!({"metadata": {"name": name, "labels": labels}, "spec": small_cluster()});
    harness.clusters().create(&PostParams::default(), &serde_json::from_value::<RayCluster>(cluster)?).await?;
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_volcano_pod_group_follows_its_cluster_without_idle_requests() -> Result<()> {
    let harness = harness("volcano").await?;
    let counts = Arc::new(RequestCounts::default());
    let client = counting_client(harness.client.clone(), &counts, None);
    let operator = harness.start_operator_with(client, with(BatchScheduler::Volcano));
    create(&harness, "demo", json!({"volcano.sh/queue-name": "q1"})).await?;
    let groups = pod_groups(&harness, "scheduling.volcano.sh", "v1beta1");
    let spec = until_size(&groups, "ray-demo-pg", 3).await?;
    assert_eq!(spec["queue"], "q1");
    harness.until_ready("demo").await?;
    for pod in harness.pods().await? {
        assert_eq!(pod.spec.unwrap().scheduler_name.as_deref(), Some("volcano"));
    }
    set_replicas(&harness, "demo", 4).await?;
    until_size(&groups, "ray-demo-pg", 5).await?;
    harness.until("demo", |cluster| cluster.status.as_ref().unwrap().ready_worker_replicas == Some(4)).await?;

    // A deleted PodGroup is created again.
    groups.delete("ray-demo-pg", &Default::default()).await?;
    until_size(&groups, "ray-demo-pg", 5).await?;
    counts.until_idle().await?;
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn suspending_a_job_resizes_its_volcano_pod_group() -> Result<()> {
    let harness = harness("volcano-job").await?;
    let operator = harness.start_operator_with(harness.client.clone(), with(BatchScheduler::Volcano));
    let jobs: Api<RayJob> = Api::namespaced(harness.client.clone(), &harness.namespace);
    let job = json!({"metadata": {"name": "train"}, "spec": {
        "entrypoint": "true", "rayClusterSpec": small_cluster(), "shutdownAfterJobFinishes": true,
    }});
    jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await?;
    let groups = pod_groups(&harness, "scheduling.volcano.sh", "v1beta1");
    let spec = until_size(&groups, "ray-train-pg", 3).await?;
    assert_eq!(spec["minResources"], json!({"cpu": "500m", "memory": "200Mi"}), "the submitter's");

    for (suspend, size) in [(true, 0), (false, 3)] {
        let patch = Patch::Merge(json!({"spec": {"suspend": suspend}}));
        jobs.patch("train", &PatchParams::default(), &patch).await?;
        until_size(&groups, "ray-train-pg", size).await?;
    }
    let notes = harness.notes("BatchSchedulerCleanedUp").await?;
    let path = format!("{}/train", harness.namespace);
    assert_eq!(notes, [format!("Cleaned up batch scheduler resources for RayJob {path}")]);
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_coscheduling_pod_group_shrinks_with_its_cluster() -> Result<()> {
    let harness = harness("coscheduling").await?;
    let operator = harness.start_operator_with(harness.client.clone(), with(BatchScheduler::SchedulerPlugins));
    create(&harness, "demo", json!({"ray.io/gang-scheduling-enabled": "true"})).await?;
    let groups = pod_groups(&harness, "scheduling.x-k8s.io", "v1alpha1");
    until_size(&groups, "demo", 3).await?;
    harness.until_ready("demo").await?;
    set_replicas(&harness, "demo", 1).await?;
    until_size(&groups, "demo", 2).await?;
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_missing_workload_api_is_an_error_at_start() -> Result<()> {
    let harness = harness("no-workloads").await?;
    let line = format!(
        "--watch-namespace={} --metrics-addr=0 --health-probe-bind-address=0 --feature-gates=KubernetesWAS=true",
        harness.namespace
    );
    let arguments = Arguments::read(line.split_whitespace().map(str::to_owned), |_| None, |_| Err(String::new()))?;
    let file = Kubeconfig::read_from(ControlPlane::shared().kubeconfig_path())?;
    let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await?;
    let ended = process::run(config, arguments.settings, arguments.process, CancellationToken::new()).await;
    let error = ended.err().context("it runs")?.to_string();
    assert!(
        error.starts_with(
            "no served scheduling.k8s.io API version available for kubernetes-was-v1alpha2: scheduling.k8s.io/v1alpha2 API \
             is not available: "
        ) && !error.contains('\n'),
        "{error}"
    );
    Ok(())
}
