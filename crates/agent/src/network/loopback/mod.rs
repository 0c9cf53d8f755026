//! Loopback ports of this machine that lead to servers in pods.
//!
//! ```text
//!   browser, ray job submit ─▶ 127.0.0.1:8265 ─ whose? which name? ─▶ 10.244.0.2:8265
//! ```
//!
//! Everybody on the machine can reach its loopback, and so can every page in a browser. The account is checked once per
//! connection, the names in the headers with every request.

mod connection_table;
mod guard;

use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, Response, StatusCode};
use http_body_util::{Either, Full};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{client, server};
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use super::proxy::{accept, splice};
pub use connection_table::ConnectionTable;
pub use guard::{Guard, Users};

/// How long a server in a pod may take to accept a connection.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(3);

/// What is spoken on a port.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Protocol {
    Http,
    /// Anything that no browser speaks, so that there are no names to check.
    Tcp,
}

type Body = Either<Incoming, Full<Bytes>>;

/// Who may use the loopback ports, and the table that tells who connects; without a table nobody is known.
#[derive(Debug, Default)]
pub struct Access {
    pub guard: Guard,
    pub connections: Option<ConnectionTable>,
}

/// Forwards what comes to a loopback listener to an address of the node, as long as there is one.
pub async fn serve(
    listener: std::net::TcpListener,
    protocol: Protocol,
    access: Arc<Access>,
    to: impl Fn() -> Option<SocketAddr> + Clone + Send + Sync + 'static,
) -> io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let stream = accept(&listener).await;
        match protocol {
            Protocol::Http => connections.spawn(serve_http(stream, Arc::clone(&access), to.clone())),
            Protocol::Tcp => connections.spawn(serve_tcp(stream, Arc::clone(&access), to())),
        };
    }
}

async fn serve_tcp(stream: TcpStream, access: Arc<Access>, target: Option<SocketAddr>) {
    if let Err(why) = access.check_user(&stream) {
        return tracing::warn!(why, "refused a connection to a local port");
    }
    let Some(target) = target else { return };
    if let Ok(Ok(pod)) = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(target)).await {
        splice(stream, pod).await;
    }
}

async fn serve_http(
    stream: TcpStream,
    access: Arc<Access>,
    to: impl Fn() -> Option<SocketAddr> + Send + Sync + 'static,
) {
    let _ = stream.set_nodelay(true);
    let user = access.check_user(&stream);
    let answer = service_fn(|request: Request<Incoming>| {
        let refused = user.clone().and_then(|()| access.guard.check_headers(request.headers()));
        let target = to();
        async move {
            let response = match (refused, target) {
                (Err(why), _) => refusal(StatusCode::FORBIDDEN, why),
                (Ok(()), None) => refusal(StatusCode::SERVICE_UNAVAILABLE, "it is not running".to_owned()),
                (Ok(()), Some(target)) => {
                    let answer = forward(request, target).await;
                    answer.unwrap_or_else(|why| refusal(StatusCode::BAD_GATEWAY, why))
                }
            };
            Ok::<_, Infallible>(response)
        }
    });
    let mut server = server::conn::http1::Builder::new();
    server.preserve_header_case(true);
    // An error means that the client or the server in the pod has gone away, which is their business.
    let _ = server.serve_connection(TokioIo::new(stream), answer).with_upgrades().await;
}

impl Access {
    /// Checks the account that has connected; the error is for its user.
    pub fn check_user(&self, stream: &TcpStream) -> Result<(), String> {
        if self.guard.users == Users::All {
            return Ok(());
        }
        let owner = || {
            let (client, server) = (stream.peer_addr()?, stream.local_addr()?);
            self.connections.as_ref().map_or(Ok(None), |table| table.owner(client, server))
        };
        let owner = owner().unwrap_or_else(|error| {
            tracing::warn!(%error, "cannot read the table of TCP connections");
            None
        });
        self.guard.check_user(owner)
    }
}

fn refusal(status: StatusCode, why: String) -> Response<Body> {
    let mut response = Response::new(Either::Right(Full::from(format!("{why}\n"))));
    *response.status_mut() = status;
    response.headers_mut().insert(http::header::CONTENT_TYPE, http::HeaderValue::from_static("text/plain"));
    response
}

/// Sends a request on a connection of its own and returns the response; then both ends of an upgrade are joined.
async fn forward(mut request: Request<Incoming>, target: SocketAddr) -> Result<Response<Body>, String> {
    let failed = |error: &dyn std::fmt::Display| format!("no answer from {target}: {error}");
    let connect = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(target));
    let stream = connect.await.map_err(|error| failed(&error))?.map_err(|error| failed(&error))?;
    let _ = stream.set_nodelay(true);
    let mut client = client::conn::http1::Builder::new();
    client.preserve_header_case(true);
    let (mut sender, connection) = client.handshake(TokioIo::new(stream)).await.map_err(|error| failed(&error))?;
    tokio::spawn(connection.with_upgrades());
    let client_side = hyper::upgrade::on(&mut request);
    let mut response = sender.send_request(request).await.map_err(|error| failed(&error))?;
    if response.status() == StatusCode::SWITCHING_PROTOCOLS {
        let server_side = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            if let (Ok(client), Ok(server)) = (client_side.await, server_side.await) {
                let _ = tokio::io::copy_bidirectional(&mut TokioIo::new(client), &mut TokioIo::new(server)).await;
            }
        });
    }
    Ok(response.map(Either::Left))
}

#[cfg(test)]
mod tests;
