//! The operator against a real kube-apiserver: RayClusters.

#![allow(clippy::unwrap_used)]

mod harness;

use anyhow::{Context, Result};
use harness::{Crash, Harness, RequestCounts, counting_client, small_cluster, state};
use k8s_openapi::api::core::v1::{Pod, ResourceQuota, Secret};
use kube::api::{DeleteParams, Patch, PatchParams, PostParams};
use kube::{Api, ResourceExt};
use manta_api::RayCluster;
use manta_logic::config::{Config, Platform};
use manta_operator::{Settings, platform};
use manta_testkit::{ControlPlane, Play, eventually};
use serde_json::json;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_ready_cluster_causes_no_requests() -> Result<()> {
    let harness = Harness::new("rest").await?;
    let counts = Arc::new(RequestCounts::default());
    let operator = harness.start_operator(counting_client(harness.client.clone(), &counts, None));
    harness.create("demo", small_cluster()).await?;
    let cluster = harness.until_ready("demo").await?;
    assert_eq!(cluster.status.unwrap().ready_worker_replicas, Some(2));
    assert_eq!(harness.pods().await?.len(), 3);

    counts.until_idle().await?;
    let writes = counts.writes.load(Ordering::SeqCst);
    assert!(writes <= 10, "{writes} writes for one cluster");
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_streams_lists_is_asked_for_no_pages() -> Result<()> {
    let harness = Harness::new("stream").await?;
    let platform = platform::detect(&harness.client).await?;
    assert!(platform.streaming_lists, "the server is of 1.34 or later");
    harness.create("demo", small_cluster()).await?;
    // The second one finds what the first has created.
    for streaming_lists in [true, true, false] {
        let config = Config { platform: Platform { streaming_lists, ..platform }, ..Config::default() };
        let counts = Arc::new(RequestCounts::default());
        let client = counting_client(harness.client.clone(), &counts, None);
        let operator = harness.start_operator_with(client, Settings { config, ..Settings::default() });
        harness.until_ready("demo").await?;
        counts.until_idle().await?;
        assert_eq!(counts.lists.load(Ordering::SeqCst) == 0, streaming_lists);
        operator.stop().await?;
    }
    assert_eq!(harness.pods().await?.len(), 3);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_write_leaves_no_duplicates() -> Result<()> {
    let harness = Harness::new("crash").await?;
    for at in 0..6 {
        for crash in [Crash::Before, Crash::After] {
            let name = format!("c{at}-{}", if crash == Crash::Before { "before" } else { "after" });
            let counts = Arc::new(RequestCounts::default());
            let first = harness.start_operator(counting_client(harness.client.clone(), &counts, Some((at, crash))));
            harness.create(&name, small_cluster()).await?;
            let reached = tokio::time::timeout(Duration::from_secs(30), counts.crashed.notified()).await;
            first.kill().await;

            let second = harness.start_operator(harness.client.clone());
            harness.until_ready(&name).await?;
            second.stop().await?;
            let pods = harness.pods().await?;
            let groups: Vec<_> = pods
                .iter()
                .filter_map(|pod| pod.metadata.labels.as_ref())
                .filter(|labels| labels.get("ray.io/cluster") == Some(&name))
                .map(|labels| labels["ray.io/node-type"].clone())
                .collect();
            let count = |node_type: &str| groups.iter().filter(|of| *of == node_type).count();
            assert_eq!((count("head"), count("worker")), (1, 2), "{name}, reached: {}", reached.is_ok());
            let services: BTreeSet<_> =
                harness.services().await?.into_iter().filter_map(|service| service.metadata.name).collect();
            assert!(services.contains(&format!("{name}-head-svc")));
            harness.clusters().delete(&name, &DeleteParams::default()).await?;
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_permanently_invalid_object_costs_one_event() -> Result<()> {
    let harness = Harness::new("invalid").await?;
    let operator = harness.start_operator(harness.client.clone());
    let mut spec = small_cluster();
    spec["workerGroupSpecs"][0]["minReplicas"] = json!(-1);
    harness.create("bad", spec).await?;
    harness.until_event("InvalidRayClusterSpec").await?;
    // Changing its labels wakes the operator, which publishes no new event.
    for round in 0..3 {
        let labels = json!({"metadata": {"labels": {"round": round.to_string()}}});
        let touched = harness.clusters().patch("bad", &PatchParams::default(), &Patch::Merge(labels)).await?;
        // A cluster created later is ready, so the pass over this one is done.
        harness.create(&format!("good{round}"), small_cluster()).await?;
        harness.until_ready(&format!("good{round}")).await?;
        assert_eq!(harness.clusters().get("bad").await?.resource_version(), touched.resource_version());
    }
    let of_bad = |pod: &Pod| pod.name_any().starts_with("bad");
    assert!(!harness.pods().await?.iter().any(of_bad));
    let notes = harness.notes("InvalidRayClusterSpec").await?;
    let expect = format!(
        "The RayCluster spec is invalid {}/bad: worker group small has negative minReplicas -1",
        harness.namespace
    );
    assert_eq!(notes, [expect]);
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn blocked_pods_are_a_condition_until_they_start() -> Result<()> {
    let harness = Harness::new("blocked").await?;
    let pull = Play::Waiting { reason: "ImagePullBackOff".into(), message: "no such image".into() };
    harness.kubelet.rule(move |_| Some(pull.clone())).await?;
    let operator = harness.start_operator(harness.client.clone());
    harness.create("demo", small_cluster()).await?;
    let blocked = |cluster: &manta_api::RayCluster| {
        let conditions = cluster.status.clone().unwrap_or_default().conditions.unwrap_or_default();
        conditions.into_iter().find(|condition| condition.type_ == "RayClusterPodsBlocked")
    };
    let all_three = |message: &str| message.starts_with("3 of 3 Pods cannot start: ");
    let cluster = harness
        .until("demo", |cluster| blocked(cluster).is_some_and(|condition| all_three(&condition.message)))
        .await?;
    assert_eq!(blocked(&cluster).unwrap().reason, "ImagePullBackOff");
    harness.kubelet.rule(|_| Some(Play::Ready)).await?;
    let cluster = harness.until_ready("demo").await?;
    assert_eq!(blocked(&cluster), None);
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_large_unschedulable_cluster_does_not_delay_another() -> Result<()> {
    let harness = Harness::new("fair").await?;
    // No Pod of the first cluster ever starts, and it wants many.
    harness
        .kubelet
        .rule(|pod| {
            let big = pod.metadata.name.as_deref().is_some_and(|name| name.starts_with("big-"));
            big.then(|| Play::Unschedulable { message: "insufficient cpu".into() })
        })
        .await?;
    let operator = harness.start_operator(harness.client.clone());
    let mut big = small_cluster();
    big["workerGroupSpecs"][0]["replicas"] = json!(150);
    big["workerGroupSpecs"][0]["maxReplicas"] = json!(150);
    harness.create("big", big).await?;
    harness.create("small", small_cluster()).await?;
    harness.until_ready("small").await?;
    let big = harness.clusters().get("big").await?;
    assert_ne!(state(&big), "ready");
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_status_that_somebody_else_writes_stays() -> Result<()> {
    let harness = Harness::new("status").await?;
    let operator = harness.start_operator(harness.client.clone());
    harness.create("demo", small_cluster()).await?;
    harness.until_ready("demo").await?;
    let status = json!({"status": {"maxWorkerReplicas": 42}});
    let clusters = harness.clusters();
    clusters.patch_status("demo", &PatchParams::default(), &Patch::Merge(&status)).await?;
    // By the time that a later cluster is ready, the operator has seen the change.
    harness.create("later", small_cluster()).await?;
    harness.until_ready("later").await?;
    assert_eq!(clusters.get("demo").await?.status.unwrap().max_worker_replicas, Some(42));
    let label = json!({"metadata": {"labels": {"team": "a"}}});
    clusters.patch("demo", &PatchParams::default(), &Patch::Merge(&label)).await?;
    harness.until("demo", |cluster| cluster.status.as_ref().unwrap().max_worker_replicas == Some(5)).await?;
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refused_pod_is_reported_once() -> Result<()> {
    if ControlPlane::shared().is_embedded() {
        println!("skipped: the embedded server has no quotas");
        return Ok(());
    }
    let harness = Harness::new("refused").await?;
    let quotas: Api<ResourceQuota> = Api::namespaced(harness.client.clone(), &harness.namespace);
    let quota = json!({"metadata": {"name": "none"}, "spec": {"hard": {"pods": "0"}}});
    quotas.create(&PostParams::default(), &serde_json::from_value(quota)?).await?;
    eventually("the quota to be enforced", async || {
        let status = quotas.get("none").await?.status.context("no status")?;
        anyhow::ensure!(status.hard.is_some(), "not yet");
        Ok(())
    })
    .await?;
    let counts = Arc::new(RequestCounts::default());
    let operator = harness.start_operator(counting_client(harness.client.clone(), &counts, None));
    harness.create("demo", small_cluster()).await?;
    let failure = |cluster: &RayCluster| {
        let conditions = cluster.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
        conditions.into_iter().find(|condition| condition.type_ == "ReplicaFailure").map(|condition| condition.message)
    };
    let cluster = harness.until("demo", |cluster| failure(cluster).is_some()).await?;
    let (message, writes) = (failure(&cluster).unwrap(), counts.writes.load(Ordering::SeqCst));
    assert!(message.contains("exceeded quota"), "{message}");
    eventually("more tries", async || {
        anyhow::ensure!(counts.writes.load(Ordering::SeqCst) >= writes + 3, "not yet");
        Ok(())
    })
    .await?;
    assert_eq!(failure(&harness.clusters().get("demo").await?).as_ref(), Some(&message));
    let notes = harness.notes("FailedToCreateHeadPod").await?;
    assert_eq!(notes.len(), 1, "{notes:?}");
    assert!(notes[0].starts_with(&format!("Failed to create head Pod {}/demo-head-", harness.namespace)), "{notes:?}");
    operator.stop().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cluster_made_again_gets_a_token_of_its_own() -> Result<()> {
    let harness = Harness::new("token").await?;
    let operator = harness.start_operator(harness.client.clone());
    let secrets: Api<Secret> = Api::namespaced(harness.client.clone(), &harness.namespace);
    let mut spec = small_cluster();
    spec["authOptions"] = json!({"mode": "token"});
    for _ in 0..2 {
        let uid = harness.create("demo", spec.clone()).await?.metadata.uid;
        harness.until_ready("demo").await?;
        let secret = secrets.get("demo").await?;
        assert_eq!(Some(&secret.owner_references()[0].uid), uid.as_ref(), "the Secret of an earlier cluster");
        assert!(secret.metadata.deletion_timestamp.is_none());
        harness.clusters().delete("demo", &DeleteParams::default()).await?;
    }
    operator.stop().await
}
