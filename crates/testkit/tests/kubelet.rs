//! The fake kubelet on a real server.

use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{DeleteParams, PostParams};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::{Condition, await_condition};
use kube::{Api, ResourceExt};
use manta_testkit::{ControlPlane, Kubelet, Play, User};
use serde_json::json;

async fn create(pods: &Api<Pod>, name: &str) -> Pod {
    let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "none"}]}});
    pods.create(&PostParams::default(), &serde_json::from_value(pod).expect("a pod")).await.expect("created")
}

async fn wait(pods: &Api<Pod>, name: &str, condition: impl Condition<Pod>) {
    let waiting = await_condition(pods.clone(), name, condition);
    tokio::time::timeout(Duration::from_secs(60), waiting).await.expect("seen within a minute").expect("watched");
}

fn has_phase(phase: &'static str) -> impl Condition<Pod> {
    move |pod: Option<&Pod>| pod.and_then(|pod| pod.status.as_ref()?.phase.as_deref()) == Some(phase)
}

#[tokio::test]
async fn pods_become_ready_unless_a_rule_says_otherwise() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("kubelet").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(plane.client().await.unwrap(), &namespace);
    create(&pods, "early").await;
    let kubelet = Kubelet::start(plane.client_for(User::Kubelet).await.unwrap(), Some(&namespace));
    create(&pods, "late").await;
    for name in ["early", "late"] {
        wait(&pods, name, kube::runtime::conditions::is_pod_running()).await;
    }
    let addresses: Vec<_> = pods
        .list(&Default::default())
        .await
        .unwrap()
        .iter()
        .map(|pod| pod.status.clone().unwrap().pod_ip.unwrap())
        .collect();
    assert!(addresses.len() == 2 && addresses[0] != addresses[1], "{addresses:?}");

    kubelet.rule(|pod| (pod.name_any() == "late").then_some(Play::Failed { exit_code: 1 })).await.unwrap();
    wait(&pods, "late", has_phase("Failed")).await;
    wait(&pods, "early", has_phase("Running")).await;
}

#[tokio::test]
async fn a_pod_on_a_node_is_deleted_only_by_its_kubelet() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("node").await.unwrap();
    let pods: Api<Pod> = Api::namespaced(plane.client().await.unwrap(), &namespace);
    let kubelet = Kubelet::start_on_node(plane.client_for(User::Kubelet).await.unwrap(), &namespace, "node-1");
    kubelet
        .rule(|pod| (pod.name_any() == "stuck" && pod.metadata.deletion_timestamp.is_some()).then_some(Play::Ignored))
        .await
        .unwrap();
    for name in ["quick", "stuck"] {
        let pod = create(&pods, name).await;
        wait(&pods, name, has_phase("Running")).await;
        assert_eq!(pods.get(name).await.unwrap().spec.unwrap().node_name.as_deref(), Some("node-1"));
        pods.delete(name, &DeleteParams::default()).await.unwrap();
        if name == "quick" {
            wait(&pods, name, is_deleted(&pod.uid().unwrap())).await;
        }
    }
    assert!(pods.get("stuck").await.unwrap().metadata.deletion_timestamp.is_some());
}
