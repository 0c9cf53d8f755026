//! Listeners: accepting connections, TLS, and client certificates.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use hyper::body::Incoming;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto::Builder;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;
use tower::ServiceExt;

use crate::auth::{User, user_of_certificate};
use crate::http::{ApiContext, router};

/// The timeouts of a TLS handshake and of requests in progress at shutdown.
const HANDSHAKE_TIMEOUT: Duration = Duration::from_secs(10);
const SHUTDOWN_TIMEOUT: Duration = Duration::from_secs(2);

/// Accepts connections until the server stops.
pub(crate) async fn run(listener: TcpListener, tls: Option<Arc<rustls::ServerConfig>>, context: ApiContext) {
    let acceptor = tls.map(tokio_rustls::TlsAcceptor::from);
    let stop = context.stop.clone();
    let router = router(context);
    let mut connections = JoinSet::new();
    let mut failures = 0;
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = connections.join_next(), if !connections.is_empty() => continue,
            () = stop.cancelled() => break,
        };
        let stream = match accepted {
            Ok((stream, _)) => {
                failures = 0;
                stream
            }
            Err(error) => {
                // Usually too many open files: wait for some to close rather than spin.
                if failures == 0 {
                    tracing::warn!(%error, "cannot accept connections; retrying");
                }
                failures += 1;
                tokio::select! {
                    () = tokio::time::sleep(accept_backoff(failures)) => continue,
                    () = stop.cancelled() => break,
                }
            }
        };
        connections.spawn(connection(stream, acceptor.clone(), router.clone(), stop.clone()));
    }
    let ended = async { while connections.join_next().await.is_some() {} };
    let _ = tokio::time::timeout(SHUTDOWN_TIMEOUT, ended).await;
}

/// Returns how long to wait after so many failures in a row: from 10 ms, doubled up to 1 s.
fn accept_backoff(failures: u32) -> Duration {
    Duration::from_millis(10 << failures.saturating_sub(1).min(7)).min(Duration::from_secs(1))
}

async fn connection(
    stream: TcpStream,
    acceptor: Option<tokio_rustls::TlsAcceptor>,
    router: axum::Router,
    stop: CancellationToken,
) {
    let _ = stream.set_nodelay(true);
    let Some(acceptor) = acceptor else {
        return serve_connection(TokioIo::new(stream), router, None, stop).await;
    };
    let stream = match tokio::time::timeout(HANDSHAKE_TIMEOUT, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::debug!(%error, "TLS handshake failed"),
        Err(_) => return tracing::debug!("TLS handshake timed out"),
    };
    let certificate = stream.get_ref().1.peer_certificates().and_then(|chain| chain.first());
    let user = certificate.and_then(|certificate| user_of_certificate(certificate));
    serve_connection(TokioIo::new(stream), router, user, stop).await;
}

async fn serve_connection<I>(io: I, router: axum::Router, user: Option<User>, stop: CancellationToken)
where
    I: hyper::rt::Read + hyper::rt::Write + Unpin + Send + 'static,
{
    let service = hyper::service::service_fn(move |request: hyper::Request<Incoming>| {
        let mut request = request.map(Body::new);
        // A token identifies the caller more precisely than the connection does.
        if let Some(user) = user.as_ref().filter(|_| !request.headers().contains_key(http::header::AUTHORIZATION)) {
            request.extensions_mut().insert(user.clone());
        }
        router.clone().oneshot(request)
    });
    let mut builder = Builder::new(TokioExecutor::new());
    builder.http1().timer(TokioTimer::new()).header_read_timeout(Duration::from_secs(30));
    builder.http2().timer(TokioTimer::new()).max_concurrent_streams(1000);
    let connection = builder.serve_connection_with_upgrades(io, service);
    tokio::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = stop.cancelled() => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(error = %error, "connection ended");
    }
}
