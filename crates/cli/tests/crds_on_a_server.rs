//! The CRDs on a real kube-apiserver: installed with kubectl, served, and accepting objects.

#![allow(clippy::unwrap_used)]

use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::{Api, Resource, ResourceExt};
use manta_api::crd::{self, Versions};
use manta_api::{RayCluster, RayCronJob, RayJob, RayService};
use manta_testkit::ControlPlane;
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::fmt::Debug;
use std::io::Write;
use std::process::{Command, Output, Stdio};

const CRDS: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../../deploy/crds");
const NAMES: [&str; 4] =
    ["crd/rayclusters.ray.io", "crd/raycronjobs.ray.io", "crd/rayjobs.ray.io", "crd/rayservices.ray.io"];

#[tokio::test]
async fn client_side_kubectl_apply_installs_the_crds() {
    let plane = ControlPlane::start().unwrap();
    let applied = plane.kubectl(&["apply", "-f", CRDS]).unwrap();
    assert_eq!(applied.matches(" created\n").count(), 4, "{applied}");
    wait_until_established(&plane);
    let again = plane.kubectl(&["apply", "-f", CRDS]).unwrap();
    assert_eq!(again.matches(" unchanged\n").count(), 4, "{again}");
    serves_the_schemas_of(&plane, Versions::V1).await;

    let namespace = plane.namespace("crds").await.unwrap();
    accepts::<RayCluster>(&plane, &namespace, json!({"headGroupSpec": head()})).await;
    accepts::<RayJob>(&plane, &namespace, json!({"rayClusterSpec": {"headGroupSpec": head()}})).await;
    accepts::<RayService>(&plane, &namespace, json!({"rayClusterConfig": {"headGroupSpec": head()}})).await;
    accepts::<RayCronJob>(&plane, &namespace, json!({"schedule": "* * * * *", "jobTemplate": {}})).await;

    let table = plane.kubectl(&["get", "raycluster", "-n", &namespace]).unwrap();
    let columns: Vec<_> = table.lines().next().unwrap().split("  ").map(str::trim).filter(|c| !c.is_empty()).collect();
    let expected = ["NAME", "DESIRED WORKERS", "AVAILABLE WORKERS", "CPUS", "MEMORY", "GPUS", "STATUS", "AGE"];
    assert_eq!(columns, expected);
    let all = plane.kubectl(&["get", "all", "-n", &namespace, "-o", "name"]).unwrap();
    assert_eq!(all.matches("ray.io/a\n").count(), 4, "{all}");
}

#[tokio::test]
async fn v1alpha1_can_be_added() {
    let plane = ControlPlane::start().unwrap();
    plane.kubectl(&["apply", "-f", CRDS]).unwrap();
    wait_until_established(&plane);
    let printed = Command::new(env!("CARGO_BIN_EXE_manta")).args(["crds", "--with-v1alpha1"]).output().unwrap();
    let applied = kubectl_with_input(&plane, &["apply", "--server-side", "-f", "-"], &printed.stdout);
    assert!(applied.status.success(), "{applied:?}");
    wait_until_established(&plane);
    serves_the_schemas_of(&plane, Versions::V1AndV1alpha1).await;

    let namespace = plane.namespace("v1alpha1").await.unwrap();
    let mut head = head();
    head["rayStartParams"] = json!({});
    head["resources"] = json!({"this": "came with v1"});
    let spec = json!({"headGroupSpec": head});
    v1alpha1_accepts(&plane, &namespace, "RayCluster", spec.clone());
    v1alpha1_accepts(&plane, &namespace, "RayJob", json!({"entrypoint": "ls", "rayClusterSpec": spec}));
    v1alpha1_accepts(&plane, &namespace, "RayService", json!({"rayClusterConfig": spec}));

    let clusters: Api<RayCluster> = Api::namespaced(plane.client().await.unwrap(), &namespace);
    let read = clusters.get("a").await.unwrap().spec.head_group_spec;
    assert_eq!(read.ray_start_params, Some([].into()));
    assert_eq!(read.resources, None, "v1alpha1 has no such field");
}

fn wait_until_established(plane: &ControlPlane) {
    let wait = ["wait", "--for=condition=Established", "--timeout=60s"];
    plane.kubectl(&[wait.as_slice(), NAMES.as_slice()].concat()).unwrap();
}

/// Asserts that the schemas survive the way through our YAML and kubectl unchanged.
async fn serves_the_schemas_of(plane: &ControlPlane, versions: Versions) {
    let api: Api<CustomResourceDefinition> = Api::all(plane.client().await.unwrap());
    for ours in crd::all(versions) {
        let served = api.get(&ours.name_any()).await.unwrap();
        assert!(served.spec.versions == ours.spec.versions, "{} is served with another schema", ours.name_any());
    }
}

fn head() -> Value {
    let limits = json!({"cpu": 1, "memory": "2Gi"});
    json!({"template": {"spec": {"containers": [{"name": "ray-head", "image": "ray", "resources": {"limits": limits}}]}}})
}

/// Creates an object and reads it back; the server must not have set fields that the type lacks.
async fn accepts<K>(plane: &ControlPlane, namespace: &str, spec: Value)
where
    K: Resource<Scope = NamespaceResourceScope, DynamicType = ()>
        + Clone
        + Debug
        + PartialEq
        + Serialize
        + DeserializeOwned,
{
    let api: Api<K> = Api::namespaced(plane.client().await.unwrap(), namespace);
    let given: K = serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap();
    let created = api.create(&PostParams::default(), &given).await.unwrap();
    assert_eq!(api.get("a").await.unwrap(), created);
    let of = |object: &K| serde_json::to_value(object).unwrap()["spec"].clone();
    assert_contains(&of(&created), &of(&given));
}

/// Asserts that `whole` contains everything in `part`.
fn assert_contains(whole: &Value, part: &Value) {
    match (whole, part) {
        (Value::Object(whole), Value::Object(part)) => {
            part.iter().for_each(|(key, value)| assert_contains(&whole[key], value));
        }
        (Value::Array(whole), Value::Array(part)) => {
            assert_eq!(whole.len(), part.len());
            whole.iter().zip(part).for_each(|(whole, part)| assert_contains(whole, part));
        }
        _ => assert_eq!(whole, part),
    }
}

fn v1alpha1_accepts(plane: &ControlPlane, namespace: &str, kind: &str, spec: Value) {
    let object = json!({"apiVersion": "ray.io/v1alpha1", "kind": kind, "metadata": {"name": "a"}, "spec": spec});
    let args = ["create", "--validate=ignore", "-n", namespace, "-f", "-"];
    let output = kubectl_with_input(plane, &args, object.to_string().as_bytes());
    let stderr = String::from_utf8(output.stderr).unwrap();
    assert!(output.status.success(), "{stderr}");
    let warning = format!(
        "Warning: ray.io/v1alpha1 {kind} is deprecated; use ray.io/v1 {kind}. \
         v1alpha1 receives no new fields and will be unavailable in KubeRay 1.9.\n"
    );
    assert_eq!(stderr, warning);
}

fn kubectl_with_input(plane: &ControlPlane, args: &[&str], input: &[u8]) -> Output {
    let mut command = plane.kubectl_command();
    command.args(args).stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(input).unwrap();
    child.wait_with_output().unwrap()
}
