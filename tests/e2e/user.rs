//! A user of local mode: starts it, applies things, waits, looks.

use std::io::{BufRead, BufReader};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::Pod;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tempfile::TempDir;

pub(crate) const MANTA: &str = env!("CARGO_BIN_EXE_manta");

/// A running `manta up` and a client for it.
pub(crate) struct User {
    pub(crate) client: Client,
    _up: Up,
}

/// `manta up` as a child; ends with the value.
pub(crate) struct Up {
    child: Child,
    pub(crate) folder: Arc<TempDir>,
    pub(crate) printed: Arc<Mutex<Vec<String>>>,
}

impl Up {
    /// Starts it in a folder of its own, or in one that an earlier run used.
    pub(crate) fn start(folder: Arc<TempDir>, args: &[&str]) -> Self {
        let mut child = Command::new(MANTA)
            .args(["up", "--port", "0", "--state"])
            .arg(folder.path())
            .args(args)
            .stdout(Stdio::piped())
            .stderr(Stdio::inherit())
            .spawn()
            .expect("manta up");
        let printed = Arc::new(Mutex::new(Vec::new()));
        let lines = BufReader::new(child.stdout.take().expect("its output")).lines();
        let kept = Arc::clone(&printed);
        std::thread::spawn(move || {
            for line in lines.map_while(Result::ok) {
                kept.lock().expect("no panic").push(line);
            }
        });
        Self { child, folder, printed }
    }

    pub(crate) fn pid(&self) -> u32 {
        self.child.id()
    }

    /// Waits until a line with this text was printed.
    pub(crate) fn until_printed(&mut self, text: &str) {
        wait_for(|| {
            let ended = self.child.try_wait().expect("a child");
            assert!(ended.is_none(), "manta up ended early: {ended:?}");
            self.printed.lock().expect("no panic").iter().any(|line| line.contains(text)).then_some(())
        });
    }

    /// Ends it without warning.
    pub(crate) fn kill(mut self) -> Arc<TempDir> {
        self.child.kill().expect("killed");
        self.child.wait().expect("ended");
        Arc::clone(&self.folder)
    }
}

impl Drop for Up {
    fn drop(&mut self) {
        if self.child.try_wait().is_ok_and(|ended| ended.is_none()) {
            let _ = Command::new("kill").arg(self.child.id().to_string()).status();
            let _ = self.child.wait();
        }
    }
}

/// Asks again until there is an answer.
pub(crate) fn wait_for<T>(mut ask: impl FnMut() -> Option<T>) -> T {
    let end = std::time::Instant::now() + Duration::from_secs(120);
    loop {
        if let Some(answer) = ask() {
            return answer;
        }
        assert!(std::time::Instant::now() < end, "waited for two minutes in vain");
        std::thread::sleep(Duration::from_millis(20));
    }
}

/// Whether there is a Ray to test with.
pub(crate) fn ray_environment() -> Result<(), String> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let folder = cache.ok_or("no home folder")?.join("manta/envs");
    match manta_agent::images::installed(&folder, "ray").is_empty() {
        false => Ok(()),
        true => Err(format!("no Ray in {}; `manta demo` installs one", folder.display())),
    }
}

impl User {
    pub(crate) async fn start() -> Self {
        let folder = Arc::new(tempfile::tempdir().expect("a folder"));
        let kubeconfig = folder.path().join("kubeconfig");
        let mut up = Up::start(folder, &["--in-memory"]);
        let up = tokio::task::spawn_blocking(move || {
            up.until_printed("local mode is up");
            up
        })
        .await
        .expect("local mode is up");
        let file = Kubeconfig::read_from(kubeconfig).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a config");
        Self { client: Client::try_from(config).expect("a client"), _up: up }
    }

    pub(crate) fn ray(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource {
            group: "ray.io".into(),
            version: "v1".into(),
            api_version: "ray.io/v1".into(),
            kind: kind.into(),
            plural: format!("{}s", kind.to_lowercase()),
        };
        Api::namespaced_with(self.client.clone(), "default", &resource)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn create(&self, kind: &str, name: &str, spec: Value) {
        let object = json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        let object: DynamicObject = serde_json::from_value(object).expect("an object");
        self.ray(kind).create(&PostParams::default(), &object).await.expect("created");
    }

    /// Waits until the status of a Ray resource is as wanted.
    pub(crate) async fn until<T>(&self, kind: &str, name: &str, want: impl Fn(&Value) -> Option<T>) -> T {
        let api = self.ray(kind);
        poll(|| async { want(&api.get_opt(name).await.expect("the API")?.data["status"]) }).await
    }

    pub(crate) async fn until_ready(&self, cluster: &str) {
        self.until("RayCluster", cluster, |status| (status["state"] == "ready").then_some(())).await;
    }

    /// The pods with a label, by name.
    pub(crate) async fn pods_with(&self, selector: &str) -> Vec<Pod> {
        self.pods().list(&ListParams::default().labels(selector)).await.expect("pods").items
    }

    pub(crate) async fn head(&self, cluster: &str) -> Pod {
        let selector = format!("ray.io/cluster={cluster},ray.io/node-type=head");
        poll(|| async { self.pods_with(&selector).await.pop() }).await
    }

    pub(crate) async fn run_in(&self, pod: &str, command: &[&str]) -> String {
        use tokio::io::AsyncReadExt;
        let params = kube::api::AttachParams::default().stdout(true).stderr(true);
        let mut attached = self.pods().exec(pod, command.to_vec(), &params).await.expect("exec");
        let mut text = String::new();
        attached.stdout().expect("stdout").read_to_string(&mut text).await.expect("output");
        text
    }

    /// Removes all Ray resources and waits until their pods are gone.
    pub(crate) async fn clean(&self) {
        for kind in ["RayCronJob", "RayJob", "RayService", "RayCluster"] {
            for object in self.ray(kind).list(&ListParams::default()).await.expect("a list") {
                let _ = self.ray(kind).delete(&object.name_any(), &DeleteParams::default()).await;
            }
        }
        let gone = poll(|| async {
            self.pods().list(&ListParams::default()).await.expect("pods").items.is_empty().then_some(())
        });
        if tokio::time::timeout(Duration::from_secs(90), gone).await.is_err() {
            println!("pods are left:\n{}", self.describe().await);
        }
    }

    /// The pods in a few words, for a failure.
    pub(crate) async fn describe(&self) -> String {
        let pods = self.pods().list(&ListParams::default()).await.map(|l| l.items).unwrap_or_default();
        let one = |p: &Pod| format!("{}: {}", p.name_any(), serde_json::to_string(&p.status).unwrap_or_default());
        pods.iter().map(one).collect::<Vec<_>>().join("\n")
    }
}

/// Asks again until there is an answer; the scenario has the deadline.
pub(crate) async fn poll<T, F: Future<Output = Option<T>>>(ask: impl Fn() -> F) -> T {
    let mut tick = tokio::time::interval(Duration::from_millis(200));
    loop {
        tick.tick().await;
        if let Some(answer) = ask().await {
            return answer;
        }
    }
}

/// A cluster of one head and some workers of one CPU each.
pub(crate) fn cluster(workers: usize) -> Value {
    let container = |name: &str, memory: &str| {
        json!({"name": name, "image": "rayproject/ray:2.60.0",
               "resources": {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": memory}}})
    };
    json!({
        "rayVersion": "2.60.0",
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [container("ray-head", "2Gi")]}}},
        "workerGroupSpecs": [{
            "groupName": "w", "replicas": workers, "minReplicas": 0, "maxReplicas": 3, "rayStartParams": {},
            "template": {"spec": {"containers": [container("ray-worker", "1Gi")]}},
        }],
    })
}
