//! The gateway: dials and resolves for pods, in a process of the host's own namespaces.
//!
//! A client sends one line, `connect ADDRESS:PORT` or `resolve NAME`, and reads one line. It confirms the line about a
//! connection with an empty one; the connection is then copied both ways.

use std::io;
use std::net::{Ipv4Addr, SocketAddr, SocketAddrV4};
use std::time::Duration;

use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::{TcpStream, UnixListener, UnixStream};

use super::super::proxy;

const CONNECT_TIMEOUT: Duration = Duration::from_secs(20);
const RESOLVE_TIMEOUT: Duration = Duration::from_secs(4);
/// The longest request: a name has at most 253 characters.
const MAX_REQUEST: u64 = 512;

/// Serves requests until the process ends.
pub fn run(listener: std::os::unix::net::UnixListener) -> io::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        listener.set_nonblocking(true)?;
        let listener = UnixListener::from_std(listener)?;
        loop {
            match listener.accept().await {
                Ok((client, _)) => {
                    tokio::spawn(serve(client));
                }
                // Out of descriptors; some will be closed.
                Err(_) => tokio::time::sleep(Duration::from_millis(200)).await,
            }
        }
    })
}

async fn serve(client: UnixStream) -> io::Result<()> {
    let mut client = BufReader::new(client);
    let mut line = String::new();
    (&mut client).take(MAX_REQUEST).read_line(&mut line).await?;
    match parse(&line) {
        Some(Request::Resolve(name)) => {
            let ips = resolve(&name).await;
            let text: Vec<String> = ips.iter().map(Ipv4Addr::to_string).collect();
            client.write_all(format!("{}\n", text.join(" ")).as_bytes()).await
        }
        Some(Request::Connect(to)) => {
            let dialled = tokio::time::timeout(CONNECT_TIMEOUT, TcpStream::connect(to)).await;
            let outside = match dialled.unwrap_or_else(|_| Err(io::ErrorKind::TimedOut.into())) {
                Ok(outside) => outside,
                Err(error) => return client.write_all(format!("{error}\n").as_bytes()).await,
            };
            client.write_all(b"ok\n").await?;
            let mut confirmation = [0];
            client.read_exact(&mut confirmation).await?;
            let buffered = client.buffer().to_vec();
            let mut outside = outside;
            outside.write_all(&buffered).await?;
            proxy::splice(outside, client.into_inner()).await;
            Ok(())
        }
        None => client.write_all(b"refused\n").await,
    }
}

#[derive(Debug, PartialEq, Eq)]
enum Request {
    Connect(SocketAddrV4),
    Resolve(String),
}

/// Reads a request; `None` for what the gateway does not do.
fn parse(line: &str) -> Option<Request> {
    match line.trim_end().split_once(' ')? {
        ("connect", address) => {
            address.parse().ok().filter(|a: &SocketAddrV4| is_outside(*a.ip())).map(Request::Connect)
        }
        ("resolve", name) => Some(Request::Resolve(name.to_owned())),
        _ => None,
    }
}

/// The metadata services of clouds, which may hand out credentials, at addresses that are not link-local: Alibaba Cloud
/// and Azure.
const CLOUD_METADATA: [Ipv4Addr; 2] = [Ipv4Addr::new(100, 100, 100, 200), Ipv4Addr::new(168, 63, 129, 16)];

/// Whether pods may connect to an address: not to services on the host's loopback, nor to the metadata services of
/// clouds. The host's other addresses are like those of any machine.
fn is_outside(ip: Ipv4Addr) -> bool {
    let reserved = ip.octets()[0] == 0 || ip.octets()[0] >= 224;
    !(ip.is_loopback() || ip.is_link_local() || CLOUD_METADATA.contains(&ip) || reserved)
}

/// Resolves a name as every program of the host does.
async fn resolve(name: &str) -> Vec<Ipv4Addr> {
    let found = tokio::time::timeout(RESOLVE_TIMEOUT, tokio::net::lookup_host((name, 0))).await;
    let Ok(Ok(found)) = found else { return Vec::new() };
    let mut ips: Vec<Ipv4Addr> = found
        .filter_map(|address| match address {
            SocketAddr::V4(v4) => Some(*v4.ip()),
            SocketAddr::V6(_) => None,
        })
        .collect();
    ips.dedup();
    ips
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_addresses_of_other_machines_are_dialled() {
        let check = |address: &str, expect: bool| {
            assert_eq!(parse(&format!("connect {address}\n")).is_some(), expect, "{address}");
        };
        check("151.101.0.223:443", true);
        check("10.1.2.3:3141", true);
        check("168.63.129.17:80", true);
        let refused = ["127.0.0.1:22", "169.254.169.254:80", "100.100.100.200:80", "168.63.129.16:80", "0.0.0.0:1"];
        for refused in refused.into_iter().chain(["224.0.0.1:1", "255.255.255.255:1", "x:1"]) {
            check(refused, false);
        }
        // An IPv6 address may stand for an IPv4 one; the gateway dials none of them.
        for refused in ["[::1]:22", "[::ffff:127.0.0.1]:22", "[::ffff:169.254.169.254]:80", "[2001:db8::1]:443"] {
            check(refused, false);
        }
        assert_eq!(parse("resolve a.b\n"), Some(Request::Resolve("a.b".into())));
        assert_eq!(parse("open /etc/passwd\n"), None);
        assert_eq!(parse(""), None);
    }

    #[tokio::test]
    async fn what_it_does_not_do_is_refused() {
        let (client, server) = UnixStream::pair().unwrap();
        let served = tokio::spawn(serve(server));
        let mut client = BufReader::new(client);
        client.write_all(b"connect 127.0.0.1:1\n").await.unwrap();
        let mut reply = String::new();
        client.read_line(&mut reply).await.unwrap();
        assert_eq!(reply, "refused\n");
        served.await.unwrap().unwrap();
    }

    #[tokio::test]
    async fn the_hosts_own_names_resolve() {
        assert_eq!(resolve("localhost").await, [Ipv4Addr::LOCALHOST]);
        assert!(resolve("no-such-name.invalid").await.is_empty());
    }
}
