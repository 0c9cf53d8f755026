//! The way from pods to the Internet, without changing anything on the host.
//!
//! ```text
//!   pod ─▶ node ─ default route ─▶ egress namespace ─ a copy of each stream ─▶ gateway, on the host ─▶ the Internet
//!                                  (accepts connections to any address)                resolves names, dials
//! ```
//!
//! A pod connects as if it were on the Internet; it needs no proxy settings. In the egress namespace every connection is
//! redirected to one listener. Where the kernel cannot redirect, every address is local there, and a connection to any of
//! them is accepted by ordinary listeners on a few ports. The gateway is a process in the host's own
//! namespaces that dials the same address from there. It works alike for root and for ordinary users, and ends with the
//! agent.

pub mod gateway;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net as unix;
use std::path::PathBuf;

use nix::sched::{CloneFlags, unshare};
use nix::sys::socket::getsockopt;
use nix::sys::socket::sockopt::OriginalDst;
use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixStream};
use tokio::task::JoinSet;

use super::netlink::Netlink;
use super::{GATEWAY, POD_ADDRESSES, in_own_thread, netfilter, proxy};
use crate::runtime::Spawner;

/// The address of the egress namespace on the link to the node.
const HOP: Ipv4Addr = Ipv4Addr::new(169, 254, 244, 1);
/// Where redirected connections go.
const REDIRECTED: u16 = 1;
/// The name of the gateway's socket, which only the node's network namespace can see.
const SOCKET: &[u8] = b"manta-egress";

/// What pods may reach beyond the node, and what they need for it.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Internet {
    /// The TCP ports that pods reach where the kernel cannot redirect all of them; without any, pods are on their own.
    pub ports: Vec<u16>,
    /// Variables that every container starts with, such as the address of a package index.
    pub env: Vec<(String, String)>,
    /// Files of the host and where containers see them, such as certificates.
    pub files: Vec<(PathBuf, PathBuf)>,
}

/// A handle to the gateway on the host.
#[derive(Clone, Debug)]
pub struct Egress {
    address: unix::SocketAddr,
}

/// Starts the gateway and accepts connections to `ports` of any address in `tasks`.
pub async fn start(host: &Spawner, ports: &[u16], tasks: &mut JoinSet<()>) -> io::Result<Egress> {
    let address = unix::SocketAddr::from_abstract_name(SOCKET)?;
    let listener = unix::UnixListener::bind_addr(&address)?;
    host.gateway(listener.into()).await.map_err(io::Error::other)?;
    let egress = Egress { address };
    let ports = ports.to_vec();
    for listener in in_own_thread(move || open_namespace(&ports)).await? {
        listener.set_nonblocking(true)?;
        tasks.spawn(accept(tokio::net::TcpListener::from_std(listener)?, egress.clone()));
    }
    Ok(egress)
}

/// Creates the egress namespace, routes everything unknown to it, and listens there. The listeners keep it alive.
fn open_namespace(ports: &[u16]) -> io::Result<Vec<TcpListener>> {
    let mut node = Netlink::open()?;
    unshare(CloneFlags::CLONE_NEWNET)?;
    let namespace: OwnedFd = fs::File::open("/proc/thread-self/ns/net")?.into();
    node.add_veth("egress", "eth0", namespace.as_fd())?;
    let outside = node.index("egress")?;
    node.up(outside)?;
    node.add_link_route(outside, HOP, 32)?;
    // A pod that is gone must stay unreachable.
    let pods = Ipv4Addr::new(POD_ADDRESSES[0], POD_ADDRESSES[1], 0, 0);
    node.add_unreachable_route(pods, 16)?;
    node.add_default_route(outside, HOP)?;

    let mut own = Netlink::open()?;
    let lo = own.index("lo")?;
    own.up(lo)?;
    let eth0 = own.index("eth0")?;
    own.add_address(eth0, HOP, 32)?;
    own.up(eth0)?;
    own.add_link_route(eth0, GATEWAY, 32)?;
    own.add_route_via(eth0, (pods, 16), GATEWAY)?;
    own.add_local_default(lo)?;
    let ports = match netfilter::redirect_tcp(REDIRECTED) {
        Ok(()) => &[REDIRECTED],
        Err(error) => {
            tracing::info!(%error, ?ports, "cannot redirect connections: pods reach the Internet on these ports only");
            ports
        }
    };
    ports.iter().map(|port| TcpListener::bind((Ipv4Addr::UNSPECIFIED, *port))).collect()
}

/// Forwards the connections of one listener until dropped.
async fn accept(listener: tokio::net::TcpListener, egress: Egress) {
    let mut connections = JoinSet::new();
    loop {
        while connections.try_join_next().is_some() {}
        let client = proxy::accept(&listener).await;
        let egress = egress.clone();
        connections.spawn(async move {
            let Some(wanted) = destination(&client) else { return };
            match egress.connect(wanted).await {
                Ok(outside) => proxy::splice(client, outside).await,
                Err(error) => tracing::debug!(%wanted, %error, "cannot connect for a pod"),
            }
        });
    }
}

/// Returns the address that the pod connected to: the one before the redirection, or the local one.
fn destination(client: &TcpStream) -> Option<SocketAddrV4> {
    if let Ok(before) = getsockopt(client, OriginalDst) {
        return Some(SocketAddrV4::new(u32::from_be(before.sin_addr.s_addr).into(), u16::from_be(before.sin_port)));
    }
    match client.local_addr().ok()? {
        SocketAddr::V4(address) => Some(address),
        SocketAddr::V6(_) => None,
    }
}

impl Egress {
    /// Connects to an address of the Internet.
    async fn connect(&self, to: SocketAddrV4) -> io::Result<UnixStream> {
        let (mut stream, reply) = self.ask(&format!("connect {to}\n")).await?;
        if reply != "ok" {
            return Err(io::Error::other(reply));
        }
        // A server may speak first. The gateway begins to copy only now, so that its line was all there was to read.
        stream.write_all(b"\n").await?;
        Ok(stream)
    }

    /// Resolves a name as the host does; empty when it does not exist, or is the host's own on loopback, where a pod would
    /// find itself.
    pub(super) async fn resolve(&self, name: &str) -> io::Result<Vec<Ipv4Addr>> {
        let (_, reply) = self.ask(&format!("resolve {name}\n")).await?;
        let ips = reply.split_whitespace().filter_map(|ip| ip.parse().ok());
        Ok(ips.filter(|ip: &Ipv4Addr| !ip.is_loopback()).collect())
    }

    async fn ask(&self, request: &str) -> io::Result<(UnixStream, String)> {
        let stream = unix::UnixStream::connect_addr(&self.address)?;
        stream.set_nonblocking(true)?;
        let mut stream = BufReader::with_capacity(1024, UnixStream::from_std(stream)?);
        stream.write_all(request.as_bytes()).await?;
        let mut reply = String::new();
        stream.read_line(&mut reply).await?;
        Ok((stream.into_inner(), reply.trim_end().to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use std::io::{BufRead, Write};

    use super::*;

    #[tokio::test]
    async fn names_resolve_although_the_gateway_closes_at_once() {
        let name = format!("manta-egress-test-{}", std::process::id());
        let address = unix::SocketAddr::from_abstract_name(name).unwrap();
        let listener = unix::UnixListener::bind_addr(&address).unwrap();
        let gateway = std::thread::spawn(move || {
            for _ in 0..20 {
                let (mut client, _) = listener.accept().unwrap();
                let mut request = String::new();
                io::BufReader::new(&client).read_line(&mut request).unwrap();
                client.write_all(b"127.0.1.1 192.0.2.1 192.0.2.2\n").unwrap();
            }
        });
        let egress = Egress { address };
        for _ in 0..20 {
            assert_eq!(
                egress.resolve("example.com").await.unwrap(),
                ["192.0.2.1", "192.0.2.2"].map(|ip| ip.parse::<Ipv4Addr>().unwrap())
            );
        }
        gateway.join().unwrap();
    }
}
