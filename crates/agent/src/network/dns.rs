//! The resolver of the pods: answers every query from a table, without recursion.
//!
//! A slow or dead resolver breaks programs that ask for more than they need, so nothing waits: a name of the cluster is
//! known, or it does not exist. Only where pods reach the Internet, names outside of the cluster are asked of the host.

use std::io;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::{TcpListener, UdpSocket};
use tokio::sync::watch;

use super::egress::Egress;
use super::services::{DOMAIN, Table};

const TTL: u32 = 1;
const TYPE_A: u16 = 1;
const TYPE_CNAME: u16 = 5;
const TYPE_PTR: u16 = 12;
const TYPE_SRV: u16 = 33;
const TYPE_ANY: u16 = 255;
const NXDOMAIN: u8 = 3;
const NOT_IMPLEMENTED: u8 = 4;

/// What the resolver knows.
#[derive(Clone)]
pub struct Sources {
    pub table: watch::Receiver<Arc<Table>>,
    /// Resolves names outside of the cluster.
    pub outside: Option<Egress>,
}

impl Sources {
    /// Replies from the table, which takes no time.
    fn answer(&self, query: &[u8]) -> Option<Vec<u8>> {
        let known = Arc::clone(&self.table.borrow());
        answer(query, &known)
    }

    /// Returns who resolves the name of a query, and the name, if it is not one of the cluster.
    fn forwards(&self, query: &[u8]) -> Option<(Egress, String)> {
        let (name, _) = question(query)?;
        is_outside(&name).then_some((self.outside.clone()?, name))
    }

    async fn resolve(&self, query: &[u8]) -> Option<Vec<u8>> {
        match self.forwards(query) {
            Some((outside, name)) => {
                let ips = outside.resolve(&name).await.unwrap_or_default();
                let mut found = Table::default();
                if !ips.is_empty() {
                    found.names.insert(name, ips.into_iter().collect());
                }
                answer(query, &found)
            }
            None => self.answer(query),
        }
    }
}

/// Serves names until dropped.
pub async fn serve(address: SocketAddr, sources: Sources) -> io::Result<()> {
    let udp = UdpSocket::bind(address).await?;
    let tcp = TcpListener::bind(address).await?;
    tokio::try_join!(serve_udp(Arc::new(udp), sources.clone()), serve_tcp(tcp, sources)).map(drop)
}

async fn serve_udp(socket: Arc<UdpSocket>, sources: Sources) -> io::Result<()> {
    let mut query = vec![0; 4096];
    let mut forwarded = tokio::task::JoinSet::new();
    loop {
        while forwarded.try_join_next().is_some() {}
        // The ICMP error of a closed client port is reported by the next receive.
        let Ok((n, from)) = socket.recv_from(&mut query).await else { continue };
        if sources.forwards(&query[..n]).is_none() {
            if let Some(reply) = sources.answer(&query[..n]) {
                let _ = socket.send_to(&truncated(reply), from).await;
            }
            continue;
        }
        let (socket, sources, query) = (Arc::clone(&socket), sources.clone(), query[..n].to_vec());
        forwarded.spawn(async move {
            if let Some(reply) = sources.resolve(&query).await {
                let _ = socket.send_to(&truncated(reply), from).await;
            }
        });
    }
}

/// Cuts a reply that is too long for a datagram; the client asks again over TCP.
fn truncated(mut reply: Vec<u8>) -> Vec<u8> {
    if reply.len() > 4096 {
        reply.truncate(12);
        reply[2] |= 0x02;
        reply[4..12].fill(0);
    }
    reply
}

async fn serve_tcp(listener: TcpListener, sources: Sources) -> io::Result<()> {
    let mut clients = tokio::task::JoinSet::new();
    loop {
        while clients.try_join_next().is_some() {}
        let mut stream = super::proxy::accept(&listener).await;
        let sources = sources.clone();
        clients.spawn(async move {
            let limit = std::time::Duration::from_secs(10);
            let _ = tokio::time::timeout(limit, async {
                while let Ok(length) = stream.read_u16().await {
                    let mut query = vec![0; usize::from(length)];
                    stream.read_exact(&mut query).await?;
                    let Some(reply) = sources.resolve(&query).await else { break };
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
    let mut answers: Vec<Vec<u8>> = Vec::new();
    // What a client would ask next.
    let mut additional: Vec<Vec<u8>> = Vec::new();
    let wants = |one: u16| kind == one || kind == TYPE_ANY;
    let code = if header[2] & 0x78 != 0 {
        NOT_IMPLEMENTED
    } else if let Some(ports) = table.ports.get(&name) {
        if wants(TYPE_SRV) {
            answers.extend(ports.iter().map(|(port, target)| service(*port, target)));
            let targets = ports.iter().flat_map(|(_, target)| table.names.get(target).map(|ips| (target, ips)));
            additional.extend(
                targets.flat_map(|(target, ips)| ips.iter().map(|ip| record(&labels(target), TYPE_A, &ip.octets()))),
            );
        }
        0
    } else if let Some(owner) = reversed(&name).and_then(|ip| table.owners.get(&ip)) {
        if wants(TYPE_PTR) {
            answers.push(record(&ASKED, TYPE_PTR, &labels(owner)));
        }
        0
    } else if let Some(other) = table.aliases.get(&name) {
        answers.push(record(&ASKED, TYPE_CNAME, &labels(other)));
        if wants(TYPE_A) {
            let owner = labels(&table.real_name(other));
            let ips = table.resolve(other).unwrap_or_default();
            answers.extend(ips.into_iter().map(|ip| record(&owner, TYPE_A, &ip.octets())));
        }
        0
    } else if let Some(ips) = table.resolve(&name) {
        if wants(TYPE_A) {
            answers.extend(ips.into_iter().map(|ip| record(&ASKED, TYPE_A, &ip.octets())));
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
    reply.extend(u16::try_from(answers.len()).unwrap_or(u16::MAX).to_be_bytes());
    reply.extend([0; 2]);
    reply.extend(u16::try_from(additional.len()).unwrap_or(u16::MAX).to_be_bytes());
    reply.extend(query.get(12..end + 4)?);
    reply.extend(answers.concat());
    reply.extend(additional.concat());
    Some(reply)
}

/// Whether a name can be one that the machine resolves: it is not of the cluster.
fn is_outside(name: &str) -> bool {
    !name.is_empty()
        && name != "localhost"
        && name != DOMAIN
        && !name.ends_with(&format!(".{DOMAIN}"))
        && !name.ends_with(".arpa")
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

/// The name that was asked for, at offset 12 of the message.
const ASKED: [u8; 2] = [0xc0, 12];

/// The address in a name such as `3.0.244.10.in-addr.arpa`.
fn reversed(name: &str) -> Option<Ipv4Addr> {
    let octets: Vec<u8> =
        name.strip_suffix(".in-addr.arpa")?.split('.').map(|part| part.parse().ok()).collect::<Option<_>>()?;
    let [a, b, c, d]: [u8; 4] = octets.try_into().ok()?;
    Some(Ipv4Addr::new(d, c, b, a))
}

fn service(port: u16, target: &str) -> Vec<u8> {
    let mut data = vec![0, 0, 0, 100];
    data.extend(port.to_be_bytes());
    data.extend(labels(target));
    record(&ASKED, TYPE_SRV, &data)
}

/// A name as it is written in messages.
fn labels(name: &str) -> Vec<u8> {
    let mut out = Vec::with_capacity(name.len() + 2);
    for label in name.split('.').filter(|label| !label.is_empty()) {
        let label = label.get(..label.len().min(63)).unwrap_or_default();
        out.push(u8::try_from(label.len()).unwrap_or_default());
        out.extend(label.bytes());
    }
    out.push(0);
    out
}

fn record(owner: &[u8], kind: u16, data: &[u8]) -> Vec<u8> {
    let mut out = owner.to_vec();
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
        table.aliases.insert("e.d.svc.cluster.local".into(), "s.d.svc.cluster.local".into());
        table.aliases.insert("f.d.svc.cluster.local".into(), "foo.example.com".into());
        table.owners.insert(Ipv4Addr::new(10, 96, 1, 2), "s.d.svc.cluster.local".into());
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
        let reply = check("_gcs._tcp.s.d.svc.cluster.local", TYPE_SRV, (0, 1));
        assert_eq!(reply[11], 2, "the addresses of the target");
    }

    #[test]
    fn aliases_and_owners_of_addresses_have_records() {
        let ends_with = |reply: &[u8], name: &str| assert!(reply.ends_with(&labels(name)), "{name}");
        ends_with(&check("f.d.svc.cluster.local", TYPE_CNAME, (0, 1)), "foo.example.com");
        check("f.d.svc.cluster.local", TYPE_A, (0, 1));
        check("e.d.svc.cluster.local", TYPE_A, (0, 3));
        ends_with(&check("2.1.96.10.in-addr.arpa", TYPE_PTR, (0, 1)), "s.d.svc.cluster.local");
        check("3.1.96.10.in-addr.arpa", TYPE_PTR, (NXDOMAIN, 0));
    }

    #[test]
    fn names_of_the_cluster_are_never_asked_of_the_host() {
        for name in
            ["a.default.svc.cluster.local", "example.org.default.svc.cluster.local", "cluster.local", "localhost", ""]
        {
            assert!(!is_outside(name), "{name}");
        }
        for name in ["example.org", "mycluster.local", "proxy"] {
            assert!(is_outside(name), "{name}");
        }
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
