//! The operator against a real kube-apiserver: RayServices, with a fake Ray behind the API server's proxy.

#![allow(clippy::unwrap_used)]

#[allow(dead_code, reason = "not every test needs all of it")]
mod fake_ray;
#[allow(dead_code, reason = "not every test needs all of it")]
mod harness;

use anyhow::{Result, ensure};
use fake_ray::{FakeRayClusters, GatewayController};
use harness::{Harness, RunningOperator, small_cluster};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::discovery::v1::EndpointSlice;
use kube::api::{ApiResource, DeleteParams, DynamicObject, ListParams, Patch, PatchParams, PostParams};
use kube::core::GroupVersionKind;
use kube::{Api, Client, ResourceExt};
use manta_api::{ClusterServeStatus, RayService};
use manta_operator::Settings;
use manta_operator::dashboard::Route;
use manta_testkit::{ControlPlane, Kubelet, eventually};
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;

const NODE: &str = "node-of-services";
const INCREMENTAL: &str = "NewClusterWithIncrementalUpgrade";

/// A RayService `web` on a real control plane, its fake Ray clusters, and an operator that reaches them.
struct ServiceHarness {
    harness: Harness,
    ray_clusters: Arc<FakeRayClusters>,
    operator: Option<RunningOperator>,
}

impl ServiceHarness {
    /// Starts the operator; `web` is created later.
    async fn new(name: &str, gateway_api: bool) -> Result<Self> {
        let mut harness = Harness::new(name).await?;
        harness.kubelet = Kubelet::start_on_node(harness.client.clone(), &harness.namespace, NODE);
        make_node(&harness.client).await?;
        if gateway_api {
            ControlPlane::shared().install_gateway_crds().await?;
        }
        let mut service = Self { harness, ray_clusters: FakeRayClusters::new(gateway_api), operator: None };
        service.start_operator(gateway_api);
        Ok(service)
    }

    fn start_operator(&mut self, gateway_api: bool) {
        let mut settings = Settings { dashboard_route: Route::ApiServerProxy, ..Settings::default() };
        settings.config.platform.gateway_api = gateway_api;
        let client = self.ray_clusters.client(self.harness.client.clone());
        self.operator = Some(self.harness.start_operator_with(client, settings));
    }

    async fn kill_operator(&mut self) {
        if let Some(operator) = self.operator.take() {
            operator.kill().await;
        }
    }

    fn services(&self) -> Api<RayService> {
        Api::namespaced(self.harness.client.clone(), &self.harness.namespace)
    }

    async fn create(&self, spec: Value) -> Result<()> {
        let service = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec}))?;
        self.services().create(&PostParams::default(), &service).await?;
        Ok(())
    }

    async fn edit(&self, spec: Value) -> Result<()> {
        self.services().patch("web", &PatchParams::default(), &Patch::Merge(json!({"spec": spec}))).await?;
        Ok(())
    }

    /// Waits until `web` meets a condition.
    async fn until(&self, what: &str, wanted: impl Fn(&Snapshot) -> bool) -> Result<Snapshot> {
        eventually(what, async || {
            let seen = self.snapshot().await?;
            ensure!(wanted(&seen), "{seen:#?}");
            Ok(seen)
        })
        .await
    }

    async fn until_ready(&self) -> Result<Snapshot> {
        self.until("ready", |seen| seen.ready && seen.pending.is_empty()).await
    }

    async fn snapshot(&self) -> Result<Snapshot> {
        let service = self.services().get("web").await?;
        let status = service.status.unwrap_or_default();
        let name = |slot: &Option<ClusterServeStatus>| {
            slot.as_ref().and_then(|slot| slot.ray_cluster_name.clone()).unwrap_or_default()
        };
        let conditions = status.conditions.clone().unwrap_or_default();
        let clusters = self.harness.clusters().list(&Default::default()).await?;
        let services = self.harness.services().await?;
        let serve_service = services.iter().find(|service| service.name_any() == "web-serve-svc");
        let selector = serve_service.and_then(|service| service.spec.as_ref()?.selector.clone()).unwrap_or_default();
        Ok(Snapshot {
            active: name(&status.active_service_status),
            pending: name(&status.pending_service_status),
            ready: conditions.iter().any(|condition| condition.type_ == "Ready" && condition.status == "True"),
            upgrade: conditions
                .iter()
                .find(|condition| condition.type_ == "UpgradeInProgress")
                .map(|condition| condition.reason.clone())
                .unwrap_or_default(),
            endpoints: status.num_serve_endpoints.unwrap_or(0),
            clusters: clusters.iter().map(ResourceExt::name_any).collect(),
            routes_to: selector.get("ray.io/cluster").cloned().unwrap_or_default(),
            weights: self.weights().await?,
        })
    }

    /// Returns the weights in the route, if there is one.
    async fn weights(&self) -> Result<Vec<i64>> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", "HTTPRoute"));
        let api: Api<DynamicObject> =
            Api::namespaced_with(self.harness.client.clone(), &self.harness.namespace, &resource);
        let Ok(route) = api.get("web-httproute").await else { return Ok(Vec::new()) };
        let backends = route.data["spec"]["rules"][0]["backendRefs"].as_array().cloned().unwrap_or_default();
        Ok(backends.iter().filter_map(|backend| backend["weight"].as_i64()).collect())
    }

    /// Sends requests to the endpoints of the serve Service until stopped.
    fn load(&self) -> Load {
        let (succeeded, failed) = <(Arc<AtomicUsize>, Arc<AtomicUsize>)>::default();
        let (client, namespace, ray_clusters) =
            (self.harness.client.clone(), self.harness.namespace.clone(), Arc::clone(&self.ray_clusters));
        let counts = (Arc::clone(&succeeded), Arc::clone(&failed));
        let task = tokio::spawn(async move {
            let slices: Api<EndpointSlice> = Api::namespaced(client, &namespace);
            let of_service = ListParams::default().labels("kubernetes.io/service-name=web-serve-svc");
            loop {
                let found = slices.list(&of_service).await.map(|list| list.items).unwrap_or_default();
                let endpoints = found.into_iter().flat_map(|slice| slice.endpoints.unwrap_or_default());
                let ready = endpoints.filter(|at| at.conditions.as_ref().is_some_and(|is| is.ready == Some(true)));
                let pods = ready.filter_map(|at| at.target_ref?.name);
                for pod in pods.collect::<Vec<_>>() {
                    let counter = if ray_clusters.can_serve(&pod).await { &counts.0 } else { &counts.1 };
                    counter.fetch_add(1, Ordering::SeqCst);
                }
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        });
        Load { succeeded, failed, task }
    }

    /// Waits for the pending cluster of an upgrade. Returns its name.
    async fn until_pending(&self) -> Result<String> {
        let prepares = |seen: &Snapshot| seen.clusters.len() == 2 && !seen.pending.is_empty();
        Ok(self.until("two clusters", prepares).await?.pending)
    }

    /// Waits until the configurations sent to a cluster meet a condition.
    async fn until_sent(&self, cluster: &str, wanted: impl Fn(&[String]) -> bool) -> Result<()> {
        eventually("the expected configurations", async || {
            let sent = self.names_sent_to(cluster).await?;
            ensure!(wanted(&sent), "{cluster} was sent {sent:?}");
            Ok(())
        })
        .await
    }

    async fn names_sent_to(&self, cluster: &str) -> Result<Vec<String>> {
        let configs = self.ray_clusters.configs(cluster).await?;
        Ok(configs.iter().map(|config| config["applications"][0]["name"].as_str().unwrap_or("?").to_owned()).collect())
    }

    async fn end(mut self) -> Result<()> {
        match self.operator.take() {
            Some(operator) => operator.stop().await,
            None => Ok(()),
        }
    }
}

/// A running load test.
struct Load {
    succeeded: Arc<AtomicUsize>,
    failed: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Load {
    /// Stops the load. Returns how many requests succeeded and how many failed.
    fn stop(self) -> (usize, usize) {
        self.task.abort();
        (self.succeeded.load(Ordering::SeqCst), self.failed.load(Ordering::SeqCst))
    }
}

/// The state of `web` as a user sees it.
#[derive(Debug)]
struct Snapshot {
    active: String,
    pending: String,
    ready: bool,
    /// The reason of `UpgradeInProgress`.
    upgrade: String,
    endpoints: i32,
    clusters: Vec<String>,
    routes_to: String,
    weights: Vec<i64>,
}

fn config(app: &str) -> String {
    format!("applications: [{{name: {app}, import_path: 'a:b'}}]")
}

/// Creates the node that all Pods are on: a Pod on an unknown node is no endpoint.
async fn make_node(client: &Client) -> Result<()> {
    let node: Node = serde_json::from_value(json!({"metadata": {"name": NODE}}))?;
    match Api::all(client.clone()).create(&PostParams::default(), &node).await {
        Err(kube::Error::Api(status)) if status.code == 409 => Ok(()),
        result => Ok(result.map(drop)?),
    }
}

/// Returns a RayService spec with one head and one worker.
fn spec() -> Value {
    let mut cluster = small_cluster();
    cluster["workerGroupSpecs"][0]["replicas"] = json!(1);
    cluster["workerGroupSpecs"][0]["minReplicas"] = json!(1);
    json!({"rayClusterConfig": cluster, "serveConfigV2": config("one"), "rayClusterDeletionDelaySeconds": 1})
}

/// Returns the same spec with incremental upgrades.
fn incremental() -> Value {
    let mut spec = spec();
    spec["rayClusterConfig"]["enableInTreeAutoscaling"] = json!(true);
    let options =
        json!({"gatewayClassName": "any", "stepSizePercent": 50, "maxSurgePercent": 50, "intervalSeconds": 1});
    spec["upgradeStrategy"] = json!({"type": INCREMENTAL, "clusterUpgradeOptions": options});
    spec
}

/// Returns a change of both the cluster and the configuration.
fn next_version() -> Value {
    json!({"rayClusterConfig": {"rayVersion": "2.54.0"}, "serveConfigV2": config("two")})
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upgrade_moves_traffic_to_a_new_cluster_without_failed_requests() -> Result<()> {
    let service = ServiceHarness::new("service", false).await?;
    service.create(spec()).await?;
    let first = service.until_ready().await?;
    let one = first.active.clone();
    assert_eq!((first.routes_to.clone(), first.clusters.clone()), (one.clone(), vec![one.clone()]));
    service.until("head and worker", |seen| seen.endpoints == 2).await?;
    let expect = json!({"applications": [{"name": "one", "import_path": "a:b"}]});
    assert_eq!(service.ray_clusters.configs(&one).await?, [expect]);
    let load = service.load();

    service.ray_clusters.set_outcome("DEPLOYING");
    service.edit(next_version()).await?;
    let two = service.until_pending().await?;
    service.until("configured", |seen| seen.upgrade == "BothActivePendingClustersExist").await?;
    service.until_sent(&two, |names| !names.is_empty()).await?;
    let during = service.snapshot().await?;
    assert_eq!((during.active.clone(), during.routes_to.clone(), during.ready), (one.clone(), one.clone(), true));

    service.ray_clusters.with(&two, |ray| ray.set_app_status("*", "RUNNING")).await?;
    let after = service.until("promoted", |seen| seen.active == two && seen.routes_to == two).await?;
    assert!(after.ready && after.endpoints > 0, "{after:?}");
    service.until("clean", |seen| seen.clusters == [two.clone()] && seen.upgrade == "NoPendingCluster").await?;
    assert_eq!(service.names_sent_to(&one).await?, ["one"], "the old cluster never gets the new configuration");
    assert_eq!(service.names_sent_to(&two).await?, ["two"]);
    let (succeeded, failed) = load.stop();
    assert!(succeeded > 20 && failed == 0, "{succeeded} succeeded, {failed} failed");
    let note = format!("Deleted the RayCluster {}/{one}", service.harness.namespace);
    assert_eq!(service.harness.until_event("DeletedRayCluster").await?, note);
    service.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_incremental_upgrade_survives_a_restart_of_the_operator() -> Result<()> {
    let mut service = ServiceHarness::new("incremental", true).await?;
    let _gateways = GatewayController::start(&service.harness.client, &service.harness.namespace);
    service.create(incremental()).await?;
    let first = service.until("serving", |seen| seen.ready && !seen.active.is_empty() && seen.weights == [100]).await?;
    let one = first.active.clone();

    // The upgrade pauses while the operator restarts.
    let hold = json!({"upgradeStrategy": {"clusterUpgradeOptions": {"intervalSeconds": 3600}}});
    service.edit(next_version()).await?;
    let middle = service.until("half way", |seen| seen.weights == [50, 50]).await?;
    let two = middle.pending.clone();
    service.edit(hold).await?;
    service.kill_operator().await;
    service.start_operator(true);
    let go_on = json!({"upgradeStrategy": {"clusterUpgradeOptions": {"intervalSeconds": 1}}});
    service.edit(go_on).await?;

    let done = service.until("promoted", |seen| {
        assert!(seen.weights.is_empty() || seen.weights.iter().sum::<i64>() == 100, "{seen:?}");
        assert!(seen.clusters.len() <= 2 && seen.endpoints > 0, "{seen:?}");
        seen.active == two && seen.pending.is_empty() && seen.weights == [100]
    });
    let done = done.await?;
    assert!(done.ready);
    service.until("clean", |seen| seen.clusters == [two.clone()]).await?;
    let sent = service.names_sent_to(&one).await?;
    assert!(sent.len() >= 3 && sent.iter().all(|name| name == "one"), "{sent:?}");
    let capacity = |config: &Value| config["target_capacity"].as_i64().unwrap();
    let capacities: Vec<i64> = service.ray_clusters.configs(&one).await?.iter().map(capacity).collect();
    assert_eq!((capacities.first(), capacities.last()), (Some(&100), Some(&0)), "{capacities:?}");
    assert!(capacities.is_sorted_by(|before, after| before >= after), "{capacities:?}");
    let capacities: Vec<i64> = service.ray_clusters.configs(&two).await?.iter().map(capacity).collect();
    assert!(capacities.is_sorted() && capacities.last() == Some(&100), "{capacities:?}");
    service.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn without_the_gateway_api_an_incremental_service_warns_and_serves() -> Result<()> {
    let service = ServiceHarness::new("no-gateway", false).await?;
    service.create(incremental()).await?;
    let first = service.until_ready().await?;
    let note = service.harness.until_event("FailedToCreateGateway").await?;
    assert!(note.contains("install the Gateway API"), "{note}");
    service.edit(next_version()).await?;
    let two = service.until_pending().await?;
    service.until_sent(&two, |names| !names.is_empty()).await?;
    let seen = service.snapshot().await?;
    assert_eq!((seen.active, seen.ready), (first.active, true), "users are served by the old cluster");
    service.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn managed_by_is_validated_and_immutable() -> Result<()> {
    let service = ServiceHarness::new("managers", false).await?;
    let code = |result: Result<()>| match result.unwrap_err().downcast::<kube::Error>() {
        Ok(kube::Error::Api(status)) => (status.code, status.message),
        other => panic!("{other:?}"),
    };
    let mut other = spec();
    other["managedBy"] = json!("example.com/other");
    let (number, message) = code(service.create(other.clone()).await);
    assert!(number == 422 && message.contains("the managedBy field value must be either"), "{number} {message}");
    other["managedBy"] = json!("kueue.x-k8s.io/multikueue");
    service.create(other).await?;
    let (number, message) = code(service.edit(json!({"managedBy": "ray.io/kuberay-operator"})).await);
    assert!(number == 422 && message.contains("the managedBy field is immutable"), "{number} {message}");
    service.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn clusters_deleted_by_hand_are_replaced() -> Result<()> {
    let service = ServiceHarness::new("by-hand", false).await?;
    service.create(spec()).await?;
    let one = service.until_ready().await?.active;
    service.ray_clusters.set_outcome("DEPLOYING");
    service.edit(next_version()).await?;
    let two = service.until_pending().await?;

    let uid = service.harness.clusters().get(&two).await?.uid();
    service.harness.clusters().delete(&two, &DeleteParams::default()).await?;
    eventually("made again", async || {
        let cluster = service.harness.clusters().get_opt(&two).await?;
        ensure!(cluster.is_some_and(|cluster| cluster.uid() != uid), "not there, or still the old one");
        Ok(())
    })
    .await?;
    let seen = service.snapshot().await?;
    assert_eq!((seen.active.as_str(), seen.pending.as_str(), seen.ready), (one.as_str(), two.as_str(), true));

    service.ray_clusters.set_outcome("RUNNING");
    service.harness.clusters().delete(&one, &DeleteParams::default()).await?;
    service.ray_clusters.with(&two, |ray| ray.set_app_status("*", "RUNNING")).await?;
    service.until("taken over", |seen| seen.active == two && seen.ready && seen.pending.is_empty()).await?;

    service.harness.clusters().delete(&two, &DeleteParams::default()).await?;
    let last = service.until("replaced", |seen| seen.active != two && seen.ready && seen.pending.is_empty()).await?;
    assert_eq!(last.clusters, std::slice::from_ref(&last.active));
    service.end().await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_lost_configuration_is_sent_again_and_invalid_yaml_is_not_sent() -> Result<()> {
    let service = ServiceHarness::new("forget", false).await?;
    service.create(spec()).await?;
    let one = service.until_ready().await?.active;
    service.ray_clusters.with(&one, |ray| ray.forget()).await?;
    service.until_sent(&one, |names| names.len() >= 2).await?;
    assert_eq!(service.names_sent_to(&one).await?, ["one", "one"]);

    service.edit(json!({"serveConfigV2": "applications: ["})).await?;
    let note = service.harness.until_event("FailedToUpdateServeApplications").await?;
    assert!(note.contains("error converting YAML to JSON"), "{note}");
    let seen = service.snapshot().await?;
    assert_eq!((seen.active, seen.ready, seen.endpoints > 0), (one.clone(), true, true));
    assert_eq!(service.names_sent_to(&one).await?.len(), 2, "nothing was sent");
    service.edit(json!({"serveConfigV2": config("mended")})).await?;
    service.until_sent(&one, |names| names.last().is_some_and(|name| name == "mended")).await?;
    service.end().await
}
