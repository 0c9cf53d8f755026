//! `manta plan`: for what KubeRay left behind, for manifests, and on a real kube-apiserver.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use anyhow::{Context, Result, ensure};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{ListParams, PostParams};
use manta_api::{RayCluster, RayClusterSpec};
use manta_logic::config::{Config, Platform};
use manta_logic::hash;
use manta_operator::preview::{Cluster, Preview, Scope, preview};
use manta_testkit::{ControlPlane, Options, restore};
use serde_json::{Value, json};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// Recordings that leave something to do, and why.
const NOT_AT_REST: [(&str, &str); 5] = [
    ("case-autoscaler-options created", "the API server refuses its Pods"),
    ("case-autoscaler-options ready", "the API server refuses its Pods"),
    ("sample-vllm_ray-service.vllm-tpu-v6e-singlehost created", "the API server refuses its Pods"),
    ("sample-vllm_ray-service.vllm-tpu-v6e-singlehost ready", "the API server refuses its Pods"),
    ("case-workers-to-delete-autoscaler deleted", "the name of the deleted worker is masked and could be any"),
];

fn recordings() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/parity/cases")
}

/// Returns the name, the stage and the objects of everything that was recorded.
fn stages() -> Result<Vec<(String, Vec<Value>)>> {
    let mut files: Vec<PathBuf> =
        std::fs::read_dir(recordings())?.map(|entry| Ok(entry?.path())).collect::<Result<_>>()?;
    files.sort();
    let mut stages = Vec::new();
    for file in files {
        let case: Value = serde_json::from_str(&std::fs::read_to_string(&file)?)?;
        let name = file.file_stem().context("a name")?.to_string_lossy().into_owned();
        for (stage, expect) in case["expect"].as_object().into_iter().flatten() {
            let Some(objects) = expect["objects"].as_array() else { continue };
            let objects = live(objects).with_context(|| format!("{name} {stage}"))?;
            stages.push((format!("{name} {stage}"), objects));
        }
    }
    Ok(stages)
}

/// Returns recorded objects as they were on the server: Pods with their states, and with the hashes that are masked.
fn live(recorded: &[Value]) -> Result<Vec<Value>> {
    let mut objects = restore("ns", recorded)?;
    let clusters: Vec<Value> = objects.iter().filter(|object| object["kind"] == "RayCluster").cloned().collect();
    for object in &mut objects {
        let is_pod = object["kind"] == "Pod";
        let name = if is_pod { &object["metadata"]["labels"]["ray.io/cluster"] } else { &object["metadata"]["name"] };
        let Some(cluster) = clusters.iter().find(|cluster| cluster["metadata"]["name"] == *name) else { continue };
        let spec = RayClusterSpec::deserialize(&cluster["spec"])?;
        let hashes = [
            ("ray.io/upgrade-strategy-recreate-hash", hash::cluster_hash(&spec)),
            ("ray.io/hash-without-replicas-and-workers-to-delete", hash::service_hash(&spec)),
        ];
        for (annotation, hash) in hashes {
            if let Some(masked) = object["metadata"]["annotations"].get_mut(annotation) {
                *masked = hash.into();
            }
        }
        if is_pod && cluster["status"]["state"] == "ready" {
            object["status"] = json!({
                "phase": "Running", "podIP": "10.244.0.1", "conditions": [{"type": "Ready", "status": "True"}],
            });
        }
    }
    Ok(objects)
}

async fn plan_of(objects: Vec<Value>) -> Result<Preview> {
    let platform = Platform { cert_manager: true, gateway_api: true, ..Platform::default() };
    let mut config = Config { platform, ..Config::default() };
    // The cases were recorded without it.
    config.gates.ray_cluster_history_server = false;
    Ok(preview(&Cluster::Objects(objects), &config, Scope::All, Vec::new(), Timestamp::now()).await?)
}

fn lines(preview: &Preview) -> Vec<String> {
    let line = |change: &manta_operator::preview::Change| {
        let key = change.action.key();
        let verb = match &change.action {
            manta_logic::action::Action::Create { .. } => "create",
            manta_logic::action::Action::Replace { .. } => "replace",
            manta_logic::action::Action::Merge { .. } => "patch",
            manta_logic::action::Action::Delete { .. } => "delete",
            manta_logic::action::Action::Ray { .. } => "request",
        };
        format!("{verb} {} {}: {}", key.kind.resource().kind, key.name, change.why)
    };
    preview.changes.iter().map(line).collect()
}

#[tokio::test]
#[cfg_attr(not(has_shared), ignore = "needs ../shared")]
async fn plans_for_what_kuberay_left_are_empty() -> Result<()> {
    let mut wrong = Vec::new();
    let stages = stages()?;
    ensure!(stages.len() > 200, "{} recordings", stages.len());
    for (name, objects) in stages {
        let changes = lines(&plan_of(objects).await?);
        let is_expected = NOT_AT_REST.iter().any(|(known, _)| *known == name);
        if changes.is_empty() == is_expected {
            wrong.push(format!("{name}: {changes:#?}"));
        }
    }
    assert!(wrong.is_empty(), "{} of them:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// A namespace and the program.
struct World {
    client: kube::Client,
    namespace: String,
    folder: tempfile::TempDir,
}

impl World {
    async fn new(name: &str) -> Result<Self> {
        let plane = ControlPlane::shared();
        plane.install_ray_crds().await?;
        Ok(Self {
            client: plane.client().await?,
            namespace: plane.namespace(name).await?,
            folder: tempfile::tempdir()?,
        })
    }

    fn manta(&self, args: &[&str]) -> (Option<i32>, String, String) {
        manta(&ControlPlane::shared().kubeconfig_path(), &[args, &["-n", &self.namespace]].concat())
    }

    fn write(&self, name: &str, object: &Value) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, object.to_string()).unwrap();
        path.display().to_string()
    }
}

fn manta(kubeconfig: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let mut command = Command::new(env!("CARGO_BIN_EXE_manta"));
    let output = command.args(args).env("KUBECONFIG", kubeconfig).stdin(Stdio::null()).output().unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    (output.status.code(), text(output.stdout), text(output.stderr))
}

fn cluster(workers: u32) -> Value {
    let container = |name: &str| json!({"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.53.0"}]}});
    json!({
        "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "demo"},
        "spec": {
            "rayVersion": "2.53.0", "authOptions": {"mode": "token"},
            "headGroupSpec": {"rayStartParams": {}, "template": container("ray-head")},
            "workerGroupSpecs": [{
                "groupName": "small", "replicas": workers, "minReplicas": 0, "maxReplicas": 5, "rayStartParams": {},
                "template": container("ray-worker"),
            }],
        },
    })
}

#[test]
fn manifests_are_planned_without_a_cluster() {
    let folder = tempfile::tempdir().unwrap();
    let (nowhere, file) = (folder.path().join("none"), folder.path().join("c.json"));
    std::fs::write(&file, cluster(2).to_string()).unwrap();
    let file = file.display().to_string();
    let (code, out, err) = manta(&nowhere, &["plan", "--empty", "-f", &file]);
    assert_eq!(code, Some(2), "{err}");
    assert!(out.starts_with("# create Secret default/demo for RayCluster demo: "), "{out}");
    assert!(out.contains("+++ PLANNED/v1.Pod.default.demo-head-") && out.contains("+  name: demo-head-svc"), "{out}");
    assert!(out.contains("auth_token: \"***\"") && !out.contains("drawn when written"), "{out}");
    assert!(out.ends_with("; pods: 3 created, 0 deleted, 0 restarted\n"), "{out}");
    let (code, out, _) = manta(&nowhere, &["plan", "--empty", "-f", &file, "-o", "json"]);
    let plan: Value = serde_json::from_str(&out).unwrap();
    assert_eq!((code, &plan["pods"]["created"], &plan["objects"]), (Some(2), &json!(3), &json!(1)));
    let first = &plan["changes"][0];
    assert_eq!(
        (&first["action"], &first["kind"], &first["owner"]["name"]),
        (&json!("create"), &json!("Secret"), &json!("demo"))
    );
    let (code, out, _) = manta(&nowhere, &["plan", "--empty", "-f", &file, "-o", "summary"]);
    assert!(code == Some(2) && out.lines().all(|line| !line.starts_with('+')) && out.lines().count() == 6, "{out}");

    let gated = ["plan", "--empty", "-f", &file, "--", "--feature-gates=Nope=true"];
    let (code, _, err) = manta(&nowhere, &gated);
    assert!(code == Some(1) && err.contains("unrecognized feature gate: Nope"), "{err}");
    let mut wrong = cluster(1);
    wrong["spec"]["workerGroupSpecs"][0]["replicas"] = json!("many");
    std::fs::write(&file, wrong.to_string()).unwrap();
    let (code, _, err) = manta(&nowhere, &["plan", "--empty", "-f", &file]);
    assert!(code == Some(1) && err.contains("spec.workerGroupSpecs[0].replicas"), "{err}");
    let (code, _, err) = manta(&nowhere, &["plan"]);
    assert!(code == Some(1) && err.contains("required"), "wrong usage is no change: {err}");
    std::fs::write(&file, json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "x"}}).to_string())
        .unwrap();
    let (code, _, err) = manta(&nowhere, &["plan", "--empty", "-f", &file]);
    assert!(code == Some(1) && err.contains("the manifests hold no RayCluster"), "{err}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_objects_are_planned_and_not_written() -> Result<()> {
    let world = World::new("plan").await?;
    let clusters: Api<RayCluster> = Api::namespaced(world.client.clone(), &world.namespace);
    let (code, out, err) = world.manta(&["plan", "--all"]);
    assert_eq!((code, out.as_str()), (Some(0), "# nothing to do for 0 objects\n"), "{err}");
    let made = clusters.create(&PostParams::default(), &serde_json::from_value(cluster(1))?).await?;
    let (code, _, err) = world.manta(&["plan", "demmo"]);
    assert!(code == Some(1) && err.contains("Did you mean demo?"), "{err}");
    for args in [&["plan", "demo"][..], &["plan", "raycluster/demo"], &["plan", "--all"]] {
        let (code, out, err) = world.manta(args);
        assert!(code == Some(2) && out.contains("pods: 2 created"), "{args:?} {code:?} {out} {err}");
        assert!(err.starts_with("with the settings of "), "{err}");
    }
    // The current cluster is what manifests are compared with.
    let file = world.write("c.json", &cluster(3));
    let (code, out, err) = world.manta(&["plan", "-f", &file]);
    assert!(code == Some(2) && out.contains("pods: 4 created"), "{out} {err}");
    let now = clusters.get("demo").await?;
    assert_eq!(now.metadata.resource_version, made.metadata.resource_version, "nothing is written");
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    ensure!(pods.list(&ListParams::default()).await?.items.is_empty(), "nothing is written");
    Ok(())
}

/// Creates an account that may use these verbs on all resources, and get Ray objects. Returns its kubeconfig.
async fn with_account(plane: &ControlPlane, namespace: &str, name: &str, verbs: &[&str]) -> Result<PathBuf> {
    plane.kubectl(&["create", "serviceaccount", name, "--namespace", namespace])?;
    let role = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": name},
        "rules": [
            {"apiGroups": ["*"], "resources": ["*"], "verbs": verbs},
            {"apiGroups": ["ray.io"], "resources": ["*"], "verbs": ["get"]},
            {"nonResourceURLs": ["*"], "verbs": ["get"]},
        ],
    });
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"kind": "ServiceAccount", "name": name, "namespace": namespace}],
    });
    let folder = tempfile::tempdir()?;
    let file = folder.path().join("access.json");
    std::fs::write(&file, json!({"apiVersion": "v1", "kind": "List", "items": [role, binding]}).to_string())?;
    plane.kubectl(&["apply", "-f", &file.display().to_string()])?;
    plane.kubeconfig_of_account(namespace, name)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn read_access_is_enough_and_less_is_an_error() -> Result<()> {
    // The shared server allows everything.
    let options = Options { rbac: true, ..Options::default() };
    let plane = ControlPlane::start_embedded(Path::new(env!("CARGO_BIN_EXE_manta")), options)?;
    plane.install_ray_crds().await?;
    let (namespace, other) = (plane.namespace("plan-access").await?, plane.namespace("plan-other").await?);
    let mut made = cluster(1);
    made["spec"]["enableInTreeAutoscaling"] = json!(true);
    for namespace in [&namespace, &other] {
        let clusters: Api<RayCluster> = Api::namespaced(plane.client().await?, namespace);
        clusters.create(&PostParams::default(), &serde_json::from_value(made.clone())?).await?;
    }

    let reader = with_account(&plane, &namespace, "reader", &["get", "list"]).await?;
    let (code, out, err) = manta(&reader, &["plan", "demo", "-o", "summary", "-n", &namespace]);
    assert!(code == Some(2) && out.contains("pods: 2 created"), "{code:?} {out} {err}");
    let (code, out, err) = manta(&reader, &["plan", "--all", "-o", "summary"]);
    assert!(code == Some(2) && out.contains("for 2 objects"), "{code:?} {out} {err}");
    let watched = format!("--watch-namespace={other}");
    let (code, out, err) = manta(&reader, &["plan", "--all", "-o", "summary", "--", &watched]);
    assert!(code == Some(2) && out.contains("for 1 object") && !out.contains(&namespace), "{code:?} {out} {err}");

    let lister = with_account(&plane, &namespace, "lister", &["list"]).await?;
    let (code, out, err) = manta(&lister, &["plan", "demo", "-o", "summary", "-n", &namespace]);
    assert_eq!(code, Some(1), "{out} {err}");
    assert!(err.contains("the plan is not complete, because these could not be read:\n  get secrets: "), "{err}");
    assert!(err.contains("cannot get resource \"secrets\""), "{err}");
    assert!(!out.contains("create Secret"), "{out}");
    let (_, out, _) = manta(&lister, &["plan", "demo", "-o", "json", "-n", &namespace]);
    let plan: Value = serde_json::from_str(&out)?;
    assert!(plan["unreadable"].as_array().is_some_and(|list| !list.is_empty()), "{plan}");
    Ok(())
}
