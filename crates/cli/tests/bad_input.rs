//! What the commands for people say to bad input: clusters that do not answer, missing access, wrong names.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use anyhow::Result;
use kube::Api;
use kube::api::PostParams;
use manta_api::RayCluster;
use manta_testkit::{ControlPlane, Options};
use serde_json::json;
use std::net::TcpListener;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// Every command that asks a cluster, for a Ray cluster called `demo`.
const COMMANDS: &[&[&str]] = &[
    &["ray", "get", "cluster", "demo"],
    &["ray", "get", "workergroup"],
    &["ray", "get", "node"],
    &["ray", "get", "job"],
    &["ray", "get", "service"],
    &["ray", "get", "cronjob"],
    &["ray", "get", "token", "demo"],
    &["ray", "create", "cluster", "demo"],
    &["ray", "create", "workergroup", "g", "-c", "demo"],
    &["ray", "scale", "cluster", "demo", "-w", "g", "-r", "1"],
    &["ray", "delete", "-y", "demo"],
    &["ray", "session", "demo"],
    &["ray", "log", "demo"],
    &["ray", "job", "submit", "--name", "x", "--working-dir", ".", "--", "ls"],
    &["job", "submit", "-c", "demo", "--", "ls"],
    &["job", "submit", "--", "ls"],
    &["job", "list"],
    &["job", "logs", "demo"],
    &["job", "stop", "demo"],
    &["logs", "demo"],
    &["shell", "demo", "--", "ls"],
    &["open", "demo", "--no-browser"],
    &["connect", "demo"],
    &["plan", "demo"],
    &["plan", "--all"],
    &["version"],
    &["explain", "demo"],
    &["explain", "raycluster/demo"],
    &["history"],
    &["ray", "get", "cluster", "--watch"],
];

struct Ran {
    code: Option<i32>,
    text: String,
    took: Duration,
}

/// Runs a command; flags come before what follows `--`.
fn manta(kubeconfig: &Path, folder: &Path, args: &[&str], flags: &[&str]) -> Ran {
    let at = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
    let args = [&args[..at], flags, &args[at..]].concat();
    let start = Instant::now();
    let mut command = Command::new(env!("CARGO_BIN_EXE_manta"));
    let output = command.args(&args).env("KUBECONFIG", kubeconfig).current_dir(folder).stdin(Stdio::null()).output();
    let output = output.unwrap();
    let text = format!("{}{}", String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    Ran { code: output.status.code(), text, took: start.elapsed() }
}

fn kubeconfig(folder: &Path, server: &str) -> PathBuf {
    let path = folder.join("kubeconfig");
    let config = json!({
        "apiVersion": "v1", "kind": "Config", "current-context": "far",
        "clusters": [{"name": "far", "cluster": {"server": server}}],
        "contexts": [{"name": "far", "context": {"cluster": "far", "user": "far"}}],
        "users": [{"name": "far", "user": {}}],
    });
    std::fs::write(&path, config.to_string()).unwrap();
    path
}

#[test]
fn a_cluster_that_is_not_there_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let kubeconfig = kubeconfig(folder.path(), "http://127.0.0.1:1");
    for command in COMMANDS {
        let ran = manta(&kubeconfig, folder.path(), command, &[]);
        assert_eq!(ran.code, Some(1), "{command:?}: {}", ran.text);
        assert!(ran.text.contains("the cluster far (http://127.0.0.1:1/)"), "{command:?}: {}", ran.text);
    }
}

#[test]
fn a_cluster_that_does_not_answer_is_given_up_after_the_timeout() {
    let folder = tempfile::tempdir().unwrap();
    // Connections stay in its backlog.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let kubeconfig = kubeconfig(folder.path(), &format!("http://{}", silent.local_addr().unwrap()));
    for command in [
        COMMANDS[0],
        COMMANDS[7],
        COMMANDS[16],
        COMMANDS[19],
        COMMANDS[23],
        COMMANDS[25],
        COMMANDS[26],
        COMMANDS[28],
        COMMANDS[29],
    ] {
        let ran = manta(&kubeconfig, folder.path(), command, &["--request-timeout", "300ms"]);
        assert!(ran.code == Some(1) && ran.text.contains("the cluster far ("), "{command:?}: {}", ran.text);
        assert!(ran.took < Duration::from_secs(60), "{command:?} took {:?}", ran.took);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn wrong_names_come_with_the_nearest_and_ambiguous_ones_with_all() -> Result<()> {
    let plane = ControlPlane::shared();
    plane.install_ray_crds().await?;
    let namespace = plane.namespace("bad-names").await?;
    let clusters: Api<RayCluster> = Api::namespaced(plane.client().await?, &namespace);
    let head = json!({"template": {"spec": {"containers": [{"name": "head", "image": "i"}]}}});
    for name in ["demo", "train-aaaaaaaa", "train-bbbbbbbb"] {
        let cluster = json!({"metadata": {"name": name}, "spec": {"headGroupSpec": head}});
        clusters.create(&PostParams::default(), &serde_json::from_value(cluster)?).await?;
    }
    let folder = tempfile::tempdir()?;
    let named: Vec<&&[&str]> = COMMANDS.iter().filter(|command| command.contains(&"demo")).collect();
    for command in named {
        // RayJobs have other names, and a new cluster any.
        if command.contains(&"create") && command.contains(&"cluster") || command[1] == "logs" || command[1] == "stop" {
            continue;
        }
        for (wrong, expect) in
            [("dmeo", "Did you mean demo?"), ("train", "Names starting with it: train-aaaaaaaa, train-bbbbbbbb")]
        {
            let changed: Vec<&str> = command.iter().map(|word| if *word == "demo" { wrong } else { word }).collect();
            let ran = manta(&plane.kubeconfig_path(), folder.path(), &changed, &["-n", &namespace]);
            assert!(ran.code == Some(1) && ran.text.contains(expect), "{changed:?}: {}", ran.text);
        }
    }
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn missing_access_is_said_with_verb_and_resource() -> Result<()> {
    // The shared server allows everything.
    let options = Options { rbac: true, ..Options::default() };
    let plane = ControlPlane::start_embedded(Path::new(env!("CARGO_BIN_EXE_manta")), options)?;
    plane.install_ray_crds().await?;
    let namespace = plane.namespace("bad-access").await?;
    plane.kubectl(&["create", "serviceaccount", "nobody", "--namespace", &namespace])?;
    let kubeconfig = plane.kubeconfig_of_account(&namespace, "nobody")?;
    let folder = tempfile::tempdir()?;
    for command in COMMANDS {
        let ran = manta(&kubeconfig, folder.path(), command, &["-n", &namespace]);
        assert_eq!(ran.code, Some(1), "{command:?}: {}", ran.text);
        let user = format!("User \"system:serviceaccount:{namespace}:nobody\" cannot ");
        assert!(ran.text.contains(&user) && ran.text.contains(" resource \""), "{command:?}: {}", ran.text);
    }
    Ok(())
}
