//! `manta explain`, `manta history` and `manta logs` of what is gone, against a real kube-apiserver without an operator.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use anyhow::Result;
use k8s_openapi::api::core::v1::{ConfigMap, Event, Pod};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, GroupVersionKind};
use kube::{Api, Client};
use manta_logic::explain::Evidence;
use manta_logic::post_mortem::{Limits, Occasion, config_map};
use manta_testkit::ControlPlane;
use serde_json::{Value, json};
use std::path::PathBuf;
use std::process::Command;

struct World {
    client: Client,
    namespace: String,
    kubeconfig: PathBuf,
}

impl World {
    async fn new(name: &str) -> Result<Self> {
        let plane = ControlPlane::shared();
        plane.install_ray_crds().await?;
        let namespace = plane.namespace(name).await?;
        Ok(Self { client: plane.client().await?, namespace, kubeconfig: plane.kubeconfig_path() })
    }

    /// Runs a command in the namespace. Returns the exit code, stdout and stderr.
    fn manta(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manta"));
        command.env("KUBECONFIG", &self.kubeconfig).args(args).args(["-n", &self.namespace]);
        let output = command.output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    fn ok(&self, args: &[&str]) -> String {
        let (code, out, err) = self.manta(args);
        assert_eq!(code, Some(0), "{args:?}: {out}{err}");
        out
    }

    fn fails(&self, args: &[&str]) -> String {
        let (code, out, err) = self.manta(args);
        assert_eq!(code, Some(1), "{args:?}: {out}{err}");
        err.trim_start_matches("error: ").trim_end().to_owned()
    }

    fn first_line(&self, name: &str) -> String {
        self.ok(&["explain", name]).lines().next().unwrap_or_default().to_owned()
    }

    /// Creates a Ray object with a status.
    async fn create(&self, kind: &str, name: &str, spec: Value, status: Value) -> Result<()> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", kind));
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let object = json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        api.patch_status(name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
        Ok(())
    }

    /// Creates a Pod of a cluster with a status.
    async fn pod(&self, cluster: &str, node_type: &str, status: Value) -> Result<()> {
        let api: Api<Pod> = Api::namespaced(self.client.clone(), &self.namespace);
        let name = format!("{cluster}-{node_type}");
        let labels = json!({"ray.io/cluster": cluster, "ray.io/node-type": node_type, "ray.io/group": "g"});
        let containers = json!([{"name": "ray", "image": "corp/ray:1"}]);
        let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": containers}});
        api.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
        api.patch_status(&name, &PatchParams::default(), &Patch::Merge(json!({"status": status}))).await?;
        Ok(())
    }

    async fn event(&self, kind: &str, name: &str, reason: &str, message: &str) -> Result<()> {
        let api: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let event = json!({
            "metadata": {"generateName": "e-"}, "type": "Warning", "reason": reason, "message": message,
            "lastTimestamp": "2026-01-01T00:00:00Z", "count": 2,
            "involvedObject": {"kind": kind, "name": name, "namespace": self.namespace},
        });
        api.create(&PostParams::default(), &serde_json::from_value(event)?).await?;
        Ok(())
    }
}

fn cluster_spec() -> Value {
    let template = json!({"spec": {"containers": [{"name": "ray", "image": "corp/ray:1"}]}});
    json!({"headGroupSpec": {"rayStartParams": {}, "template": template}})
}

fn container(state: Value) -> Value {
    json!({"name": "ray", "image": "corp/ray:1", "imageID": "", "ready": false, "restartCount": 0, "state": state})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn live_objects_are_explained_without_an_operator() -> Result<()> {
    let world = World::new("explain").await?;
    let status = json!({"desiredWorkerReplicas": 0});

    world.create("RayCluster", "image", cluster_spec(), status.clone()).await?;
    let waiting = json!({"waiting": {"reason": "ErrImagePull", "message": "corp/ray:1: not found"}});
    world.pod("image", "head", json!({"phase": "Pending", "containerStatuses": [container(waiting)]})).await?;
    let expect = "The image corp/ray:1 of the head Pod image-head cannot be pulled: corp/ray:1: not found.";
    assert_eq!(world.first_line("raycluster/image"), expect);
    for form in ["cluster/image", "rayclusters/image", "RayCluster.ray.io/image", "image"] {
        assert_eq!(world.first_line(form), expect, "{form}");
    }

    world.create("RayCluster", "quota", cluster_spec(), status.clone()).await?;
    world
        .event(
            "RayCluster",
            "quota",
            "FailedToCreateHeadPod",
            "Failed to create head Pod x: pods is forbidden: exceeded quota: team",
        )
        .await?;
    let text = world.ok(&["explain", "cluster/quota"]);
    assert!(
        text.starts_with(
            "RayCluster quota cannot create what it needs: pods is forbidden: exceeded quota: team.\nWhat to do: "
        ),
        "{text}"
    );
    assert!(text.contains("RayCluster quota  FailedToCreateHeadPod: ") && text.contains("(x2)"), "{text}");

    world.create("RayCluster", "cpu", cluster_spec(), status.clone()).await?;
    let unscheduled = json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/1 nodes are available: 1 Insufficient cpu."}]);
    world.pod("cpu", "head", json!({"phase": "Pending", "conditions": unscheduled})).await?;
    assert!(world.first_line("cpu").ends_with("1 Insufficient cpu."));

    let mut suspended = cluster_spec();
    suspended["suspend"] = json!(true);
    world.create("RayCluster", "suspended", suspended, status.clone()).await?;
    assert_eq!(world.first_line("suspended"), "RayCluster suspended is suspended: its spec.suspend is true.");

    let failed = json!({"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "reason": "AppFailed",
        "message": "Job entrypoint command failed with exit code 127, last available logs:\nsh: nope: not found\n"});
    world.create("RayJob", "job", json!({"entrypoint": "nope", "rayClusterSpec": cluster_spec()}), failed).await?;
    let expect = "RayJob job failed because its entrypoint names a command that does not exist: sh: nope: not found.";
    assert_eq!(world.first_line("job/job"), expect);
    let json: Value = serde_json::from_str(&world.ok(&["explain", "rayjobs/job", "-o", "json"]))?;
    assert_eq!((&json["cause"]["reason"], &json["subject"]["kind"]), (&json!("EntrypointNotFound"), &json!("RayJob")));

    let app = json!({"status": "DEPLOY_FAILED", "message": "Traceback (most recent call last):\nModuleNotFoundError: No module named 'x'"});
    let serve = json!({"activeServiceStatus": {"rayClusterName": "s-x", "applicationStatuses": {"app": app}}});
    world.create("RayService", "serve", json!({"rayClusterConfig": cluster_spec()}), serve).await?;
    assert!(world.first_line("service/serve").ends_with("ModuleNotFoundError: No module named 'x'."));

    world.create("RayService", "image", json!({"rayClusterConfig": cluster_spec()}), json!({})).await?;
    let ambiguous = world.fails(&["explain", "image"]);
    assert!(ambiguous.ends_with("use one of: raycluster/image, rayservice/image"), "{ambiguous}");
    assert!(world.fails(&["explain", "quotta"]).ends_with("Did you mean quota?"));
    assert!(world.fails(&["explain", "cluster/quotta"]).ends_with("Did you mean quota?"));
    assert!(world.fails(&["explain", "clutser/quota"]).contains("Did you mean cluster/quota?"));
    Ok(())
}

/// Returns the record of a job that has failed.
fn train_record(namespace: &str) -> Result<Value> {
    let message = "Job entrypoint command failed with exit code 1, last available logs:\nTraceback (most recent call last):\n  File \"x.py\"\nValueError: bad\n";
    let evidence: Evidence = serde_json::from_value(json!({
        "subject": {"kind": "RayJob", "namespace": namespace, "name": "train", "uid": "u"}, "at": "2026-01-01T00:00:00Z",
        "job": {"metadata": {"name": "train"}, "status": {"jobDeploymentStatus": "Failed", "jobStatus": "FAILED", "message": message}},
        "pods": [{"metadata": {"name": "w", "labels": {"ray.io/node-type": "worker", "ray.io/group": "gpu"}}}],
        "logs": [
            {"source": "driver", "name": "id", "lines": ["one", "two"]},
            {"source": "worker", "pod": "w", "name": "ray", "lines": ["three"]},
        ],
    }))?;
    Ok(config_map(&evidence, Occasion::Ended, &Limits::default()))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_are_listed_explained_and_printed() -> Result<()> {
    let world = World::new("history").await?;
    assert_eq!(world.ok(&["history", "-o", "json"]).trim(), "[]");
    let record: ConfigMap = serde_json::from_value(train_record(&world.namespace)?)?;
    let api: Api<ConfigMap> = Api::namespaced(world.client.clone(), &world.namespace);
    api.create(&PostParams::default(), &record).await?;

    let list = world.ok(&["history"]);
    assert!(list.starts_with("NAME") && list.contains("rayjob/train"), "{list}");
    assert!(list.contains("RayJob train failed because its program raised ValueError: bad."), "{list}");
    let list: Value = serde_json::from_str(&world.ok(&["history", "-o", "json"]))?;
    assert_eq!((&list[0]["name"], &list[0]["occasion"]), (&json!("train"), &json!("ended")));
    for name in ["train", "job/train"] {
        let text = world.ok(&["explain", name]);
        assert!(text.starts_with("RayJob train failed because its program raised ValueError: bad.\n"), "{text}");
        assert!(text.contains("the operator's record of 2026-01-01") && text.contains("  File \"x.py\""), "{text}");
    }
    let json: Value = serde_json::from_str(&world.ok(&["explain", "job/train", "-o", "json"]))?;
    assert_eq!(
        (&json["recorded"], &json["cause"]["reason"]),
        (&json!("2026-01-01T00:00:00Z"), &json!("ProgramRaised"))
    );
    assert_eq!(world.ok(&["logs", "job/train"]), "one\ntwo\n");
    assert_eq!(world.ok(&["logs", "job/train", "--tail", "1"]), "two\n");
    for node in ["worker", "gpu", "w"] {
        assert_eq!(world.ok(&["logs", "job/train", "--node", node]), "three\n", "{node}");
    }
    let unknown = world.fails(&["logs", "job/train", "--node", "cpu"]);
    assert_eq!(unknown, "no log of rayjob/train was kept for node cpu; there are those of w");
    assert!(world.fails(&["logs", "job/other"]).contains("not found"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_in_a_directory_are_read_in_place_of_config_maps() -> Result<()> {
    let world = World::new("history-files").await?;
    let directory = tempfile::tempdir()?;
    let records = directory.path().to_str().unwrap();
    let folder = directory.path().join(&world.namespace);
    std::fs::create_dir(&folder)?;
    let record = train_record(&world.namespace)?;
    std::fs::write(folder.join(format!("{}.json", record["metadata"]["name"].as_str().unwrap())), record.to_string())?;

    let list = world.ok(&["history", "--records", records]);
    assert!(list.contains("rayjob/train") && list.contains("ValueError: bad."), "{list}");
    let text = world.ok(&["explain", "train", "--records", records]);
    assert!(text.starts_with("RayJob train failed because its program raised ValueError: bad.\n"), "{text}");
    assert_eq!(world.ok(&["logs", "job/train", "--records", records]), "one\ntwo\n");
    assert!(world.fails(&["explain", "job/train"]).contains("not found"), "there is no ConfigMap");
    let error = world.fails(&["history", "--records", "/nowhere"]);
    assert_eq!(error, "cannot read the records in /nowhere: No such file or directory (os error 2)");

    let offline = |args: &[&str]| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_manta"));
        let output = command.env("KUBECONFIG", "/nowhere").args(args).args(["--records", records]).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    assert!(offline(&["history"]).1.contains(&world.namespace), "files need no cluster");
    for name in ["train", "job/train"] {
        let (code, out, err) = offline(&["explain", name]);
        assert!(
            code == Some(0) && out.starts_with("RayJob train failed because its program raised ValueError"),
            "{out}{err}"
        );
        assert!(err.starts_with("Without a cluster, only what was recorded is known ("), "{err}");
    }
    let (code, out, err) = offline(&["logs", "job/train"]);
    assert_eq!((code, out.as_str()), (Some(0), "one\ntwo\n"), "{err}");
    let (code, _, err) = offline(&["explain", "other"]);
    assert!(code == Some(1) && err.ends_with(&format!("error: {records} has no record of other\n")), "{err}");
    Ok(())
}
