//! The network between the operators and the API server, with all that can go wrong on it.
//!
//! Requests to Ray's dashboards take the same way, through the API server's proxy, and end at the simulated Ray.

use crate::checker::Checker;
use crate::ray::{self, Ray};
use crate::rng::Rng;
use crate::script::{Fault, RequestFault};
use crate::transcript::Transcript;
use axum::body::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, StreamExt};
use http::{Method, Request, Response, StatusCode};
use http_body_util::BodyStream;
use kube::Client;
use manta_operator::leader::Fence;
use serde_json::json;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::sync::Notify;
use tokio::time::{Instant, sleep, sleep_until};
use tower::{BoxError, Layer, Service};

/// The network, and what is wrong with it.
#[derive(Clone)]
pub(crate) struct Network(Arc<Inner>);

struct Inner {
    server: Client,
    ray: Ray,
    checker: Checker,
    rng: Rng,
    transcript: Transcript,
    writes: AtomicU64,
    /// Ends all watches.
    cuts: Arc<Notify>,
    /// The next watch starts over.
    expired: AtomicBool,
    troubles: Mutex<Troubles>,
    /// Told of an operator's death by a fault.
    crashes: [Notify; 2],
}

/// What is wrong with the network.
#[derive(Default)]
struct Troubles {
    faults: Vec<RequestFault>,
    /// How much watches lag, and until when.
    lag: Option<(Duration, Instant)>,
    /// Until when nothing that an operator writes gets through.
    partitions: [Option<Instant>; 2],
    /// How late deletions arrive, and until when.
    late_deletions: Option<(u16, Instant)>,
    /// Until when new Pods are refused.
    quota: Option<Instant>,
}

/// One life of an operator. Once it is over, its requests hang.
#[derive(Clone)]
pub(crate) struct Life {
    pub(crate) operator: usize,
    pub(crate) alive: Arc<AtomicBool>,
}

impl Life {
    async fn wait_if_over(&self) {
        if !self.alive.load(Ordering::Relaxed) {
            std::future::pending::<()>().await;
        }
    }
}

impl Network {
    pub(crate) fn new(
        server: Client,
        (ray, checker): (Ray, Checker),
        (rng, transcript): (Rng, Transcript),
        faults: Vec<RequestFault>,
    ) -> Self {
        Self(Arc::new(Inner {
            server,
            ray,
            checker,
            rng,
            transcript,
            troubles: Mutex::new(Troubles { faults, ..Troubles::default() }),
            writes: AtomicU64::new(0),
            cuts: Arc::default(),
            expired: AtomicBool::new(false),
            crashes: Default::default(),
        }))
    }

    /// Returns a client for one life of an operator.
    pub(crate) fn client(&self, life: &Life) -> Client {
        Client::new(self.service(life), "default")
    }

    /// Returns a client whose requests end with the term of a leader.
    pub(crate) fn fenced_client(&self, life: &Life, fence: &Fence) -> Client {
        Client::new(fence.layer(self.service(life)), "default")
    }

    fn service(
        &self,
        life: &Life,
    ) -> impl Service<
        Request<kube::client::Body>,
        Response = Response<Body>,
        Error = BoxError,
        Future = BoxFuture<'static, Result<Response<Body>, BoxError>>,
    > + Clone
    + use<> {
        let (network, life) = (self.clone(), life.clone());
        tower::service_fn(move |request: Request<kube::client::Body>| {
            let (network, life) = (network.clone(), life.clone());
            async move { network.carry(request, &life).await }.boxed()
        })
    }

    /// Waits until a fault asks for an operator's death.
    pub(crate) async fn crash(&self, operator: usize) {
        self.0.crashes[operator].notified().await;
    }

    /// Returns how many writes operators have sent.
    pub(crate) fn writes(&self) -> u64 {
        self.0.writes.load(Ordering::Relaxed)
    }

    /// Ends all watches.
    pub(crate) fn cut(&self) {
        self.0.cuts.notify_waiters();
    }

    /// Ends all watches, and makes the next one of each start over.
    pub(crate) fn expire(&self) {
        self.0.expired.store(true, Ordering::Relaxed);
        self.cut();
    }

    /// Delays what watches show.
    pub(crate) fn lag(&self, lag: Duration, until: Instant) {
        self.troubles().lag = Some((lag, until));
    }

    /// Holds back what an operator writes.
    pub(crate) fn partition(&self, operator: usize, until: Instant) {
        self.troubles().partitions[operator] = Some(until);
    }

    /// Makes deletions arrive late.
    pub(crate) fn delay_deletions(&self, millis: u16, until: Instant) {
        self.troubles().late_deletions = Some((millis, until));
    }

    /// Refuses new Pods.
    pub(crate) fn refuse_pods(&self, until: Instant) {
        self.troubles().quota = Some(until);
    }

    /// Repairs everything that does not pass by itself.
    pub(crate) fn heal(&self) {
        self.troubles().quota = None;
        self.troubles().faults.clear();
        self.troubles().lag = None;
    }

    fn troubles(&self) -> MutexGuard<'_, Troubles> {
        self.0.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn carry(&self, request: Request<kube::client::Body>, life: &Life) -> Result<Response<Body>, BoxError> {
        let inner = &self.0;
        let path = request.uri().path().to_owned();
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
        let is_proxied = path.contains("/proxy/");
        let is_write = request.method() != Method::GET && !is_proxied;
        let line = format!("{} {}", request.method(), short(&path));
        let fault = is_write.then(|| self.fault(&path)).flatten();
        let sent = Instant::now();
        sleep(Duration::from_millis(inner.rng.within(0..8))).await;
        if is_write {
            self.pass_partition(life).await;
        }
        let fault = fault.or_else(|| self.late_deletion(request.method()));
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
            Some(Fault::Late(millis)) => {
                inner.transcript.line("network", format!("{line} breaks, and arrives late"));
                let (network, life) = (self.clone(), life.clone());
                tokio::spawn(async move {
                    sleep(Duration::from_millis(millis.into())).await;
                    // Nobody waits for the reply.
                    let _ = network.deliver_late(request, &path, sent, &life).await;
                });
                return Err("connection reset".into());
            }
            Some(Fault::CrashBefore) => {
                inner.transcript.line("network", format!("the operator dies before {line}"));
                inner.crashes[life.operator].notify_one();
                return std::future::pending().await;
            }
            _ => {}
        }
        if is_watch && inner.expired.swap(false, Ordering::Relaxed) {
            return refused(410);
        }
        if request.method() == Method::POST && path.ends_with("/pods") && self.is_quota_used_up() {
            inner.transcript.line("network", format!("{line} is refused: the quota is used up"));
            return refused(403);
        }
        life.wait_if_over().await;
        let response = self.deliver(request, &path, sent).await?;
        let is_renewal = path.contains("/leases");
        if is_write && !is_renewal || is_proxied && !line.starts_with("GET") {
            let number = if life.operator == 0 { "operator" } else { "other" };
            inner.transcript.line(number, format!("{line} {}", response.status().as_u16()));
        }
        match fault {
            Some(Fault::CrashAfter) => {
                inner.transcript.line("network", format!("the operator dies after {line}"));
                inner.crashes[life.operator].notify_one();
                return std::future::pending().await;
            }
            Some(Fault::LoseReply) => {
                inner.transcript.line("network", format!("the reply to {line} is lost"));
                return Err("connection reset".into());
            }
            _ => {}
        }
        sleep(Duration::from_millis(inner.rng.within(0..8))).await;
        if is_write {
            self.pass_partition(life).await;
        }
        life.wait_if_over().await;
        Ok(if is_watch { self.watched(response) } else { response })
    }

    /// Delivers a request that was sent at a time.
    async fn deliver(
        &self,
        request: Request<kube::client::Body>,
        path: &str,
        sent: Instant,
    ) -> Result<Response<Body>, BoxError> {
        let deleted =
            (request.method() == Method::DELETE).then(|| self.0.checker.operator_deletes(path, sent)).flatten();
        let response = send(&self.0.server, (&self.0.ray, &self.0.checker), request).await?;
        if response.status().is_success() {
            self.0.checker.operator_deleted(deleted);
        }
        Ok(response)
    }

    /// Delivers a request whose sender has given up. What would create a Pod again that has come and gone meanwhile, or that
    /// a process sent which is dead, is dropped: no operator could prevent one Pod too many.
    async fn deliver_late(
        &self,
        request: Request<kube::client::Body>,
        path: &str,
        sent: Instant,
        life: &Life,
    ) -> Result<(), BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        if parts.method == Method::POST {
            life.wait_if_over().await;
            let object: serde_json::Value = serde_json::from_slice(&body)?;
            if self.0.checker.is_gone(object["metadata"]["name"].as_str().unwrap_or_default()) {
                return Ok(());
            }
        }
        let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
        self.deliver(request, path, sent).await.map(drop)
    }

    /// Waits while nothing that an operator writes gets through.
    async fn pass_partition(&self, life: &Life) {
        let until = self.troubles().partitions[life.operator];
        if let Some(until) = until {
            sleep_until(until).await;
        }
    }

    fn late_deletion(&self, method: &Method) -> Option<Fault> {
        let late = self.troubles().late_deletions;
        let (millis, _) = late.filter(|(_, until)| method == Method::DELETE && Instant::now() < *until)?;
        Some(Fault::Late(millis))
    }

    fn is_quota_used_up(&self) -> bool {
        self.troubles().quota.is_some_and(|until| Instant::now() < until)
    }

    /// Returns what happens to the next write. Events do not count, since nothing depends on them, and neither do
    /// renewals of the Lease.
    fn fault(&self, path: &str) -> Option<Fault> {
        if path.contains("/events") || path.contains("/leases") {
            return None;
        }
        let number = self.0.writes.fetch_add(1, Ordering::Relaxed);
        let troubles = self.troubles();
        troubles.faults.iter().find(|fault| fault.number == number).map(|fault| fault.fault)
    }

    /// Passes a watch on, late where it lags, until it is cut.
    fn watched(&self, response: Response<Body>) -> Response<Body> {
        let network = self.clone();
        let cuts = Arc::clone(&self.0.cuts);
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
        let cut = async move { cuts.notified().await };
        let frames = frames.take_until(cut);
        let stream = frames.map(|frame: Result<Bytes, axum::Error>| frame);
        Response::from_parts(parts, Body::from_stream(stream))
    }

    async fn wait_for_lag(&self) {
        let lag = self.troubles().lag;
        if let Some((lag, until)) = lag.filter(|(_, until)| Instant::now() < *until) {
            sleep_until(until.min(Instant::now() + lag)).await;
        }
    }
}

/// Sends a request to the API server. Those through its proxy end at the simulated Ray.
pub(crate) async fn send(
    server: &Client,
    (ray, checker): (&Ray, &Checker),
    request: Request<kube::client::Body>,
) -> Result<Response<Body>, BoxError> {
    let path = request.uri().path().to_owned();
    match proxied(&path) {
        Some(Proxied::Dashboard { service, rest }) => {
            let method = request.method().to_string();
            let body = request.into_body().collect_bytes().await?;
            ray.reply(service, &method, rest, &body).await
        }
        Some(Proxied::ServeProxy { pod }) => {
            let head = checker.uid_of_ready_pod(pod);
            let healthy = head.is_some_and(|uid| ray.has_serve(&uid));
            ray::proxy_reply(healthy)
        }
        None => Ok(server.send(request).await?.map(Body::new)),
    }
}

/// A request through the API server's proxy.
enum Proxied<'a> {
    Dashboard { service: &'a str, rest: &'a str },
    ServeProxy { pod: &'a str },
}

fn proxied(path: &str) -> Option<Proxied<'_>> {
    let (_, rest) = path.strip_prefix("/api/v1/namespaces/")?.split_once('/')?;
    let (target, rest) = rest.split_once("/proxy")?;
    let (kind, target) = target.split_once('/')?;
    let (name, _) = target.split_once(':')?;
    Some(match kind {
        "services" => Proxied::Dashboard { service: name, rest },
        _ => Proxied::ServeProxy { pod: name },
    })
}

fn refused(code: u16) -> Result<Response<Body>, BoxError> {
    let reason = match code {
        403 => "Forbidden",
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
