//! The few rtnetlink requests that the pod network needs.

use std::io;
use std::net::Ipv4Addr;
use std::os::fd::{AsRawFd, BorrowedFd, OwnedFd};

use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};

const ACK: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK) as u16;
const CREATE: u16 = ACK | (libc::NLM_F_CREATE | libc::NLM_F_EXCL) as u16;
/// `VETH_INFO_PEER`, which libc does not name.
const PEER: u16 = 1;

/// A connection to the network stack of the namespace it was opened in.
pub(super) struct Netlink {
    socket: OwnedFd,
    sequence: u32,
}

impl Netlink {
    pub(super) fn open() -> io::Result<Self> {
        let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkRoute)?;
        bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
        Ok(Self { socket, sequence: 0 })
    }

    pub(super) fn index(&mut self, name: &str) -> io::Result<u32> {
        let mut body = link_header(0, 0, 0);
        attribute(&mut body, libc::IFLA_IFNAME, &zero_ended(name));
        let reply = self.ask(libc::RTM_GETLINK, libc::NLM_F_REQUEST as u16, &body)?;
        // The index is the second word of the header that follows the message header.
        let bytes =
            reply.get(20..24).and_then(|b| b.try_into().ok()).ok_or_else(|| io::Error::other("a short reply"))?;
        Ok(u32::from_ne_bytes(bytes))
    }

    pub(super) fn up(&mut self, index: u32) -> io::Result<()> {
        let up = libc::IFF_UP as u32;
        self.ask(libc::RTM_NEWLINK, ACK, &link_header(index, up, up)).map(drop)
    }

    /// A pair of connected interfaces, the other end in another namespace.
    pub(super) fn add_veth(&mut self, name: &str, peer: &str, namespace: BorrowedFd<'_>) -> io::Result<()> {
        let mut other = link_header(0, 0, 0);
        attribute(&mut other, libc::IFLA_IFNAME, &zero_ended(peer));
        attribute(&mut other, libc::IFLA_NET_NS_FD, &namespace.as_raw_fd().to_ne_bytes());
        let mut data = Vec::new();
        attribute(&mut data, PEER, &other);
        let mut info = Vec::new();
        attribute(&mut info, libc::IFLA_INFO_KIND, b"veth");
        attribute(&mut info, libc::IFLA_INFO_DATA, &data);
        let mut body = link_header(0, 0, 0);
        attribute(&mut body, libc::IFLA_IFNAME, &zero_ended(name));
        attribute(&mut body, libc::IFLA_LINKINFO, &info);
        self.ask(libc::RTM_NEWLINK, CREATE, &body).map(drop)
    }

    pub(super) fn add_address(&mut self, index: u32, ip: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut body = vec![libc::AF_INET as u8, prefix, 0, libc::RT_SCOPE_UNIVERSE];
        body.extend(index.to_ne_bytes());
        attribute(&mut body, libc::IFA_LOCAL, &ip.octets());
        attribute(&mut body, libc::IFA_ADDRESS, &ip.octets());
        self.ask(libc::RTM_NEWADDR, CREATE, &body).map(drop)
    }

    /// Every address of a network belongs to this machine.
    pub(super) fn add_local_route(&mut self, index: u32, net: Ipv4Addr, prefix: u8) -> io::Result<()> {
        self.add_route(index, Some((net, prefix)), None, libc::RT_TABLE_LOCAL, libc::RT_SCOPE_HOST, libc::RTN_LOCAL)
    }

    /// A network that is reached directly.
    pub(super) fn add_link_route(&mut self, index: u32, net: Ipv4Addr, prefix: u8) -> io::Result<()> {
        self.add_route(index, Some((net, prefix)), None, libc::RT_TABLE_MAIN, libc::RT_SCOPE_LINK, libc::RTN_UNICAST)
    }

    /// A network that does not exist: connections fail at once.
    pub(super) fn add_unreachable_route(&mut self, net: Ipv4Addr, prefix: u8) -> io::Result<()> {
        let mut body = vec![libc::AF_INET as u8, prefix, 0, 0, libc::RT_TABLE_MAIN, libc::RTPROT_BOOT];
        body.extend([libc::RT_SCOPE_UNIVERSE, libc::RTN_UNREACHABLE]);
        body.extend(0u32.to_ne_bytes());
        attribute(&mut body, libc::RTA_DST, &net.octets());
        self.ask(libc::RTM_NEWROUTE, CREATE, &body).map(drop)
    }

    /// A network that is reached through a neighbour.
    pub(super) fn add_route_via(&mut self, index: u32, net: (Ipv4Addr, u8), via: Ipv4Addr) -> io::Result<()> {
        self.add_route(index, Some(net), Some(via), libc::RT_TABLE_MAIN, libc::RT_SCOPE_UNIVERSE, libc::RTN_UNICAST)
    }

    /// Every address that has no other route belongs to this machine.
    pub(super) fn add_local_default(&mut self, index: u32) -> io::Result<()> {
        self.add_route(index, None, None, libc::RT_TABLE_MAIN, libc::RT_SCOPE_HOST, libc::RTN_LOCAL)
    }

    pub(super) fn add_default_route(&mut self, index: u32, via: Ipv4Addr) -> io::Result<()> {
        self.add_route(index, None, Some(via), libc::RT_TABLE_MAIN, libc::RT_SCOPE_UNIVERSE, libc::RTN_UNICAST)
    }

    fn add_route(
        &mut self,
        index: u32,
        to: Option<(Ipv4Addr, u8)>,
        via: Option<Ipv4Addr>,
        table: u8,
        scope: u8,
        kind: u8,
    ) -> io::Result<()> {
        let prefix = to.map_or(0, |(_, prefix)| prefix);
        let mut body = vec![libc::AF_INET as u8, prefix, 0, 0, table, libc::RTPROT_BOOT, scope, kind];
        body.extend(0u32.to_ne_bytes());
        if let Some((net, _)) = to {
            attribute(&mut body, libc::RTA_DST, &net.octets());
        }
        if let Some(via) = via {
            attribute(&mut body, libc::RTA_GATEWAY, &via.octets());
        }
        attribute(&mut body, libc::RTA_OIF, &index.to_ne_bytes());
        self.ask(libc::RTM_NEWROUTE, CREATE, &body).map(drop)
    }

    fn ask(&mut self, kind: u16, flags: u16, body: &[u8]) -> io::Result<Vec<u8>> {
        self.sequence += 1;
        send(self.socket.as_raw_fd(), &message(kind, flags, self.sequence, body), MsgFlags::empty())?;
        let mut reply = vec![0; 16 * 1024];
        let n = recv(self.socket.as_raw_fd(), &mut reply, MsgFlags::empty())?;
        reply.truncate(n);
        let word = |at: usize| reply.get(at..at + 4).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes);
        let kind = reply.get(4..6).and_then(|b| b.try_into().ok()).map(u16::from_ne_bytes);
        match (kind.map(i32::from), word(16)) {
            (Some(libc::NLMSG_ERROR), Some(0)) => Ok(reply),
            (Some(libc::NLMSG_ERROR), Some(code)) => Err(io::Error::from_raw_os_error(-code)),
            (Some(_), _) => Ok(reply),
            (None, _) => Err(io::Error::other("a short reply from the network stack")),
        }
    }
}

/// Returns a message with its header.
pub(super) fn message(kind: u16, flags: u16, sequence: u32, body: &[u8]) -> Vec<u8> {
    let mut message = Vec::with_capacity(16 + body.len());
    message.extend(u32::try_from(16 + body.len()).unwrap_or(u32::MAX).to_ne_bytes());
    message.extend(kind.to_ne_bytes());
    message.extend(flags.to_ne_bytes());
    message.extend(sequence.to_ne_bytes());
    message.extend(0u32.to_ne_bytes());
    message.extend(body);
    message
}

fn link_header(index: u32, flags: u32, change: u32) -> Vec<u8> {
    let mut body = vec![libc::AF_UNSPEC as u8, 0, 0, 0];
    body.extend(index.to_ne_bytes());
    body.extend(flags.to_ne_bytes());
    body.extend(change.to_ne_bytes());
    body
}

/// Appends an attribute, padded to four bytes.
pub(super) fn attribute(body: &mut Vec<u8>, kind: u16, value: &[u8]) {
    let length = u16::try_from(4 + value.len()).unwrap_or(u16::MAX);
    body.extend(length.to_ne_bytes());
    body.extend(kind.to_ne_bytes());
    body.extend(value);
    body.resize(body.len().next_multiple_of(4), 0);
}

pub(super) fn zero_ended(text: &str) -> Vec<u8> {
    let mut bytes = text.as_bytes().to_vec();
    bytes.push(0);
    bytes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn loopback_is_found_and_nonsense_is_not() {
        let mut link = Netlink::open().unwrap();
        assert!(link.index("lo").unwrap() > 0);
        assert!(link.index("no-such-link").is_err());
    }
}
