//! The commands for people at a terminal, with real Ray: no kubectl, no `ray` command.

use std::path::Path;
use std::process::{Output, Stdio};

use kube::ResourceExt;
use serde_json::json;
use tokio::io::{AsyncBufReadExt, BufReader, Lines};
use tokio::process::{Child, ChildStdout, Command};

use crate::up::{MANTA, folder};
use crate::user::{User, poll};

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
    open(user, path).await;
    connect(user, path).await;
    interrupt(user, path).await;
    local(user, path).await;
}

/// Starts a command whose output is read line by line.
fn start(mut command: Command) -> (Child, Lines<BufReader<ChildStdout>>) {
    let mut child = command.stdout(Stdio::piped()).spawn().expect("manta");
    let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
    (child, lines)
}

/// Interrupts a command as Ctrl-C does, and returns its exit code.
async fn interrupted(mut child: Child) -> Option<i32> {
    let pid = child.id().expect("a process").to_string();
    assert!(Command::new("kill").args(["-INT", &pid]).status().await.expect("kill").success());
    child.wait().await.expect("its end").code()
}

/// `open` starts a browser on an address that leads to the dashboard.
async fn open(user: &User, folder: &Path) {
    let (browser, opened) = (folder.join("browser"), folder.join("opened"));
    // Written whole before it has its name, because it is read as soon as it is there.
    std::fs::write(&browser, "#!/bin/sh\necho \"$1\" > opened.new && mv opened.new opened\n").expect("written");
    std::fs::set_permissions(&browser, std::os::unix::fs::PermissionsExt::from_mode(0o755)).expect("executable");
    let mut command = manta(user, folder, &["open", "demo", "-n", &user.namespace]);
    command.env("BROWSER", &browser);
    let (child, mut lines) = start(command);
    let line = lines.next_line().await.expect("a line").unwrap_or_default();
    let url = line.strip_prefix("dashboard of raycluster/demo: ").unwrap_or_else(|| panic!("{line}"));
    let asked = poll(|| async { std::fs::read_to_string(&opened).ok() }).await;
    assert_eq!(asked.trim(), url);
    assert!(version(url).await.contains("ray_version"));
    assert_eq!(interrupted(child).await, Some(0));
}

async fn version(url: &str) -> String {
    get(&format!("{url}/api/version")).await
}

async fn get(url: &str) -> String {
    let client = reqwest::Client::builder().no_proxy().build().expect("a client");
    let reply = client.get(url.replace("localhost", "127.0.0.1")).send().await;
    reply.expect("a reply").text().await.expect("a text")
}

/// `connect` runs a command with the address set, or prints it.
async fn connect(user: &User, folder: &Path) {
    let script = "echo $RAY_ADDRESS; exit 4";
    let (code, out, err) = run(user, folder, &["connect", "demo", "--", "sh", "-c", script]).await;
    assert!(code == Some(4) && out.starts_with("ray://localhost:"), "{code:?} {out} {err}");
    let (child, mut lines) = start(manta(user, folder, &["connect", "demo", "-n", &user.namespace]));
    assert_eq!(lines.next_line().await.expect("a line").as_deref(), Some("import ray"));
    let line = lines.next_line().await.expect("a line").unwrap_or_default();
    assert!(line.starts_with("ray.init(\"ray://localhost:"), "{line}");
    assert_eq!(interrupted(child).await, Some(0));
}

/// An interrupt of `job submit` stops the job.
async fn interrupt(user: &User, folder: &Path) {
    std::fs::write(folder.join("long.py"), "import time\nprint('started', flush=True)\ntime.sleep(600)\n")
        .expect("written");
    let args =
        ["job", "submit", "-c", "demo", "--submission-id", "long", "-n", &user.namespace, "--", "python", "long.py"];
    let (child, mut lines) = start(manta(user, folder, &args));
    while let Some(line) = lines.next_line().await.expect("a line") {
        if line.contains("started") {
            break;
        }
    }
    assert_eq!(interrupted(child).await, Some(130));
    // Ray gives the program a few seconds to end.
    poll(|| async {
        let (_, out, _) = run(user, folder, &["job", "list", "-c", "demo"]).await;
        out.lines().any(|line| line.starts_with("long ") && line.contains("STOPPED")).then_some(())
    })
    .await;
}

/// `--local` needs no kubeconfig.
async fn local(user: &User, folder: &Path) {
    let state = user.kubeconfig.parent().expect("the state of local mode");
    let ask = |args: &[&str]| {
        let mut command = Command::new(MANTA);
        command.args(args).env("MANTA_STATE", state).env("KUBECONFIG", "/nonexistent").current_dir(folder);
        command.stdin(Stdio::null()).output()
    };
    let found = ask(&["ray", "get", "cluster", "--local", "-n", &user.namespace, "-o", "name"]).await.expect("manta");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "raycluster.ray.io/demo\n");
    let planned = ask(&["plan", "demo", "--local", "-n", &user.namespace]).await.expect("manta");
    let text = String::from_utf8_lossy(&planned.stdout).into_owned();
    assert!(planned.status.code() == Some(0) && text.ends_with("# nothing to do for 1 object\n"), "{text}");
    let forgotten = ask(&["explain", "demo"]).await.expect("manta");
    let text = String::from_utf8_lossy(&forgotten.stderr).into_owned();
    let hint =
        format!("local mode runs on this machine: add --local, or export KUBECONFIG={}", user.kubeconfig.display());
    assert!(forgotten.status.code() == Some(1) && text.contains(&hint), "{text}");
    let mut none = Command::new(MANTA);
    none.args(["ray", "get", "cluster", "--local"]).env("MANTA_STATE", folder).stdin(Stdio::null());
    let none = none.output().await.expect("manta");
    let text = String::from_utf8_lossy(&none.stderr).into_owned();
    assert!(none.status.code() == Some(1) && text.contains("local mode is not running in"), "{text}");
}

/// `session` forwards the dashboard until interrupted.
async fn forward(user: &User, folder: &Path) {
    let (child, mut lines) = start(manta(user, folder, &["ray", "session", "RayCluster/demo", "-n", &user.namespace]));
    let mut next = async || lines.next_line().await.expect("a line").unwrap_or_default();
    assert_eq!(next().await, "Forwarding ports to service demo-head-svc");
    let line = next().await;
    let url = line.strip_prefix("Ray Dashboard: ").unwrap_or_else(|| panic!("{line}"));
    assert!(version(url).await.contains("ray_version"));
    assert!(next().await.starts_with("Ray Interactive Client: http://localhost:"));
    assert_eq!(interrupted(child).await, Some(0));
}

/// `session` of a RayService leads to its applications, too.
pub(crate) async fn a_session_reaches_serve(user: &User, service: &str, expect: &str) {
    let resource = format!("rayservice/{service}");
    let folder = folder();
    let (child, mut lines) = start(manta(user, folder.path(), &["ray", "session", &resource, "-n", &user.namespace]));
    let url = loop {
        let line = lines.next_line().await.expect("a line").expect("the address of Serve");
        if let Some(url) = line.strip_prefix("Ray Serve: ") {
            break url.to_owned();
        }
    };
    assert_eq!(get(&url).await, expect);
    assert_eq!(interrupted(child).await, Some(0));
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

    // The same from a file, on the cluster that is there.
    let cluster = user.until("RayJob", "train", |status| status["rayClusterName"].as_str().map(str::to_owned)).await;
    let job = json!({
        "apiVersion": "ray.io/v1", "kind": "RayJob", "metadata": {"name": "filed"},
        "spec": {"submissionMode": "InteractiveMode", "clusterSelector": {"ray.io/cluster": cluster}},
    });
    std::fs::write(path.join("job.json"), job.to_string()).expect("written");
    std::fs::write(path.join("train.py"), "raise ValueError('bad batch')\n").expect("written");
    let args = ["ray", "job", "submit", "-f", "job.json", "--working-dir", ".", "--", "python", "train.py"];
    let (code, out, err) = run(user, path, &args).await;
    assert!(code == Some(1) && out.contains("Submitted RayJob filed."), "{code:?} {out} {err}");
    assert!(out.contains("ValueError: bad batch") && err.contains("failed: "), "{out} {err}");
}
