//! Stands between an operator's process and the real API server, as a load balancer would.
//!
//! It passes every request on. Those to Ray's dashboards, which an operator sends through the API server's proxy, end at
//! the simulated Ray. It tells the checker which Pods the operator deletes, and kills the operator around a write.

use super::plan::Moment;
use super::process::Operator;
use crate::checker::Checker;
use crate::network::send;
use crate::ray::Ray;
use crate::transcript::Transcript;
use anyhow::{Context, Result};
use axum::body::Body;
use http::header::{CONNECTION, HOST, TRANSFER_ENCODING};
use http::{Method, Request, Response};
use http_body_util::BodyExt;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use kube::Client;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio::time::Instant;
use tower::BoxError;

/// What all fronts share.
#[derive(Clone)]
pub(super) struct Backend {
    pub(super) server: Client,
    pub(super) ray: Ray,
    pub(super) checker: Checker,
    pub(super) transcript: Transcript,
    pub(super) writes: Arc<Mutex<Writes>>,
}

/// What operators have written.
pub(super) struct Writes {
    pub(super) count: u64,
    pub(super) last: Instant,
}

impl Writes {
    fn add(&mut self) {
        *self = Self { count: self.count + 1, last: Instant::now() };
    }
}

impl Backend {
    /// Returns what operators have written, other than events and Leases.
    pub(super) fn writes(&self) -> MutexGuard<'_, Writes> {
        self.writes.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The front of one operator.
#[derive(Clone)]
pub(super) struct Front {
    backend: Backend,
    operator: Arc<Operator>,
    strike: Arc<Mutex<Option<Strike>>>,
}

/// A kill that waits for a write.
#[derive(Clone, Copy)]
struct Strike {
    moment: Moment,
    down: Duration,
}

impl Front {
    pub(super) fn new(backend: Backend, operator: Arc<Operator>) -> Self {
        Self { backend, operator, strike: Arc::default() }
    }

    /// Kills the operator now, or at a write to come.
    pub(super) fn kill(&self, moment: Moment, down: Duration) {
        match moment {
            Moment::Now => self.operator.kill(down),
            _ => *self.strike() = Some(Strike { moment, down }),
        }
    }

    /// Calls off a kill that still waits for a write.
    pub(super) fn spare(&self) {
        *self.strike() = None;
    }

    /// Serves connections until dropped.
    pub(super) async fn serve(self, listener: TcpListener) {
        let mut connections = JoinSet::new();
        loop {
            tokio::select! {
                accepted = listener.accept() => if let Ok((stream, _)) = accepted {
                    connections.spawn(self.clone().serve_connection(stream));
                },
                Some(_) = connections.join_next() => {}
            }
        }
    }

    async fn serve_connection(self, stream: TcpStream) {
        let service = service_fn(|request| {
            let front = self.clone();
            async move { front.pass_on(request).await.map_err(std::io::Error::other) }
        });
        // A connection breaks when the operator dies, or when the API server is away.
        let _ = http1::Builder::new().serve_connection(TokioIo::new(stream), service).await;
    }

    async fn pass_on(&self, request: Request<Incoming>) -> Result<Response<Body>, BoxError> {
        let (mut parts, body) = request.into_parts();
        parts.headers.remove(HOST);
        parts.headers.remove(CONNECTION);
        let body = body.collect().await?.to_bytes();
        let (method, path) = (parts.method.clone(), parts.uri.path().to_owned());
        let is_write =
            method != Method::GET && !["/proxy/", "/events", "/leases"].iter().any(|part| path.contains(part));
        let strike = is_write.then(|| self.next_write()).flatten();
        if let Some(Strike { moment: Moment::BeforeWrite(_), down }) = strike {
            self.operator.kill(down);
            return Err("the operator was killed before its write".into());
        }
        let is_deletion = method == Method::DELETE;
        if is_deletion {
            self.backend.checker.operator_asks_to_delete(&path);
        }
        let request = Request::from_parts(parts, kube::client::Body::from(body.to_vec()));
        let backend = &self.backend;
        let mut response = send(&backend.server, (&backend.ray, &backend.checker), request, Instant::now()).await?;
        if is_write {
            let code = response.status().as_u16();
            backend.transcript.line("operator", format!("{method} {path} {code}"));
        }
        if is_deletion && !response.status().is_success() {
            backend.checker.operator_was_refused(&path);
        }
        if let Some(Strike { down, .. }) = strike {
            self.operator.kill(down);
            return Err("the operator was killed after its write".into());
        }
        response.headers_mut().remove(CONNECTION);
        response.headers_mut().remove(TRANSFER_ENCODING);
        Ok(response)
    }

    /// Counts a write. Returns the kill that is due with it.
    fn next_write(&self) -> Option<Strike> {
        self.backend.writes().add();
        let mut waiting = self.strike();
        let strike = (*waiting)?;
        let next = match strike.moment {
            Moment::BeforeWrite(0) | Moment::AfterWrite(0) | Moment::Now => None,
            Moment::BeforeWrite(number) => Some(Moment::BeforeWrite(number - 1)),
            Moment::AfterWrite(number) => Some(Moment::AfterWrite(number - 1)),
        };
        *waiting = next.map(|moment| Strike { moment, ..strike });
        waiting.is_none().then_some(strike)
    }

    fn strike(&self) -> MutexGuard<'_, Option<Strike>> {
        self.strike.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Listens on a free port of loopback.
pub(super) async fn listen() -> Result<(TcpListener, SocketAddr)> {
    let listener = TcpListener::bind(("127.0.0.1", 0)).await.context("no free port on loopback")?;
    let address = listener.local_addr()?;
    Ok((listener, address))
}

/// Returns a kubeconfig for a front. Without a CA, clients look for the system's.
pub(super) fn kubeconfig(address: SocketAddr, ca: &Path) -> String {
    let ca = ca.display();
    format!(
        "apiVersion: v1\nkind: Config\ncurrent-context: front\n\
         clusters:\n- name: front\n  cluster:\n    server: http://{address}\n    certificate-authority: {ca}\n\
         contexts:\n- name: front\n  context:\n    cluster: front\n    user: operator\n    namespace: default\n\
         users:\n- name: operator\n  user: {{}}\n"
    )
}
