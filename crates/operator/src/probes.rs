//! `/healthz`, `/readyz` and `/metrics`.

use crate::metrics::{MEDIA_TYPE, Telemetry};
use axum::Router;
use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::serve::Listener;
use std::io;
use std::net::SocketAddr;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;
use tracing::{error, info};

/// The telemetry of the current term, or of the last one.
pub(crate) type CurrentTelemetry = watch::Receiver<Telemetry>;

/// Listens on an address in Go's notation, where `:8080` means every interface.
pub(crate) async fn listen(address: &str) -> io::Result<TcpListener> {
    match address.strip_prefix(':') {
        // A machine without IPv6 cannot listen on it.
        Some(port) => match TcpListener::bind(format!("[::]:{port}")).await {
            Err(error) if error.kind() != io::ErrorKind::AddrInUse => {
                TcpListener::bind(format!("0.0.0.0:{port}")).await
            }
            bound => bound,
        },
        None => TcpListener::bind(address).await,
    }
}

/// Serves requests until stopped.
pub(crate) async fn serve<L>(listener: L, router: Router, what: &'static str, stop: CancellationToken)
where
    L: Listener<Addr = SocketAddr>,
{
    if let Ok(address) = listener.local_addr() {
        info!(%address, server = what, "serving");
    }
    if let Err(error) = axum::serve(listener, router).with_graceful_shutdown(stop.cancelled_owned()).await {
        error!(%error, server = what, "server failed");
    }
}

/// Returns the probes: alive while the process runs, ready once the caches are synced.
pub(crate) fn probes(telemetry: CurrentTelemetry, with_cron_jobs: bool) -> Router {
    let ready = move |State(telemetry): State<CurrentTelemetry>| async move {
        let missing = telemetry.borrow().stores.unsynced(with_cron_jobs);
        if missing.is_empty() {
            return (StatusCode::OK, "ok".to_owned());
        }
        (StatusCode::SERVICE_UNAVAILABLE, format!("caches not synced: {}", missing.join(", ")))
    };
    Router::new()
        .route("/healthz", get(|| async { "ok" }))
        .route("/healthz/healthz", get(|| async { "ok" }))
        .route("/readyz", get(ready))
        .route("/readyz/readyz", get(ready))
        .with_state(telemetry)
}

pub(crate) fn metrics(telemetry: CurrentTelemetry, with_kuberay: bool) -> Router {
    let scrape = move |State(telemetry): State<CurrentTelemetry>| async move {
        let telemetry = telemetry.borrow().clone();
        if with_kuberay {
            telemetry.parse_ahead().await;
        }
        match telemetry.scrape(with_kuberay) {
            Ok(text) => ([(header::CONTENT_TYPE, MEDIA_TYPE)], text).into_response(),
            Err(error) => failed(&error),
        }
    };
    Router::new().route("/metrics", get(scrape)).with_state(telemetry)
}

fn failed(error: &std::fmt::Error) -> Response {
    (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response()
}
