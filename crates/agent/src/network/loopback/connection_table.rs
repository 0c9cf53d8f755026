//! The kernel's tables of TCP connections: which account the other end of a loopback connection belongs to.

use std::fmt::Write;
use std::fs::File;
use std::io::{self, Read, Seek};
use std::net::{IpAddr, SocketAddr};
use std::os::fd::OwnedFd;
use std::sync::{Mutex, PoisonError};

/// The tables of one network namespace, opened in it: `/proc/net/tcp`, and `/proc/net/tcp6` where there is IPv6.
#[derive(Debug)]
pub struct ConnectionTable(Mutex<Vec<File>>);

impl ConnectionTable {
    /// Opens those of this process's own network.
    pub fn open() -> io::Result<Self> {
        let mut files = vec![File::open("/proc/self/net/tcp")?];
        // Without IPv6 there is no such file.
        files.extend(File::open("/proc/self/net/tcp6").ok());
        Ok(Self(Mutex::new(files)))
    }

    pub(crate) fn new(files: Vec<OwnedFd>) -> Self {
        Self(Mutex::new(files.into_iter().map(File::from).collect()))
    }

    /// Returns the user id of the process that connected from `client` to `server`; `None` if the connection is gone.
    pub(super) fn owner(&self, client: SocketAddr, server: SocketAddr) -> io::Result<Option<u32>> {
        // One reader at a time: the kernel continues where the last read of the same file ended.
        for file in self.0.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            file.rewind()?;
            let mut table = String::new();
            file.read_to_string(&mut table)?;
            if let Some(owner) = find_owner(&table, client, server) {
                return Ok(Some(owner));
            }
        }
        Ok(None)
    }
}

/// Finds the client's end of a connection in a table. A socket that was closed has no inode, and no owner either.
fn find_owner(table: &str, client: SocketAddr, server: SocketAddr) -> Option<u32> {
    // A program that uses IPv6 sockets for everything is in the IPv6 table, with IPv4 addresses mapped into IPv6 ones.
    let ends = [(plain(client), plain(server)), (mapped(client), mapped(server))];
    table.lines().skip(1).find_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let (local, remote, user, inode) = (fields.get(1)?, fields.get(2)?, fields.get(7)?, fields.get(9)?);
        let is_client = ends.iter().any(|(client, server)| client == local && server == remote);
        (is_client && *inode != "0").then(|| user.parse().ok()).flatten()
    })
}

/// Writes an address as the kernel does: 32-bit words in the machine's byte order.
fn plain(address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) => words(&ip.octets(), address.port()),
        IpAddr::V6(ip) => words(&ip.octets(), address.port()),
    }
}

fn mapped(address: SocketAddr) -> String {
    match address.ip() {
        IpAddr::V4(ip) => words(&ip.to_ipv6_mapped().octets(), address.port()),
        IpAddr::V6(ip) => words(&ip.octets(), address.port()),
    }
}

fn words(octets: &[u8], port: u16) -> String {
    let mut text = String::new();
    for word in octets.as_chunks::<4>().0 {
        let _ = write!(text, "{:08X}", u32::from_ne_bytes(*word));
    }
    let _ = write!(text, ":{port:04X}");
    text
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};

    use super::*;

    #[test]
    fn the_client_of_a_loopback_connection_is_found() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let server = listener.local_addr().unwrap();
        let stream = TcpStream::connect(server).unwrap();
        let (accepted, client) = listener.accept().unwrap();
        let table = ConnectionTable::open().unwrap();
        let own = rustix::process::getuid().as_raw();
        assert_eq!(table.owner(client, server).unwrap(), Some(own));
        assert_eq!(table.owner(client, server).unwrap(), Some(own), "the table can be read again");
        drop(stream);
        assert_eq!(table.owner(client, server).unwrap(), None, "closed");
        drop(accepted);
        assert_eq!(table.owner("127.0.0.1:1".parse().unwrap(), server).unwrap(), None);
    }

    #[test]
    #[cfg(target_endian = "little")]
    fn rows_are_read() {
        let row = |local: &str, remote: &str, inode: u32| {
            format!(
                "header\n   1: {local} {remote} 01 00000000:00000000 00:00000000 00000000  1001        0 {inode} 1 x 20 4\n"
            )
        };
        let (client, server) = ("127.0.0.1:34580".parse().unwrap(), "127.0.0.1:8265".parse().unwrap());
        let check = |table: &str, expect: Option<u32>| assert_eq!(find_owner(table, client, server), expect, "{table}");
        check(&row("0100007F:8714", "0100007F:2049", 7), Some(1001));
        check(&row("0100007F:2049", "0100007F:8714", 7), None);
        check(&row("0100007F:8714", "0100007F:2049", 0), None);
        let mapped = "0000000000000000FFFF00000100007F";
        check(&row(&format!("{mapped}:8714"), &format!("{mapped}:2049"), 7), Some(1001));
        check("", None);
        check("header\n nonsense\n", None);
    }
}
