//! The floor: a bare client that creates what an operator creates, as fast as the server takes it.
//!
//! It decides nothing. It stamps out copies of the objects that an operator made for one RayCluster, counts ready Pods,
//! and writes as many statuses and events as there have to be. Nothing that keeps the same objects can be faster.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use anyhow::{Context, Result};
use futures::StreamExt;
use k8s_openapi::api::core::v1::{Event, Pod, Service};
use kube::api::ListParams;
use kube::runtime::WatchStreamExt;
use kube::runtime::watcher::{self, watcher};
use kube::{Api, Client, ResourceExt};
use manta_testkit::ControlPlane;
use manta_testkit::audit::{AuditLog, Request};
use serde::Serialize;
use serde_json::{Value, json};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;

use super::load::{create_until_ready, send};
use super::objects::{self, Cluster, NAMESPACE, SmallPod};
use crate::process::print_line;

/// How many writes are under way at once: with fewer the server has idle moments, with more it is no faster.
const WRITES: usize = 64;
/// The prefix of the RayCluster that is copied.
const MODEL: &str = "model";
/// Stands for the name of a Pod.
const POD: &str = "@POD@";

/// What an operator creates for one RayCluster, as text.
#[derive(Debug)]
pub(super) struct Template {
    name: String,
    uid: String,
    head: String,
    worker: String,
    service: String,
    events: Vec<String>,
    status: Value,
}

impl Template {
    /// Creates a RayCluster with a running operator, and copies what comes of it.
    pub(super) async fn make(client: &Client, limit: Duration) -> Result<Self> {
        create_until_ready(client, MODEL, 0..1, 3, limit).await?;
        let name = format!("{MODEL}-00000");
        // The last events are written shortly after the status.
        tokio::time::sleep(Duration::from_secs(2)).await;
        let cluster: kube::api::DynamicObject = objects::ray(client, "RayCluster").get(&name).await?;
        let labelled = ListParams::default().labels(&format!("ray.io/cluster={name}"));
        let pods = Api::<Pod>::namespaced(client.clone(), NAMESPACE).list(&labelled).await?.items;
        let of_type = |kind: &str| {
            let pod = pods.iter().find(|pod| pod.labels().get("ray.io/node-type").is_some_and(|found| found == kind));
            pod.with_context(|| format!("the operator created no {kind} Pod")).and_then(|pod| strip(pod, Some(POD)))
        };
        let services = Api::<Service>::namespaced(client.clone(), NAMESPACE).list(&labelled).await?.items;
        let events = Api::<Event>::namespaced(client.clone(), NAMESPACE).list(&ListParams::default()).await?.items;
        let events = events.iter().filter(|event| event.involved_object.name.as_deref() == Some(&name));
        Ok(Self {
            uid: cluster.metadata.uid.clone().unwrap_or_default(),
            head: of_type("head")?,
            worker: of_type("worker")?,
            service: strip(services.first().context("the operator created no Service")?, None)?,
            events: events.map(|event| strip(event, None)).collect::<Result<_>>()?,
            status: cluster.data["status"].clone(),
            name,
        })
    }

    /// Returns a copy for another RayCluster.
    fn stamp(&self, text: &str, cluster: &str, uid: &str, pod: &str) -> String {
        text.replace(POD, pod).replace(&self.name, cluster).replace(&self.uid, uid)
    }
}

/// Returns an object as it was sent, as far as that can be told.
fn strip(object: &impl Serialize, name: Option<&str>) -> Result<String> {
    let mut object = serde_json::to_value(object)?;
    if let Some(fields) = object.as_object_mut() {
        fields.remove("status");
    }
    for field in ["uid", "resourceVersion", "creationTimestamp", "managedFields", "generateName", "generation"] {
        if let Some(metadata) = object["metadata"].as_object_mut() {
            metadata.remove(field);
        }
    }
    // An address belongs to one Service; without one it stays as it is.
    if object["spec"]["clusterIP"] != "None"
        && let Some(spec) = object["spec"].as_object_mut()
    {
        spec.retain(|field, _| field != "clusterIP" && field != "clusterIPs");
    }
    if let Some(name) = name {
        object["metadata"]["name"] = json!(name);
    }
    Ok(object.to_string())
}

/// The running client; it stops when dropped.
pub(super) struct Floor {
    log: AuditLog,
    requests: Vec<Request>,
    _tasks: JoinSet<()>,
}

impl Floor {
    /// Starts it on the current runtime.
    pub(super) fn start(client: Client, template: Template, plane: &ControlPlane) -> Result<Self> {
        let mut log = AuditLog::open(&plane.audit_log_path())?;
        log.new_requests()?;
        let shared = Arc::new(Shared {
            client,
            template,
            permits: Arc::new(Semaphore::new(WRITES)),
            clusters: Mutex::default(),
        });
        let mut tasks = JoinSet::new();
        tasks.spawn(Arc::clone(&shared).follow_clusters());
        tasks.spawn(shared.follow_pods());
        Ok(Self { log, requests: Vec::new(), _tasks: tasks })
    }

    /// Returns its requests so far.
    pub(super) fn requests(&mut self) -> Result<&[Request]> {
        self.requests.extend(self.log.new_requests()?);
        Ok(&self.requests)
    }
}

struct Shared {
    client: Client,
    template: Template,
    permits: Arc<Semaphore>,
    clusters: Mutex<HashMap<String, Known>>,
}

/// What is known of one RayCluster.
#[derive(Debug, Default)]
struct Known {
    uid: String,
    wanted: usize,
    workers: Vec<String>,
    /// How many workers were ever created; their names are numbers.
    named: usize,
    ready: HashSet<String>,
    is_head_ready: bool,
}

impl Known {
    /// Whether every Pod is ready, and no other is.
    fn is_complete(&self) -> bool {
        self.is_head_ready && self.ready.len() == self.wanted
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Known>> {
        self.clusters.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn follow_clusters(self: Arc<Self>) {
        let api = objects::ray::<Cluster>(&self.client, "RayCluster");
        let mut events = std::pin::pin!(watcher(api, watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            if let Ok(watcher::Event::Apply(cluster) | watcher::Event::InitApply(cluster)) = event {
                self.observe_cluster(&cluster);
            }
        }
    }

    fn observe_cluster(self: &Arc<Self>, cluster: &Cluster) {
        let name = cluster.name_any();
        if name == self.template.name {
            return;
        }
        let mut clusters = self.lock();
        let is_new = !clusters.contains_key(&name);
        let known = clusters.entry(name.clone()).or_default();
        known.wanted = objects::wanted_workers(cluster);
        let uid = cluster.uid().unwrap_or_default();
        let path = |plural: &str| format!("/api/v1/namespaces/{NAMESPACE}/{plural}");
        let stamp = |text: &str, pod: &str| self.template.stamp(text, &name, &uid, pod);
        if is_new {
            known.uid.clone_from(&uid);
            self.write("POST", path("services"), stamp(&self.template.service, ""));
            self.write("POST", path("pods"), stamp(&self.template.head, &format!("{name}-head")));
            for event in &self.template.events {
                self.write("POST", path("events"), stamp(event, ""));
            }
            let mut early = self.template.status.clone();
            early["state"] = json!("");
            self.write_status(&name, early);
        }
        while known.workers.len() < known.wanted {
            known.named += 1;
            let pod = format!("{name}-worker-{}", known.named);
            self.write("POST", path("pods"), stamp(&self.template.worker, &pod));
            known.workers.push(pod);
        }
        for pod in known.workers.split_off(known.wanted) {
            self.write("DELETE", format!("{}/{pod}", path("pods")), String::new());
        }
    }

    async fn follow_pods(self: Arc<Self>) {
        let mut events =
            std::pin::pin!(watcher(objects::pods(&self.client), watcher::Config::default()).default_backoff());
        while let Some(event) = events.next().await {
            match event {
                Ok(watcher::Event::Apply(pod) | watcher::Event::InitApply(pod)) => {
                    self.observe_pod(&pod, objects::is_pod_ready(&pod));
                }
                Ok(watcher::Event::Delete(pod)) => self.observe_pod(&pod, false),
                _ => {}
            }
        }
    }

    fn observe_pod(self: &Arc<Self>, pod: &SmallPod, is_ready: bool) {
        let Some(name) = pod.labels().get("ray.io/cluster") else { return };
        let mut clusters = self.lock();
        let Some(known) = clusters.get_mut(name) else { return };
        let before = (known.is_head_ready, known.ready.len());
        match (pod.labels().get("ray.io/node-type").map(String::as_str), is_ready) {
            (Some("head"), _) => known.is_head_ready = is_ready,
            (_, true) => drop(known.ready.insert(pod.name_any())),
            (_, false) => drop(known.ready.remove(&pod.name_any())),
        }
        let after = (known.is_head_ready, known.ready.len());
        // While a RayCluster grows, only its last Pod changes its status.
        let lost_one = before.1 > after.1 && known.ready.len() < known.wanted;
        if before != after && (known.is_complete() || lost_one) {
            let mut status = self.template.status.clone();
            status["readyWorkerReplicas"] = json!(after.1);
            status["availableWorkerReplicas"] = json!(after.1);
            self.write_status(name, status);
        }
    }

    fn write_status(self: &Arc<Self>, name: &str, status: Value) {
        let path = format!("{}/{name}/status", objects::ray_path("rayclusters"));
        self.write("PATCH", path, json!({ "status": status }).to_string());
    }

    /// Sends a write as soon as there is a permit.
    fn write(self: &Arc<Self>, method: &'static str, path: String, body: String) {
        let shared = Arc::clone(self);
        tokio::spawn(async move {
            let Ok(_permit) = shared.permits.acquire().await else { return };
            if let Err(error) = send(&shared.client, method, &path, body).await {
                print_line(&format!("floor: {error:#}"));
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn copies_belong_to_their_own_cluster() {
        let object = json!({
            "metadata": {
                "name": "model-00000-worker-x", "uid": "p", "resourceVersion": "7",
                "labels": {"ray.io/cluster": "model-00000"}, "ownerReferences": [{"uid": "u-1"}],
            },
            "spec": {"clusterIP": "10.96.0.9", "a": 1},
            "status": {"phase": "Running"},
        });
        let template = Template {
            name: "model-00000".into(),
            uid: "u-1".into(),
            head: String::new(),
            worker: strip(&object, Some(POD)).unwrap(),
            service: String::new(),
            events: Vec::new(),
            status: Value::Null,
        };
        let copy: Value = serde_json::from_str(&template.stamp(&template.worker, "bench-7", "u-2", "w-1")).unwrap();
        let metadata = json!({
            "name": "w-1", "labels": {"ray.io/cluster": "bench-7"}, "ownerReferences": [{"uid": "u-2"}],
        });
        assert_eq!(copy, json!({"metadata": metadata, "spec": {"a": 1}}));
    }

    #[test]
    fn a_cluster_is_complete_with_exactly_the_wanted_workers() {
        for (wanted, ready, is_head_ready, complete) in
            [(2, 2, true, true), (2, 1, true, false), (2, 3, true, false), (2, 2, false, false), (0, 0, true, true)]
        {
            let ready: HashSet<String> = (0..ready).map(|number: usize| number.to_string()).collect();
            let known = Known { wanted, ready, is_head_ready, ..Known::default() };
            assert_eq!(known.is_complete(), complete, "{known:?}");
        }
    }
}
