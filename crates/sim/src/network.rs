//! The network between the operators and the API server, with all that can go wrong on it.
//!
//! Requests to Ray's dashboards take the same way, through the API server's proxy, and end at the simulated Ray.

use crate::checker::Checker;
use crate::lease::LeaseServer;
use crate::object::name;
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
use serde_json::{Value, json};
use std::sync::atomic::{AtomicBool, Ordering};
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
    sent: Mutex<Sent>,
    start: Instant,
    leases: LeaseServer,
    /// Ends all watches.
    cuts: Arc<Notify>,
    troubles: Mutex<Troubles>,
    /// Told of an operator's death by a fault.
    crashes: [Notify; 2],
}

/// When operators sent what changes something, in milliseconds since the start.
#[derive(Clone, Debug, Default)]
pub struct Sent {
    /// To the API server.
    pub writes: Vec<u64>,
    /// To Ray's dashboards.
    pub to_ray: Vec<u64>,
    /// How many events they sent, which no fault hits.
    pub events: usize,
}

/// What is wrong with the network.
#[derive(Default)]
struct Troubles {
    /// What happens to single writes to the API server, and to single requests to Ray.
    faults: Vec<RequestFault>,
    ray_faults: Vec<RequestFault>,
    /// Until when the API server is out of reach.
    outage: Option<Instant>,
    /// Until when reads fail at random.
    failing_reads: Option<Instant>,
    /// How much watches lag, and until when.
    lag: Option<(Duration, Instant)>,
    /// The kind whose watches alone lag, how much, and until when.
    lag_of: Option<(&'static str, Duration, Instant)>,
    /// How many revisions too early watches begin, and until when.
    rewind: Option<(u64, Instant)>,
    /// Watches cannot begin before this revision: what happened until then is no longer known.
    compacted: u64,
    /// Until when nothing that an operator writes gets through.
    partitions: [Option<Instant>; 2],
    /// How late deletions arrive, and until when.
    late_deletions: Option<(u16, Instant)>,
    /// Until when new Pods are refused.
    quota: Option<Instant>,
    /// Until when a webhook refuses whatever operators create.
    denial: Option<Instant>,
}

/// The kinds whose watches can lag alone, as they are in paths.
const WATCHED: [&str; 6] = ["pods", "services", "rayclusters", "rayjobs", "rayservices", "endpointslices"];
/// How reads fail: with a code, or without a reply.
const FAILED_READS: [Option<u16>; 3] = [Some(429), Some(500), None];
/// How long a reply to a read takes that does not come.
const TIME_OUT: Duration = Duration::from_secs(10);
/// How long after a rewind watches begin too early.
const REWINDING: Duration = Duration::from_secs(3);

/// One life of an operator. Once it is over, its requests hang.
#[derive(Clone)]
pub(crate) struct Life {
    pub(crate) operator: usize,
    pub(crate) alive: Arc<AtomicBool>,
}

impl Life {
    fn is_over(&self) -> bool {
        !self.alive.load(Ordering::Relaxed)
    }

    async fn wait_if_over(&self) {
        if self.is_over() {
            std::future::pending::<()>().await;
        }
    }
}

impl Network {
    pub(crate) fn new(
        server: Client,
        (ray, checker): (Ray, Checker),
        (rng, transcript): (Rng, Transcript),
        (faults, ray_faults): (Vec<RequestFault>, Vec<RequestFault>),
    ) -> Self {
        Self(Arc::new(Inner {
            server,
            ray,
            checker,
            rng,
            transcript,
            troubles: Mutex::new(Troubles { faults, ray_faults, ..Troubles::default() }),
            sent: Mutex::default(),
            start: Instant::now(),
            leases: LeaseServer::default(),
            cuts: Arc::default(),
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

    /// Returns when operators have sent what changes something.
    pub(crate) fn sent(&self) -> Sent {
        self.lock_sent().clone()
    }

    /// Returns how often operators have sent what changes something.
    pub(crate) fn count_of_writes(&self) -> usize {
        let sent = self.lock_sent();
        sent.writes.len() + sent.to_ray.len() + sent.events
    }

    fn lock_sent(&self) -> MutexGuard<'_, Sent> {
        self.0.sent.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Puts the API server out of the operators' reach.
    pub(crate) fn fail(&self, until: Instant) {
        self.troubles().outage = Some(until);
        self.cut();
    }

    /// Makes reads fail at random.
    pub(crate) fn fail_reads(&self, until: Instant) {
        self.troubles().failing_reads = Some(until);
    }

    /// Ends all watches.
    pub(crate) fn cut(&self) {
        self.0.cuts.notify_waiters();
    }

    /// Ends all watches, and makes those start over that ask for what came before a revision.
    pub(crate) fn expire(&self, revision: u64) {
        self.troubles().compacted = revision;
        self.cut();
    }

    /// Delays what watches show.
    pub(crate) fn lag(&self, lag: Duration, until: Instant) {
        self.troubles().lag = Some((lag, until));
    }

    /// Delays what the watches of one kind show.
    pub(crate) fn lag_kind(&self, kind: u8, lag: Duration, until: Instant) {
        self.troubles().lag_of = Some((WATCHED[usize::from(kind) % WATCHED.len()], lag, until));
    }

    /// Ends all watches, and makes them begin again so many revisions too early.
    pub(crate) fn rewind(&self, revisions: u8) {
        self.troubles().rewind = Some((revisions.into(), Instant::now() + REWINDING));
        self.cut();
    }

    /// Refuses whatever operators create.
    pub(crate) fn deny(&self, until: Instant) {
        self.troubles().denial = Some(until);
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
        let mut troubles = self.troubles();
        troubles.quota = None;
        troubles.denial = None;
        troubles.outage = None;
        troubles.failing_reads = None;
        troubles.faults.clear();
        troubles.ray_faults.clear();
        troubles.lag = None;
        troubles.lag_of = None;
    }

    fn troubles(&self) -> MutexGuard<'_, Troubles> {
        self.0.troubles.lock().unwrap_or_else(PoisonError::into_inner)
    }

    async fn carry(&self, mut request: Request<kube::client::Body>, life: &Life) -> Result<Response<Body>, BoxError> {
        let inner = &self.0;
        let path = request.uri().path().to_owned();
        if path.contains("/leases") {
            return self.carry_lease(request, life).await;
        }
        let is_watch = request.uri().query().unwrap_or_default().contains("watch=");
        let is_proxied = path.contains("/proxy/");
        let is_write = request.method() != Method::GET;
        let line = format!("{} {}", request.method(), short(&path));
        let fault = is_write.then(|| self.fault(&path, is_proxied)).flatten();
        let sent = Instant::now();
        sleep(Duration::from_millis(inner.rng.within(0..8))).await;
        if is_write {
            self.pass_partition(life).await;
        }
        self.reach()?;
        if !is_write && !is_watch && self.is_read_failing() {
            match inner.rng.pick(&FAILED_READS) {
                Some(code) => return refused(*code),
                // Serve proxies that are late three times in a row are unhealthy, whoever was late.
                None if matches!(proxied(&path), Some(Proxied::ServeProxy { .. })) => {}
                None => sleep(TIME_OUT).await,
            }
            return Err("timed out".into());
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
                if request.method() == Method::DELETE {
                    inner.checker.operator_wrote(inner.checker.operator_deletes(&path, sent));
                }
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
        if is_watch && self.is_expired(&request) {
            return expired();
        }
        if request.method() == Method::POST && path.ends_with("/pods") && self.is_quota_used_up() {
            inner.transcript.line("network", format!("{line} is refused: the quota is used up"));
            return refused(403);
        }
        if request.method() == Method::POST && !is_proxied && self.is_denied(&path) {
            inner.transcript.line("network", format!("{line} is refused by a webhook"));
            return refused(403);
        }
        if is_watch {
            self.begin_too_early(&mut request);
        }
        life.wait_if_over().await;
        let response = self.deliver(request, &path, sent).await?;
        if is_write {
            let number = if life.operator == 0 { "operator" } else { "other" };
            inner.transcript.line(number, format!("{line} {}", response.status().as_u16()));
        }
        match fault {
            Some(Fault::CrashAfter) => {
                inner.transcript.line("network", format!("the operator dies after {line}"));
                inner.crashes[life.operator].notify_one();
                return std::future::pending().await;
            }
            Some(Fault::TimeOut) => {
                inner.transcript.line("network", format!("{line} times out after it took effect"));
                return refused(504);
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
        self.reach()?;
        life.wait_if_over().await;
        Ok(if is_watch { self.watched(&path, response) } else { response })
    }

    /// Carries a request about the Lease. No fault hits single ones, since they are many.
    async fn carry_lease(&self, request: Request<kube::client::Body>, life: &Life) -> Result<Response<Body>, BoxError> {
        let inner = &self.0;
        let is_write = request.method() != Method::GET;
        sleep(Duration::from_millis(inner.rng.within(0..8))).await;
        if is_write {
            self.pass_partition(life).await;
        }
        self.reach()?;
        life.wait_if_over().await;
        let method = request.method().clone();
        let body = request.into_body().collect_bytes().await?;
        let response = inner.leases.reply(&method, &body)?;
        sleep(Duration::from_millis(inner.rng.within(0..8))).await;
        if is_write {
            self.pass_partition(life).await;
        }
        self.reach()?;
        life.wait_if_over().await;
        Ok(response)
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
        let is_write = !matches!(*request.method(), Method::GET | Method::POST);
        let touched = is_write.then(|| self.0.checker.operator_touches(request.method(), path)).flatten();
        let response = send(&self.0.server, (&self.0.ray, &self.0.checker), request, sent).await?;
        if response.status().is_success() {
            self.0.checker.operator_wrote(deleted.or(touched));
        }
        Ok(response)
    }

    /// Delivers a request whose sender has given up. The creation of a Pod is dropped if the Pod has come and gone meanwhile,
    /// or if its sender is dead: no operator could prevent one Pod too many. That of a Job or RayJob is dropped if it has come
    /// and gone: their names are those of the attempt or the run, so that it would be made a second time. Everything else
    /// arrives.
    async fn deliver_late(
        &self,
        request: Request<kube::client::Body>,
        path: &str,
        sent: Instant,
        life: &Life,
    ) -> Result<(), BoxError> {
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        if parts.method == Method::DELETE && life.is_over() {
            self.0.checker.dead_operator_deletes(path);
        }
        let created = match path.rsplit('/').next() {
            Some("pods") => Some("Pod"),
            Some("jobs") => Some("Job"),
            Some("rayjobs") => Some("RayJob"),
            _ => None,
        };
        if parts.method == Method::POST
            && let Some(kind) = created
            && proxied(path).is_none()
        {
            let object: Value = serde_json::from_slice(&body)?;
            if (life.is_over() && kind == "Pod") || self.0.checker.is_gone(kind, &name(&object)) {
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

    /// Fails while the API server is out of reach.
    fn reach(&self) -> Result<(), BoxError> {
        let out = self.troubles().outage.is_some_and(|until| Instant::now() < until);
        if out { Err("connection refused".into()) } else { Ok(()) }
    }

    /// Returns whether a read fails.
    fn is_read_failing(&self) -> bool {
        let failing = self.troubles().failing_reads.is_some_and(|until| Instant::now() < until);
        failing && self.0.rng.percent(50)
    }

    fn late_deletion(&self, method: &Method) -> Option<Fault> {
        let late = self.troubles().late_deletions;
        let (millis, _) = late.filter(|(_, until)| method == Method::DELETE && Instant::now() < *until)?;
        Some(Fault::Late(millis))
    }

    fn is_quota_used_up(&self) -> bool {
        self.troubles().quota.is_some_and(|until| Instant::now() < until)
    }

    /// Returns whether a webhook refuses to create something. Nothing depends on events.
    fn is_denied(&self, path: &str) -> bool {
        self.troubles().denial.is_some_and(|until| Instant::now() < until) && !path.ends_with("/events")
    }

    /// Returns whether a watch asks for what is no longer known.
    fn is_expired(&self, request: &Request<kube::client::Body>) -> bool {
        let uri = request.uri().to_string();
        first_revision(&uri).is_some_and(|(_, revision, _)| revision > 0 && revision < self.troubles().compacted)
    }

    /// Makes a watch begin before the revision that it asks for, while watches do.
    fn begin_too_early(&self, request: &mut Request<kube::client::Body>) {
        let rewind = self.troubles().rewind.filter(|(_, until)| Instant::now() < *until);
        let Some((revisions, _)) = rewind else { return };
        let uri = request.uri().to_string();
        let Some((before, revision, after)) = first_revision(&uri) else { return };
        let earlier = revision.saturating_sub(revisions).max(1);
        if let Ok(uri) = format!("{before}{earlier}{after}").parse() {
            *request.uri_mut() = uri;
        }
    }

    /// Returns what happens to the next write, or to the next request to Ray. Events are counted apart and are spared, since
    /// nothing depends on them.
    fn fault(&self, path: &str, to_ray: bool) -> Option<Fault> {
        if path.contains("/events") {
            self.lock_sent().events += 1;
            return None;
        }
        let number = {
            let mut sent = self.lock_sent();
            let times = if to_ray { &mut sent.to_ray } else { &mut sent.writes };
            times.push(u64::try_from(self.0.start.elapsed().as_millis()).unwrap_or(u64::MAX));
            times.len() as u64 - 1
        };
        let troubles = self.troubles();
        let faults = if to_ray { &troubles.ray_faults } else { &troubles.faults };
        faults.iter().find(|fault| fault.number == number).map(|fault| fault.fault)
    }

    /// Passes a watch on, late where it lags, until it is cut.
    fn watched(&self, path: &str, response: Response<Body>) -> Response<Body> {
        let network = self.clone();
        let kind = path.rsplit('/').next().and_then(|last| WATCHED.into_iter().find(|kind| *kind == last));
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
                network.wait_for_lag(kind).await;
                frame
            }
        });
        let cut = async move { cuts.notified().await };
        let frames = frames.take_until(cut);
        let stream = frames.map(|frame: Result<Bytes, axum::Error>| frame);
        Response::from_parts(parts, Body::from_stream(stream))
    }

    async fn wait_for_lag(&self, kind: Option<&str>) {
        let (all, one) = {
            let troubles = self.troubles();
            let one = troubles.lag_of.filter(|(of, ..)| kind == Some(of)).map(|(_, lag, until)| (lag, until));
            (troubles.lag, one)
        };
        let now = Instant::now();
        let lagging = [all, one].into_iter().flatten().filter(|(_, until)| now < *until);
        if let Some(until) = lagging.map(|(lag, until)| until.min(now + lag)).max() {
            sleep_until(until).await;
        }
    }
}

/// Sends a request to the API server that an operator sent at a time. Those through its proxy end at the simulated Ray.
pub(crate) async fn send(
    server: &Client,
    (ray, checker): (&Ray, &Checker),
    request: Request<kube::client::Body>,
    sent: Instant,
) -> Result<Response<Body>, BoxError> {
    let path = request.uri().path().to_owned();
    match proxied(&path) {
        Some(Proxied::Dashboard { service, rest }) => {
            let method = request.method().to_string();
            let body = request.into_body().collect_bytes().await?;
            ray.reply(service, (&method, rest), &body, sent).await
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

/// Replies to a watch that asks for what is no longer known, as Kubernetes does: with an event, and not with a code.
fn expired() -> Result<Response<Body>, BoxError> {
    let event = json!({"type": "ERROR", "object": status(410)});
    Ok(Response::builder().header("content-type", "application/json").body(Body::from(format!("{event}\n")))?)
}

pub(crate) fn refused(code: u16) -> Result<Response<Body>, BoxError> {
    let body = Body::from(status(code).to_string());
    Ok(Response::builder().status(StatusCode::from_u16(code)?).header("content-type", "application/json").body(body)?)
}

fn status(code: u16) -> Value {
    let reason = match code {
        403 => "Forbidden",
        404 => "NotFound",
        409 => "Conflict",
        410 => "Expired",
        429 => "TooManyRequests",
        503 => "ServiceUnavailable",
        504 => "Timeout",
        _ => "InternalError",
    };
    json!({
        "kind": "Status", "apiVersion": "v1", "status": "Failure", "code": code, "reason": reason, "message": "simulated",
    })
}

/// Returns the revision at which a watch begins, and what stands before and after it in the URI.
fn first_revision(uri: &str) -> Option<(&str, u64, &str)> {
    let (before, rest) = uri.split_once("resourceVersion=")?;
    let (revision, after) = rest.split_at(rest.find('&').unwrap_or(rest.len()));
    Some((&uri[..before.len() + "resourceVersion=".len()], revision.parse().ok()?, after))
}

/// Returns the end of a path: kind and name.
fn short(path: &str) -> &str {
    path.split_once("/namespaces/").map_or(path, |(_, rest)| rest.split_once('/').map_or(rest, |(_, rest)| rest))
}
