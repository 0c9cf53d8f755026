//! The simulated nodes: Pods start, run, end, and the submitter's command runs in its Pod.

use crate::cert_manager::CertManager;
use crate::ray::Ray;
use crate::rng::Rng;
use crate::scheduler::Scheduler;
use crate::transcript::Transcript;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Pod;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Client, ResourceExt};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::{Instant, sleep, sleep_until};

/// The name of the node that all Pods are bound to.
pub(crate) const NODE: &str = "node";
/// The container of a Pod that submits a job.
const SUBMITTER: &str = "ray-job-submitter";
/// How often a submitter asks for its job.
const ASK: Duration = Duration::from_millis(500);
/// How often it asks without a reply before it gives up.
const PATIENCE: usize = 60;
/// How long a node waits before it asks an API server again that is not there.
const RETRY: Duration = Duration::from_millis(500);

/// The nodes.
#[derive(Clone)]
pub(crate) struct Kubelet {
    pub(crate) client: Client,
    pub(crate) ray: Ray,
    pub(crate) rng: Rng,
    pub(crate) transcript: Transcript,
    pub(crate) known: Arc<Mutex<Known>>,
    pub(crate) addresses: Arc<AtomicU32>,
    pub(crate) gates: Gates,
}

/// What Pods wait for before they start, where there is such a thing.
#[derive(Clone, Default)]
pub(crate) struct Gates {
    pub(crate) scheduler: Option<Scheduler>,
    pub(crate) cert_manager: Option<CertManager>,
}

/// What is under way, by UID.
#[derive(Default)]
pub(crate) struct Known {
    starting: BTreeSet<String>,
    ending: BTreeSet<String>,
    /// The lost node is back at this time.
    lost_until: Option<Instant>,
    /// Until then, Pods take long to end.
    slow_until: Option<Instant>,
}

/// How often a Pod that cannot start yet is looked at again.
const LOOKING: Duration = Duration::from_secs(1);
/// The volume with the certificate of a Pod.
const TLS_VOLUME: &str = "ray-tls";
/// How long Pods take to end when they are slow.
const SLOW_END: Duration = Duration::from_secs(60);

impl Kubelet {
    /// Runs until dropped.
    pub(crate) async fn run(self) {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let mut events = watcher(pods, watcher::Config::default()).boxed();
        while let Some(event) = events.next().await {
            match event {
                Ok(Event::Apply(pod) | Event::InitApply(pod)) => self.see(pod),
                Ok(Event::Delete(pod)) => self.set_head(&pod, false),
                Ok(_) => {}
                Err(_) => sleep(RETRY).await,
            }
        }
    }

    fn see(&self, pod: Pod) {
        let Some(uid) = pod.uid() else { return };
        let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref()).unwrap_or("Pending");
        if phase == "Failed" {
            self.set_head(&pod, false);
        }
        let mut known = self.lock();
        if pod.metadata.deletion_timestamp.is_some() {
            if known.ending.insert(uid) {
                let kubelet = self.clone();
                tokio::spawn(async move { kubelet.end(&pod).await });
            }
        } else if phase == "Pending" && known.starting.insert(uid) {
            let kubelet = self.clone();
            tokio::spawn(async move { kubelet.start(&pod).await });
        }
    }

    /// Makes Pods take long to end.
    pub(crate) fn slow_ends(&self, until: Instant) {
        self.lock().slow_until = Some(until);
    }

    /// Loses the node with every second Pod, until it is back.
    pub(crate) async fn lose_node(&self, until: Instant) {
        self.lock().lost_until = Some(until);
        let pods = self.pods_of_lost_node().await;
        for pod in &pods {
            self.set_ready(pod, false).await;
        }
        let kubelet = self.clone();
        tokio::spawn(async move {
            sleep_until(until).await;
            for pod in &pods {
                kubelet.set_ready(pod, true).await;
            }
        });
    }

    async fn pods_of_lost_node(&self) -> Vec<Pod> {
        let pods: Api<Pod> = Api::all(self.client.clone());
        let all = pods.list(&ListParams::default()).await.map(|list| list.items).unwrap_or_default();
        let running = |pod: &Pod| pod.status.as_ref().and_then(|status| status.phase.as_deref()) == Some("Running");
        all.into_iter().filter(|pod| is_on_lost_node(pod) && running(pod)).collect()
    }

    async fn set_ready(&self, pod: &Pod, ready: bool) {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let Ok(Some(live)) = pods.get_opt(&pod.name_any()).await else { return };
        let phase = live.status.as_ref().and_then(|status| status.phase.as_deref());
        if live.uid() != pod.uid() || phase != Some("Running") {
            return;
        }
        let status = if ready { "True" } else { "False" };
        let conditions = json!([{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": status}]);
        if let Some(live) = self.set_status(&live, json!({"phase": "Running", "conditions": conditions})).await {
            self.set_head(&live, ready);
        }
    }

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn start(&self, pod: &Pod) {
        sleep(Duration::from_millis(self.rng.within(50..4_000))).await;
        if !self.wait_for_room(pod).await {
            return;
        }
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding", "metadata": {"name": pod.name_any()},
            "target": {"kind": "Node", "name": NODE},
        });
        // It may be gone already.
        let (name, params) = (pod.name_any(), PostParams::default());
        let bound: kube::Result<Value> = insist(|| pods.create_subresource("binding", &name, &params, &binding)).await;
        if bound.is_err() {
            return;
        }
        let number = self.addresses.fetch_add(1, Ordering::Relaxed);
        let address = format!("10.1.{}.{}", number / 250, number % 250 + 1);
        if !self.wait_for_certificate(pod, &address).await {
            return;
        }
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        let statuses: Vec<Value> = containers
            .iter()
            .map(|container| {
                json!({
                    "name": container.name, "image": "ray", "imageID": "", "ready": true, "restartCount": 0,
                    "state": {"running": {}},
                })
            })
            .collect();
        let status = json!({
            "phase": "Running", "podIP": address, "containerStatuses": statuses,
            "conditions": [{"type": "PodScheduled", "status": "True"}, {"type": "Ready", "status": "True"}],
        });
        let Some(live) = self.set_status(pod, status).await else { return };
        self.set_head(&live, true);
        if containers.iter().any(|container| container.name == SUBMITTER) {
            let code = self.submit(pod).await;
            let phase = if code == 0 { "Succeeded" } else { "Failed" };
            let ended = json!({"name": SUBMITTER, "image": "ray", "imageID": "", "ready": false,
                "restartCount": 0, "state": {"terminated": {"exitCode": code}}});
            let conditions = json!([{"type": "Ready", "status": "False"}]);
            self.set_status(pod, json!({"phase": phase, "containerStatuses": [ended], "conditions": conditions})).await;
        }
    }

    /// Makes a Pod fail.
    pub(crate) async fn fail(&self, pod: &Pod) {
        let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
        let ended: Vec<Value> = containers
            .iter()
            .map(|container| {
                json!({
                    "name": container.name, "image": "ray", "imageID": "", "ready": false, "restartCount": 0,
                    "state": {"terminated": {"exitCode": 1, "reason": "Error"}},
                })
            })
            .collect();
        let conditions = json!([{"type": "Ready", "status": "False"}]);
        let status = json!({"phase": "Failed", "containerStatuses": ended, "conditions": conditions});
        self.set_status(pod, status).await;
    }

    /// Makes a Pod fail as nodes do that run out of memory: what its containers did is not reported.
    pub(crate) async fn evict(&self, pod: &Pod) {
        let conditions = json!([{"type": "Ready", "status": "False"}, {"type": "DisruptionTarget", "status": "True"}]);
        let message = "The node was low on resource: memory.";
        let status = json!({"phase": "Failed", "reason": "Evicted", "message": message, "containerStatuses": null,
            "conditions": conditions});
        self.set_status(pod, status).await;
    }

    /// Waits until the scheduler has a node for a Pod. Returns whether the Pod is still there.
    async fn wait_for_room(&self, pod: &Pod) -> bool {
        let Some(scheduler) = &self.gates.scheduler else { return true };
        while !scheduler.has_room(pod) {
            sleep(LOOKING).await;
            if !self.is_waiting(pod).await {
                return false;
            }
        }
        true
    }

    /// Waits, as its init container does, until the certificate of a Pod holds for its address. Returns whether the Pod
    /// is still there.
    async fn wait_for_certificate(&self, pod: &Pod, address: &str) -> bool {
        let Some(cert_manager) = &self.gates.cert_manager else { return true };
        let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
        let Some(volume) = volumes.iter().find(|volume| volume.name == TLS_VOLUME) else { return true };
        let secret = volume.secret.as_ref().and_then(|secret| secret.secret_name.as_deref()).unwrap_or_default();
        self.set_status(pod, json!({"phase": "Pending", "podIP": address})).await;
        while !cert_manager.covers(secret, address) {
            sleep(LOOKING).await;
            if !self.is_waiting(pod).await {
                return false;
            }
        }
        true
    }

    /// Returns whether a Pod is still there and waits to start.
    async fn is_waiting(&self, pod: &Pod) -> bool {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let live = pods.get_opt(&pod.name_any()).await.ok().flatten();
        live.is_some_and(|live| live.uid() == pod.uid() && live.metadata.deletion_timestamp.is_none())
    }

    async fn end(&self, pod: &Pod) {
        let (slow_until, lost_until) = {
            let known = self.lock();
            (known.slow_until, known.lost_until.filter(|_| is_on_lost_node(pod)))
        };
        if slow_until.is_some_and(|until| Instant::now() < until) {
            sleep(SLOW_END).await;
        }
        if let Some(until) = lost_until {
            sleep_until(until).await;
        }
        sleep(Duration::from_millis(self.rng.within(50..6_000))).await;
        self.set_head(pod, false);
        let now = DeleteParams {
            grace_period_seconds: Some(0),
            preconditions: Some(Preconditions { uid: pod.uid(), resource_version: None }),
            ..DeleteParams::default()
        };
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let name = pod.name_any();
        // It may be gone already.
        let _ = insist(|| pods.delete(&name, &now)).await;
    }

    /// Writes a Pod's status, if it is still there and not about to end. Returns the Pod as it is then.
    pub(crate) async fn set_status(&self, pod: &Pod, status: Value) -> Option<Pod> {
        let pods: Api<Pod> = Api::namespaced(self.client.clone(), &pod.namespace().unwrap_or_default());
        let name = pod.name_any();
        let is_over = |live: &Pod| {
            let phase = live.status.as_ref().and_then(|status| status.phase.as_deref());
            live.metadata.deletion_timestamp.is_some() || matches!(phase, Some("Failed" | "Succeeded"))
        };
        let same = |live: &Pod| live.uid() == pod.uid() && !is_over(live);
        match insist(|| pods.get_opt(&name)).await {
            Ok(Some(live)) if same(&live) => {}
            _ => return None,
        }
        self.transcript.line("kubelet", format!("{name} is {}", status["phase"].as_str().unwrap_or_default()));
        let patch = Patch::Merge(json!({"status": status}));
        let params = PatchParams::default();
        insist(|| pods.patch_status(&name, &params, &patch)).await.ok()
    }

    fn set_head(&self, pod: &Pod, answers: bool) {
        let labels = pod.labels();
        if labels.get("ray.io/node-type").map(String::as_str) != Some("head") {
            return;
        }
        let Some(cluster) = labels.get("ray.io/cluster") else { return };
        let uid = pod.uid().unwrap_or_default();
        let service = format!("{cluster}-head-svc");
        if answers { self.ray.start_head(&service, &uid, has_claim(pod)) } else { self.ray.stop_head(&service, &uid) }
    }

    /// Runs the submitter's command. Returns its exit code.
    async fn submit(&self, pod: &Pod) -> i32 {
        let namespace = pod.namespace().unwrap_or_default();
        let name = pod.labels().get("batch.kubernetes.io/job-name").cloned().unwrap_or_default();
        let kind = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", "RayJob"));
        let jobs: Api<DynamicObject> = Api::namespaced_with(self.client.clone(), &namespace, &kind);
        let mut silent = 0;
        while silent < PATIENCE {
            sleep(ASK).await;
            let Ok(Some(job)) = insist(|| jobs.get_opt(&name)).await else { return 1 };
            let (status, spec) = (&job.data["status"], &job.data["spec"]);
            let id = status["jobId"].as_str().unwrap_or_default();
            let service = format!("{}-head-svc", status["rayClusterName"].as_str().unwrap_or_default());
            match self.ray.status(&service, id) {
                Some("SUCCEEDED") => return 0,
                Some("FAILED" | "STOPPED") => return 1,
                Some(_) => silent = 0,
                None => {
                    let fails = spec["entrypoint"].as_str().is_some_and(|entrypoint| entrypoint.contains("fail"));
                    self.ray.submit(&service, id, fails);
                    silent += 1;
                }
            }
        }
        1
    }
}

/// Repeats a request until the API server replies, as a kubelet does. It may refuse.
async fn insist<T, F: Future<Output = kube::Result<T>>>(request: impl Fn() -> F) -> kube::Result<T> {
    loop {
        match request().await {
            Ok(reply) => return Ok(reply),
            Err(kube::Error::Api(status)) if status.code < 500 && status.code != 429 => {
                return Err(kube::Error::Api(status));
            }
            Err(_) => sleep(RETRY).await,
        }
    }
}

/// Returns whether a volume outlives a Pod.
fn has_claim(pod: &Pod) -> bool {
    let volumes = pod.spec.as_ref().and_then(|spec| spec.volumes.as_deref()).unwrap_or_default();
    volumes.iter().any(|volume| volume.persistent_volume_claim.is_some())
}

/// Returns whether a Pod runs on the node that can be lost: by its address, every second does.
fn is_on_lost_node(pod: &Pod) -> bool {
    let address = pod.status.as_ref().and_then(|status| status.pod_ip.as_deref()).unwrap_or_default();
    address.bytes().last().is_some_and(|digit| digit % 2 == 0)
}
