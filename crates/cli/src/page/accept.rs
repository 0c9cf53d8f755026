//! Accepts connections of accounts that may use the page, a bounded number at once, and closes those that ask for nothing.
//!
//! The address of the page is on the command line of the browser that is started, where every account of the machine can read
//! it with its secret. So those of other accounts are not served, secret or not.
//!
//! Every connection holds a file descriptor, of which a process has few: whoever opens connections and stays silent must not
//! keep viewers out.

use super::failure::Failure;
use axum::Router;
use axum::response::IntoResponse;
use http::StatusCode;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use manta_agent::network::loopback::Access;
use std::convert::Infallible;
use std::io;
use std::sync::Arc;
use std::time::Duration;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

/// How long the head of a request may take to arrive, and how long a connection may wait for its next request.
const HEAD_TIMEOUT: Duration = Duration::from_secs(30);
/// The most connections at once. WebSockets, which are for known viewers only, are not counted any more once they are open.
const MAX_CONNECTIONS: usize = 500;
/// How long to wait when no connection can be accepted, usually because too many files are open.
const PAUSE: Duration = Duration::from_millis(500);

/// Serves connections for ever.
pub(super) async fn run(listener: TcpListener, access: Arc<Access>, router: Router) -> io::Result<Infallible> {
    run_up_to(MAX_CONNECTIONS, listener, access, router).await
}

async fn run_up_to(limit: usize, listener: TcpListener, access: Arc<Access>, router: Router) -> io::Result<Infallible> {
    let free = Arc::new(Semaphore::new(limit));
    loop {
        let permit = Arc::clone(&free).acquire_owned().await.map_err(io::Error::other)?;
        match listener.accept().await {
            Ok((stream, _)) => {
                let router = match access.check_user(&stream) {
                    Ok(()) => router.clone(),
                    Err(why) => refusal(why),
                };
                tokio::spawn(serve(stream, router, permit));
            }
            Err(error) => {
                tracing::warn!(%error, "the page cannot accept connections; trying again");
                tokio::time::sleep(PAUSE).await;
            }
        }
    }
}

/// Answers everything with the reason why nothing is served.
fn refusal(why: String) -> Router {
    Router::new().fallback(async || Failure::new(StatusCode::FORBIDDEN, why).into_response())
}

async fn serve(stream: TcpStream, router: Router, _permit: OwnedSemaphorePermit) {
    // Live changes are small, and nothing follows that they could wait for.
    let _ = stream.set_nodelay(true);
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(HEAD_TIMEOUT);
    let connection = builder.serve_connection(TokioIo::new(stream), TowerToHyperService::new(router)).with_upgrades();
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection of the page ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manta_agent::network::loopback::{Guard, Users};
    use std::net::SocketAddr;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    const LIMIT: usize = 20;

    async fn served_to(users: Users) -> SocketAddr {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        // Without a table nobody is known.
        let access = Access { guard: Guard { users, ..Guard::default() }, connections: None };
        tokio::spawn(run_up_to(LIMIT, listener, Arc::new(access), Router::new().fallback(async || "answered")));
        address
    }

    /// Returns what a request gets.
    async fn reply(address: SocketAddr) -> String {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(b"GET / HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n").await.unwrap();
        let mut reply = String::new();
        stream.read_to_string(&mut reply).await.unwrap();
        reply
    }

    #[tokio::test]
    async fn only_accounts_that_are_allowed_are_served() {
        let stranger = reply(served_to(Users::default()).await).await;
        assert!(stranger.starts_with("HTTP/1.1 403") && stranger.contains("account"), "{stranger}");
        assert!(reply(served_to(Users::All).await).await.ends_with("answered"));
    }

    #[tokio::test(start_paused = true)]
    async fn connections_that_ask_for_nothing_make_way() {
        let address = served_to(Users::All).await;
        // As many as are served: some say nothing, others never end.
        let mut idle = Vec::new();
        for number in 0..LIMIT {
            let mut stream = TcpStream::connect(address).await.unwrap();
            if number % 2 == 0 {
                stream.write_all(b"GET / HTTP/1.1\r\nhost: ").await.unwrap();
            }
            idle.push(stream);
        }
        assert!(reply(address).await.ends_with("answered"));
        for stream in &mut idle {
            // Whatever it is told, it is closed.
            let _ = stream.read_to_end(&mut Vec::new()).await;
        }
    }
}
