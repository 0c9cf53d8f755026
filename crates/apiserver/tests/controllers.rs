//! What the built-in controllers do over time.

use anyhow::ensure;
use k8s_openapi::api::apps::v1::Deployment;
use k8s_openapi::api::core::v1::{ConfigMap, Pod};
use kube::Api;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use manta_apiserver::{Options, Server};
use manta_testkit::eventually;
use serde_json::{Value, json};

fn object<K: serde::de::DeserializeOwned>(value: Value) -> K {
    serde_json::from_value(value).expect("a valid object")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_cycle_of_owners_is_collected() {
    let server = Server::start(Options::default()).await.expect("starts");
    let maps: Api<ConfigMap> = Api::default_namespaced(server.client());
    let mut uids = Vec::new();
    for name in ["a", "b", "c"] {
        let made = maps.create(&PostParams::default(), &object(json!({"metadata": {"name": name}}))).await;
        uids.push(made.expect("created").metadata.uid.expect("a uid"));
    }
    // a belongs to c, b to a, and c to b.
    for (name, owner) in [("a", 2), ("b", 0), ("c", 1)] {
        let (owner, uid) = (["a", "b", "c"][owner], &uids[owner]);
        let reference = json!({"apiVersion": "v1", "kind": "ConfigMap", "name": owner, "uid": uid,
            "blockOwnerDeletion": true});
        let patch = json!({"metadata": {"ownerReferences": [reference]}});
        maps.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await.expect("patched");
    }
    let options = DeleteParams { propagation_policy: Some(PropagationPolicy::Foreground), ..DeleteParams::default() };
    maps.delete("a", &options).await.expect("deleted");
    let left = async || {
        let left = maps.list(&ListParams::default()).await?.items;
        let names: Vec<_> = left.into_iter().filter_map(|map| map.metadata.name).collect();
        ensure!(names == ["kube-root-ca.crt"], "{names:?}");
        Ok(())
    };
    eventually("the cycle is gone", left).await.expect("collected");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn recreate_starts_no_new_pod_beside_an_old_one() {
    let server = Server::start(Options::default()).await.expect("starts");
    let deployments: Api<Deployment> = Api::default_namespaced(server.client());
    let pods: Api<Pod> = Api::default_namespaced(server.client());
    let deployment = json!({"metadata": {"name": "d"}, "spec": {"strategy": {"type": "Recreate"},
        "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}},
            "spec": {"nodeName": "n", "containers": [{"name": "c", "image": "one"}]}}}});
    deployments.create(&PostParams::default(), &object(deployment)).await.expect("created");
    let one_pod = async |image: &str| {
        let found = pods.list(&ListParams::default()).await?.items;
        ensure!(found.len() == 1, "{} pods", found.len());
        let pod = found.into_iter().next().expect("one");
        let seen = pod.spec.as_ref().and_then(|spec| spec.containers[0].image.clone());
        ensure!(seen.as_deref() == Some(image), "{seen:?}");
        Ok(pod)
    };
    eventually("the first pod exists", async || one_pod("one").await).await.expect("created");
    let update = json!({"spec": {"template": {"spec": {"containers": [{"name": "c", "image": "two"}]}}}});
    deployments.patch("d", &PatchParams::default(), &Patch::Strategic(&update)).await.expect("patched");
    // The old pod is on a node, so it is marked and stays until the node has stopped it.
    let old = eventually("the old pod is asked to stop", async || {
        let pod = one_pod("one").await?;
        ensure!(pod.metadata.deletion_timestamp.is_some());
        Ok(pod)
    });
    let old = old.await.expect("alone").metadata.name.expect("a name");
    pods.delete(&old, &DeleteParams { grace_period_seconds: Some(0), ..DeleteParams::default() }).await.expect("gone");
    eventually("the new pod follows", async || one_pod("two").await).await.expect("created");
}
