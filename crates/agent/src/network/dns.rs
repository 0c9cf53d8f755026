//! The resolver of the pods: answers every query from a table, without recursion.
//!
//! A slow or dead resolver breaks programs that ask for more than they need, so there is no
//! forwarding and no waiting: a name is known, or it does not exist.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;

use super::services::Table;

const TTL: u32 = 1;
const TYPE_A: u16 = 1;
const TYPE_SRV: u16 = 33;
const TYPE_ANY: u16 = 255;
const NXDOMAIN: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;

/// Serves names until dropped.
pub async fn serve(address: SocketAddr, table: watch::Receiver<Arc<Table>>) -> io::Result<()> {
    let udp = UdpSocket::bind(address).await?;
    let tcp = TcpListener::bind(address).await?;
    tokio::try_join!(serve_udp(udp, table.clone()), serve_tcp(tcp, table)).map(drop)
}

async fn serve_udp(socket: UdpSocket, table: watch::Receiver<Arc<Table>>) -> io::Result<()> {
    let mut query = vec![0; 4096];
    loop {
        // The ICMP error of a closed client port is reported by the next receive.
        let Ok((n, from)) = socket.recv_from(&mut query).await else { continue };
        let known = Arc::clone(&table.borrow());
        if let Some(mut reply) = answer(&query[..n], &known) {
            if reply.len() > 4096 {
                reply.truncate(12);
                reply[2] |= 0x02;
                reply[4..12].fill(0);
            }
            let _ = socket.send_to(&reply, from).await;
        }
    }
}

async fn serve_tcp(listener: TcpListener, table: watch::Receiver<Arc<Table>>) -> io::Result<()> {
    let mut clients = tokio::task::JoinSet::new();
    loop {
        while clients.try_join_next().is_some() {}
        let mut stream = super::proxy::accept(&listener).await;
        let table = table.clone();
        clients.spawn(async move {
            let limit = std::time::Duration::from_secs(10);
            let _ = tokio::time::timeout(limit, async {
                while let Ok(length) = stream.read_u16().await {
                    let mut query = vec![0; usize::from(length)];
                    stream.read_exact(&mut query).await?;
                    let known = Arc::clone(&table.borrow());
                    let Some(reply) = answer(&query, &known) else { break };
                    stream.write_u16(u16::try_from(reply.len()).unwrap_or(u16::MAX)).await?;
                    stream.write_all(&reply).await?;
                }
                io::Result::Ok(())
            })
            .await;
        });
    }
}

/// The reply to one query; `None` when it is no query at all.
pub fn answer(query: &[u8], table: &Table) -> Option<Vec<u8>> {
    let header = query.get(..12)?;
    if header[2] & 0x80 != 0 {
        return None;
    }
    let (name, end) = question(query)?;
    let kind = u16::from_be_bytes(query.get(end..end + 2)?.try_into().ok()?);
    let mut records: Vec<Vec<u8>> = Vec::new();
    let code = if header[2] & 0x78 != 0 {
        NOT_IMPLEMENTED
    } else if let Some(ports) = table.ports.get(&name) {
        if kind == TYPE_SRV {
            records.extend(ports.iter().map(|(port, target)| service(*port, target)));
        }
        0
    } else if let Some(ips) = table.resolve(&name) {
        if kind == TYPE_A || kind == TYPE_ANY {
            records.extend(ips.into_iter().map(address));
        }
        0
    } else {
        NXDOMAIN
    };
    let mut reply = Vec::with_capacity(512);
    reply.extend(&header[..2]);
    // An authoritative answer, recursion "available" because some clients insist on it.
    reply.extend([0x84 | (header[2] & 0x01), 0x80 | code]);
    reply.extend([0, 1]);
    reply.extend(u16::try_from(records.len()).unwrap_or(u16::MAX).to_be_bytes());
    reply.extend([0; 4]);
    reply.extend(query.get(12..end + 4)?);
    reply.extend(records.concat());
    Some(reply)
}

/// The name asked for, in lower case, and where it ends.
fn question(query: &[u8]) -> Option<(String, usize)> {
    let (mut name, mut at) = (String::new(), 12);
    loop {
        let length = usize::from(*query.get(at)?);
        at += 1;
        if length == 0 {
            return Some((name, at));
        }
        if length > 63 || name.len() > 253 {
            return None;
        }
        let label = query.get(at..at + length)?;
        if !name.is_empty() {
            name.push('.');
        }
        name.push_str(&String::from_utf8_lossy(label).to_lowercase());
        at += length;
    }
}

fn address(ip: Ipv4Addr) -> Vec<u8> {
    record(TYPE_A, &ip.octets())
}

fn service(port: u16, target: &str) -> Vec<u8> {
    let mut data = vec![0, 0, 0, 100];
    data.extend(port.to_be_bytes());
    for label in target.split('.') {
        data.push(u8::try_from(label.len()).unwrap_or(63));
        data.extend(label.bytes().take(63));
    }
    data.push(0);
    record(TYPE_SRV, &data)
}

/// A record whose name is the one asked for, at offset 12 of the message.
fn record(kind: u16, data: &[u8]) -> Vec<u8> {
    let mut out = vec![0xc0, 12];
    out.extend(kind.to_be_bytes());
    out.extend([0, 1]);
    out.extend(TTL.to_be_bytes());
    out.extend(u16::try_from(data.len()).unwrap_or(u16::MAX).to_be_bytes());
    out.extend(data);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(name: &str, kind: u16) -> Vec<u8> {
        let mut out = vec![0xab, 0xcd, 1, 0, 0, 1, 0, 0, 0, 0, 0, 0];
        for label in name.split('.') {
            out.push(u8::try_from(label.len()).unwrap());
            out.extend(label.bytes());
        }
        out.extend([0]);
        out.extend(kind.to_be_bytes());
        out.extend([0, 1]);
        out
    }

    fn table() -> Table {
        let mut table = Table::default();
        let ips = [Ipv4Addr::new(10, 244, 0, 2), Ipv4Addr::new(10, 244, 0, 3)];
        table.names.insert("s.d.svc.cluster.local".into(), ips.into());
        table.ports.insert("_gcs._tcp.s.d.svc.cluster.local".into(), [(6379, "s.d.svc.cluster.local".into())].into());
        table
    }

    /// Response code and number of answers.
    fn check(name: &str, kind: u16, expect: (u8, u8)) -> Vec<u8> {
        let reply = answer(&query(name, kind), &table()).unwrap();
        assert_eq!((reply[3] & 0x0f, reply[7]), expect, "{name} {kind}");
        assert_eq!(&reply[..2], [0xab, 0xcd]);
        reply
    }

    #[test]
    fn names_are_known_or_do_not_exist() {
        let reply = check("S.d.svc.cluster.LOCAL", TYPE_A, (0, 2));
        assert_eq!(&reply[reply.len() - 4..], [10, 244, 0, 3]);
        check("s.d.svc.cluster.local", 28, (0, 0));
        check("svc.cluster.local", TYPE_A, (0, 0));
        check("s.d.svc.cluster.local.svc.cluster.local", TYPE_A, (NXDOMAIN, 0));
        check("example.com", TYPE_A, (NXDOMAIN, 0));
        check("_gcs._tcp.s.d.svc.cluster.local", TYPE_SRV, (0, 1));
    }

    #[test]
    fn replies_are_not_answered() {
        let mut reply = query("a", TYPE_A);
        reply[2] = 0x80;
        assert_eq!(answer(&reply, &table()), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_panic(bytes in proptest::collection::vec(proptest::num::u8::ANY, 0..80)) {
            let _ = answer(&bytes, &table());
        }
    }
}
