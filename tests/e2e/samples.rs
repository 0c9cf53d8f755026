//! The recorded sample manifests, one after the other. `make samples` runs them; it takes half an hour.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use kube::api::DeleteParams;
use serde_json::{Value, json};

use crate::up::folder;
use crate::user::{Machine, User, ray_environment};

/// The timeout of one sample; generous, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(300);
/// What a single machine lacks, by the text that manifests contain.
const UNAVAILABLE: [(&str, &str); 7] = [
    ("nvidia.com/gpu", "a GPU"),
    ("google.com/tpu", "a TPU"),
    ("cloud.google.com", "Google Cloud"),
    ("gke-", "Google Cloud"),
    ("nodeSelector", "a node with labels of its own"),
    ("tlsOptions", "cert-manager"),
    ("gvisor", "gVisor from the Internet"),
];
/// The manifests request more than they use, so the node offers more than the machine has.
const NODE_FLAGS: [&str; 7] = [
    "--in-memory",
    "--cpus",
    "64",
    "--memory",
    "128Gi",
    "--feature-gates",
    "RayClusterNetworkPolicy=true,GCSFaultToleranceEmbeddedStorage=true,RayClusterHistoryServer=true",
];

/// Applies each sample and prints how many clusters became ready.
pub(crate) async fn run() -> bool {
    if let Err(why) = ray_environment() {
        println!("skipped: {why}");
        return true;
    }
    let machine = Machine::run(Arc::new(folder()), &NODE_FLAGS).await;
    let user = machine.user_of("default");
    let only: Vec<String> = std::env::args().skip(1).filter(|arg| !arg.starts_with('-')).collect();
    let (mut ready, mut attempted) = (0, 0);
    for path in samples() {
        let name = path.file_stem().map(|s| s.to_string_lossy().into_owned()).unwrap_or_default();
        if !only.is_empty() && !only.iter().any(|part| name.contains(part)) {
            continue;
        }
        let Some(documents) = documents(&path) else { continue };
        if let Some(why) = impossible(&documents) {
            println!("sample {name} ... left out: it needs {why}");
            continue;
        }
        attempted += 1;
        let began = Instant::now();
        let word = match tokio::time::timeout(TIMEOUT, bring_up(&user, &documents)).await {
            Ok(Ok(())) => {
                ready += 1;
                "ready".to_owned()
            }
            Ok(Err(Trouble::NoImage(why))) => {
                attempted -= 1;
                format!("left out: {why}")
            }
            Ok(Err(Trouble::Other(why))) => format!("FAILED: {why}"),
            Err(_) => format!("FAILED: not ready after {} s\n{}", TIMEOUT.as_secs(), user.describe().await),
        };
        println!("sample {name} ... {word} ({:.0} s)", began.elapsed().as_secs_f64());
        remove(&user, &documents).await;
    }
    println!("{ready} of {attempted} samples became ready");
    ready == attempted
}

fn samples() -> Vec<PathBuf> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../../shared/parity/cases");
    let entries = std::fs::read_dir(&folder).into_iter().flatten().flatten().map(|e| e.path());
    let is_sample = |p: &PathBuf| p.file_name().is_some_and(|n| n.to_string_lossy().starts_with("sample-"));
    let mut found: Vec<PathBuf> = entries.filter(is_sample).collect();
    found.sort();
    if found.is_empty() {
        println!("skipped: there are no samples in {}", folder.display());
    }
    found
}

fn documents(path: &Path) -> Option<Vec<Value>> {
    let text = std::fs::read_to_string(path).ok()?;
    let case: Value = serde_json::from_str(&text).ok()?;
    let mut documents = case["docs"].as_array()?.clone();
    documents.extend(stand_in_for_redis(&documents));
    documents.splice(0..0, stand_ins_for_secrets(&documents));
    Some(documents)
}

/// Returns a Redis pod, because the recordings contain the Service for Redis without its Deployment.
fn stand_in_for_redis(documents: &[Value]) -> Option<Value> {
    let service = documents.iter().find(|d| d["kind"] == "Service" && d["metadata"]["name"] == "redis")?;
    let settings = documents.iter().find(|d| d["kind"] == "ConfigMap" && d["data"]["redis.conf"].is_string())?;
    Some(json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": "redis", "labels": service["spec"]["selector"]},
        "spec": {
            "containers": [{
                "name": "redis", "image": "redis:7", "command": ["redis-server", "/settings/redis.conf"],
                "volumeMounts": [{"name": "settings", "mountPath": "/settings"}, {"name": "data", "mountPath": "/data"}],
            }],
            "volumes": [
                {"name": "settings", "configMap": {"name": settings["metadata"]["name"]}},
                {"name": "data", "emptyDir": {}},
            ],
        },
    }))
}

/// Returns the Secrets that users of the samples create by hand.
fn stand_ins_for_secrets(documents: &[Value]) -> Vec<Value> {
    let mut wanted = Vec::new();
    documents.iter().for_each(|document| secret_keys(document, &mut wanted));
    let is_there = |name: &Value| documents.iter().any(|d| d["kind"] == "Secret" && d["metadata"]["name"] == *name);
    let secret = |(name, key): (Value, String)| json!({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}, "stringData": {key: "made-by-hand"}});
    wanted.into_iter().filter(|(name, _)| !is_there(name)).map(secret).collect()
}

/// Collects the names and keys of Secrets that environment variables refer to.
fn secret_keys(value: &Value, found: &mut Vec<(Value, String)>) {
    if let Some(reference) = value.get("secretKeyRef") {
        found.push((reference["name"].clone(), reference["key"].as_str().unwrap_or_default().to_owned()));
    }
    let inner = value.as_object().into_iter().flat_map(|map| map.values());
    inner.chain(value.as_array().into_iter().flatten()).for_each(|inner| secret_keys(inner, found));
}

fn impossible(documents: &[Value]) -> Option<String> {
    let text = serde_json::to_string(documents).unwrap_or_default();
    if let Some((_, what)) = UNAVAILABLE.iter().find(|(part, _)| text.contains(part)) {
        return Some((*what).to_owned());
    }
    // Their workers become ready once they serve, and pods cannot reach the Internet.
    let fetches = |d: &Value| d["spec"]["serveConfigV2"].as_str().is_some_and(|config| config.contains("https://"));
    if documents.iter().any(fetches) {
        return Some("its application from the Internet".to_owned());
    }
    let brings = |d: &Value| match d["kind"].as_str() {
        Some("RayCluster" | "RayService") => true,
        Some("RayJob") => d["spec"]["rayClusterSpec"].is_object(),
        _ => false,
    };
    (!documents.iter().any(brings)).then(|| "another manifest's cluster, or its hour".to_owned())
}

/// Why a sample did not become ready.
enum Trouble {
    NoImage(String),
    Other(String),
}

async fn bring_up(user: &User, documents: &[Value]) -> Result<(), Trouble> {
    for document in documents {
        user.try_apply(document).await.map_err(Trouble::Other)?;
    }
    for document in documents {
        let (kind, name) = (document["kind"].as_str().unwrap_or_default(), document["metadata"]["name"].as_str());
        let Some(name) = name.filter(|_| kind.starts_with("Ray")) else { continue };
        let ready = async {
            let cluster = user.until(kind, name, |status| cluster_of(kind, name, status)).await;
            user.until_ready(&cluster).await;
        };
        tokio::select! {
            () = ready => {}
            why = missing_image(user) => return Err(Trouble::NoImage(why)),
        }
    }
    Ok(())
}

/// Returns the name of the cluster that a resource is or owns.
fn cluster_of(kind: &str, name: &str, status: &Value) -> Option<String> {
    let path: &[&str] = match kind {
        "RayCluster" => return Some(name.to_owned()),
        "RayJob" => &["/rayClusterName"],
        _ => &["/activeServiceStatus/rayClusterName", "/pendingServiceStatus/rayClusterName"],
    };
    let names = path.iter().filter_map(|path| status.pointer(path)?.as_str());
    names.into_iter().find(|name| !name.is_empty()).map(str::to_owned)
}

/// Returns once a pod uses an image that has no local environment.
async fn missing_image(user: &User) -> String {
    crate::user::poll(|| async {
        let pods = user.pods_with("").await;
        let statuses = pods.iter().filter_map(|pod| pod.status.as_ref());
        let containers = statuses
            .flat_map(|s| s.init_container_statuses.iter().flatten().chain(s.container_statuses.iter().flatten()));
        let waiting = containers.filter_map(|c| c.state.as_ref()?.waiting.as_ref());
        let refused = waiting.into_iter().find(|w| w.reason.as_deref() == Some("ErrImagePull"))?;
        Some(refused.message.as_deref()?.lines().next()?.split(": ").next()?.to_owned())
    })
    .await
}

/// Deletes the objects of a sample, the Ray resources first.
async fn remove(user: &User, documents: &[Value]) {
    user.clean_up().await;
    for document in documents.iter().filter(|d| !d["kind"].as_str().unwrap_or_default().starts_with("Ray")) {
        let group = document["apiVersion"].as_str().unwrap_or_default();
        let (group, version) = group.split_once('/').unwrap_or(("", group));
        let kind = kube::core::GroupVersionKind::gvk(group, version, document["kind"].as_str().unwrap_or_default());
        let resource = kube::api::ApiResource::from_gvk(&kind);
        let api: kube::Api<kube::api::DynamicObject> =
            kube::Api::namespaced_with(user.client.clone(), &user.namespace, &resource);
        let now = DeleteParams::default().grace_period(0);
        let _ = api.delete(document["metadata"]["name"].as_str().unwrap_or_default(), &now).await;
    }
}
