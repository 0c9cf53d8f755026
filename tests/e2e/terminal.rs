//! The commands for people at a terminal, with real Ray: no kubectl, no `ray` command.

use std::path::Path;
use std::process::{Output, Stdio};

use kube::ResourceExt;
use tokio::io::{AsyncBufReadExt, BufReader};
use tokio::process::Command;

use crate::up::{MANTA, folder};
use crate::user::User;

fn manta(user: &User, folder: &Path, args: &[&str]) -> Command {
    let mut command = Command::new(MANTA);
    command.args(args).env("KUBECONFIG", &user.kubeconfig).current_dir(folder).stdin(Stdio::null()).kill_on_drop(true);
    command
}

/// Runs a command in the user's namespace; flags come before those of the job.
async fn run(user: &User, folder: &Path, args: &[&str]) -> (Option<i32>, String, String) {
    let at = args.iter().position(|arg| *arg == "--").unwrap_or(args.len());
    let mut all = args[..at].to_vec();
    all.extend(["-n", &user.namespace]);
    all.extend(&args[at..]);
    let Output { status, stdout, stderr } = manta(user, folder, &all).output().await.expect("manta");
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    (status.code(), text(stdout), text(stderr))
}

pub(crate) async fn a_running_cluster_is_used(user: &User) {
    user.apply_example("raycluster.yaml").await;
    user.until_ready("demo").await;
    let folder = folder();
    let path = folder.path();
    std::fs::write(path.join("train.py"), "import helper, sys\nprint('got', helper.X)\nsys.exit(3)\n")
        .expect("written");
    std::fs::write(path.join("helper.py"), "X = 'marker'\n").expect("written");
    let submit = ["job", "submit", "-c", "demo", "--submission-id", "mine", "--", "python", "train.py"];
    let (code, out, err) = run(user, path, &submit).await;
    assert!(code == Some(3) && out.contains("got marker"), "{code:?} {out} {err}");
    let (code, out, err) = run(user, path, &["job", "logs", "mine", "-c", "demo"]).await;
    assert!(code == Some(0) && out.contains("got marker"), "{code:?} {out} {err}");
    let (code, out, err) = run(user, path, &["job", "list", "-c", "demo"]).await;
    assert!(code == Some(0) && out.contains("mine") && out.contains("FAILED"), "{code:?} {out} {err}");
    let (code, out, err) = run(user, path, &["job", "stop", "none", "-c", "demo"]).await;
    assert!(code == Some(1) && err.contains("Job none does not exist"), "{code:?} {out} {err}");

    let (code, out, err) = run(user, path, &["shell", "demo", "--", "sh", "-c", "echo $((6*7)); exit 5"]).await;
    assert!(code == Some(5) && out == "42\n", "{code:?} {out} {err}");
    let (code, out, err) = run(user, path, &["logs", "demo", "--tail", "3"]).await;
    assert!(code == Some(0) && !out.is_empty(), "{code:?} {out} {err}");
    let (code, out, err) = run(user, path, &["ray", "log", "demo", "--node-type", "head"]).await;
    assert!(code == Some(0) && out.contains("Downloading log for Ray Node"), "{code:?} {out} {err}");
    let logs = path.join("demo").join(user.head("demo").await.name_any());
    for file in ["stdout.log", "dashboard.log"] {
        assert!(logs.join(file).is_file(), "{file}");
    }
    forward(user, path).await;
}

/// `session` forwards the dashboard until interrupted.
async fn forward(user: &User, folder: &Path) {
    let mut session = manta(user, folder, &["ray", "session", "RayCluster/demo", "-n", &user.namespace]);
    let mut child = session.stdout(Stdio::piped()).spawn().expect("manta");
    let mut lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    let mut next = async || lines.next_line().await.expect("a line").unwrap_or_default();
    assert_eq!(next().await, "Forwarding ports to service demo-head-svc");
    let line = next().await;
    let url = line.strip_prefix("Ray Dashboard: ").unwrap_or_else(|| panic!("{line}"));
    let url = format!("{}/api/version", url.replace("localhost", "127.0.0.1"));
    let reply = reqwest::Client::builder().no_proxy().build().expect("a client").get(&url).send().await;
    assert!(reply.expect("a reply").text().await.expect("a text").contains("ray_version"));
    assert!(next().await.starts_with("Ray Interactive Client: http://localhost:"));
    let pid = child.id().expect("a process").to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().await.expect("kill").success());
    assert!(child.wait().await.expect("its end").success());
}

pub(crate) async fn a_job_gets_a_cluster_of_its_own(user: &User) {
    let folder = folder();
    let path = folder.path();
    std::fs::write(path.join("train.py"), "print('trained')\n").expect("written");
    let small = ["--ray-version", "2.60.0", "--head-cpu", "1", "--head-memory", "2Gi", "--worker-replicas", "0"];
    let mut args = vec!["ray", "job", "submit", "--name", "train", "--working-dir", ".", "--timeout", "5m"];
    args.extend(small);
    args.extend(["--", "python", "train.py"]);
    let (code, out, err) = run(user, path, &args).await;
    assert_eq!(code, Some(0), "{out} {err}");
    assert!(out.contains("Submitted RayJob train.") && out.contains("trained"), "{out} {err}");
    assert!(out.trim_end().ends_with("finished with status SUCCEEDED."), "{out} {err}");
}
