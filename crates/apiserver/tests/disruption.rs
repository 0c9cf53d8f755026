//! Evictions and disruption budgets.

use anyhow::ensure;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::Api;
use kube::api::{EvictParams, PostParams};
use manta_apiserver::{Options, Server};
use manta_testkit::{Kubelet, eventually};
use serde_json::{Value, json};

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("a valid object")
}

fn code<T>(answer: kube::Result<T>) -> u16 {
    match answer {
        Ok(_) => 201,
        Err(kube::Error::Api(status)) => status.code,
        Err(other) => panic!("{other}"),
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_budget_holds_against_evictions_at_once() {
    let server = Server::start(Options::default()).await.expect("starts");
    let _kubelet = Kubelet::start(server.client(), None);
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let budgets: Api<PodDisruptionBudget> = Api::default_namespaced(server.client());
    for name in ["a", "b", "c"] {
        let pod = json!({"metadata": {"name": name, "labels": {"app": "w"}, "finalizers": ["example.com/held"]},
            "spec": {"containers": [{"name": "c", "image": "i"}]}});
        pods.create(&PostParams::default(), &object(pod)).await.expect("created");
    }
    let budget = json!({"metadata": {"name": "b"},
        "spec": {"minAvailable": 2, "selector": {"matchLabels": {"app": "w"}}}});
    budgets.create(&PostParams::default(), &object(budget)).await.expect("created");
    eventually("one of three may go", async || {
        let status = budgets.get("b").await?.status.unwrap_or_default();
        ensure!((status.disruptions_allowed, status.current_healthy) == (Some(1), Some(3)), "{status:?}");
        Ok(())
    })
    .await
    .expect("counted");
    let trial =
        EvictParams { post_options: PostParams { dry_run: true, ..PostParams::default() }, delete_options: None };
    assert_eq!(code(pods.evict("a", &trial).await), 201);
    let options = EvictParams::default();
    let (a, b, c) = tokio::join!(pods.evict("a", &options), pods.evict("b", &options), pods.evict("c", &options));
    let mut codes = [code(a), code(b), code(c)];
    codes.sort_unstable();
    assert_eq!(codes, [201, 429, 429]);
    eventually("two are left, and none may go", async || {
        let status = budgets.get("b").await?.status.unwrap_or_default();
        let disrupted = status.disrupted_pods.unwrap_or_default().len();
        ensure!((status.disruptions_allowed, status.current_healthy, disrupted) == (Some(0), Some(2), 0));
        Ok(())
    })
    .await
    .expect("counted");
}
