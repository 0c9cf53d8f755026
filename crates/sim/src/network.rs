//! The network between an operator and the API server, with all that can go wrong on it.
//!
//! Requests to Ray's dashboards take the same way, through the API server's proxy, and end at the simulated Ray.

use crate::ray::Ray;
use crate::rng::Rng;
use crate::script::{Fault, RequestFault};
use crate::transcript::Transcript;
use axum::body::Body;
use bytes::Bytes;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyStream;
use kube::Client;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::{Instant, sleep, sleep_until};

/// The network, and what is wrong with it.
#[derive(Clone)]
pub(crate) struct Network(Arc<Inner>);

struct Inner {
    server: Client,
    ray: Ray,
    rng: Rng,
    transcript: Transcript,
    faults: Mutex<Vec<RequestFault>>,
    writes: AtomicU64,
    /// Raised to end all watches.
    cuts: watch::Sender<u64>,
    /// The watches that start before this number of cuts has passed start over.
    expired: AtomicBool,
    lag: Mutex<Option<(Duration, Instant)>>,
    crash: Notify,
}

impl Network {
    pub(crate) fn new(server: Client, ray: Ray, rng: Rng, transcript: Transcript, faults: Vec<RequestFault>) -> Self {
        Self(Arc::new(Inner {
            server,
            ray,
            rng,
            transcript,
            faults: Mutex::new(faults),
            writes: AtomicU64::new(0),
            cuts: watch::Sender::new(0),
            expired: AtomicBool::new(false),
            lag: Mutex::default(),
            crash: Notify::new(),
        }))
    }

    /// Returns a client for one life of an operator. Once it is not alive any more, its requests hang.
    pub(crate) fn client(&self, alive: &Arc<AtomicBool>) -> Client {
        let (network, alive) = (self.clone(), Arc::clone(alive));
        let service = tower::service_fn(move |request: Request<kube::client::Body>| {
            let (network, alive) = (network.clone(), Arc::clone(&alive));
            async move { network.carry(request, &alive).await }.boxed()
        });
        Client::new(service, "default")
    }

    /// Waits until a fault asks for the operator's death.
    pub(crate) async fn crash(&self) {
        self.0.crash.notified().await;
    }

    /// Returns how many writes operators have sent.
    pub(crate) fn writes(&self) -> u64 {
        self.0.writes.load(Ordering::Relaxed)
    }

    /// Ends all watches.
    pub(crate) fn cut(&self) {
        self.0.cuts.send_modify(|cuts| *cuts += 1);
    }

    /// Ends all watches, and makes the next one of each start over.
    pub(crate) fn expire(&self) {
        self.0.expired.store(true, Ordering::Relaxed);
        self.cut();
    }

    /// Delays what watches show.
    pub(crate) fn lag(&self, lag: Duration, until: Instant) {
        *self.0.lag.lock().unwrap_or_else(PoisonError::into_inner) = Some((lag, until));
    }

    /// Repairs everything.
    pub(crate) fn heal(&self) {
        self.0.faults.lock().unwrap_or_else(PoisonError::into_inner).clear();
        *self.0.lag.lock().unwrap_or_else(PoisonError::into_inner) = None;
    }

    async fn carry(
        &self,
        request: Request<kube::client::Body>,
        alive: &AtomicBool,
    ) -> Result<Response<Body>, tower::BoxError> {
        let inner = &self.0;
        let path = request.uri().path().to_owned();
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
        let is_write = request.method() != Method::GET && !path.contains("/proxy/");
        let line = format!("{} {}", request.method(), short(&path));
        let fault = is_write.then(|| self.fault(&path)).flatten();
        sleep(Duration::from_millis(inner.rng.within(0..8))).await;
        wait_if_dead(alive).await;
        match fault {
            Some(Fault::Slow(millis)) => sleep(Duration::from_millis(millis.into())).await,
            Some(Fault::Lose) => {
                inner.transcript.line("network", format!("{line} is lost"));
                return Err("connection reset".into());
            }
            Some(Fault::Refuse(code)) => {
                inner.transcript.line("network", format!("{line} is refused with {code}"));
                return refused(code);
            }
            Some(Fault::CrashBefore) => {
                inner.transcript.line("network", format!("the operator dies before {line}"));
                inner.crash.notify_one();
                return std::future::pending().await;
            }
            _ => {}
        }
        if is_watch && inner.expired.swap(false, Ordering::Relaxed) {
            return refused(410);
        }
        wait_if_dead(alive).await;
        let response = self.send(request, &path).await?;
        if is_write || path.contains("/proxy/") && !line.starts_with("GET") {
            inner.transcript.line("operator", format!("{line} {}", response.status().as_u16()));
        }
        match fault {
            Some(Fault::CrashAfter) => {
                inner.transcript.line("network", format!("the operator dies after {line}"));
                inner.crash.notify_one();
                return std::future::pending().await;
            }
            Some(Fault::LoseReply) => {
                inner.transcript.line("network", format!("the reply to {line} is lost"));
                return Err("connection reset".into());
            }
            _ => {}
        }
        sleep(Duration::from_millis(inner.rng.within(0..8))).await;
        wait_if_dead(alive).await;
        Ok(if is_watch { self.watched(response) } else { response })
    }

    /// Returns what happens to the next write. Events do not count: there are too many of them, and nothing depends on
    /// them.
    fn fault(&self, path: &str) -> Option<Fault> {
        if path.contains("/events") {
            return None;
        }
        let number = self.0.writes.fetch_add(1, Ordering::Relaxed);
        let faults = self.0.faults.lock().unwrap_or_else(PoisonError::into_inner);
        faults.iter().find(|fault| fault.number == number).map(|fault| fault.fault)
    }

    async fn send(&self, request: Request<kube::client::Body>, path: &str) -> Result<Response<Body>, tower::BoxError> {
        if let Some((namespace, service, rest)) = proxied(path) {
            let method = request.method().to_string();
            let body = request.into_body().collect_bytes().await?;
            return self.0.ray.reply(namespace, service, &method, rest, &body).await;
        }
        let response = self.0.server.send(request).await?;
        Ok(response.map(Body::new))
    }

    /// Passes a watch on, late where it lags, until it is cut.
    fn watched(&self, response: Response<Body>) -> Response<Body> {
        let network = self.clone();
        let mut cuts = self.0.cuts.subscribe();
        let (parts, body) = response.into_parts();
        let frames = BodyStream::new(body).filter_map(|frame| async {
            match frame {
                Ok(frame) => frame.into_data().ok().map(Ok),
                Err(error) => Some(Err(error)),
            }
        });
        let frames = frames.then(move |frame| {
            let network = network.clone();
            async move {
                network.wait_for_lag().await;
                frame
            }
        });
        let cut = async move {
            let _ = cuts.changed().await;
        };
        let frames = frames.take_until(cut);
        let stream = frames.map(|frame: Result<Bytes, axum::Error>| frame);
        Response::from_parts(parts, Body::from_stream(stream))
    }

    async fn wait_for_lag(&self) {
        let lag = *self.0.lag.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some((lag, until)) = lag.filter(|(_, until)| Instant::now() < *until) {
            sleep_until(until.min(Instant::now() + lag)).await;
        }
    }
}

async fn wait_if_dead(alive: &AtomicBool) {
    if !alive.load(Ordering::Relaxed) {
        std::future::pending::<()>().await;
    }
}

/// Returns namespace, service and the rest of a request through the API server's proxy.
fn proxied(path: &str) -> Option<(&str, &str, &str)> {
    let rest = path.strip_prefix("/api/v1/namespaces/")?;
    let (namespace, rest) = rest.split_once("/services/")?;
    let (service, rest) = rest.split_once(":dashboard/proxy")?;
    Some((namespace, service, rest))
}

fn refused(code: u16) -> Result<Response<Body>, tower::BoxError> {
    let reason = match code {
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        _ => "InternalError",
    };
    let status = json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "simulated",
    });
    let body = Body::from(status.to_string());
    Ok(Response::builder().status(StatusCode::from_u16(code)?).header("content-type", "application/json").body(body)?)
}

/// Returns the end of a path: kind and name.
fn short(path: &str) -> &str {
    path.split_once("/namespaces/").map_or(path, |(_, rest)| rest.split_once('/').map_or(rest, |(_, rest)| rest))
}
