//! Ray clusters that still run, asked through the API server's proxy.

use super::storage::SessionKey;
use crate::auth_token;
use crate::connect::{ConnectionArgs, Target};
use crate::output::print_note;
use crate::resource::Kind;
use axum::body::Body;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use jiff::Timestamp;
use kube::api::{DynamicObject, ListParams};
use kube::{Api, ResourceExt};
use manta_api::RayCluster;
use manta_logic::cluster_spec::{is_k8s_token_auth, is_token_auth};
use serde::Deserialize;
use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

/// The name of a session that goes on.
pub(super) const LIVE: &str = "live";
/// The port of the dashboard in a head Service.
const PORT: &str = "dashboard";

/// The header of a token for Ray: the API server keeps `Authorization` for itself.
const TOKEN_HEADER: &str = "x-ray-authorization";
/// How long what is known about a cluster holds: a page of the dashboard asks many times at once.
const KNOWN_FOR: Duration = Duration::from_secs(10);

/// The Ray clusters of a Kubernetes cluster, if there is one.
pub(super) struct LiveClusters {
    target: Option<Target>,
    known: Mutex<Vec<(Instant, LiveCluster)>>,
}

/// A Ray cluster that still exists.
#[derive(Clone)]
pub(super) struct LiveCluster {
    pub(super) key: SessionKey,
    pub(super) created: Option<Timestamp>,
    service: String,
    /// What its dashboard asks for, if it was looked up.
    token: Option<String>,
}

impl LiveClusters {
    pub(super) fn none() -> Self {
        Self { target: None, known: Mutex::default() }
    }

    /// Returns the clusters of a Kubernetes cluster; none without a kubeconfig.
    pub(super) async fn of(connection: &ConnectionArgs) -> Self {
        let target = connection.connect().await;
        if let Err(error) = &target {
            print_note(&format!("only stored clusters are shown: {error:#}"));
        }
        Self { target: target.ok(), known: Mutex::default() }
    }

    /// Returns all that exist now.
    pub(super) async fn list(&self) -> Vec<LiveCluster> {
        let Some(target) = &self.target else { return Vec::new() };
        let api: Api<DynamicObject> = Api::all_with(target.client.clone(), &Kind::Cluster.api_resource());
        match api.list(&ListParams::default()).await {
            Ok(found) => found.iter().map(live_cluster).collect(),
            Err(error) => {
                print_note(&format!("{:#}", target.failed("cannot list rayclusters", error)));
                Vec::new()
            }
        }
    }

    /// Returns one that exists, with what its dashboard asks for.
    pub(super) async fn get(&self, namespace: &str, name: &str) -> Option<LiveCluster> {
        let is_it = |cluster: &LiveCluster| cluster.key.namespace == namespace && cluster.key.cluster == name;
        {
            let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
            known.retain(|(since, _)| since.elapsed() < KNOWN_FOR);
            if let Some((_, cluster)) = known.iter().find(|(_, cluster)| is_it(cluster)) {
                return Some(cluster.clone());
            }
        }
        let target = Target { namespace: namespace.to_owned(), ..self.target.clone()? };
        let object = match target.ray_api(Kind::Cluster).get_opt(name).await {
            Ok(found) => found?,
            Err(error) => {
                print_note(&format!("{:#}", target.failed(&format!("cannot get raycluster/{name}"), error)));
                return None;
            }
        };
        let cluster = LiveCluster { token: token_of(&target, &object).await, ..live_cluster(&object) };
        self.known.lock().unwrap_or_else(PoisonError::into_inner).push((Instant::now(), cluster.clone()));
        Some(cluster)
    }

    /// Passes a request on to the dashboard of a cluster.
    pub(super) async fn ask(&self, cluster: &LiveCluster, path: &str, query: &str) -> Response {
        let Some(target) = &self.target else { return StatusCode::NOT_FOUND.into_response() };
        let question = if query.is_empty() { String::new() } else { format!("?{query}") };
        let url = format!(
            "/api/v1/namespaces/{}/services/{}:{PORT}/proxy{path}{question}",
            cluster.key.namespace, cluster.service
        );
        let mut request = http::Request::get(url);
        if let Some(token) = &cluster.token {
            request = request.header(TOKEN_HEADER, format!("Bearer {token}"));
        }
        let Ok(request) = request.body(kube::client::Body::empty()) else {
            return StatusCode::BAD_REQUEST.into_response();
        };
        match target.client.send(request).await {
            Ok(reply) => reply.map(Body::new),
            Err(error) => {
                let text = format!("{:#}", target.failed("cannot ask the dashboard", error));
                (StatusCode::BAD_GATEWAY, text).into_response()
            }
        }
    }
}

/// Returns the token that the dashboard of a cluster asks for; none if it asks for none, or it cannot be read.
async fn token_of(target: &Target, object: &DynamicObject) -> Option<String> {
    let cluster = RayCluster::deserialize(serde_json::to_value(object).ok()?).ok()?;
    if !is_token_auth(&cluster.spec) || is_k8s_token_auth(&cluster.spec) {
        return None;
    }
    auth_token::of(target, &cluster).await.inspect_err(|error| print_note(&format!("{error:#}"))).ok()
}

fn live_cluster(object: &DynamicObject) -> LiveCluster {
    let owner = object.owner_references().iter().find(|owner| owner.controller == Some(true));
    let owner = owner.map(|owner| (owner.kind.to_lowercase(), owner.name.clone()));
    let cluster = object.name_any();
    let service = object.data["status"]["head"]["serviceName"].as_str();
    LiveCluster {
        service: service.map_or_else(|| format!("{cluster}-head-svc"), str::to_owned),
        token: None,
        created: object.creation_timestamp().map(|time| time.0),
        key: SessionKey {
            namespace: object.namespace().unwrap_or_default(),
            cluster,
            session: LIVE.to_owned(),
            owner: owner.filter(|(kind, _)| kind == "rayjob" || kind == "rayservice"),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use axum::Router;
    use axum::extract::Request;
    use serde_json::json;
    use std::sync::Arc;

    /// Returns the clusters of a server that notes its requests: each path, with the token for Ray.
    fn server() -> (LiveClusters, Arc<Mutex<Vec<String>>>) {
        let asked: Arc<Mutex<Vec<String>>> = Arc::default();
        let noted = Arc::clone(&asked);
        let answer = move |request: Request| {
            let token = request.headers().get(TOKEN_HEADER).map(|it| it.to_str().unwrap_or_default().to_owned());
            let path = request.uri().path().to_owned();
            let reply = match path.as_str() {
                "/apis/ray.io/v1/namespaces/ns/rayclusters/locked" => json!({
                    "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": "locked", "namespace": "ns"},
                    "spec": {"authOptions": {"mode": "token"}, "headGroupSpec": {"template": {}}},
                    "status": {"head": {"serviceName": "locked-head-svc"}},
                }),
                "/api/v1/namespaces/ns/secrets/locked" => json!({"data": {"auth_token": "c2VzYW1l"}}),
                _ => json!({}),
            };
            noted.lock().unwrap().push([Some(path), token].into_iter().flatten().collect::<Vec<_>>().join(" "));
            async move { axum::Json(reply) }
        };
        let client = kube::Client::new(Router::new().fallback(answer), "ns");
        let target = Target { client, namespace: "other".to_owned(), context: None, url: String::new() };
        (LiveClusters { target: Some(target), known: Mutex::default() }, asked)
    }

    #[tokio::test]
    async fn a_cluster_is_looked_up_once_and_gets_its_token() {
        let (live, asked) = server();
        for path in ["/api/jobs/", "/nodes"] {
            let cluster = live.get("ns", "locked").await.unwrap();
            assert_eq!(live.ask(&cluster, path, "").await.status(), StatusCode::OK);
        }
        let proxy = "/api/v1/namespaces/ns/services/locked-head-svc:dashboard/proxy";
        let expect = [
            "/apis/ray.io/v1/namespaces/ns/rayclusters/locked".to_owned(),
            "/api/v1/namespaces/ns/secrets/locked".to_owned(),
            format!("{proxy}/api/jobs/ Bearer sesame"),
            format!("{proxy}/nodes Bearer sesame"),
        ];
        assert_eq!(*asked.lock().unwrap(), expect);
    }
}
