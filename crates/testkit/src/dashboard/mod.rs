//! A fake Ray dashboard: the job API, the Serve API and the health check of a Serve proxy.
//!
//! One [`FakeDashboard`] is one Ray cluster, on a port of its own. It can be slow, return errors, refuse connections,
//! restart without its state, and require a token.

mod ray;

use std::net::SocketAddr;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, Bytes};
use axum::extract::State;
use axum::http::{HeaderMap, Method, Response, StatusCode, Uri, header};
use serde_json::Value;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinHandle;

use ray::{Answer, Ray};

/// How the dashboard behaves.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum Mode {
    /// Behaves like Ray.
    #[default]
    Up,
    /// Behaves like Ray, after a delay.
    Slow(Duration),
    /// Closes every connection without a response.
    Broken,
    /// Always returns this status and text, e.g. 500 or a 200 with HTML.
    Answers(u16, String),
    /// Returns this status and text for writes; reads work.
    RefusesWrites(u16, String),
}

/// A received request.
#[derive(Debug, Clone, PartialEq)]
pub struct Asked {
    pub method: String,
    /// Path with query.
    pub path: String,
    /// JSON if the body parses as JSON, else text, else null.
    pub body: Value,
    /// The value of `X-Ray-Authorization`.
    pub authorization: Option<String>,
}

#[derive(Debug, Default)]
struct Shared {
    mode: Mode,
    token: Option<String>,
    proxy_down: bool,
    ray: Ray,
    asked: Vec<Asked>,
}

/// A dashboard on loopback; it stops when dropped.
#[derive(Debug)]
pub struct FakeDashboard {
    address: SocketAddr,
    shared: Arc<Mutex<Shared>>,
    server: Option<JoinHandle<()>>,
}

impl FakeDashboard {
    /// Starts a dashboard on a free port.
    pub async fn start() -> std::io::Result<Self> {
        Self::start_at(([127, 0, 0, 1], 0).into()).await
    }

    /// Starts a dashboard at an address.
    pub async fn start_at(address: SocketAddr) -> std::io::Result<Self> {
        Self::start_on(TcpListener::bind(address).await?)
    }

    /// Starts a dashboard on a socket that listens already.
    pub fn start_on(listener: TcpListener) -> std::io::Result<Self> {
        let address = listener.local_addr()?;
        let shared = Arc::new(Mutex::new(Shared::default()));
        let server = Some(serve(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, server })
    }

    /// Returns `127.0.0.1:PORT`, the form of a RayJob's `status.dashboardURL`.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Sets its behaviour from now on.
    pub fn set_mode(&self, mode: Mode) {
        self.lock().mode = mode;
    }

    /// Requires this token from now on.
    pub fn require_token(&self, token: &str) {
        self.lock().token = Some(token.to_owned());
    }

    /// Sets whether the Serve proxy's `/-/healthz` succeeds.
    pub fn set_proxy_healthy(&self, healthy: bool) {
        self.lock().proxy_down = !healthy;
    }

    /// Sets a job's fields, e.g. `{"status": "RUNNING"}`; the job need not have been submitted.
    pub fn set_job(&self, submission_id: &str, fields: &Value) {
        self.lock().ray.set_job(submission_id, fields);
    }

    /// Returns a job's info, if it exists.
    pub fn job(&self, submission_id: &str) -> Option<Value> {
        self.lock().ray.job(submission_id).cloned()
    }

    /// Sets the status of a Serve application, or with `"*"` of all current and future ones.
    pub fn set_app_status(&self, name: &str, status: &str) {
        self.lock().ray.set_app(name, &serde_json::json!({ "status": status }));
    }

    /// Sets fields of a Serve application, e.g. `message` and `deployments`.
    pub fn set_app(&self, name: &str, fields: &Value) {
        self.lock().ray.set_app(name, fields);
    }

    /// Returns the configuration that was last submitted to Serve.
    pub fn serve_config(&self) -> Option<Value> {
        self.lock().ray.serve_config().cloned()
    }

    /// Returns all write requests in order.
    pub fn writes(&self) -> Vec<Asked> {
        self.lock().asked.iter().filter(|asked| asked.method != "GET").cloned().collect()
    }

    /// Returns all requests in order.
    pub fn asked(&self) -> Vec<Asked> {
        self.lock().asked.clone()
    }

    /// Drops all jobs and applications, like a head restarted without fault tolerance.
    pub fn forget(&self) {
        self.lock().ray.forget();
    }

    /// Stops listening; connections are refused until `revive`.
    pub async fn kill(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
            let _ = server.await;
        }
    }

    /// Listens again on the same port without any jobs and applications, like a new head pod.
    pub async fn revive(&mut self) -> std::io::Result<()> {
        self.kill().await;
        self.lock().ray = Ray::default();
        let listener = TcpListener::bind(self.address).await?;
        self.server = Some(serve(listener, Arc::clone(&self.shared)));
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Shared> {
        self.shared.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Drop for FakeDashboard {
    fn drop(&mut self) {
        if let Some(server) = self.server.take() {
            server.abort();
        }
    }
}

fn serve(listener: TcpListener, shared: Arc<Mutex<Shared>>) -> JoinHandle<()> {
    let router = Router::new().fallback(answer).with_state(Arc::clone(&shared));
    let listener = BreakableListener { listener, shared };
    tokio::spawn(async move {
        let _ = axum::serve(listener, router).await;
    })
}

/// A listener that drops connections while the mode is `Broken`.
struct BreakableListener {
    listener: TcpListener,
    shared: Arc<Mutex<Shared>>,
}

impl axum::serve::Listener for BreakableListener {
    type Io = TcpStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        loop {
            let (stream, peer) = axum::serve::Listener::accept(&mut self.listener).await;
            if self.shared.lock().unwrap_or_else(PoisonError::into_inner).mode != Mode::Broken {
                return (stream, peer);
            }
        }
    }

    fn local_addr(&self) -> std::io::Result<Self::Addr> {
        self.listener.local_addr()
    }
}

async fn answer(
    State(shared): State<Arc<Mutex<Shared>>>,
    method: Method,
    uri: Uri,
    headers: HeaderMap,
    body: Bytes,
) -> Response<Body> {
    let (pause, answer) = {
        let mut shared = shared.lock().unwrap_or_else(PoisonError::into_inner);
        let pause = if let Mode::Slow(pause) = shared.mode { Some(pause) } else { None };
        (pause, shared.answer(&method, &uri, &headers, &body))
    };
    if let Some(pause) = pause {
        tokio::time::sleep(pause).await;
    }
    let (status, kind, text) = match answer {
        Answer::Json(status, value) => (status, "application/json", value.to_string()),
        Answer::Text(status, text) => (status, "text/plain; charset=utf-8", text),
    };
    // No keep-alive, so that a mode change affects the next request.
    let response = Response::builder()
        .status(StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR))
        .header(header::CONTENT_TYPE, kind)
        .header(header::CONNECTION, "close");
    response.body(Body::from(text)).unwrap_or_default()
}

impl Shared {
    fn answer(&mut self, method: &Method, uri: &Uri, headers: &HeaderMap, body: &[u8]) -> Answer {
        if uri.path() == "/-/healthz" {
            return if self.proxy_down { Answer::text(503, "unavailable") } else { Answer::text(200, "success") };
        }
        let authorization = headers.get("x-ray-authorization").and_then(|value| value.to_str().ok()).map(str::to_owned);
        let text = String::from_utf8_lossy(body);
        let body = match text.as_ref() {
            "" => Value::Null,
            text => serde_json::from_str(text).unwrap_or_else(|_| Value::from(text)),
        };
        let path = uri.path_and_query().map_or_else(|| uri.path().to_owned(), ToString::to_string);
        self.asked.push(Asked {
            method: method.to_string(),
            path,
            body: body.clone(),
            authorization: authorization.clone(),
        });
        match &self.mode {
            Mode::Answers(status, text) => return Answer::text(*status, text),
            Mode::RefusesWrites(status, text) if method != Method::GET => return Answer::text(*status, text),
            _ => {}
        }
        match (&self.token, authorization) {
            (None, _) => {}
            (Some(_), None) => return Answer::text(401, "Unauthorized: Missing authentication token"),
            (Some(token), Some(given)) if given != format!("Bearer {token}") => {
                return Answer::text(403, "Forbidden: Invalid authentication token");
            }
            _ => {}
        }
        self.ray.answer(method.as_str(), uri.path(), &body)
    }
}
