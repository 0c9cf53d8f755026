//! Creates the RayClusters of the benchmark.

use std::collections::BTreeSet;
use std::ops::Range;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};
use futures::{StreamExt, TryStreamExt, stream};
use kube::api::{ApiResource, DynamicObject, PostParams};
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};

use crate::process::print_line;

/// How many are created concurrently.
const CONCURRENCY: usize = 8;

/// Creates the clusters with these numbers, waits until all are ready, and returns how long creating took.
pub(super) async fn create_until_ready(client: &Client, numbers: Range<usize>, limit: Duration) -> Result<Duration> {
    let count = numbers.len();
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", "RayCluster"));
    let api: Api<DynamicObject> = Api::namespaced_with(client.clone(), "default", &resource);
    let start = Instant::now();
    let create = async {
        stream::iter(numbers.clone())
            .map(|number| {
                let api = &api;
                async move {
                    api.create(&PostParams::default(), &serde_json::from_value(cluster(number))?)
                        .await
                        .context("cannot create a RayCluster")
                }
            })
            .buffer_unordered(CONCURRENCY)
            .try_for_each(|_| std::future::ready(Ok(())))
            .await?;
        Ok(start.elapsed())
    };
    let names = numbers.clone().map(name).collect();
    let ready = wait_for_ready(api.clone(), names);
    match tokio::time::timeout(limit, futures::future::try_join(create, ready)).await {
        Ok(done) => done.map(|(created_in, ())| created_in),
        Err(_) => bail!("not all {count} RayClusters were ready within {} s", limit.as_secs()),
    }
}

async fn wait_for_ready(api: Api<DynamicObject>, mut missing: BTreeSet<String>) -> Result<()> {
    let count = missing.len();
    let mut seen = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff().applied_objects());
    while !missing.is_empty() {
        let Some(Ok(cluster)) = seen.next().await else { continue };
        let name = cluster.name_any();
        if cluster.data["status"]["state"] == "ready" && missing.remove(&name) && missing.len().is_multiple_of(100) {
            print_line(&format!("{} ready", count - missing.len()));
        }
    }
    Ok(())
}

/// Returns the name of a cluster.
fn name(number: usize) -> String {
    format!("bench-{number:04}")
}

/// Returns a RayCluster with one head and three workers.
fn cluster(number: usize) -> Value {
    let template = |name: &str| {
        json!({"spec": {"containers": [{
            "name": name, "image": "rayproject/ray:2.52.0",
            "resources": {"requests": {"cpu": "1", "memory": "2Gi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
        }]}})
    };
    json!({
        "apiVersion": "ray.io/v1",
        "kind": "RayCluster",
        "metadata": {"name": name(number)},
        "spec": {
            "rayVersion": "2.52.0",
            "headGroupSpec": {"rayStartParams": {"dashboard-host": "0.0.0.0"}, "template": template("ray-head")},
            "workerGroupSpecs": [{
                "groupName": "workers", "replicas": 3, "minReplicas": 0, "maxReplicas": 10,
                "rayStartParams": {}, "template": template("ray-worker"),
            }],
        },
    })
}
