//! Forwards connections to the addresses of Services, and to ports of the node, to ready pods.

mod targets;
mod udp;

use std::collections::BTreeMap;
use std::net::{IpAddr, Ipv4Addr, SocketAddr, SocketAddrV4};
use std::sync::Arc;
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinSet;

use super::services::{Protocol, Table};
use targets::Targets;

/// How long to wait before accepting again when descriptors ran out.
const ACCEPT_RETRY: Duration = Duration::from_millis(200);
/// How long to look for a pod that accepts before the client is disconnected.
const PATIENCE: Duration = Duration::from_secs(3);

/// Keeps one listener per forwarded address; ends when the table's owner is gone.
pub async fn serve(mut table: watch::Receiver<Arc<Table>>) {
    let mut listeners: BTreeMap<(Protocol, SocketAddrV4), tokio::task::AbortHandle> = BTreeMap::new();
    let mut tasks = JoinSet::new();
    loop {
        let wanted = Arc::clone(&table.borrow_and_update());
        listeners.retain(|key, task| {
            let keep = wanted.forwards.contains_key(key) && !task.is_finished();
            if !keep {
                task.abort();
            }
            keep
        });
        for key in wanted.forwards.keys() {
            listeners.entry(*key).or_insert_with(|| {
                let targets = Targets::new(*key, table.clone());
                match key.0 {
                    Protocol::Tcp => tasks.spawn(forward(targets)),
                    Protocol::Udp => tasks.spawn(udp::forward(targets)),
                }
            });
        }
        while tasks.try_join_next().is_some() {}
        if table.changed().await.is_err() {
            return;
        }
    }
}

async fn forward(targets: Arc<Targets>) {
    let listener = match TcpListener::bind(targets.address()).await {
        Ok(listener) => listener,
        Err(error) => {
            tracing::warn!(address = %targets.address(), %error, "cannot listen on the Service address");
            return;
        }
    };
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let client = accept(&listener).await;
        let targets = Arc::clone(&targets);
        connections.spawn(async move {
            let from = client.peer_addr().map_or(IpAddr::V4(Ipv4Addr::UNSPECIFIED), |peer| peer.ip());
            if let Some(pod) = connect(&targets, from).await {
                let _ = pod.set_nodelay(true);
                splice(client, pod).await;
            }
        });
    }
}

/// Accepts the next connection. Out of descriptors or memory it waits a moment, because the error would come back at
/// once for as long as the shortage lasts.
pub(super) async fn accept(listener: &TcpListener) -> TcpStream {
    loop {
        match listener.accept().await {
            Ok((client, _)) => return client,
            Err(error) if is_of_one_connection(&error) => {}
            Err(error) => {
                tracing::warn!(%error, "cannot accept connections; trying again");
                tokio::time::sleep(ACCEPT_RETRY).await;
            }
        }
    }
}

/// Whether an error concerns only the connection that was about to be accepted.
fn is_of_one_connection(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{ConnectionAborted, ConnectionRefused, ConnectionReset, Interrupted};
    matches!(error.kind(), ConnectionAborted | ConnectionRefused | ConnectionReset | Interrupted)
}

/// Connects to the next pod that accepts; `None` closes the client's connection.
async fn connect(targets: &Targets, client: IpAddr) -> Option<TcpStream> {
    for target in targets.in_turn(client) {
        if let Ok(Ok(stream)) = tokio::time::timeout(PATIENCE, TcpStream::connect(target)).await {
            targets.remember(client, target);
            return Some(stream);
        }
    }
    None
}

/// Copies bytes both ways until both sides have closed.
pub async fn splice<S: AsyncRead + AsyncWrite + Unpin>(mut a: TcpStream, mut b: S) {
    let _ = a.set_nodelay(true);
    let _ = tokio::io::copy_bidirectional_with_sizes(&mut a, &mut b, 64 * 1024, 64 * 1024).await;
}

/// Forwards connections of a listener on the host to one address of the node.
pub async fn expose(listener: std::net::TcpListener, to: impl Fn() -> Option<SocketAddr>) -> std::io::Result<()> {
    let listener = TcpListener::from_std(listener)?;
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let client = accept(&listener).await;
        let Some(target) = to() else { continue };
        connections.spawn(async move {
            if let Ok(Ok(pod)) = tokio::time::timeout(PATIENCE, TcpStream::connect(target)).await {
                let _ = pod.set_nodelay(true);
                splice(client, pod).await;
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;
    use crate::network::services::Forward;

    #[test]
    fn a_shortage_differs_from_a_lost_connection() {
        let check = |code: i32, expect: bool| {
            assert_eq!(is_of_one_connection(&std::io::Error::from_raw_os_error(code)), expect, "{code}");
        };
        check(nix::libc::ECONNABORTED, true);
        check(nix::libc::EINTR, true);
        check(nix::libc::EMFILE, false);
        check(nix::libc::ENFILE, false);
        check(nix::libc::ENOMEM, false);
    }

    #[tokio::test]
    async fn connections_are_forwarded_to_pods_that_accept() {
        let pod = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let dead = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let v4 = |l: &TcpListener| match l.local_addr().unwrap() {
            SocketAddr::V4(a) => a,
            SocketAddr::V6(_) => unreachable!("bound to an IPv4 address"),
        };
        let (live, gone, vip) = (v4(&pod), v4(&dead), v4(&TcpListener::bind("127.0.0.1:0").await.unwrap()));
        drop(dead);
        let mut first = Table::default();
        let forward = Forward { targets: vec![gone, live], affinity: None };
        first.forwards.insert((Protocol::Tcp, vip), forward);
        let (sender, table) = watch::channel(Arc::new(first));
        let proxy = tokio::spawn(serve(table));
        let echo = tokio::spawn(async move {
            let (mut stream, _) = pod.accept().await.unwrap();
            let mut bytes = [0; 4];
            stream.read_exact(&mut bytes).await.unwrap();
            stream.write_all(&bytes).await.unwrap();
        });
        let mut client = loop {
            match TcpStream::connect(vip).await {
                Ok(client) => break client,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        client.write_all(b"ping").await.unwrap();
        let mut back = [0; 4];
        client.read_exact(&mut back).await.unwrap();
        assert_eq!(&back, b"ping");
        echo.await.unwrap();
        drop(sender);
        proxy.await.unwrap();
    }
}
