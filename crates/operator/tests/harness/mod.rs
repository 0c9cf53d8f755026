//! The test harness: a namespace on a real control plane, with its own kubelet and operator.

mod chart_rbac;

use anyhow::{Context, Result, ensure};
use chart_rbac::DeniedRequests;
use futures::FutureExt;
use http::Method;
use k8s_openapi::api::core::v1::{Pod, Service};
use k8s_openapi::api::events::v1::Event;
use kube::api::{ListParams, PostParams};
use kube::client::Body;
use kube::{Api, Client};
use manta_api::RayCluster;
use manta_operator::Settings;
use manta_testkit::{ControlPlane, Kubelet, eventually, within};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::task::JoinHandle;
use tokio_util::sync::CancellationToken;

pub(crate) struct Harness {
    pub(crate) client: Client,
    pub(crate) namespace: String,
    pub(crate) kubelet: Kubelet,
}

impl Harness {
    /// Creates a namespace and starts a kubelet that makes every Pod ready.
    pub(crate) async fn new(name: &str) -> Result<Self> {
        let plane = ControlPlane::shared();
        plane.install_ray_crds().await?;
        let client = plane.client().await?;
        let namespace = plane.namespace(name).await?;
        let kubelet = Kubelet::start(client.clone(), Some(&namespace));
        Ok(Self { client, namespace, kubelet })
    }

    /// Starts an operator for this namespace alone, with the chart's permissions.
    pub(crate) fn start_operator(&self, client: Client) -> RunningOperator {
        self.start_operator_with(client, Settings::default())
    }

    /// Like [`Self::start_operator`], with other settings.
    pub(crate) fn start_operator_with(&self, client: Client, settings: Settings) -> RunningOperator {
        let stop = CancellationToken::new();
        let settings = Settings { watch_namespaces: vec![self.namespace.clone()], ..settings };
        let denied = DeniedRequests::default();
        let task = tokio::spawn(manta_operator::run(chart_rbac::enforce(client, &denied), settings, stop.clone()));
        RunningOperator { stop, task, denied }
    }

    pub(crate) fn clusters(&self) -> Api<RayCluster> {
        Api::namespaced(self.client.clone(), &self.namespace)
    }

    pub(crate) async fn create(&self, name: &str, spec: Value) -> Result<RayCluster> {
        let cluster = serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec}))?;
        Ok(self.clusters().create(&PostParams::default(), &cluster).await?)
    }

    pub(crate) async fn pods(&self) -> Result<Vec<Pod>> {
        Ok(Api::namespaced(self.client.clone(), &self.namespace).list(&ListParams::default()).await?.items)
    }

    pub(crate) async fn services(&self) -> Result<Vec<Service>> {
        Ok(Api::namespaced(self.client.clone(), &self.namespace).list(&ListParams::default()).await?.items)
    }

    pub(crate) async fn notes(&self, reason: &str) -> Result<Vec<String>> {
        let events: Api<Event> = Api::namespaced(self.client.clone(), &self.namespace);
        let events = events.list(&ListParams::default()).await?.items;
        let matching = events.into_iter().filter(|event| event.reason.as_deref() == Some(reason));
        Ok(matching.filter_map(|event| event.note).collect())
    }

    /// Waits until a cluster meets a condition.
    pub(crate) async fn until(&self, name: &str, wanted: impl Fn(&RayCluster) -> bool) -> Result<RayCluster> {
        eventually(&format!("{name} to meet the condition"), async || {
            let cluster = self.clusters().get(name).await?;
            ensure!(wanted(&cluster), "{:?}", cluster.status);
            Ok(cluster)
        })
        .await
    }

    /// Waits for an event with this reason. Returns its note.
    pub(crate) async fn until_event(&self, reason: &str) -> Result<String> {
        eventually(reason, async || self.notes(reason).await?.pop().context("no such event")).await
    }

    pub(crate) async fn until_ready(&self, name: &str) -> Result<RayCluster> {
        self.until(name, |cluster| state(cluster) == "ready").await.context("not ready")
    }
}

/// Returns the spec of a cluster with one head and two workers.
pub(crate) fn small_cluster() -> Value {
    let container = |name: &str| json!({"name": name, "image": "rayproject/ray:2.53.0"});
    json!({
        "rayVersion": "2.53.0",
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [container("ray-head")]}}},
        "workerGroupSpecs": [{
            "groupName": "small", "replicas": 2, "minReplicas": 0, "maxReplicas": 5, "rayStartParams": {},
            "template": {"spec": {"containers": [container("ray-worker")]}},
        }],
    })
}

pub(crate) fn state(cluster: &RayCluster) -> &str {
    cluster.status.as_ref().and_then(|status| status.state.as_deref()).unwrap_or_default()
}

pub(crate) struct RunningOperator {
    stop: CancellationToken,
    task: JoinHandle<()>,
    denied: DeniedRequests,
}

impl RunningOperator {
    /// Stops the operator gracefully. Fails if any of its requests was denied.
    pub(crate) async fn stop(self) -> Result<()> {
        self.stop.cancel();
        within("the operator's end", self.task).await??;
        self.denied.check()
    }

    /// Aborts the operator, as a crash would.
    pub(crate) async fn kill(self) {
        self.task.abort();
        // The result is a cancellation.
        let _ = self.task.await;
        self.stop.cancel();
    }
}

/// Whether the operator crashes before or after a write.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Crash {
    Before,
    After,
}

/// Counts of an operator's requests.
#[derive(Default)]
pub(crate) struct RequestCounts {
    pub(crate) writes: AtomicUsize,
    pub(crate) lists: AtomicUsize,
    pub(crate) crashed: Notify,
}

impl RequestCounts {
    /// Waits until the operator sends no more requests.
    pub(crate) async fn until_idle(&self) -> Result<()> {
        let requests = || self.writes.load(Ordering::SeqCst) + self.lists.load(Ordering::SeqCst);
        eventually("an idle operator", async || {
            let before = requests();
            // Longer than any timer of an idle operator.
            tokio::time::sleep(Duration::from_secs(2)).await;
            ensure!(requests() == before, "{} requests in 2 s", requests() - before);
            Ok(())
        })
        .await
    }
}

/// Returns a client that counts requests other than events, and optionally hangs around the n-th write.
pub(crate) fn counting_client(client: Client, counts: &Arc<RequestCounts>, crash: Option<(usize, Crash)>) -> Client {
    let counts = Arc::clone(counts);
    let service = tower::service_fn(move |request: http::Request<Body>| {
        let path = request.uri().path().to_owned();
        let is_write = request.method() != Method::GET && !path.contains("/events");
        let is_list = request.method() == Method::GET && !request.uri().query().unwrap_or_default().contains("watch");
        let number = is_write.then(|| counts.writes.fetch_add(1, Ordering::SeqCst));
        if is_list {
            counts.lists.fetch_add(1, Ordering::SeqCst);
        }
        let crash = crash.filter(|(at, _)| number.is_some_and(|number| number >= *at)).map(|(_, crash)| crash);
        let (client, counts) = (client.clone(), Arc::clone(&counts));
        async move {
            if crash == Some(Crash::Before) {
                counts.crashed.notify_one();
                return std::future::pending().await;
            }
            let response = client.send(request).await;
            if crash == Some(Crash::After) {
                counts.crashed.notify_one();
                return std::future::pending().await;
            }
            response
        }
        .boxed()
    });
    Client::new(service, "default")
}
