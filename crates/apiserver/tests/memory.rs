//! Memory after the Ray CRDs are applied and used: schemas are compiled on first use, shared and compact.

use kube::Api;
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::ApiResource;
use manta_apiserver::{Options, Server};
use serde_json::{Value, json};

/// Returns the resident memory of this process in MiB.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/status").expect("Linux");
    let line = text.lines().find_map(|line| line.strip_prefix("VmRSS:")).expect("a line");
    line.split_whitespace().next().and_then(|kib| kib.parse::<usize>().ok()).expect("a number") / 1024
}

#[tokio::test]
async fn custom_kinds_take_little_memory() {
    let server = Server::start(Options::default()).await.expect("starts");
    let client = server.client();
    let start = resident();
    let definitions: Api<DynamicObject> = Api::all_with(
        client.clone(),
        &ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk(
            "apiextensions.k8s.io",
            "v1",
            "CustomResourceDefinition",
        )),
    );
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    for file in std::fs::read_dir(folder).expect("the CRDs").flatten() {
        let text = std::fs::read_to_string(file.path()).expect("readable");
        let definition: Value = serde_saphyr::from_str(&text).expect("YAML");
        let name = definition["metadata"]["name"].as_str().expect("a name").to_owned();
        definitions.patch(&name, &PatchParams::apply("test"), &Patch::Apply(&definition)).await.expect("applied");
    }
    let defined = resident() - start;
    let clusters: Api<DynamicObject> = Api::default_namespaced_with(
        client,
        &ApiResource::from_gvk(&kube::core::GroupVersionKind::gvk("ray.io", "v1", "RayCluster")),
    );
    let pod = json!({"spec": {"containers": [{"name": "ray", "image": "rayproject/ray:2.9.0"}]}});
    let cluster: DynamicObject = serde_json::from_value(json!({"apiVersion": "ray.io/v1", "kind": "RayCluster",
        "metadata": {"name": "a"}, "spec": {"headGroupSpec": {"rayStartParams": {}, "template": pod}}}))
    .expect("an object");
    for _ in 0..500 {
        match clusters.create(&PostParams::default(), &cluster).await {
            Ok(_) => break,
            Err(_) => tokio::time::sleep(std::time::Duration::from_millis(10)).await,
        }
    }
    clusters.get("a").await.expect("created");
    let used = resident() - start;
    println!("{start} MiB at start, {defined} more with the CRDs, {used} more with an object of one of them");
    assert!(defined <= LIMIT && used <= LIMIT, "{defined} MiB with the CRDs, {used} MiB with an object");
}

/// What the four Ray CRDs may add, in MiB.
const LIMIT: usize = 60;
