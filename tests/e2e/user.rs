//! Users of local mode: each has a namespace, applies objects, waits and inspects.

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use k8s_openapi::api::core::v1::{Namespace, Pod};
use kube::api::{ApiResource, AttachParams, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use serde_json::{Value, json};
use tokio::io::AsyncReadExt;

use crate::up::{Up, folder};

/// A running `manta up` and a client for it.
pub(crate) struct Machine {
    client: Client,
    kubeconfig: PathBuf,
    up: Up,
}

/// A user with a namespace of their own.
pub(crate) struct User {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) kubeconfig: PathBuf,
    printed: Arc<Mutex<Vec<String>>>,
}

/// Makes sure that Ray is installed, by running a pod that needs it.
pub(crate) fn ray_environment() -> Result<(), String> {
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let cache = cache.or_else(|| std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache")));
    let envs = cache.ok_or("no home folder")?.join("manta/envs");
    if !manta_agent::images::installed(&envs, "ray").is_empty() {
        return Ok(());
    }
    println!("installing Ray into {}", envs.display());
    let folder = Arc::new(folder());
    let manifest = folder.path().join("pod.yaml");
    std::fs::write(&manifest, FIRST_POD).expect("a manifest");
    let mut up = Up::start(folder, &["--in-memory", "-f", manifest.to_str().expect("a path")]);
    let line = up.until_any_printed(&["Succeeded", "ErrImagePull"], Duration::from_secs(1800));
    if line.contains("Succeeded") { Ok(()) } else { Err(line) }
}

const FIRST_POD: &str = "{apiVersion: v1, kind: Pod, metadata: {name: first}, spec: {restartPolicy: Never, \
                         containers: [{name: c, image: 'rayproject/ray:2.60.0', command: ['true']}]}}";

/// Returns what a scenario needs but this machine lacks.
pub(crate) fn lacks(scenario: &str) -> Option<String> {
    if scenario.starts_with("reduced") {
        return crate::reduced::lacks();
    }
    if scenario == "internet::pip_in_a_runtime_env_works" {
        return crate::internet::lacks();
    }
    if scenario.starts_with("accounts") {
        return crate::accounts::lacks();
    }
    if scenario.starts_with("page") {
        return crate::page::lacks();
    }
    if scenario.starts_with("images") {
        return crate::images::lacks();
    }
    let redis = ["/usr/bin/redis-server", "/usr/local/bin/redis-server"];
    let missing = scenario.contains("redis") && !redis.iter().any(|path| Path::new(path).exists());
    missing.then(|| "no redis-server; install it with the package system".to_owned())
}

/// Returns the available memory in bytes.
pub(crate) fn free_memory() -> i64 {
    let text = std::fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let line = text.lines().find_map(|line| line.strip_prefix("MemAvailable:"));
    line.and_then(|l| l.split_whitespace().next()?.parse::<i64>().ok()).unwrap_or(0) * 1024
}

/// Returns the documents of a file in `examples/`.
pub(crate) fn example(name: &str) -> Vec<Value> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../examples").join(name);
    let text = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{}: {error}", path.display()));
    serde_saphyr::from_multiple(&text).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

impl Machine {
    pub(crate) async fn start() -> Self {
        let gates = "RayCronJob=true,GCSFaultToleranceEmbeddedStorage=true";
        Self::run(Arc::new(folder()), &["--in-memory", "--feature-gates", gates]).await
    }

    /// Starts it with a state directory and waits until it is up.
    pub(crate) async fn run(folder: Arc<tempfile::TempDir>, args: &[&str]) -> Self {
        let kubeconfig = folder.path().join("kubeconfig");
        let mut up = Up::start(folder, args);
        let up = tokio::task::spawn_blocking(move || {
            up.until_printed("local mode is up");
            up
        })
        .await
        .expect("local mode is up");
        let file = Kubeconfig::read_from(&kubeconfig).expect("a kubeconfig");
        let config = kube::Config::from_custom_kubeconfig(file, &KubeConfigOptions::default()).await.expect("a config");
        Self { client: Client::try_from(config).expect("a client"), kubeconfig, up }
    }

    /// Returns the path of the administrator's kubeconfig.
    pub(crate) fn kubeconfig(&self) -> &Path {
        &self.kubeconfig
    }

    /// Runs kubectl as the administrator; it must succeed.
    pub(crate) fn kubectl(&self, args: &[&str]) {
        let mut command = Command::new(manta_testkit::find_kubectl().expect("kubectl"));
        command.arg("--kubeconfig").arg(&self.kubeconfig).args(args).stdin(Stdio::null());
        let output = command.output().expect("kubectl runs");
        assert!(output.status.success(), "kubectl {args:?}: {}", String::from_utf8_lossy(&output.stderr));
    }

    /// Returns its state directory.
    pub(crate) fn folder(&self) -> &Path {
        self.up.folder.path()
    }

    /// Returns the id of its first process.
    pub(crate) fn pid(&self) -> u32 {
        self.up.pid()
    }

    /// Kills it with SIGKILL.
    pub(crate) fn kill(self) -> Arc<tempfile::TempDir> {
        self.up.kill()
    }

    /// Returns a user with a new namespace, named after the scenario.
    pub(crate) async fn user(&self, purpose: &str) -> User {
        let name = purpose.rsplit("::").next().unwrap_or(purpose).replace('_', "-");
        let user = self.user_of(name.trim_end_matches('-'));
        let namespace: Namespace =
            serde_json::from_value(json!({"metadata": {"name": user.namespace}})).expect("a namespace");
        Api::all(self.client.clone()).create(&PostParams::default(), &namespace).await.expect("created");
        user
    }

    /// Returns a user of an existing namespace.
    pub(crate) fn user_of(&self, namespace: &str) -> User {
        User {
            client: self.client.clone(),
            namespace: namespace.to_owned(),
            kubeconfig: self.kubeconfig.clone(),
            printed: self.up.printed(),
        }
    }
}

/// The result of a command in a pod.
#[derive(Debug)]
pub(crate) struct Ran {
    pub(crate) stdout: String,
    pub(crate) stderr: String,
    pub(crate) ok: bool,
}

impl User {
    /// Returns what `manta up` has printed about the user's objects.
    pub(crate) fn printed(&self) -> Vec<String> {
        let own = format!(" {}/", self.namespace);
        self.printed.lock().expect("no panic").iter().filter(|line| line.contains(&own)).cloned().collect()
    }

    pub(crate) fn ray(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create(&self, kind: &str, name: &str, spec: Value) {
        let object = json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        self.apply(&[object]).await;
    }

    pub(crate) async fn apply_example(&self, name: &str) {
        self.apply(&example(name)).await;
    }

    /// Applies objects to the user's namespace.
    pub(crate) async fn apply(&self, documents: &[Value]) {
        for document in documents {
            self.try_apply(document).await.expect("applied");
        }
    }

    pub(crate) async fn try_apply(&self, document: &Value) -> Result<(), String> {
        let object: DynamicObject = serde_json::from_value(document.clone()).map_err(|e| e.to_string())?;
        let types = object.types.clone().ok_or("no kind")?;
        let (group, version) = types.api_version.split_once('/').unwrap_or(("", &types.api_version));
        let kind = GroupVersionKind::gvk(group, version, &types.kind);
        let found = kube::discovery::oneshot::pinned_kind(&self.client, &kind).await;
        let (resource, _) = found.map_err(|e| format!("{} is not served here: {e}", types.kind))?;
        let api: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &self.namespace, &resource);
        let params = PatchParams::apply("e2e").force();
        api.patch(&object.name_any(), &params, &Patch::Apply(&object)).await.map(drop).map_err(|e| e.to_string())
    }

    pub(crate) async fn patch(&self, kind: &str, name: &str, patch: Value) {
        self.ray(kind).patch(name, &PatchParams::default(), &Patch::Merge(patch)).await.expect("patched");
    }

    /// Waits until `want` finds what it looks for in the status of a Ray resource.
    pub(crate) async fn until<T>(&self, kind: &str, name: &str, want: impl Fn(&Value) -> Option<T>) -> T {
        let api = self.ray(kind);
        poll(|| async { want(&api.get_opt(name).await.expect("the API")?.data["status"]) }).await
    }

    pub(crate) async fn until_ready(&self, cluster: &str) {
        self.until("RayCluster", cluster, |status| (status["state"] == "ready").then_some(())).await;
    }

    /// Deletes a Ray resource and waits until it is gone.
    pub(crate) async fn delete(&self, kind: &str, name: &str) {
        let api = self.ray(kind);
        api.delete(name, &DeleteParams::default()).await.expect("deleted");
        poll(|| async { api.get_opt(name).await.expect("the API").is_none().then_some(()) }).await;
    }

    /// Returns the pods that match a label selector.
    pub(crate) async fn pods_with(&self, selector: &str) -> Vec<Pod> {
        self.pods().list(&ListParams::default().labels(selector)).await.expect("pods").items
    }

    pub(crate) async fn workers(&self, cluster: &str) -> Vec<Pod> {
        self.pods_with(&format!("ray.io/cluster={cluster},ray.io/node-type=worker")).await
    }

    pub(crate) async fn head(&self, cluster: &str) -> Pod {
        let selector = format!("ray.io/cluster={cluster},ray.io/node-type=head");
        poll(|| async { self.pods_with(&selector).await.pop() }).await
    }

    /// Deletes the head pod without grace period and waits until another is ready.
    pub(crate) async fn lose_head(&self, cluster: &str) {
        let before = self.head(cluster).await;
        self.pods().delete(&before.name_any(), &DeleteParams::default().grace_period(0)).await.expect("deleted");
        poll(|| async {
            let head = self.head(cluster).await;
            (head.uid() != before.uid() && is_ready(&head)).then_some(())
        })
        .await;
    }

    /// Runs Python in the head of a cluster and returns its stdout.
    pub(crate) async fn python(&self, cluster: &str, script: &str) -> String {
        let head = self.head(cluster).await.name_any();
        let ran = self.run_in(&head, "ray-head", &["python", "-c", script]).await;
        assert!(ran.ok, "{}", ran.stderr);
        ran.stdout.trim().to_owned()
    }

    pub(crate) async fn run_in(&self, pod: &str, container: &str, command: &[&str]) -> Ran {
        let params = AttachParams::default().container(container).stdin(false).stdout(true).stderr(true);
        let mut attached = self.pods().exec(pod, command.to_vec(), &params).await.expect("exec");
        let (mut out, mut err) = (attached.stdout().expect("stdout"), attached.stderr().expect("stderr"));
        let status = attached.take_status().expect("a status");
        let (mut stdout, mut stderr) = (String::new(), String::new());
        let (read_out, read_err) = (out.read_to_string(&mut stdout), err.read_to_string(&mut stderr));
        let (first, second, status) = futures::join!(read_out, read_err, status);
        first.and(second).expect("output");
        Ran { ok: status.is_some_and(|s| s.status.as_deref() == Some("Success")), stdout, stderr }
    }

    /// Deletes everything and waits until the pods are gone, so that the next scenario has the memory.
    pub(crate) async fn clean_up(&self) {
        for kind in ["RayCronJob", "RayJob", "RayService", "RayCluster"] {
            for object in self.ray(kind).list(&ListParams::default()).await.expect("a list") {
                let _ = self.ray(kind).delete(&object.name_any(), &DeleteParams::default()).await;
            }
        }
        let namespaces: Api<Namespace> = Api::all(self.client.clone());
        if self.namespace != "default" {
            namespaces.delete(&self.namespace, &DeleteParams::default()).await.expect("deleted");
        }
        // Serve takes long to stop, so its pods are deleted without grace period.
        let now = DeleteParams::default().grace_period(0);
        let _ = self.pods().delete_collection(&now, &ListParams::default()).await;
        let gone = poll(|| async {
            self.pods().list(&ListParams::default()).await.expect("pods").items.is_empty().then_some(())
        });
        if tokio::time::timeout(Duration::from_secs(90), gone).await.is_err() {
            println!("pods are left in {}:\n{}", self.namespace, self.describe().await);
        }
    }

    /// Describes the user's objects, for a failure message.
    pub(crate) async fn describe(&self) -> String {
        let mut lines = Vec::new();
        for kind in ["RayCluster", "RayJob", "RayService", "RayCronJob"] {
            let list = self.ray(kind).list(&ListParams::default()).await.map(|l| l.items).unwrap_or_default();
            lines.extend(list.iter().map(|o| format!("{kind} {}: {}", o.name_any(), o.data["status"])));
        }
        let pods = self.pods().list(&ListParams::default()).await.map(|l| l.items).unwrap_or_default();
        for pod in pods {
            lines.push(format!("Pod {}: {}", pod.name_any(), json!(pod.status)));
        }
        lines.join("\n")
    }
}

pub(crate) fn is_ready(pod: &Pod) -> bool {
    let conditions = pod.status.iter().flat_map(|s| s.conditions.iter().flatten());
    conditions.into_iter().any(|c| c.type_ == "Ready" && c.status == "True")
}

/// Repeats `ask` until it returns a value; the scenario has the timeout.
pub(crate) async fn poll<T, F: Future<Output = Option<T>>>(ask: impl Fn() -> F) -> T {
    let mut tick = tokio::time::interval(Duration::from_millis(250));
    loop {
        tick.tick().await;
        if let Some(value) = ask().await {
            return value;
        }
    }
}

/// Returns the spec of a cluster with a head and no workers.
pub(crate) fn head_only() -> Value {
    json!({
        "rayVersion": "2.60.0",
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [{
            "name": "ray-head", "image": "rayproject/ray:2.60.0",
            "resources": {"requests": {"cpu": "1", "memory": "512Mi"}, "limits": {"cpu": "1", "memory": "2Gi"}},
        }]}}},
    })
}
