//! What a preview says is what the operator then does, write by write, on a real kube-apiserver.

#![allow(clippy::unwrap_used)]

use anyhow::{Result, ensure};
use futures::FutureExt;
use http::Method;
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::api::networking::v1::Ingress;
use k8s_openapi::api::rbac::v1::Role;
use kube::api::{ApiResource, DeleteParams, DynamicObject, GroupVersionKind, Patch, PatchParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use manta_logic::action::Action;
use manta_logic::config::Config;
use manta_operator::preview::{Cluster, Preview, Scope, preview};
use manta_operator::{Settings, platform};
use manta_testkit::{ControlPlane, eventually, within};
use serde_json::{Value, json};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// The alphabet of random suffixes.
const SUFFIX_ALPHABET: &str = "bcdfghjklmnpqrstvwxz2456789";

/// A namespace without a kubelet: nothing happens there but what the operator does.
struct World {
    client: Client,
    namespace: String,
}

impl World {
    async fn new(name: &str) -> Result<Self> {
        let plane = ControlPlane::shared();
        plane.install_ray_crds().await?;
        Ok(Self { client: plane.client().await?, namespace: plane.namespace(name).await? })
    }

    fn api(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", kind));
        Api::namespaced_with(self.client.clone(), &self.namespace, &resource)
    }

    async fn create(&self, kind: &str, name: &str, spec: Value) -> Result<()> {
        let object = json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        self.api(kind).create(&PostParams::default(), &serde_json::from_value(object)?).await?;
        Ok(())
    }

    async fn patch(&self, kind: &str, name: &str, spec: Value) -> Result<()> {
        let patch = Patch::Merge(json!({"spec": spec}));
        self.api(kind).patch(name, &PatchParams::default(), &patch).await?;
        Ok(())
    }

    async fn preview(&self) -> Result<Preview> {
        let cluster = Cluster::Live { client: self.client.clone(), namespaces: vec![self.namespace.clone()] };
        let config = Config { platform: platform::detect(&self.client).await?, ..Config::default() };
        Ok(preview(&cluster, &config, Scope::All, Vec::new(), Timestamp::now()).await?)
    }

    /// Runs the operator until it writes nothing any more. Returns its writes.
    async fn operate(&self) -> Result<Vec<String>> {
        let writes = Arc::new(Mutex::new(Vec::new()));
        let stop = CancellationToken::new();
        let settings = Settings {
            config: Config { platform: platform::detect(&self.client).await?, ..Config::default() },
            watch_namespaces: vec![self.namespace.clone()],
            ..Settings::default()
        };
        let task = tokio::spawn(manta_operator::run(recorded(&self.client, &writes), settings, stop.clone()));
        let mut seen = usize::MAX;
        eventually("an operator that writes nothing", async || {
            // Longer than the operator waits after its writes.
            tokio::time::sleep(Duration::from_secs(4)).await;
            let count = writes.lock().unwrap().len();
            let before = std::mem::replace(&mut seen, count);
            ensure!(before == count, "{count} writes so far");
            Ok(())
        })
        .await?;
        stop.cancel();
        within("the operator's end", task).await??;
        let mut writes = writes.lock().unwrap().clone();
        writes.sort();
        Ok(writes)
    }

    /// Compares what a preview says with what the operator does. Returns the number of writes.
    async fn compare(&self, what: &str) -> Result<usize> {
        let planned = self.preview().await?;
        let mut planned: Vec<String> = planned.changes.iter().map(|change| written(&change.action)).collect();
        planned.sort();
        let done = self.operate().await?;
        assert_eq!(planned, done, "{what}: planned and done");
        let left = self.preview().await?;
        let left: Vec<String> = left.changes.iter().map(|change| written(&change.action)).collect();
        assert_eq!(left, Vec::<String>::new(), "{what}: nothing is left to do");
        Ok(done.len())
    }
}

/// Returns a write as one line: the verb, the object, and what is sent.
fn written(action: &Action) -> String {
    let key = action.key();
    let object = format!("{} {}", key.kind.resource().plural, key.name);
    match action {
        Action::Create { body, .. } => line("POST", &object, Some(body.value())),
        Action::Replace { body, .. } => line("PUT", &object, Some(body.value())),
        Action::Merge { patch, .. } => line("PATCH", &object, Some((**patch).clone())),
        Action::Delete { .. } => line("DELETE", &object, None),
        Action::Ray { .. } => line("RAY", &object, None),
    }
}

fn line(verb: &str, object: &str, body: Option<Value>) -> String {
    let mut body = body.unwrap_or_default();
    drop_variable(&mut body);
    masked(&format!("{verb} {object} {body}"))
}

/// Removes UIDs, versions and tokens, which differ.
fn drop_variable(value: &mut Value) {
    match value {
        Value::Object(fields) => {
            fields.retain(|name, _| !matches!(name.as_str(), "uid" | "resourceVersion" | "auth_token"));
            fields.values_mut().for_each(drop_variable);
        }
        Value::Array(items) => items.iter_mut().for_each(drop_variable),
        _ => {}
    }
}

/// Masks random suffixes, as those of Pods.
fn masked(text: &str) -> String {
    let is_random = |part: &str| part.len() == 5 && part.chars().all(|letter| SUFFIX_ALPHABET.contains(letter));
    let mut out = String::new();
    let mut word = String::new();
    for letter in text.chars().chain([' ']) {
        if letter.is_ascii_alphanumeric() {
            word.push(letter);
            continue;
        }
        out.push_str(if out.ends_with('-') && is_random(&word) { "*" } else { &word });
        word.clear();
        out.push(letter);
    }
    out
}

/// Returns a client that records writes to objects; events, statuses and records of what ended are reports.
fn recorded(client: &Client, writes: &Arc<Mutex<Vec<String>>>) -> Client {
    let (client, writes) = (client.clone(), Arc::clone(writes));
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let (client, writes) = (client.clone(), Arc::clone(&writes));
        async move {
            let (head, body) = request.into_parts();
            let bytes = body.collect().await?.to_bytes();
            let path: Vec<&str> = head.uri.path().split('/').filter(|part| !part.is_empty()).collect();
            let is_report = path.contains(&"events") || path.contains(&"configmaps") || path.last() == Some(&"status");
            if head.method != Method::GET && !is_report {
                let body: Value = serde_json::from_slice(&bytes).unwrap_or_default();
                let rest = path.iter().skip_while(|part| **part != "namespaces").skip(2).copied().collect::<Vec<_>>();
                let name = rest.get(1).copied().or(body["metadata"]["name"].as_str()).unwrap_or_default();
                let object = format!("{} {name}", rest[0]);
                let sent = Some(body.clone()).filter(|_| head.method != Method::DELETE);
                writes.lock().unwrap().push(line(head.method.as_str(), &object, sent));
            }
            client.send(http::Request::from_parts(head, Body::from(bytes.to_vec()))).await
        }
        .boxed()
    });
    Client::new(service, "default")
}

fn cluster(workers: u32) -> Value {
    let container = |name: &str| json!({"spec": {"containers": [{"name": name, "image": "rayproject/ray:2.53.0"}]}});
    json!({
        "rayVersion": "2.53.0",
        "headGroupSpec": {"rayStartParams": {}, "template": container("ray-head")},
        "workerGroupSpecs": [{
            "groupName": "small", "replicas": workers, "minReplicas": 0, "maxReplicas": 5, "rayStartParams": {},
            "template": container("ray-worker"),
        }],
    })
}

fn with(mut spec: Value, more: Value) -> Value {
    spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
    spec
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_become_what_was_planned() -> Result<()> {
    let world = World::new("preview-cluster").await?;
    world.create("RayCluster", "plain", with(cluster(2), json!({"upgradeStrategy": {"type": "Recreate"}}))).await?;
    let mut scaled = with(cluster(1), json!({"authOptions": {"mode": "token"}, "enableInTreeAutoscaling": true}));
    scaled["headGroupSpec"]["enableIngress"] = json!(true);
    world.create("RayCluster", "scaled", scaled).await?;
    let redis = json!({"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}});
    world.create("RayCluster", "safe", with(cluster(1), redis)).await?;
    let made = world.compare("new clusters").await?;
    ensure!(made >= 12, "{made} writes");

    let groups = cluster(1)["workerGroupSpecs"].clone();
    world.patch("RayCluster", "safe", json!({"workerGroupSpecs": groups, "suspend": true})).await?;
    world.patch("RayCluster", "plain", json!({"rayVersion": "2.54.0"})).await?;
    let ingresses: Api<Ingress> = Api::namespaced(world.client.clone(), &world.namespace);
    let rules = Patch::Merge(json!({"spec": {"rules": [{"host": "elsewhere.example"}]}}));
    ingresses.patch("scaled-head-ingress", &PatchParams::default(), &rules).await?;
    let roles: Api<Role> = Api::namespaced(world.client.clone(), &world.namespace);
    roles.delete("scaled", &DeleteParams::default()).await?;
    ensure!(world.compare("a suspension, a recreation, a changed Ingress and a lost Role").await? >= 9);
    Ok(())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn jobs_and_services_become_what_was_planned() -> Result<()> {
    let world = World::new("preview-job").await?;
    let job = json!({"entrypoint": "true", "rayClusterSpec": cluster(1), "shutdownAfterJobFinishes": true});
    world.create("RayJob", "train", job).await?;
    let service = json!({"serveConfigV2": "applications: []\n", "rayClusterConfig": cluster(1)});
    world.create("RayService", "web", service).await?;
    let cron = json!({"schedule": "0 0 1 1 *", "jobTemplate": {"entrypoint": "true", "rayClusterSpec": cluster(1)}});
    world.create("RayCronJob", "nightly", cron).await?;
    ensure!(world.compare("a new job and a new service").await? >= 8);
    world.patch("RayJob", "train", json!({"suspend": true})).await?;
    ensure!(world.compare("a suspended job").await? >= 1);
    Ok(())
}
