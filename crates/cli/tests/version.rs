//! `manta` without arguments, and `manta version` without a cluster, with an unreachable one and with a real one.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::path::Path;
use std::process::{Command, Stdio};

use k8s_openapi::api::apps::v1::Deployment;
use kube::Api;
use kube::api::PostParams;
use manta_testkit::ControlPlane;
use serde_json::json;

/// Runs manta with this kubeconfig and returns its exit code and output.
fn manta(args: &[&str], kubeconfig: &Path) -> (Option<i32>, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manta"));
    let output = command.args(args).env("KUBECONFIG", kubeconfig).stdin(Stdio::null()).output().unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    (output.status.code(), text)
}

#[test]
fn without_a_command_the_first_steps_are_shown() {
    let (code, text) = manta(&[], Path::new("/nonexistent"));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("manta demo") && text.contains("manta up -f MANIFEST"), "{text}");
}

#[test]
fn without_a_cluster_only_the_own_version_is_known() {
    let own = concat!("manta ", env!("CARGO_PKG_VERSION"), ", compatible with KubeRay v1.7.0\n");
    assert_eq!(manta(&["version", "--client"], Path::new("/nonexistent")), (Some(0), own.to_owned()));
    let (code, text) = manta(&["version"], Path::new("/nonexistent"));
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains("operator: unknown, because no cluster is configured: "), "{text}");
    assert_eq!(text.matches("No such file").count(), 1, "{text}");
    assert!(!text.contains("cluster environment variable"), "{text}");
    assert_eq!(text.lines().count(), 2, "{text}");
}

#[test]
fn an_unreachable_cluster_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = folder.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "x",
        "clusters": [{"name": "x", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "x", "context": {"cluster": "x", "user": "x"}}],
        "users": [{"name": "x", "user": {}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let (code, text) = manta(&["version"], &kubeconfig);
    assert_eq!(code, Some(1), "{text}");
    assert!(text.contains("http://127.0.0.1:1/"), "{text}");
}

#[tokio::test]
async fn the_operator_in_the_cluster_is_shown() {
    let plane = ControlPlane::shared();
    let namespace = plane.namespace("version").await.unwrap();
    let labels = json!({"app.kubernetes.io/name": "kuberay-operator"});
    let template = json!({"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "manta:7"}]}});
    let deployment = json!({
        "metadata": {"name": "kuberay-operator", "labels": labels},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    });
    let deployments: Api<Deployment> = Api::namespaced(plane.client().await.unwrap(), &namespace);
    deployments.create(&PostParams::default(), &serde_json::from_value(deployment).unwrap()).await.unwrap();
    let (code, text) = manta(&["version"], &plane.kubeconfig_path());
    assert_eq!(code, Some(0), "{text}");
    assert!(text.contains(&format!("operator: manta:7 (Deployment {namespace}/kuberay-operator)")), "{text}");
}
