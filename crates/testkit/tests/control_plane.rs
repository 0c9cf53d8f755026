//! The control plane supports what tests need from it.

use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::{ConfigMap, Namespace};
use kube::api::{DeleteParams, ObjectMeta, PostParams};
use kube::runtime::conditions::is_deleted;
use kube::runtime::wait::await_condition;
use kube::{Api, Client};
use manta_testkit::{ControlPlane, Options, User};

#[tokio::test]
async fn kubectl_sees_objects_of_a_new_namespace() {
    let plane = ControlPlane::shared();
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace("fill").await.unwrap();
    create_config_map(client, &namespace, "seen").await.unwrap();
    let seen = plane.kubectl(&["get", "configmaps", "-n", &namespace, "-o", "name"]).unwrap();
    assert_eq!(seen.trim(), "configmap/seen");
    let versions: serde_json::Value =
        serde_json::from_str(&plane.kubectl(&["version", "-o", "json"]).unwrap()).unwrap();
    assert_eq!(versions["clientVersion"]["gitVersion"], versions["serverVersion"]["gitVersion"]);
}

#[tokio::test]
async fn deleting_a_namespace_deletes_its_objects() {
    let plane = ControlPlane::shared();
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace("delete").await.unwrap();
    create_config_map(client.clone(), &namespace, "held").await.unwrap();
    let namespaces: Api<Namespace> = Api::all(client);
    let uid = namespaces.get(&namespace).await.unwrap().metadata.uid.unwrap();
    namespaces.delete(&namespace, &DeleteParams::default()).await.unwrap();
    let gone = await_condition(namespaces, &namespace, is_deleted(&uid));
    tokio::time::timeout(Duration::from_secs(60), gone).await.unwrap().unwrap();
}

#[tokio::test]
async fn crds_of_other_projects_are_served() {
    let plane = ControlPlane::shared();
    assert!(plane.install_gateway_crds().await.unwrap() >= 3);
    assert!(plane.install_cert_manager_crds().await.unwrap() >= 2);
    for kind in ["gateways.gateway.networking.k8s.io", "httproutes", "certificates.cert-manager.io", "issuers"] {
        plane.kubectl(&["get", kind, "-A"]).unwrap();
    }
}

#[tokio::test]
async fn rbac_denies_the_operator_what_it_was_not_granted() {
    let start = Instant::now();
    let plane = ControlPlane::start_with(Options { rbac: true, audit: true, ..Options::default() }).unwrap();
    println!("start to ready: {:.1} s", start.elapsed().as_secs_f64());
    let namespace = plane.namespace("rbac").await.unwrap();
    let operator = plane.client_for(User::Operator).await.unwrap();
    let refused = create_config_map(operator, &namespace, "refused").await.unwrap_err();
    assert!(matches!(&refused, kube::Error::Api(status) if status.code == 403), "{refused}");
    let audit = std::fs::read_to_string(plane.audit_log_path()).unwrap();
    assert!(audit.lines().any(|line| line.contains(r#""username":"operator""#) && line.contains(r#""code":403"#)));

    let folder = plane.folder().to_owned();
    drop(plane);
    assert!(!folder.exists(), "the directory is removed with the control plane");
}

async fn create_config_map(client: Client, namespace: &str, name: &str) -> kube::Result<ConfigMap> {
    let map = ConfigMap {
        metadata: ObjectMeta { name: Some(name.to_owned()), ..ObjectMeta::default() },
        ..ConfigMap::default()
    };
    Api::namespaced(client, namespace).create(&PostParams::default(), &map).await
}
