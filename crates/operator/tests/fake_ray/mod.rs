//! Fake Ray clusters: requests that an operator sends through the API server's proxy go to one fake dashboard per
//! cluster.

use anyhow::Result;
use futures::{FutureExt, StreamExt};
use http::{Request, Response};
use http_body_util::BodyExt;
use kube::api::{ApiResource, DynamicObject, Patch, PatchParams};
use kube::client::Body;
use kube::core::GroupVersionKind;
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Api, Client, ResourceExt};
use manta_testkit::FakeDashboard;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use tokio::sync::OnceCell;
use tokio::task::JoinHandle;

type Dashboard = Arc<OnceCell<FakeDashboard>>;

/// The Ray clusters that an operator can reach.
pub(crate) struct FakeRayClusters {
    dashboards: Mutex<BTreeMap<String, Dashboard>>,
    /// The status of applications on clusters that start from now on.
    outcome: Mutex<String>,
    /// Whether the API server serves the Gateway API.
    gateway_api: bool,
    posted: AtomicBool,
}

impl FakeRayClusters {
    pub(crate) fn new(gateway_api: bool) -> Arc<Self> {
        let outcome = Mutex::new("RUNNING".to_owned());
        Arc::new(Self { dashboards: Mutex::default(), outcome, gateway_api, posted: AtomicBool::new(false) })
    }

    /// Sets the status of applications on clusters that start from now on.
    pub(crate) fn set_outcome(&self, status: &str) {
        status.clone_into(&mut self.outcome.lock().unwrap_or_else(PoisonError::into_inner));
    }

    /// Runs a function on one cluster's dashboard, started if needed.
    pub(crate) async fn with<T>(&self, cluster: &str, run: impl FnOnce(&FakeDashboard) -> T) -> Result<T> {
        let dashboard = self
            .dashboards
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .entry(cluster.to_owned())
            .or_default()
            .clone();
        let outcome = self.outcome.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let started = dashboard
            .get_or_try_init(|| async {
                let started = FakeDashboard::start().await?;
                started.set_app_status("*", &outcome);
                Ok::<_, std::io::Error>(started)
            })
            .await?;
        Ok(run(started))
    }

    /// Returns whether any cluster received a POST, as for a job submission.
    pub(crate) fn was_posted_to(&self) -> bool {
        self.posted.load(Ordering::SeqCst)
    }

    /// Returns the configurations that a cluster was sent, in order.
    pub(crate) async fn configs(&self, cluster: &str) -> Result<Vec<Value>> {
        self.with(cluster, |ray| ray.writes().into_iter().map(|write| write.body).collect()).await
    }

    /// Returns whether a Pod can serve requests: its cluster's applications run and its proxy is healthy.
    pub(crate) async fn can_serve(&self, pod: &str) -> bool {
        let cluster = pod.rsplit_once("-head-").or_else(|| pod.rsplit_once("-small-worker-"));
        let Some((cluster, _)) = cluster else { return false };
        let Ok(address) = self.with(cluster, FakeDashboard::address).await else { return false };
        let get =
            async |path: &str| reqwest::get(format!("http://{address}{path}")).await?.error_for_status()?.text().await;
        let (Ok(_), Ok(apps)) = (get("/-/healthz").await, get("/api/serve/applications/").await) else { return false };
        let apps: Value = serde_json::from_str(&apps).unwrap_or_default();
        let apps = apps["applications"].as_object().cloned().unwrap_or_default();
        !apps.is_empty() && apps.values().all(|app| app["status"] == "RUNNING")
    }

    /// Returns a client whose requests to dashboards and Serve proxies go to the fakes.
    pub(crate) fn client(self: &Arc<Self>, client: Client) -> Client {
        let ray_clusters = Arc::clone(self);
        let service = tower::service_fn(move |request: Request<Body>| {
            let (ray_clusters, client) = (Arc::clone(&ray_clusters), client.clone());
            async move {
                let path = request.uri().path_and_query().map(ToString::to_string).unwrap_or_default();
                match destination(&path) {
                    Some((cluster, rest)) => ray_clusters.forward(&cluster, rest, request).await,
                    None if !ray_clusters.gateway_api && path.starts_with("/apis/gateway.networking.k8s.io/") => {
                        Ok(Response::builder().status(404).body(Body::from(b"404 page not found\n".to_vec()))?)
                    }
                    None => Ok(client.send(request).await?),
                }
            }
            .map(|response: Result<Response<Body>>| response.map_err(Into::<tower::BoxError>::into))
            .boxed()
        });
        Client::new(service, "default")
    }

    async fn forward(&self, cluster: &str, rest: &str, request: Request<Body>) -> Result<Response<Body>> {
        let address = self.with(cluster, FakeDashboard::address).await?;
        let method = request.method().clone();
        self.posted.fetch_or(method == http::Method::POST, Ordering::SeqCst);
        let body = request.into_body().collect().await?.to_bytes();
        let sent = reqwest::Client::new().request(method, format!("http://{address}{rest}")).body(body).send().await?;
        let status = sent.status();
        Ok(Response::builder().status(status).body(Body::from(sent.bytes().await?.to_vec()))?)
    }
}

/// Returns the target cluster and path of a request through the API server's proxy.
fn destination(path: &str) -> Option<(String, &str)> {
    let (to, rest) = path.strip_prefix("/api/v1/namespaces/")?.split_once("/proxy/")?;
    let mut parts = to.split('/').skip(1);
    let (kind, name) = (parts.next()?, parts.next()?);
    let cluster = match kind {
        "services" => name.strip_suffix("-head-svc:dashboard")?,
        "pods" => name.rsplit_once("-head-")?.0,
        _ => return None,
    };
    Some((cluster.to_owned(), &path[path.len() - rest.len() - 1..]))
}

/// A fake Gateway controller that marks everything as accepted and programmed, until dropped.
pub(crate) struct GatewayController([JoinHandle<()>; 2]);

impl GatewayController {
    pub(crate) fn start(client: &Client, namespace: &str) -> Self {
        let condition = |type_: &str| {
            json!({"type": type_, "status": "True", "reason": "Played", "message": "",
                   "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        let gateway = json!({"conditions": [condition("Accepted"), condition("Programmed")]});
        let parent = |object: &DynamicObject| object.data["spec"]["parentRefs"][0].clone();
        let conditions = json!([condition("Accepted"), condition("ResolvedRefs")]);
        let route = move |object: &DynamicObject| {
            json!({"parents": [{"parentRef": parent(object), "controllerName": "test/played",
                                "conditions": conditions.clone()}]})
        };
        let of = |kind: &str| {
            let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("gateway.networking.k8s.io", "v1", kind));
            Api::<DynamicObject>::namespaced_with(client.clone(), namespace, &resource)
        };
        Self([
            tokio::spawn(accept(of("Gateway"), move |_| gateway.clone())),
            tokio::spawn(accept(of("HTTPRoute"), route)),
        ])
    }
}

impl Drop for GatewayController {
    fn drop(&mut self) {
        self.0.iter().for_each(JoinHandle::abort);
    }
}

async fn accept(api: Api<DynamicObject>, status: impl Fn(&DynamicObject) -> Value) {
    let mut objects = watcher(api.clone(), watcher::Config::default()).default_backoff().applied_objects().boxed();
    while let Some(object) = objects.next().await {
        if let Ok(object) = object
            && object.data["status"] != status(&object)
        {
            let patch = json!({"status": status(&object)});
            // An object that is gone needs no status; a conflict brings the next event.
            let _ = api.patch_status(&object.name_any(), &PatchParams::default(), &Patch::Merge(patch)).await;
        }
    }
}
