//! Forwards datagrams: each client has a socket of its own towards its pod, until neither has sent for a while.

use std::collections::HashMap;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use tokio::net::UdpSocket;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::targets::Targets;

/// How long a client's socket is kept without traffic.
const IDLE: Duration = Duration::from_secs(60);
/// Datagrams of a client that wait to be sent; more are dropped, as a full buffer of the kernel would.
const WAITING: usize = 64;
const LARGEST: usize = 64 << 10;

pub(super) async fn forward(targets: Arc<Targets>) {
    let socket = match UdpSocket::bind(targets.address()).await {
        Ok(socket) => Arc::new(socket),
        Err(error) => {
            tracing::warn!(address = %targets.address(), %error, "cannot listen on the Service address");
            return;
        }
    };
    let mut clients: HashMap<SocketAddr, mpsc::Sender<Vec<u8>>> = HashMap::new();
    let mut tasks = JoinSet::new();
    let mut datagram = vec![0; LARGEST];
    loop {
        while tasks.try_join_next().is_some() {}
        // The ICMP error of a closed client port is reported by the next receive.
        let Ok((length, client)) = socket.recv_from(&mut datagram).await else { continue };
        clients.retain(|_, sender| !sender.is_closed());
        let sender = clients.entry(client).or_insert_with(|| {
            let (sender, receiver) = mpsc::channel(WAITING);
            tasks.spawn(serve_client(Arc::clone(&targets), Arc::clone(&socket), client, receiver));
            sender
        });
        let _ = sender.try_send(datagram[..length].to_vec());
    }
}

/// Carries the datagrams of one client to one pod, and the replies back.
async fn serve_client(
    targets: Arc<Targets>,
    socket: Arc<UdpSocket>,
    client: SocketAddr,
    mut datagrams: mpsc::Receiver<Vec<u8>>,
) {
    let Some(target) = targets.in_turn(client.ip()).into_iter().next() else { return };
    targets.remember(client.ip(), target);
    let Ok(pod) = UdpSocket::bind((Ipv4Addr::UNSPECIFIED, 0)).await else { return };
    if pod.connect(target).await.is_err() {
        return;
    }
    let mut reply = vec![0; LARGEST];
    loop {
        tokio::select! {
            datagram = datagrams.recv() => match datagram {
                Some(datagram) => drop(pod.send(&datagram).await),
                None => return,
            },
            received = pod.recv(&mut reply) => match received {
                Ok(length) => drop(socket.send_to(&reply[..length], client).await),
                // Nobody listens there, so the next datagram may go to another pod.
                Err(_) => return,
            },
            () = tokio::time::sleep(IDLE) => return,
        }
        // A pod that is gone must not keep its clients.
        if !targets.has(target) {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddrV4;

    use tokio::sync::watch;

    use super::*;
    use crate::network::services::{Forward, Protocol, Table};

    fn v4(socket: &UdpSocket) -> SocketAddrV4 {
        match socket.local_addr().unwrap() {
            SocketAddr::V4(address) => address,
            SocketAddr::V6(_) => unreachable!("bound to an IPv4 address"),
        }
    }

    #[tokio::test]
    async fn datagrams_reach_a_pod_and_replies_come_back() {
        let pod = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = v4(&UdpSocket::bind("127.0.0.1:0").await.unwrap());
        let mut table = Table::default();
        table.forwards.insert((Protocol::Udp, address), Forward { targets: vec![v4(&pod)], affinity: None });
        let targets = Targets::new((Protocol::Udp, address), watch::channel(Arc::new(table)).1);
        let proxy = tokio::spawn(forward(targets));
        let echo = tokio::spawn(async move {
            let mut bytes = [0; 16];
            let (length, from) = pod.recv_from(&mut bytes).await.unwrap();
            pod.send_to(&bytes[..length], from).await.unwrap();
        });
        let client = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        client.connect(address).await.unwrap();
        let mut reply = [0; 16];
        let length = loop {
            // Until the proxy listens, datagrams are lost.
            let _ = client.send(b"ping").await;
            if let Ok(Ok(length)) = tokio::time::timeout(Duration::from_millis(50), client.recv(&mut reply)).await {
                break length;
            }
        };
        assert_eq!(&reply[..length], b"ping");
        echo.await.unwrap();
        proxy.abort();
    }
}
