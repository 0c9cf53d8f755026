//! Ray's own dashboard, through the API server, under a name of its own.
//!
//! A dashboard runs code of users, so it must not share an origin with the page. It gets the host
//! `ray-SECRET.localhost`, which browsers resolve to this machine: another origin, and a name that nobody can guess.

use super::Page;
use super::failure::{Failure, Json};
use super::question::parse;
use super::session::{Session, new_secret};
use super::stream;
use crate::auth_token;
use crate::connect::Target;
use crate::resource::{Kind, Reference};
use anyhow::Context;
use axum::body::{Body, Bytes};
use axum::extract::{Extension, State};
use axum::response::{IntoResponse, Response};
use http::header::{self, HeaderMap, HeaderValue};
use http::{Request, StatusCode, Uri};
use hyper_util::rt::TokioIo;
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::ListParams;
use manta_api::RayCluster;
use manta_logic::cluster_spec::{is_k8s_token_auth, is_token_auth};
use manta_logic::labels;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::VecDeque;
use std::sync::{Arc, Mutex, PoisonError};
use tokio::io::copy_bidirectional;

/// Where the dashboard listens in the head's Pod.
pub(super) const PORT: u16 = 8265;
/// The header that carries the token of a cluster.
pub(super) const TOKEN_HEADER: &str = "x-ray-authorization";
const PREFIX: &str = "ray-";
/// The most dashboards that are reachable at once; the oldest goes first.
const MAX_OPEN: usize = 64;

/// The dashboards that viewers have opened.
#[derive(Default)]
pub(super) struct Dashboards(Mutex<VecDeque<Arc<Dashboard>>>);

/// A dashboard under its own name, with the rights of the viewer who opened it, for as long as that viewer's session.
pub(super) struct Dashboard {
    host: String,
    session: Arc<Session>,
    target: Target,
    cluster: String,
    /// What the cluster asks for.
    token: Option<String>,
}

impl Dashboards {
    /// Returns the dashboard that a `Host` header names.
    pub(super) fn named(&self, host: &str) -> Option<Arc<Dashboard>> {
        let name = host.split(':').next().unwrap_or_default();
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.retain(|dashboard| !dashboard.session.has_ended());
        open.iter().find(|dashboard| dashboard.host == name).cloned()
    }

    fn add(&self, dashboard: Dashboard) {
        let mut open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        open.push_back(Arc::new(dashboard));
        let excess = open.len().saturating_sub(MAX_OPEN);
        open.drain(..excess);
    }
}

#[derive(Deserialize)]
struct Question {
    namespace: String,
    cluster: String,
}

/// Makes the dashboard of a cluster reachable, and returns the host name that leads to it.
pub(super) async fn open(
    State(page): State<Arc<Page>>,
    Extension(session): Extension<Arc<Session>>,
    body: Bytes,
) -> Result<Json<Value>, Failure> {
    let Question { namespace, cluster } = parse(&body)?;
    let target = Target { namespace, ..session.target.clone() };
    let token = token(&target, &cluster).await?;
    // A label of a host name has 63 characters at most.
    let host = format!("{PREFIX}{}.localhost", &new_secret()[..40]);
    page.dashboards.add(Dashboard { host: host.clone(), session, target, cluster, token });
    Ok(Json(json!({"host": host})))
}

/// Returns the Pod of a cluster's head.
pub(super) async fn head_of(target: &Target, cluster: &str) -> anyhow::Result<String> {
    let pods: Api<Pod> = Api::namespaced(target.client.clone(), &target.namespace);
    let selector = format!("{}={cluster},{}={}", labels::CLUSTER, labels::NODE_TYPE, labels::HEAD);
    let found = pods.list(&ListParams::default().labels(&selector)).await;
    let found = found.map_err(|error| target.failed("cannot list Pods", error))?.items;
    let head = found.into_iter().find(|pod| pod.metadata.deletion_timestamp.is_none());
    let name = head.and_then(|pod| pod.metadata.name);
    name.with_context(|| format!("Ray cluster {cluster} has no head at the moment"))
}

/// Returns the token that the cluster asks for, if the viewer may read it.
pub(super) async fn token(target: &Target, cluster: &str) -> anyhow::Result<Option<String>> {
    let reference = Reference { kind: Kind::Cluster, name: cluster.to_owned() };
    let object = serde_json::to_value(target.get_ray(&reference).await?)?;
    let cluster: RayCluster = serde_json::from_value(object).with_context(|| format!("cannot read {reference}"))?;
    match is_token_auth(&cluster.spec) && !is_k8s_token_auth(&cluster.spec) {
        true => auth_token::of(target, &cluster).await.map(Some),
        false => Ok(None),
    }
}

impl Dashboard {
    /// Passes a request on to the head, over a stream of its own.
    pub(super) async fn forward(&self, request: Request<Body>) -> Response {
        match self.exchange(request).await {
            Ok(response) => response,
            Err(error) => Failure::new(StatusCode::BAD_GATEWAY, format!("{error:#}")).into_response(),
        }
    }

    async fn exchange(&self, mut request: Request<Body>) -> anyhow::Result<Response> {
        let head = head_of(&self.target, &self.cluster).await?;
        let browser = request.extensions_mut().remove::<hyper::upgrade::OnUpgrade>();
        self.rewrite(&mut request)?;
        let mut response = stream::send(&self.target, &head, PORT, request).await?;
        if response.status() == StatusCode::SWITCHING_PROTOCOLS
            && let Some(browser) = browser
        {
            let dashboard = hyper::upgrade::on(&mut response);
            let session = Arc::clone(&self.session);
            tokio::spawn(async move {
                if let (Ok(browser), Ok(dashboard)) = tokio::join!(browser, dashboard) {
                    let (mut browser, mut dashboard) = (TokioIo::new(browser), TokioIo::new(dashboard));
                    tokio::select! {
                        // Either side may end it at any time.
                        _ = copy_bidirectional(&mut browser, &mut dashboard) => {}
                        () = session.ended() => {}
                    }
                }
            });
        }
        // The name of the dashboard is a secret that no other site needs to see.
        response.headers_mut().insert(header::REFERRER_POLICY, HeaderValue::from_static("no-referrer"));
        Ok(response.map(Body::new))
    }

    /// Makes a request for the dashboard's own address out of one for this host.
    fn rewrite(&self, request: &mut Request<Body>) -> anyhow::Result<()> {
        let path = request.uri().path_and_query().map_or("/", |path| path.as_str());
        *request.uri_mut() = path.parse::<Uri>()?;
        let headers: &mut HeaderMap = request.headers_mut();
        let own = format!("127.0.0.1:{PORT}");
        headers.insert(header::HOST, own.parse()?);
        if headers.contains_key(header::ORIGIN) {
            headers.insert(header::ORIGIN, format!("http://{own}").parse()?);
        }
        headers.remove(header::REFERER);
        if let Some(token) = &self.token {
            headers.insert(TOKEN_HEADER, format!("Bearer {token}").parse()?);
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::session::tests::{outlive, session_by_token};

    #[tokio::test(start_paused = true)]
    async fn a_dashboard_ends_with_the_session_of_its_viewer() {
        let session = session_by_token();
        let dashboards = Dashboards::default();
        let target = session.target.clone();
        let host = "ray-1.localhost".to_owned();
        dashboards.add(Dashboard { host, session, target, cluster: "c".to_owned(), token: None });
        assert!(dashboards.named("ray-1.localhost:7265").is_some());
        outlive().await;
        assert!(dashboards.named("ray-1.localhost:7265").is_none());
    }
}
