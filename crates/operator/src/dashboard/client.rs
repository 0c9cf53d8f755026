//! Sends requests to Ray dashboards: the route, the token and the timeout.

use crate::clock::Clock;
use crate::lock::lock;
use crate::metrics::Metrics;
use bytes::Bytes;
use http::Method;
use http_body_util::BodyExt;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Secret;
use kube::Api;
use manta_logic::dashboard::DashboardEndpoint;
use manta_logic::names;
use manta_logic::service::dashboard::Proxy;
use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// How long a request may take, including the response body.
const DIRECT_TIMEOUT: Duration = Duration::from_secs(2);
const PROXY_TIMEOUT: Duration = Duration::from_secs(10);
/// How long a token is cached.
const TOKEN_TTL: Duration = Duration::from_secs(60);
/// Concurrent DNS lookups.
const MAX_LOOKUPS: usize = 64;
/// Longer responses are cut off; no job info comes close.
const MAX_RESPONSE_BYTES: usize = 4 << 20;
/// The key of the token in its Secret.
pub(crate) const TOKEN_KEY: &str = "auth_token";
/// The health endpoint of Serve proxies.
const HEALTH_PATH: &str = "/-/healthz";
const TOKEN_HEADER: &str = "x-ray-authorization";

/// The route to the dashboards.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Route {
    /// Directly, by the name of the head Service.
    #[default]
    Direct,
    /// Through the API server (`--use-kubernetes-proxy`).
    ApiServerProxy,
}

/// A client for all dashboards.
#[derive(Clone)]
pub struct Client {
    http: reqwest::Client,
    transport: Transport,
    timeout: Duration,
    tokens: Tokens,
    /// What direct requests carry beside the token.
    headers: http::HeaderMap,
    metrics: Arc<Metrics>,
    clock: Clock,
}

#[derive(Clone)]
enum Transport {
    Direct,
    ApiServerProxy(kube::Client),
}

#[derive(Clone)]
enum Tokens {
    /// One for all dashboards, or none.
    Fixed(Option<String>),
    /// From the Secret that the endpoint names.
    Secrets { kube: kube::Client, cache: TokenCache },
}

/// Tokens by namespace and Secret, with the time at which they were read.
type TokenCache = Arc<Mutex<HashMap<(String, String), (Instant, String)>>>;

/// A complete response.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response {
    pub status: u16,
    pub body: String,
}

/// Why there is no response.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    #[error("failed to get auth secret {namespace}/{secret}: {error}")]
    Secret { namespace: String, secret: String, error: String },
    #[error("auth token key '\"auth_token\"' not found in secret {namespace}/{secret}")]
    MissingToken { namespace: String, secret: String },
    #[error("failed to parse dashboard URL: {0}")]
    Address(String),
    #[error("no answer within {} s", .0.as_secs())]
    Timeout(Duration),
    #[error("{0}")]
    Connection(String),
}

impl Client {
    /// Returns a client that takes this route to every dashboard.
    pub fn new(kube: kube::Client, route: Route) -> Self {
        let tokens = Tokens::Secrets { kube: kube.clone(), cache: TokenCache::default() };
        let (transport, timeout) = match route {
            Route::Direct => (Transport::Direct, DIRECT_TIMEOUT),
            Route::ApiServerProxy => (Transport::ApiServerProxy(kube), PROXY_TIMEOUT),
        };
        let (headers, metrics, clock) = (http::HeaderMap::new(), Arc::default(), Clock::default());
        Self { http: http(), transport, timeout, tokens, headers, metrics, clock }
    }

    /// Returns the client with its requests counted in these metrics.
    pub(crate) fn with_metrics(self, metrics: Arc<Metrics>) -> Self {
        Self { metrics, ..self }
    }

    /// Returns the client with another clock.
    pub(crate) fn with_clock(self, clock: Clock) -> Self {
        Self { clock, ..self }
    }

    /// Returns the current time.
    pub(crate) fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// Returns a client that needs no API server: direct, with this token and timeout.
    pub fn direct(token: Option<String>, timeout: Duration) -> Self {
        Self {
            http: http(),
            transport: Transport::Direct,
            timeout,
            tokens: Tokens::Fixed(token),
            headers: http::HeaderMap::new(),
            metrics: Arc::default(),
            clock: Clock::default(),
        }
    }

    /// Returns the client with the longer of the two timeouts, for requests that wait until something has started.
    pub(super) fn patient(&self) -> Self {
        Self { timeout: self.timeout.max(PROXY_TIMEOUT), ..self.clone() }
    }

    /// Returns the client with three times the timeout, up to the longer of the two, for replies that are worth waiting for.
    pub(super) fn lenient(&self) -> Self {
        Self { timeout: self.timeout.max(PROXY_TIMEOUT.min(self.timeout * 3)), ..self.clone() }
    }

    /// Returns the client with these headers on every direct request.
    pub fn with_headers(self, headers: http::HeaderMap) -> Self {
        Self { headers, ..self }
    }

    /// Sends a request and waits for the complete response.
    pub async fn send(
        &self,
        endpoint: &DashboardEndpoint,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Response, RequestError> {
        let body = body.map(|body| Bytes::from(body.to_string()));
        self.send_bytes(endpoint, method, path, body).await
    }

    /// Like [`Self::send`], with a body that need not be JSON.
    pub(super) async fn send_bytes(
        &self,
        endpoint: &DashboardEndpoint,
        method: Method,
        path: &str,
        body: Option<Bytes>,
    ) -> Result<Response, RequestError> {
        let exchange = async {
            let token = self.token(endpoint).await?;
            let response = match &self.transport {
                Transport::Direct => self.send_direct(endpoint, method, path, body, token.as_deref()).await,
                Transport::ApiServerProxy(kube) => {
                    let (namespace, service) = (&endpoint.namespace, &endpoint.service);
                    let uri = format!("/api/v1/namespaces/{namespace}/services/{service}:dashboard/proxy{path}");
                    through_proxy(kube, uri, method, body, token.as_deref()).await
                }
            }?;
            if response.status == 401 || response.status == 403 {
                // The token may have changed: read it again next time.
                self.forget_token(endpoint);
            }
            Ok(response)
        };
        let response =
            tokio::time::timeout(self.timeout, exchange).await.unwrap_or(Err(RequestError::Timeout(self.timeout)));
        self.metrics.observe_dashboard_request(response.as_ref().ok().map(|response| response.status));
        response
    }

    /// Returns whether nothing is between this client and what it asks.
    pub(super) fn is_direct(&self) -> bool {
        matches!(self.transport, Transport::Direct)
    }

    /// Probes the Serve proxy of a Pod.
    pub async fn probe(&self, proxy: &Proxy) -> Result<Response, RequestError> {
        let Proxy { namespace, pod, ip, port, .. } = proxy;
        let exchange = async {
            match &self.transport {
                Transport::Direct => {
                    let host = if ip.contains(':') { format!("[{ip}]") } else { ip.clone() };
                    let endpoint = DashboardEndpoint {
                        namespace: namespace.clone(),
                        address: format!("{host}:{port}"),
                        service: String::new(),
                        token_secret: None,
                    };
                    self.send_direct(&endpoint, Method::GET, HEALTH_PATH, None, None).await
                }
                Transport::ApiServerProxy(kube) => {
                    let uri = format!("/api/v1/namespaces/{namespace}/pods/{pod}:{port}/proxy{HEALTH_PATH}");
                    through_proxy(kube, uri, Method::GET, None, None).await
                }
            }
        };
        tokio::time::timeout(self.timeout, exchange).await.unwrap_or(Err(RequestError::Timeout(self.timeout)))
    }

    async fn send_direct(
        &self,
        endpoint: &DashboardEndpoint,
        method: Method,
        path: &str,
        body: Option<Bytes>,
        token: Option<&str>,
    ) -> Result<Response, RequestError> {
        let base = if endpoint.address.starts_with("http://") { "" } else { "http://" };
        let url = reqwest::Url::parse(&format!("{base}{}{path}", endpoint.address));
        let url = url.map_err(|error| RequestError::Address(error.to_string()))?;
        let mut request = self.http.request(method.clone(), url).headers(self.headers.clone());
        if let Some(token) = token {
            request = request.header(TOKEN_HEADER, format!("Bearer {token}"));
        }
        if method != Method::GET {
            request = request.header(http::header::CONTENT_TYPE, "application/json");
        }
        if let Some(body) = body {
            request = request.body(body);
        }
        let failed = |error: reqwest::Error| RequestError::Connection(error_chain(&error));
        let mut response = request.send().await.map_err(failed)?;
        let status = response.status().as_u16();
        let mut bytes = Vec::new();
        while let Some(chunk) = response.chunk().await.map_err(failed)? {
            if bytes.len() + chunk.len() > MAX_RESPONSE_BYTES {
                break;
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(Response { status, body: String::from_utf8_lossy(&bytes).into_owned() })
    }

    /// Returns the token that the cluster requires, if any.
    pub(crate) async fn token(&self, endpoint: &DashboardEndpoint) -> Result<Option<String>, RequestError> {
        let (kube, cache) = match &self.tokens {
            Tokens::Fixed(token) => return Ok(token.clone()),
            Tokens::Secrets { kube, cache } => (kube, cache),
        };
        let Some(secret) = endpoint.token_secret.clone() else { return Ok(None) };
        let key = (endpoint.namespace.clone(), secret.clone());
        if let Some((read, token)) = lock(cache).get(&key)
            && read.elapsed() < TOKEN_TTL
        {
            return Ok(Some(token.clone()));
        }
        let namespace = endpoint.namespace.clone();
        let found = Api::<Secret>::namespaced(kube.clone(), &namespace).get(&secret).await;
        let found = found.map_err(|error| RequestError::Secret {
            namespace: namespace.clone(),
            secret: secret.clone(),
            error: crate::api_request::error_text(&error),
        })?;
        let token = found.data.and_then(|mut data| data.remove(TOKEN_KEY));
        let token = token.and_then(|bytes| String::from_utf8(bytes.0).ok());
        let token = token.ok_or(RequestError::MissingToken { namespace, secret })?;
        let mut cache = lock(cache);
        cache.retain(|_, (read, _)| read.elapsed() < TOKEN_TTL);
        cache.insert(key, (Instant::now(), token.clone()));
        Ok(Some(token))
    }

    /// Forgets the token that was generated for a cluster, which is gone. A Secret of the user's own may serve other
    /// clusters too; its token expires.
    pub(crate) fn forget_cluster(&self, namespace: &str, cluster: &str) {
        if let Tokens::Secrets { cache, .. } = &self.tokens {
            lock(cache).remove(&(namespace.to_owned(), names::clip50(cluster)));
        }
    }

    fn forget_token(&self, endpoint: &DashboardEndpoint) {
        if let (Tokens::Secrets { cache, .. }, Some(secret)) = (&self.tokens, &endpoint.token_secret) {
            lock(cache).remove(&(endpoint.namespace.clone(), secret.clone()));
        }
    }
}

/// Returns a client that talks to nobody but the dashboard it is asked to: a redirect or a proxy would see the token.
fn http() -> reqwest::Client {
    let builder = reqwest::Client::builder()
        .redirect(reqwest::redirect::Policy::none())
        .no_proxy()
        .pool_max_idle_per_host(1)
        .pool_idle_timeout(Duration::from_secs(30))
        .dns_resolver(Arc::new(LimitedResolver(Arc::new(Semaphore::new(MAX_LOOKUPS)))));
    builder.build().expect("a client without TLS needs nothing that could be missing")
}

/// Resolves a limited number of names at a time: each lookup blocks a thread, and with a name server that is down,
/// lookups must not starve the connection to the API server.
struct LimitedResolver(Arc<Semaphore>);

impl Resolve for LimitedResolver {
    fn resolve(&self, name: Name) -> Resolving {
        let slots = Arc::clone(&self.0);
        Box::pin(async move {
            let _slot = slots.acquire_owned().await?;
            // The caller sets the port.
            let found: Vec<_> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            Ok(Box::new(found.into_iter()) as Addrs)
        })
    }
}

async fn through_proxy(
    kube: &kube::Client,
    uri: String,
    method: Method,
    body: Option<Bytes>,
    token: Option<&str>,
) -> Result<Response, RequestError> {
    let failed = |error: &dyn std::error::Error| RequestError::Connection(error_chain(error));
    let mut request = http::Request::builder().method(method).uri(uri);
    if let Some(token) = token {
        request = request.header(TOKEN_HEADER, format!("Bearer {token}"));
    }
    let request = request
        .header(http::header::CONTENT_TYPE, "application/json")
        .body(kube::client::Body::from(body.unwrap_or_default()))
        .map_err(|error| failed(&error))?;
    let response = kube.send(request).await.map_err(|error| failed(&error))?;
    let status = response.status().as_u16();
    let limited = http_body_util::Limited::new(response.into_body(), MAX_RESPONSE_BYTES);
    let bytes = limited.collect().await.map_err(|error| failed(error.as_ref()))?.to_bytes();
    Ok(Response { status, body: String::from_utf8_lossy(&bytes).into_owned() })
}

/// Returns an error's text together with those of its causes.
fn error_chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(error) = cause {
        let message = error.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = error.source();
    }
    text
}

#[cfg(test)]
mod tests;
