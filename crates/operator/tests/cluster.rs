//! The operator against a real kube-apiserver: RayClusters.

#![allow(clippy::unwrap_used)]

mod scene;

use anyhow::Result;
use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::{DeleteParams, Patch, PatchParams};
use manta_testkit::Play;
use scene::{Counted, Crash, Scene, counting, small_cluster, state};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_comes_up_and_rests_without_requests() -> Result<()> {
    let scene = Scene::new("rest").await?;
    let counted = Arc::new(Counted::default());
    let operator = scene.start_operator(counting(scene.client.clone(), &counted, None));
    scene.create("demo", small_cluster()).await?;
    let cluster = scene.until_ready("demo").await?;
    assert_eq!(cluster.status.unwrap().ready_worker_replicas, Some(2));
    assert_eq!(scene.pods().await?.len(), 3);

    counted.until_at_rest().await?;
    let writes = counted.writes.load(Ordering::SeqCst);
    assert!(writes <= 10, "{writes} writes for one cluster");
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_write_leaves_no_duplicates() -> Result<()> {
    let scene = Scene::new("crash").await?;
    for at in 0..6 {
        for crash in [Crash::Before, Crash::After] {
            let name = format!("c{at}-{}", if crash == Crash::Before { "before" } else { "after" });
            let counted = Arc::new(Counted::default());
            let first = scene.start_operator(counting(scene.client.clone(), &counted, Some((at, crash))));
            scene.create(&name, small_cluster()).await?;
            let reached = tokio::time::timeout(Duration::from_secs(30), counted.crashed.notified()).await;
            first.kill().await;

            let second = scene.start_operator(scene.client.clone());
            scene.until_ready(&name).await?;
            second.stop().await?;
            let pods = scene.pods().await?;
            let groups: Vec<_> = pods
                .iter()
                .filter_map(|pod| pod.metadata.labels.as_ref())
                .filter(|labels| labels.get("ray.io/cluster") == Some(&name))
                .map(|labels| labels["ray.io/node-type"].clone())
                .collect();
            let count = |node_type: &str| groups.iter().filter(|of| *of == node_type).count();
            assert_eq!((count("head"), count("worker")), (1, 2), "{name}, reached: {}", reached.is_ok());
            let services: BTreeSet<_> =
                scene.services().await?.into_iter().filter_map(|service| service.metadata.name).collect();
            assert!(services.contains(&format!("{name}-head-svc")));
            scene.clusters().delete(&name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permanently_invalid_object_costs_one_event() -> Result<()> {
    let scene = Scene::new("invalid").await?;
    let operator = scene.start_operator(scene.client.clone());
    let mut spec = small_cluster();
    spec["workerGroupSpecs"][0]["minReplicas"] = json!(-1);
    scene.create("bad", spec).await?;
    scene.until_told("InvalidRayClusterSpec").await?;
    // Touching its labels makes the operator look again, and say nothing new.
    for round in 0..3 {
        let labels = json!({"metadata": {"labels": {"round": round.to_string()}}});
        let touched = scene.clusters().patch("bad", &PatchParams::default(), &Patch::Merge(labels)).await?;
        // What came after it is done, so its own turn is over.
        scene.create(&format!("good{round}"), small_cluster()).await?;
        scene.until_ready(&format!("good{round}")).await?;
        assert_eq!(scene.clusters().get("bad").await?.resource_version(), touched.resource_version());
    }
    let of_bad = |pod: &Pod| pod.name_any().starts_with("bad");
    assert!(!scene.pods().await?.iter().any(of_bad));
    let notes = scene.notes("InvalidRayClusterSpec").await?;
    let expect = format!(
        "The RayCluster spec is invalid {}/bad: worker group small has negative minReplicas -1",
        scene.namespace
    );
    assert_eq!(notes, [expect]);
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_keeps_pods_from_starting_is_told_until_they_start() -> Result<()> {
    let scene = Scene::new("blocked").await?;
    let pull = Play::Waiting { reason: "ImagePullBackOff".into(), message: "no such image".into() };
    scene.kubelet.rule(move |_| Some(pull.clone())).await?;
    let operator = scene.start_operator(scene.client.clone());
    scene.create("demo", small_cluster()).await?;
    let blocked = |cluster: &manta_api::RayCluster| {
        let conditions = cluster.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        conditions.into_iter().find(|condition| condition.type_ == "RayClusterPodsBlocked")
    };
    let all_three = |message: &str| message.starts_with("3 of 3 Pods cannot start: ");
    let cluster =
        scene.until("demo", |cluster| blocked(cluster).is_some_and(|condition| all_three(&condition.message))).await?;
    assert_eq!(blocked(&cluster).unwrap().reason, "ImagePullBackOff");
    scene.kubelet.rule(|_| Some(Play::Ready)).await?;
    let cluster = scene.until_ready("demo").await?;
    assert_eq!(blocked(&cluster), None);
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_busy_cluster_does_not_hold_up_another() -> Result<()> {
    let scene = Scene::new("fair").await?;
    // No Pod of the first cluster ever starts, and it wants many.
    scene
        .kubelet
        .rule(|pod| {
            let big = pod.metadata.name.as_deref().is_some_and(|name| name.starts_with("big-"));
            big.then(|| Play::Unschedulable { message: "no room".into() })
        })
        .await?;
    let operator = scene.start_operator(scene.client.clone());
    let mut big = small_cluster();
    big["workerGroupSpecs"][0]["replicas"] = json!(150);
    big["workerGroupSpecs"][0]["maxReplicas"] = json!(150);
    scene.create("big", big).await?;
    scene.create("small", small_cluster()).await?;
    scene.until_ready("small").await?;
    let big = scene.clusters().get("big").await?;
    assert_ne!(state(&big), "ready");
    operator.stop().await
}
