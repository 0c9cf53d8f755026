//! The pod network: every pod has an address, Services have virtual ones, names resolve.
//!
//! ```text
//!   node network ── lo: 10.244.0.1, all of 10.96.0.0/16 (every Service address is local here)
//!     ├─ m2 ═══ eth0 10.244.0.2   pod a
//!     └─ m3 ═══ eth0 10.244.0.3   pod b
//! ```
//!
//! Routed, without a bridge: a pod knows one neighbour, 10.244.0.1. Because Service addresses are
//! local to the node, a Service is an ordinary listening socket there. Nothing of this touches
//! the host's own network. With Internet access there is one more route, see [`egress`].

pub mod dns;
pub mod egress;
pub mod ipam;
pub mod loopback;
mod netfilter;
mod netlink;
pub mod proxy;
pub mod services;

use std::fs;
use std::io;
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, setns, unshare};

use netlink::Netlink;

/// The node's own address, gateway of all pods.
pub const GATEWAY: Ipv4Addr = Ipv4Addr::new(10, 244, 0, 1);
/// The first two octets of pod addresses.
pub(crate) const POD_ADDRESSES: [u8; 2] = [10, 244];
/// Service addresses: 10.96.0.0/16.
pub const SERVICE_NET: (Ipv4Addr, u8) = (Ipv4Addr::new(10, 96, 0, 0), 16);
/// The API server's Service address.
pub const API_SERVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 1);
/// The resolver's Service address.
pub const RESOLVER: Ipv4Addr = Ipv4Addr::new(10, 96, 0, 10);

/// The network that the containers of one pod share.
#[derive(Debug, Clone)]
pub enum PodNetwork {
    /// Namespaces of its own.
    Own(Arc<Namespaces>),
    /// The node's own, for `hostNetwork`. It is not the machine's.
    Node,
    /// An address on the host's loopback.
    Loopback(Ipv4Addr),
}

/// A pod's own network, UTS and IPC namespaces.
#[derive(Debug)]
pub struct Namespaces {
    net: OwnedFd,
    uts: OwnedFd,
    ipc: OwnedFd,
}

impl PodNetwork {
    /// The namespaces in the order a container enters them.
    pub fn namespaces(&self) -> Vec<&OwnedFd> {
        match self {
            Self::Own(own) => vec![&own.net, &own.uts, &own.ipc],
            Self::Node | Self::Loopback(_) => Vec::new(),
        }
    }

    /// Connects to a port as seen from inside the pod.
    pub async fn dial(&self, port: u16) -> io::Result<tokio::net::TcpStream> {
        let own = match self {
            Self::Own(own) => Arc::clone(own),
            Self::Node => return tokio::net::TcpStream::connect((Ipv4Addr::LOCALHOST, port)).await,
            Self::Loopback(ip) => return tokio::net::TcpStream::connect((*ip, port)).await,
        };
        let stream = in_own_thread(move || {
            setns(own.net.as_fd(), CloneFlags::CLONE_NEWNET)?;
            let local = SocketAddr::from((Ipv4Addr::LOCALHOST, port));
            TcpStream::connect_timeout(&local, Duration::from_secs(10))
        })
        .await?;
        stream.set_nonblocking(true)?;
        tokio::net::TcpStream::from_std(stream)
    }
}

/// Prepares the node's network; must run in the node's network namespace.
pub fn prepare_node_network() -> io::Result<()> {
    let mut link = Netlink::open()?;
    let lo = link.index("lo")?;
    link.up(lo)?;
    link.add_address(lo, GATEWAY, 32)?;
    link.add_local_route(lo, SERVICE_NET.0, SERVICE_NET.1)?;
    fs::write("/proc/sys/net/ipv4/ip_forward", "1")?;
    Ok(())
}

/// Makes the node itself use the pods' resolver, so that the operator finds Services by name.
///
/// Only the node's own mount namespace changes. Sockets of the host's resolver daemons are hidden too.
pub fn use_own_resolver(folder: &Path) -> io::Result<()> {
    let bind = |source: &Path, target: &Path| {
        let none: Option<&str> = None;
        mount(Some(source), target, none, MsFlags::MS_BIND, none)
    };
    let own = folder.join("resolv.conf");
    fs::write(&own, format!("nameserver {RESOLVER}\noptions timeout:2 attempts:2\n"))?;
    // Without the file the library asks 127.0.0.1, where the resolver listens too.
    if let Ok(real) = fs::canonicalize("/etc/resolv.conf") {
        bind(&own, &real)?;
    }
    for socket in ["/run/systemd/resolve/io.systemd.Resolve", "/run/nscd/socket", "/run/dbus/system_bus_socket"] {
        if let Ok(real) = fs::canonicalize(socket) {
            bind(Path::new("/dev/null"), &real)?;
        }
    }
    Ok(())
}

/// Creates the namespaces of a pod, with its kernel parameters, and connects them to the node.
pub async fn create_pod(ip: Ipv4Addr, hostname: String, sysctls: Vec<(String, String)>) -> io::Result<PodNetwork> {
    in_own_thread(move || connect_pod(ip, &hostname, &sysctls)).await
}

fn connect_pod(ip: Ipv4Addr, hostname: &str, sysctls: &[(String, String)]) -> io::Result<PodNetwork> {
    // Opened before unshare: a socket stays in the network namespace it was created in.
    let mut node = Netlink::open()?;
    unshare(CloneFlags::CLONE_NEWNET | CloneFlags::CLONE_NEWUTS | CloneFlags::CLONE_NEWIPC)?;
    nix::unistd::sethostname(hostname)?;
    let open = |name: &str| fs::File::open(format!("/proc/thread-self/ns/{name}")).map(OwnedFd::from);
    let namespaces = Namespaces { net: open("net")?, uts: open("uts")?, ipc: open("ipc")? };

    let [_, _, c, d] = ip.octets();
    let ours = format!("m{c}.{d}");
    node.add_veth(&ours, "eth0", namespaces.net.as_fd())?;
    let outside = node.index(&ours)?;
    node.up(outside)?;
    node.add_link_route(outside, ip, 32)?;

    // Containers have no capabilities over the network; low ports and ping need none here.
    fs::write("/proc/sys/net/ipv4/ip_unprivileged_port_start", "0")?;
    for groups in ["0 2147483647", "0 0"] {
        // Only mapped groups can be named, and an ordinary user has a single one.
        if fs::write("/proc/sys/net/ipv4/ping_group_range", groups).is_ok() {
            break;
        }
    }
    for (name, value) in sysctls {
        fs::write(crate::sysctls::path(name), value)
            .map_err(|e| io::Error::new(e.kind(), format!("cannot set sysctl {name} to {value:?}: {e}")))?;
    }
    let mut pod = Netlink::open()?;
    let lo = pod.index("lo")?;
    pod.up(lo)?;
    let eth0 = pod.index("eth0")?;
    pod.add_address(eth0, ip, 32)?;
    pod.up(eth0)?;
    pod.add_link_route(eth0, GATEWAY, 32)?;
    pod.add_default_route(eth0, GATEWAY)?;
    Ok(PodNetwork::Own(Arc::new(namespaces)))
}

/// Runs `work` in a thread of its own, because namespaces belong to threads.
async fn in_own_thread<T: Send + 'static>(work: impl FnOnce() -> io::Result<T> + Send + 'static) -> io::Result<T> {
    let (sender, receiver) = tokio::sync::oneshot::channel();
    std::thread::Builder::new().name("namespace".into()).spawn(move || {
        let _ = sender.send(work());
    })?;
    receiver.await.map_err(|_| io::Error::other("the thread that entered a namespace ended early"))?
}
