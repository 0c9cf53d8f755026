//! The page in a real browser, while real Ray runs.

use kube::ResourceExt;
use manta_testkit::{Browser, Supervised, Tab, eventually};
use serde_json::{Value, json};
use std::collections::HashSet;
use std::process::Command;

use crate::up::MANTA;
use crate::user::{User, example, head_only};

/// Returns why these scenarios cannot run.
pub(crate) fn lacks() -> Option<String> {
    Browser::find().is_none().then(|| "no Chromium; install it with the package system".to_owned())
}

/// The page of a user, in a browser.
struct Viewer {
    tab: Tab,
    _browser: Browser,
    page: Supervised,
    _folder: tempfile::TempDir,
}

impl Viewer {
    async fn of(user: &User) -> Self {
        let mut command = Command::new(MANTA);
        command.args(["page", "--no-browser", "--kubeconfig"]).arg(&user.kubeconfig);
        Self::start(command).await
    }

    async fn start(command: Command) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let page = Supervised::start(folder.path(), "page", &command).expect("the page starts");
        let url = eventually("the page is served", async || {
            let log = std::fs::read_to_string(page.log_path())?;
            let url = log.lines().find_map(|line| line.strip_prefix("the page is at ")).map(str::to_owned);
            url.ok_or_else(|| anyhow::anyhow!("{log}"))
        });
        let url = url.await.expect("an address");
        let browser = Browser::start().await.expect("a browser");
        let tab = browser.open(&url).await.expect("a tab");
        Self { tab, _browser: browser, page, _folder: folder }
    }

    async fn go(&self, kind: &str, namespace: &str, name: &str) {
        self.tab.eval(&format!("location.hash = '#/{kind}/{namespace}/{name}'")).await.expect("the view");
    }

    async fn sees(&self, selector: &str, text: &str) {
        self.tab.sees(selector, text).await.expect("it is seen");
    }

    async fn until(&self, expression: &str) {
        self.tab.until(expression).await.expect("it becomes true");
    }

    async fn click(&self, selector: &str, text: &str) {
        self.tab.click(selector, text).await.expect("a click");
    }

    async fn fill(&self, selector: &str, text: &str) {
        self.tab.fill(selector, text).await.expect("a text");
    }

    /// Creates an object from a pasted manifest.
    async fn paste(&self, namespace: &str, manifest: &Value) {
        self.tab.eval("location.hash = '#/new'").await.expect("the view");
        // The templates come after the view, and a choice among them replaces the text.
        self.until("document.querySelectorAll('.templates button').length > 0").await;
        self.fill("textarea", &manifest.to_string()).await;
        self.fill("input[name=namespace]", namespace).await;
        self.sees(".fine", "Nothing to fix in 1 object").await;
        self.click("button.primary", "Create").await;
    }
}

/// Everything that can be done to objects in the page is done to what real Ray runs.
pub(crate) async fn every_action_is_carried_out(user: &User) {
    let viewer = Viewer::of(user).await;
    // Its first run is due within a minute.
    viewer.paste(&user.namespace, &example("raycronjob.yaml")[0]).await;
    viewer.sees("h1", "minutely").await;

    let mut spec = head_only();
    let worker = json!({"name": "ray-worker", "image": "rayproject/ray:2.60.0",
        "resources": {"requests": {"cpu": "500m", "memory": "512Mi"}, "limits": {"cpu": "500m", "memory": "1Gi"}}});
    spec["workerGroupSpecs"] = json!([{"groupName": "small", "replicas": 0, "minReplicas": 0, "maxReplicas": 2,
        "rayStartParams": {}, "template": {"spec": {"containers": [worker]}}}]);
    let cluster = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "made"}, "spec": spec});
    viewer.paste(&user.namespace, &cluster).await;
    viewer.sees("h1", "made").await;
    viewer.sees(".title .pill", "ready").await;
    viewer.click(".actions button", "Scale").await;
    viewer.fill("dialog input[aria-label='Replicas of small']", "1").await;
    viewer.click("dialog button", "Scale").await;
    viewer.until("document.querySelectorAll('button.cell.ready').length === 2").await;
    viewer.click(".actions button", "Suspend").await;
    viewer.sees("dialog", "2 Pods").await;
    viewer.click("dialog button.primary", "Suspend").await;
    viewer.sees(".title .pill", "suspended").await;
    assert!(user.pods_with("ray.io/cluster=made").await.is_empty(), "what is suspended has no Pods");
    viewer.click(".actions button", "Resume").await;
    viewer.sees(".title .pill", "ready").await;
    viewer.until("document.querySelectorAll('button.cell.ready').length === 2").await;
    viewer.click(".actions button", "Delete").await;
    viewer.sees("dialog", "2 Pods").await;
    viewer.click("dialog button.danger", "Delete made").await;
    viewer.sees(".pill", "deleted").await;

    let spec = json!({"entrypoint": "exit 3", "submissionMode": "HTTPMode", "shutdownAfterJobFinishes": true,
        "rayClusterSpec": head_only()});
    user.create("RayJob", "flaky", spec).await;
    viewer.go("RayJob", &user.namespace, "flaky").await;
    viewer.sees(".failure", "exit code 3").await;
    viewer.click(".actions button", "Retry").await;
    viewer.until("/RayJob\\/[^/]+\\/flaky-.{5}$/.test(location.hash)").await;
    viewer.sees(".failure", "exit code 3").await;

    viewer.go("RayCronJob", &user.namespace, "minutely").await;
    viewer.click(".actions button", "Suspend").await;
    viewer.click("dialog button.primary", "Suspend").await;
    viewer.sees(".card-head", "■ suspended").await;
    viewer.until("document.querySelector('a.run-mark.done')").await;
    viewer.tab.eval("document.querySelector('a.run-mark.done').click()").await.expect("its job");
    viewer.sees("h1", "minutely-").await;
    viewer.sees(".title .pill", "Complete").await;
}

/// The page that local mode serves itself: its address is found again, and it shows the operator, which runs beside it.
pub(crate) async fn local_mode_serves_one_of_its_own(user: &User) {
    let state = user.kubeconfig.parent().expect("the state of local mode");
    let mut command = tokio::process::Command::new(MANTA);
    command.args(["page", "--local", "--no-browser"]).env("MANTA_STATE", state).env("KUBECONFIG", "/nonexistent");
    let printed = command.output().await.expect("manta page");
    let text = String::from_utf8_lossy(&printed.stdout).into_owned();
    let url = text.trim_end().strip_prefix("the page is at ").unwrap_or_else(|| panic!("{printed:?}"));
    let mode = std::fs::metadata(state.join("page")).expect("the address").permissions();
    assert_eq!(std::os::unix::fs::PermissionsExt::mode(&mode) & 0o777, 0o600, "it contains a secret");

    let browser = Browser::start().await.expect("a browser");
    let tab = browser.open(url).await.expect("a tab");
    tab.sees(".connection", "live").await.expect("it is live");
    tab.eval("location.hash = '#/operator'").await.expect("the view");
    tab.sees(".sub", "Leader: the operator of this local mode").await.expect("the leader");
    for title in ["Waiting in the queue", "Lag of the slowest", "Passes", "Requests"] {
        tab.sees(".tile", title).await.expect(title);
    }
    let mut spec = head_only();
    spec["suspend"] = json!(true);
    user.create("RayCluster", "counted", spec).await;
    let passes = "[...document.querySelectorAll('.figures tr')].find((row) => row.firstChild.textContent === 'Clusters')?.children[3].textContent";
    tab.until(&format!("Number({passes}) > 0")).await.expect("its passes are counted");
}

/// A job fails, and the page says why while its log is still coming in; deleted, it is still explained.
pub(crate) async fn a_failed_job_is_seen_explained_and_remembered(user: &User) {
    let viewer = Viewer::of(user).await;
    let script =
        "import time; print('working on <img src=x>', flush=True); time.sleep(20); raise ValueError('no rows')";
    let spec = json!({"entrypoint": format!("python -c \"{script}\""), "submissionMode": "HTTPMode",
        "rayClusterSpec": head_only()});
    user.create("RayJob", "broken", spec).await;
    viewer.go("RayJob", &user.namespace, "broken").await;
    // Earlier phases are over before a slow browser has opened the page.
    viewer.sees(".pill", "Running").await;
    viewer.sees(".log .line", "working on <img src=x>").await;
    assert_eq!(viewer.tab.eval("document.querySelectorAll('.log img').length").await.expect("a number"), 0);
    // A port for the log would lend the viewer's reach into Ray to every account of the machine.
    assert_eq!(listening(viewer.page.pid()), 1, "only the page itself listens");
    viewer.sees(".failure", "exit code 1").await;
    viewer.sees(".failure .error", "ValueError: no rows").await;
    viewer.sees(".pill", "Failed").await;
    viewer.tab.fill(".log-bar input[type=search]", "no rows").await.expect("a search");
    viewer.until("document.querySelectorAll('.log mark').length > 0").await;
    user.delete("RayJob", "broken").await;
    viewer.sees(".pill", "deleted").await;
    viewer.sees(".failure .error", "ValueError: no rows").await;
    viewer.sees(".explain", "this is the operator's record of").await;
    viewer.sees(".explain .cause", "no rows").await;
}

/// Returns on how many TCP ports a process listens.
fn listening(pid: i32) -> usize {
    let sockets = std::fs::read_dir(format!("/proc/{pid}/fd")).expect("its files");
    let sockets = sockets.filter_map(|file| std::fs::read_link(file.ok()?.path()).ok());
    let inodes: HashSet<String> = sockets
        .filter_map(|link| Some(link.to_str()?.strip_prefix("socket:[")?.strip_suffix(']')?.to_owned()))
        .collect();
    let tables = ["tcp", "tcp6"].map(|table| std::fs::read_to_string(format!("/proc/net/{table}")).unwrap_or_default());
    let lines = tables.iter().flat_map(|table| table.lines().skip(1));
    lines
        .filter(|line| {
            let mut fields = line.split_whitespace().skip(3);
            let is_listening = fields.next() == Some("0A");
            is_listening && fields.nth(5).is_some_and(|inode| inodes.contains(inode))
        })
        .count()
}

/// The head of a cluster is used from the page: its log, a shell, and Ray's own dashboard under another origin.
pub(crate) async fn a_cluster_is_used_from_the_page(user: &User) {
    let viewer = Viewer::of(user).await;
    user.create("RayCluster", "tool", head_only()).await;
    viewer.go("RayCluster", &user.namespace, "tool").await;
    viewer.sees(".title .pill", "ready").await;
    viewer.until("document.querySelector('button.cell.ready')").await;
    viewer.tab.eval("document.querySelector('button.cell.ready').click()").await.expect("the head");
    viewer.tab.click(".pod button", "Log").await.expect("its log");
    viewer.sees(".log .line", "Ray runtime started").await;
    viewer.tab.click(".pod button", "Terminal").await.expect("its terminal");
    viewer.until("document.querySelector('.terminal')?.innerText.trim().length > 1").await;
    viewer.tab.eval("document.querySelector('.terminal').focus()").await.expect("a focus");
    for key in "echo $((6*7))".chars() {
        viewer.tab.press(&key.to_string()).await.expect("a key");
    }
    viewer.tab.press("Enter").await.expect("a key");
    viewer.until("/^42[\\s\\u200b]*$/m.test(document.querySelector('.terminal').innerText)").await;
    let open = "fetch('/api/dashboard', {method: 'POST', headers: {Authorization: 'Bearer ' + localStorage.getItem('manta-session')}, body: JSON.stringify({namespace: NAMESPACE, cluster: 'tool'})}).then((r) => r.json())";
    let open = open.replace("NAMESPACE", &json!(user.namespace).to_string());
    let host = viewer.tab.eval(&open).await.expect("a dashboard")["host"].as_str().expect("a host").to_owned();
    let port = viewer.tab.eval("location.port").await.expect("a port");
    viewer.tab.go(&format!("http://{host}:{}/", port.as_str().expect("a port"))).await.expect("the dashboard");
    viewer
        .until("document.title.includes('Ray Dashboard') && document.getElementById('root')?.childElementCount > 0")
        .await;
    let stored = viewer.tab.eval("localStorage.getItem('manta-session')").await.expect("its storage");
    assert!(stored.is_null(), "a dashboard sees nothing of the page");
    assert!(user.head("tool").await.name_any().starts_with("tool-head"));
}

/// An upgrade is watched from start to end.
pub(crate) async fn an_upgrade_is_watched(user: &User) {
    let viewer = Viewer::of(user).await;
    user.apply_example("rayservice.yaml").await;
    viewer.go("RayService", &user.namespace, "greeter").await;
    viewer.sees(".title .pill", "Running").await;
    viewer.sees(".application .pill", "RUNNING").await;
    crate::services::start_load(user, crate::services::LOAD).await;
    viewer.until("parseFloat(document.querySelector('.rates')?.textContent) > 0").await;
    let name = "document.querySelector('.side a')?.textContent";
    let first = viewer.tab.eval(name).await.expect("its cluster");
    let upgrade = json!({"spec": {
        "rayClusterDeletionDelaySeconds": 1,
        "rayClusterConfig": {"headGroupSpec": {"rayStartParams": {"num-cpus": "2"}}},
    }});
    user.patch("RayService", "greeter", upgrade).await;
    viewer.sees(".title .pill", "Upgrading").await;
    viewer.until("document.querySelectorAll('.side').length === 2").await;
    viewer.until(&format!("document.querySelectorAll('.side').length === 1 && {name} !== {first}")).await;
    viewer.sees(".title .pill", "Running").await;
}
