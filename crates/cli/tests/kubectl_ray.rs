//! `kubectl ray` against a real kube-apiserver: every command that needs no node.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use anyhow::{Context, Result, ensure};
use futures::TryStreamExt;
use k8s_openapi::api::core::v1::{Pod, Secret};
use kube::api::{DynamicObject, Patch, PatchParams, PostParams, WatchEvent, WatchParams};
use kube::{Api, Client};
use manta_api::{RayCluster, RayJob};
use manta_testkit::{ControlPlane, eventually, find_kubectl, within};
use serde_json::{Value, json};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::pin::pin;
use std::process::{Command, Stdio};

/// A namespace, and the plugin under its own name.
struct World {
    client: Client,
    namespace: String,
    kubeconfig: PathBuf,
    folder: tempfile::TempDir,
}

impl World {
    async fn new(name: &str) -> Result<Self> {
        let plane = ControlPlane::shared();
        plane.install_ray_crds().await?;
        let folder = tempfile::tempdir()?;
        std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_manta"), folder.path().join("kubectl-ray"))?;
        let namespace = plane.namespace(name).await?;
        Ok(Self { client: plane.client().await?, namespace, kubeconfig: plane.kubeconfig_path(), folder })
    }

    fn command(&self) -> Command {
        let mut command = Command::new(self.folder.path().join("kubectl-ray"));
        command.env("KUBECONFIG", &self.kubeconfig).current_dir(self.folder.path()).stdin(Stdio::null());
        command
    }

    /// Runs the plugin in the namespace. Returns the exit code, stdout and stderr.
    fn ray(&self, args: &[&str]) -> (Option<i32>, String, String) {
        let output = self.command().args(args).args(["-n", &self.namespace]).output().unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    }

    /// Runs the plugin, which succeeds, and returns its stdout.
    fn ok(&self, args: &[&str]) -> String {
        let (code, out, err) = self.ray(args);
        assert_eq!(code, Some(0), "{args:?}: {out}{err}");
        out
    }

    /// Runs the plugin, which fails, and returns its error.
    fn fails(&self, args: &[&str]) -> String {
        let (code, out, err) = self.ray(args);
        assert_eq!(code, Some(1), "{args:?}: {out}{err}");
        // Lines about the progress come before it.
        let error = err.split_inclusive('\n').skip_while(|line| !line.starts_with("Error: ")).collect::<String>();
        assert!(!error.is_empty(), "{args:?}: {err}");
        error.trim_start_matches("Error: ").trim_end().to_owned()
    }

    fn clusters(&self) -> Api<RayCluster> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    async fn set_status(&self, name: &str, status: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"status": status}));
        self.clusters().patch_status(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> String {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path.display().to_string()
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_are_created_listed_scaled_and_deleted() -> Result<()> {
    let world = World::new("ray-cluster").await?;
    let namespace = world.namespace.clone();
    assert_eq!(world.ok(&["create", "cluster", "demo", "--worker-replicas", "2"]), "Created Ray cluster: demo\n");
    let again = world.fails(&["create", "cluster", "demo"]);
    assert_eq!(again, format!("the Ray cluster demo in namespace {namespace} already exists"));
    let made = world.clusters().get("demo").await?;
    let managers = made.metadata.managed_fields.unwrap_or_default();
    assert_eq!(managers[0].manager.as_deref(), Some("ray-kubectl-plugin"));

    world.set_status("demo", json!({"state": "ready", "desiredWorkerReplicas": 2, "desiredCPU": "6"})).await?;
    let table = world.ok(&["get", "cluster"]);
    let lines: Vec<&str> = table.lines().collect();
    assert_eq!(lines.len(), 2, "{table}");
    let cells: Vec<&str> = lines[1].split_whitespace().collect();
    assert_eq!(cells[..8], ["demo", &namespace, "2", "0", "6", "0", "0", "0"], "{table}");
    assert_eq!(cells[8], "ready");
    assert_eq!(world.ok(&["list", "clusters", "demo", "-o", "name"]), "raycluster.ray.io/demo\n");
    let object: Value = serde_json::from_str(&world.ok(&["get", "cluster", "demo", "-o", "json"]))?;
    assert_eq!((&object["kind"], &object["metadata"]["name"]), (&json!("RayCluster"), &json!("demo")));
    let list: Value = serde_json::from_str(&world.ok(&["get", "cluster", "-o", "json"]))?;
    assert_eq!((&list["kind"], list["items"].as_array().map(Vec::len)), (&json!("List"), Some(1)));
    assert!(world.ok(&["get", "cluster", "demo", "-o", "yaml"]).contains("kind: RayCluster\n"));
    let missing = world.fails(&["get", "cluster", "demmo"]);
    assert_eq!(missing, format!("Ray cluster demmo not found in namespace {namespace}. Did you mean demo?"));
    assert_eq!(world.fails(&["get", "cluster", "nowhere", "-A"]), "Ray cluster nowhere not found in any namespace");

    let scaled = world.ok(&["scale", "cluster", "demo", "-w", "default-group", "-r", "3", "--max-replicas", "4"]);
    let expect = format!(
        "Updated worker group default-group in Ray cluster demo in namespace {namespace} (Scaled maxReplicas: 2147483647 to 4, Scaled Replicas: 2 to 3)\n"
    );
    assert_eq!(scaled, expect);
    let same = world.ok(&["scale", "cluster", "demo", "-w", "default-group", "-r", "3"]);
    let expect = format!(
        "Worker group default-group in Ray cluster demo in namespace {namespace} already matches the requested configuration. Skipping.\n"
    );
    assert_eq!(same, expect);
    let unknown = world.fails(&["scale", "cluster", "demo", "-w", "x", "-r", "3"]);
    let expect = format!(
        "worker group x not found in Ray cluster demo in namespace {namespace}. Available worker groups: default-group"
    );
    assert_eq!(unknown, expect);
    let high = world.fails(&["scale", "cluster", "demo", "-w", "default-group", "-r", "9"]);
    assert_eq!(high, "cannot set --replicas (9) greater than --max-replicas (4)");

    let added = world.ok(&["create", "workergroup", "gpu", "-c", "demo", "--worker-gpu", "1"]);
    assert_eq!(added, format!("Updated Ray cluster {namespace}/demo with new worker group\n"));
    let twice = world.fails(&["create", "workergroup", "gpu", "-c", "demo"]);
    assert_eq!(twice, format!("Ray cluster demo in namespace {namespace} has a worker group gpu already"));
    let groups = world.ok(&["get", "workergroup", "-c", "demo"]);
    let rows: Vec<Vec<&str>> = groups.lines().map(|line| line.split_whitespace().collect()).collect();
    assert_eq!(rows[1], ["default-group", "0", "4", "0/3", "6", "0", "0", "12Gi", "demo"]);
    assert_eq!(rows[2], ["gpu", "1", "10", "0/1", "2", "1", "0", "4Gi", "demo"]);
    let missing = world.fails(&["get", "workergroup", "x"]);
    let expect = format!("Ray worker group x not found in namespace {namespace} in any Ray cluster");
    assert_eq!(missing, format!("{expect}. Existing names: default-group, gpu"));

    let wrong = world.fails(&["delete", "-y", "rayclsuter/demo"]);
    assert!(wrong.contains("Did you mean raycluster/demo?"), "{wrong}");
    assert_eq!(world.ok(&["delete", "-y", "RayCluster/demo"]), "Deleted raycluster demo\n");
    let gone = world.fails(&["delete", "-y", "demo"]);
    assert_eq!(gone, format!("Ray cluster demo not found in namespace {namespace}"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_deletion_is_asked_about() -> Result<()> {
    let world = World::new("ray-delete").await?;
    world.ok(&["create", "cluster", "a"]);
    let answer = |text: &str| {
        let mut command = world.command();
        command.args(["delete", "a", "rayjob/b", "-n", &world.namespace]).stdin(Stdio::piped());
        let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(text.as_bytes()).unwrap();
        let output = child.wait_with_output().unwrap();
        String::from_utf8(output.stdout).unwrap() + &String::from_utf8(output.stderr).unwrap()
    };
    let question =
        "Are you sure you want to delete the following resources?\n- raycluster/a\n- rayjob/b\n(y/yes/n/no) ";
    assert_eq!(answer("no\n"), format!("{question}Canceled deletion.\n"));
    assert_eq!(answer("what\n"), format!("{question}Unknown input what\n"));
    world.clusters().get("a").await?;
    let done = answer("yes\n");
    let missing = format!("Error: Ray job b not found in namespace {}\n", world.namespace);
    assert_eq!(done, format!("{question}Deleted raycluster a\n{missing}"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_describes_a_cluster() -> Result<()> {
    let world = World::new("ray-file").await?;
    let file = world.write("c.yaml", "name: x\nworker-groups:\n- {name: w, replicas: 1, cpu: 1}\n");
    let printed = world.ok(&["create", "cluster", "--file", &file, "--dry-run"]);
    let object: Value = serde_saphyr::from_str(&printed)?;
    assert_eq!(object["metadata"]["namespace"], world.namespace.as_str());
    assert_eq!(object["spec"]["workerGroupSpecs"][0]["groupName"], "w");
    assert!(world.clusters().get_opt("x").await?.is_none(), "--dry-run creates nothing");
    let mixed = world.fails(&["create", "cluster", "--file", &file, "--head-cpu", "1", "--image", "i"]);
    assert_eq!(mixed, "the following flags are incompatible with --file: [image head-cpu]");
    let other = world.fails(&["create", "cluster", "y", "--file", &file]);
    assert!(other.contains("does not match the name y"), "{other}");
    let elsewhere = world.write("d.yaml", "name: x\nnamespace: kube-system\n");
    let other = world.fails(&["create", "cluster", "--file", &elsewhere]);
    assert!(other.contains("does not match --namespace"), "{other}");
    let other = world.fails(&["create", "cluster", "--file", &elsewhere, "--dry-run"]);
    assert!(other.contains("does not match --namespace"), "{other}");
    let printed = world.command().args(["create", "cluster", "--file", &elsewhere, "--dry-run"]).output()?.stdout;
    let object: Value = serde_saphyr::from_str(&String::from_utf8(printed)?)?;
    assert_eq!(object["metadata"]["namespace"], "kube-system", "it is the one of the file, not of the context");
    let timeout = world.fails(&["create", "cluster", "--file", &file, "--wait", "--timeout", "100ms"]);
    let expect = format!("timed out waiting for Ray cluster x in namespace {} to be provisioned", world.namespace);
    assert!(timeout.ends_with(&expect), "{timeout}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn waiting_ends_when_the_cluster_is_provisioned() -> Result<()> {
    let world = World::new("ray-wait").await?;
    let mut command = world.command();
    command.args(["create", "cluster", "a", "--wait", "-n", &world.namespace]);
    let mut child = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?;
    let mut progress = BufReader::new(child.stderr.take().unwrap()).lines();
    assert_eq!(progress.next().unwrap()?, "waiting for raycluster/a: no status yet");
    world.set_status("a", json!({"desiredWorkerReplicas": 1})).await?;
    assert_eq!(progress.next().unwrap()?, "waiting for raycluster/a: 0/1 workers ready");
    world.set_status("a", json!({"state": "ready"})).await?;
    let output = child.wait_with_output()?;
    assert_eq!(String::from_utf8(output.stdout)?, "Created Ray cluster: a\nRay cluster a is provisioned\n");
    ensure!(output.status.success());
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tokens_come_from_the_secret_of_the_cluster() -> Result<()> {
    let world = World::new("ray-token").await?;
    let head = json!({"template": {"spec": {"containers": [{"name": "head", "image": "i"}]}}});
    let create = async |name: &str, auth: Value| {
        let object = json!({"metadata": {"name": name}, "spec": {"authOptions": auth, "headGroupSpec": head}});
        world.clusters().create(&PostParams::default(), &serde_json::from_value(object).unwrap()).await
    };
    let secrets: Api<Secret> = Api::namespaced(world.client.clone(), &world.namespace);
    for (name, token) in [("plain", "t1"), ("mine", "t2")] {
        let secret = json!({"metadata": {"name": name}, "stringData": {"auth_token": token}});
        secrets.create(&PostParams::default(), &serde_json::from_value(secret)?).await?;
    }
    create("plain", json!({"mode": "token"})).await?;
    create("own", json!({"mode": "token", "secretName": "mine"})).await?;
    create("open", json!({"mode": "disabled"})).await?;
    create("lost", json!({"mode": "token", "secretName": "nowhere"})).await?;
    assert_eq!(world.ok(&["get", "token", "plain"]), "t1");
    assert_eq!(world.ok(&["get", "token", "own"]), "t2");
    let none = world.fails(&["get", "token", "open"]);
    let expect = format!("RayCluster {}/open was not configured to use authentication tokens", world.namespace);
    assert_eq!(none, expect);
    let lost = world.fails(&["get", "token", "lost"]);
    assert!(lost.contains("secrets \"nowhere\" not found"), "{lost}");
    let typo = world.fails(&["get", "token", "pliin"]);
    assert!(typo.ends_with("Did you mean plain?"), "{typo}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_are_the_pods_of_clusters() -> Result<()> {
    let world = World::new("ray-node").await?;
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    for (name, cluster) in [("a-head", "a"), ("b-head", "b")] {
        let labels = json!({"ray.io/is-ray-node": "yes", "ray.io/cluster": cluster, "ray.io/node-type": "head", "ray.io/group": "headgroup"});
        let pod = json!({"metadata": {"name": name, "labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    }
    let all = world.ok(&["get", "nodes", "-o", "name"]);
    assert_eq!(all, "pod/a-head\npod/b-head\n");
    let table = world.ok(&["get", "node", "-c", "a"]);
    let cells: Vec<&str> = table.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(cells[..8], ["a-head", "0", "0", "0", "0", "a", "head", "headgroup"], "{table}");
    let none = world.fails(&["get", "node", "a-head", "-c", "b"]);
    let expect = format!("Ray node a-head not found for Ray cluster b in namespace {}", world.namespace);
    assert_eq!(none, format!("{expect}. Did you mean b-head?"));
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn watching_prints_what_changes() -> Result<()> {
    let world = World::new("ray-watch").await?;
    let mut command = world.command();
    command.args(["get", "cluster", "--watch", "-n", &world.namespace]);
    let mut child = command.stdout(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stdout.take().unwrap()).lines();
    assert!(lines.next().unwrap()?.starts_with("NAME "));
    world.ok(&["create", "cluster", "a"]);
    assert!(lines.next().unwrap()?.starts_with("a "));
    world.set_status("a", json!({"state": "ready"})).await?;
    assert!(lines.next().unwrap()?.contains(" ready "));
    let pid = child.id().to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status()?.success());
    let ended = tokio::task::spawn_blocking(move || child.wait());
    ensure!(within("the end of the watch", ended).await???.success(), "an interrupt is no failure");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn kubectl_finds_the_plugin() -> Result<()> {
    let world = World::new("ray-plugin").await?;
    let path = format!("{}:{}", world.folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut command = Command::new(find_kubectl()?);
    command.env("PATH", path).env("KUBECONFIG", &world.kubeconfig).args(["ray", "version"]);
    let output = command.stdin(Stdio::null()).output()?;
    let text = String::from_utf8(output.stdout)?;
    assert!(text.starts_with(concat!("kubectl ray plugin version: ", env!("CARGO_PKG_VERSION"), "\n")), "{text}");
    assert!(text.contains("KubeRay operator "), "{text}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_services_and_cronjobs_are_listed() -> Result<()> {
    let world = World::new("ray-kinds").await?;
    let head = json!({"template": {"spec": {"containers": [{"name": "head", "image": "i"}]}}});
    let job = json!({"entrypoint": "ls", "rayClusterSpec": {"headGroupSpec": head}});
    for (kind, spec) in [
        ("RayJob", job.clone()),
        ("RayService", json!({"rayClusterConfig": {"headGroupSpec": head}})),
        ("RayCronJob", json!({"schedule": "0 * * * *", "jobTemplate": job})),
    ] {
        let resource = kube::api::ApiResource {
            group: "ray.io".into(),
            version: "v1".into(),
            api_version: "ray.io/v1".into(),
            kind: kind.into(),
            plural: kind.to_lowercase() + "s",
        };
        let api: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
        let object = json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": "x"}, "spec": spec});
        api.create(&PostParams::default(), &serde_json::from_value(object)?).await?;
    }
    assert_eq!(world.ok(&["get", "job", "-o", "name"]), "rayjob.ray.io/x\n");
    assert_eq!(world.ok(&["get", "service", "-o", "name"]), "rayservice.ray.io/x\n");
    assert_eq!(world.ok(&["get", "cronjob", "-o", "name"]), "raycronjob.ray.io/x\n");
    assert!(world.ok(&["get", "cronjobs"]).contains("0 * * * *"));
    let missing = world.fails(&["get", "job", "y"]);
    assert_eq!(missing, format!("Ray job y not found in namespace {}. Did you mean x?", world.namespace));
    Ok(())
}

/// The operator writes the name of the cluster into the status before it creates the cluster.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_waits_for_a_cluster_that_is_not_created_yet() -> Result<()> {
    let world = World::new("ray-late").await?;
    let mut command = world.command();
    command.args(["job", "submit", "--name", "train", "--working-dir", ".", "-n", &world.namespace, "--", "true"]);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::piped()).spawn()?;
    let mut lines = BufReader::new(child.stderr.take().unwrap()).lines().map_while(Result::ok);
    let mut until = |expect: &str| {
        let found = lines.find(|line| line.contains(expect) || line.starts_with("Error: "));
        assert!(found.as_ref().is_some_and(|line| line.contains(expect)), "{expect}: {found:?}");
    };
    until("waiting for rayjob/train: no status yet");
    let jobs: Api<RayJob> = Api::namespaced(world.client.clone(), &world.namespace);
    let status = json!({"status": {"jobDeploymentStatus": "Initializing", "rayClusterName": "late"}});
    jobs.patch_status("train", &PatchParams::default(), &Patch::Merge(status)).await?;
    until("waiting for raycluster/late: not created yet");
    world.ok(&["create", "cluster", "late"]);
    until("waiting for raycluster/late: no status yet");
    child.kill()?;
    child.wait()?;
    Ok(())
}

#[test]
fn wrong_usage_and_unreachable_clusters_are_errors() {
    let folder = tempfile::tempdir().unwrap();
    let link = folder.path().join("kubectl-ray");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_manta"), &link).unwrap();
    let run = |args: &[&str], kubeconfig: &Path| {
        let output = Command::new(&link).args(args).env("KUBECONFIG", kubeconfig).output().unwrap();
        let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
        (output.status.code(), text)
    };
    let nowhere = Path::new("/nonexistent");
    let (code, text) = run(&[], nowhere);
    assert!(code == Some(0) && text.contains("Usage: kubectl ray"), "{text}");
    let (code, text) = run(&["gett", "cluster"], nowhere);
    assert!(code == Some(1) && text.starts_with("Error: unrecognized subcommand 'gett'"), "{text}");
    assert!(text.contains("'get'"), "{text}");
    let (code, text) = run(&["scale", "cluster", "a", "-w", "g", "-r", "-3"], nowhere);
    assert_eq!((code, text.as_str()), (Some(1), "Error: --replicas must be a non-negative integer\n"));

    let kubeconfig = folder.path().join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "far",
        "clusters": [{"name": "far", "cluster": {"server": "http://127.0.0.1:1"}}],
        "contexts": [{"name": "far", "context": {"cluster": "far", "user": "far"}}],
        "users": [{"name": "far", "user": {}}],
    });
    std::fs::write(&kubeconfig, config.to_string()).unwrap();
    let (code, text) = run(&["get", "cluster"], &kubeconfig);
    assert!(code == Some(1) && text.contains("no answer from the cluster far (http://127.0.0.1:1/)"), "{text}");
    let (code, text) = run(&["get", "cluster", "--context", "near"], &kubeconfig);
    assert!(code == Some(1) && text.contains("near"), "{text}");
    let (code, text) = run(&["version"], &kubeconfig);
    assert!(code == Some(0) && text.contains("warning: KubeRay operator installation cannot be found: "), "{text}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn sessions_and_logs_need_a_cluster_that_runs() -> Result<()> {
    let world = World::new("ray-session").await?;
    world.ok(&["create", "cluster", "demo"]);
    let early = world.fails(&["session", "demo"]);
    assert!(early.starts_with("raycluster/demo has no head Service yet"), "{early}");
    // A RayJob leads to its cluster, also before its own status repeats what that of the cluster says.
    let job = json!({"apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "early"},
        "spec": {"entrypoint": "true", "clusterSelector": {"ray.io/cluster": "demo"}}});
    let jobs: Api<RayJob> = Api::namespaced(world.client.clone(), &world.namespace);
    jobs.create(&PostParams::default(), &serde_json::from_value(job)?).await?;
    let status = Patch::Merge(json!({"status": {"rayClusterName": "demo"}}));
    jobs.patch_status("early", &PatchParams::default(), &status).await?;
    assert!(world.fails(&["session", "rayjob/early"]).starts_with("rayjob/early has no head Service yet"));
    world.set_status("demo", json!({"head": {"serviceName": "demo-head-svc"}})).await?;
    let mut session = world.command();
    session.args(["session", "rayjob/early", "-n", &world.namespace]).stdout(Stdio::piped());
    let mut session = session.spawn()?;
    let line = BufReader::new(session.stdout.take().unwrap()).lines().next().unwrap()?;
    session.kill()?;
    session.wait()?;
    assert_eq!(line, "Forwarding ports to service demo-head-svc");
    let none = world.fails(&["session", "RAYJOB/demo"]);
    assert!(none.starts_with("Ray job demo not found in namespace"), "{none}");
    let cron = world.fails(&["session", "pod/demo"]);
    assert!(
        cron.contains("unsupported resource type pod; use one of raycluster, rayjob, rayservice, raycronjob"),
        "{cron}"
    );

    let (code, out, err) = world.ray(&["log", "demo", "--node-type", "head"]);
    assert_eq!((code, err.as_str()), (Some(1), "Error: No Ray nodes found for resource demo\n"));
    assert_eq!(out, "Command set to retrieve only head node logs.\n");
    let labels = json!({"ray.io/is-ray-node": "yes", "ray.io/cluster": "demo", "ray.io/node-type": "head"});
    let pod = json!({"metadata": {"name": "demo-head", "labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let pods: Api<Pod> = Api::namespaced(world.client.clone(), &world.namespace);
    pods.create(&PostParams::default(), &serde_json::from_value(pod)?).await?;
    let missing = world.fails(&["log", "demo", "--out-dir", "nowhere"]);
    assert!(missing.starts_with("Directory does not exist. Failed with: nowhere"), "{missing}");
    // There is no node, so nothing can be read: the error says so, and the exit code, too.
    let (code, out, err) = world.ray(&["logs", "demo"]);
    let expect = "Command set to retrieve both head and worker node logs.\n\
        No output directory specified, creating dir under current directory using resource name.\n\
        Downloading log for Ray Node demo-head\n";
    assert_eq!((code, out.as_str()), (Some(1), expect), "{err}");
    assert!(err.starts_with("Error: Ray node demo-head: cannot "), "{err}");
    let wrong = world.fails(&["log", "demo", "--link", "gke"]);
    assert!(wrong.ends_with("is not one of GKE; those are called gke_PROJECT_LOCATION_CLUSTER"), "{wrong}");
    let mut config: Value = serde_saphyr::from_str(&std::fs::read_to_string(&world.kubeconfig)?)?;
    config["contexts"][0]["name"] = json!("gke_corp_europe-west1_prod");
    config["current-context"] = json!("gke_corp_europe-west1_prod");
    let gke = world.write("gke", &config.to_string());
    let link = world.ok(&["log", "demo", "--link", "gke", "--kubeconfig", &gke]);
    assert!(link.contains("https://console.cloud.google.com/logs/") && link.contains("project=corp"), "{link}");
    let wrong = world.fails(&["log", "demo", "--node-type", "middle"]);
    assert!(wrong.contains("[possible values: all, head, worker]"), "{wrong}");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_job_whose_cluster_is_not_ready_leaves_nothing_behind() -> Result<()> {
    let world = World::new("ray-submit").await?;
    let resource = kube::api::ApiResource {
        group: "ray.io".into(),
        version: "v1".into(),
        api_version: "ray.io/v1".into(),
        kind: "RayJob".into(),
        plural: "rayjobs".into(),
    };
    let jobs: Api<DynamicObject> = Api::namespaced_with(world.client.clone(), &world.namespace, &resource);
    let submit = |more: &[&str]| {
        let mut args = vec!["job", "submit", "-n", &world.namespace];
        args.extend(more);
        args.extend(["--", "python", "x.py"]);
        let mut command = tokio::process::Command::from(world.command());
        command.args(args).stdout(Stdio::piped()).stderr(Stdio::piped()).kill_on_drop(true).spawn().unwrap()
    };
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
    let refused = async |more: &[&str], expect: &str| {
        let output = submit(more).wait_with_output().await.unwrap();
        assert_eq!((output.status.code(), text(output.stderr)), (Some(1), format!("Error: {expect}\n")), "{more:?}");
    };
    refused(&["--working-dir", "."], "Must set either yaml file (--filename) or set Ray job name (--name)").await;
    refused(&["--name", "x"], "working directory is required, use --working-dir or set with runtime env").await;
    let printed = text(submit(&["--name", "x", "--working-dir", ".", "--dry-run"]).wait_with_output().await?.stdout);
    assert!(printed.contains("submissionMode: InteractiveMode"), "{printed}");
    assert!(jobs.get_opt("x").await?.is_none(), "--dry-run creates nothing");

    // The operator names the cluster, which does not become ready.
    world.ok(&["create", "cluster", "slow"]);
    let named = async {
        let events = jobs.watch(&WatchParams::default().fields("metadata.name=late"), "0").await?;
        let mut events = pin!(events);
        while !matches!(events.try_next().await?.context("the watch ended")?, WatchEvent::Added(_)) {}
        let status = Patch::Merge(json!({"status": {"rayClusterName": "slow", "jobDeploymentStatus": "Initializing"}}));
        anyhow::Ok(jobs.patch_status("late", &PatchParams::default(), &status).await?)
    };
    // The time-out is for the name of the cluster, too, which is there as soon as the RayJob is.
    let child = submit(&["--name", "late", "--working-dir", ".", "--timeout", "5s"]);
    let waited = async { anyhow::Ok(child.wait_with_output().await?) };
    let (_, output) = tokio::try_join!(named, waited)?;
    let (out, err) = (text(output.stdout), text(output.stderr));
    assert!(
        out.starts_with("Generated submission ID for Ray job: raysubmit_") && out.ends_with("Submitted RayJob late.\n"),
        "{out}"
    );
    assert!(
        err.contains("waiting for raycluster/slow: ") && err.ends_with("Error: Timed out waiting for cluster\n"),
        "{err}"
    );
    assert!(jobs.get_opt("late").await?.is_none(), "it is deleted");

    // An interrupt while it waits.
    let child = submit(&["--name", "stopped", "--working-dir", "."]);
    eventually("the RayJob", async || Ok(jobs.get("stopped").await?)).await?;
    assert!(Command::new("kill").args(["-INT", &child.id().unwrap().to_string()]).status()?.success());
    let output = child.wait_with_output().await?;
    let err = text(output.stderr);
    assert!(output.status.code() == Some(1) && err.ends_with("deleting rayjob/stopped\nError: interrupted\n"), "{err}");
    assert!(jobs.get_opt("stopped").await?.is_none(), "it is deleted");
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn names_are_completed_for_kubectl_and_for_shells() -> Result<()> {
    let world = World::new("ray-complete").await?;
    world.ok(&["create", "cluster", "alpha"]);
    world.ok(&["create", "cluster", "beta"]);
    world.ok(&["create", "workergroup", "gpu", "-c", "alpha"]);
    let helper = world.folder.path().join("kubectl_complete-ray");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_manta"), &helper)?;
    let complete = |words: &[&str]| {
        let mut command = Command::new(&helper);
        let output = command.args(words).env("KUBECONFIG", &world.kubeconfig).output().unwrap();
        String::from_utf8(output.stdout).unwrap()
    };
    let namespace = world.namespace.as_str();
    assert_eq!(complete(&["get", "cluster", "-n", namespace, ""]), "alpha\nbeta\n:4\n");
    assert_eq!(complete(&["get", "cluster", "-n", namespace, "a"]), "alpha\n:4\n");
    assert_eq!(complete(&["get", "cluster", "-A", "a"]), ":4\n");
    assert_eq!(complete(&["scale", "cluster", "alpha", "-n", namespace, "-w", ""]), "default-group\ngpu\n:4\n");
    assert_eq!(complete(&["get", "workergroup", "-c", "beta", "-n", namespace, ""]), "default-group\n:4\n");
    assert_eq!(complete(&["delete", "-n", namespace, "ray"]), "raycluster/\nrayjob/\nrayservice/\n:6\n");
    assert_eq!(complete(&["session", "-n", namespace, "raycluster/b"]), "raycluster/beta\n:4\n");
    assert!(complete(&["get", "cluster", "-n", &namespace[..namespace.len() - 1]]).contains(namespace));
    assert!(complete(&["sess"]).starts_with("session\tForward "));
    let (_, same, _) = world.ray(&["__complete", "get", "cluster", "-n", namespace, "al"]);
    assert_eq!(same, format!("{namespace}\n:4\n"), "the last word is the namespace here");

    // Bash asks the same way.
    let script = format!(
        "source <(manta completion bash); COMP_WORDS=(manta ray get cluster -n {namespace} al); COMP_CWORD=6; _manta manta; \
         printf '%s\\n' \"${{COMPREPLY[@]}}\""
    );
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_manta"), world.folder.path().join("manta"))?;
    let path = format!("{}:{}", world.folder.path().display(), std::env::var("PATH").unwrap_or_default());
    let mut bash = Command::new("bash");
    let output = bash.args(["-c", &script]).env("PATH", path).env("KUBECONFIG", &world.kubeconfig).output()?;
    assert_eq!(String::from_utf8(output.stdout)?, "alpha\n", "{}", String::from_utf8_lossy(&output.stderr));
    Ok(())
}
