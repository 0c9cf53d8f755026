//! One rule of nftables, written without its tools: in this network namespace, every TCP connection that comes in goes to
//! one port, whatever its address and port were.

use std::io;
use std::os::fd::AsRawFd;

use nix::libc;
use nix::sys::socket::{
    AddressFamily, MsgFlags, NetlinkAddr, SockFlag, SockProtocol, SockType, bind, recv, send, socket,
};

use super::netlink::{attribute, message, zero_ended};

const REQUEST: u16 = libc::NLM_F_REQUEST as u16;
const CREATE: u16 = (libc::NLM_F_REQUEST | libc::NLM_F_ACK | libc::NLM_F_CREATE) as u16;
const APPEND: u16 = CREATE | libc::NLM_F_APPEND as u16;
/// Marks an attribute that holds others.
const NESTED: u16 = libc::NLA_F_NESTED as u16;
/// A register of four bytes; which one does not matter.
const REGISTER: u32 = libc::NFT_REG32_00 as u32;
/// Where destinations are rewritten among other hooks of the same place.
const DESTINATION_PRIORITY: i32 = -100;

// The attributes of nftables' messages, which libc does not name.
const HOOK_NUMBER: u16 = 1;
const HOOK_PRIORITY: u16 = 2;
const TABLE_NAME: u16 = 1;
const CHAIN_TABLE: u16 = 1;
const CHAIN_NAME: u16 = 3;
const CHAIN_HOOK: u16 = 4;
const CHAIN_TYPE: u16 = 7;
const RULE_TABLE: u16 = 1;
const RULE_CHAIN: u16 = 2;
const RULE_EXPRESSIONS: u16 = 4;
const DATA_VALUE: u16 = 1;
const EXPRESSION_NAME: u16 = 1;
const EXPRESSION_DATA: u16 = 2;
const LIST_ELEMENT: u16 = 1;
const META_KEY: u16 = 2;
const META_REGISTER: u16 = 1;
const CMP_REGISTER: u16 = 1;
const CMP_OPERATOR: u16 = 2;
const CMP_DATA: u16 = 3;
const IMMEDIATE_REGISTER: u16 = 1;
const IMMEDIATE_DATA: u16 = 2;
const REDIRECT_LEAST_PORT: u16 = 1;
const REDIRECT_MOST_PORT: u16 = 2;
const REDIRECT_FLAGS: u16 = 3;
/// Says that a redirection has a port.
const REDIRECT_HAS_PORT: u32 = 2;

/// Sends all TCP connections that come in to a port of this namespace.
pub(super) fn redirect_tcp(port: u16) -> io::Result<()> {
    let socket = socket(AddressFamily::Netlink, SockType::Raw, SockFlag::SOCK_CLOEXEC, SockProtocol::NetlinkNetFilter)?;
    bind(socket.as_raw_fd(), &NetlinkAddr::new(0, 0))?;
    let (batch, acknowledged) = batch(port);
    send(socket.as_raw_fd(), &batch, MsgFlags::empty())?;
    let mut confirmed = 0;
    while confirmed < acknowledged {
        let mut reply = vec![0; 16 * 1024];
        let n = recv(socket.as_raw_fd(), &mut reply, MsgFlags::empty())?;
        let mut rest = &reply[..n];
        while let Some(code) = rest.get(16..20).and_then(|b| b.try_into().ok()).map(i32::from_ne_bytes) {
            if code != 0 {
                return Err(io::Error::from_raw_os_error(-code));
            }
            confirmed += 1;
            let length = rest.get(..4).and_then(|b| b.try_into().ok()).map_or(0, u32::from_ne_bytes);
            rest = usize::try_from(length).ok().filter(|n| *n > 0).and_then(|n| rest.get(n..)).unwrap_or_default();
        }
    }
    Ok(())
}

/// Returns the messages of one transaction, and how many of them are acknowledged.
fn batch(port: u16) -> (Vec<u8>, usize) {
    let (table, chain) = (zero_ended("manta"), zero_ended("egress"));
    let named = |attributes: &[(u16, &[u8])]| {
        let mut body = Vec::new();
        attributes.iter().for_each(|(kind, value)| attribute(&mut body, *kind, value));
        body
    };
    let hook = named(&[
        (HOOK_NUMBER, &(libc::NF_INET_PRE_ROUTING as u32).to_be_bytes()),
        (HOOK_PRIORITY, &DESTINATION_PRIORITY.to_be_bytes()),
    ]);
    let new_table = named(&[(TABLE_NAME, &table)]);
    let new_chain = named(&[
        (CHAIN_TABLE, &table),
        (CHAIN_NAME, &chain),
        (CHAIN_HOOK | NESTED, &hook),
        (CHAIN_TYPE, &zero_ended("nat")),
    ]);
    let new_rule = named(&[(RULE_TABLE, &table), (RULE_CHAIN, &chain), (RULE_EXPRESSIONS | NESTED, &rule(port))]);
    let subsystem = (libc::NFNL_SUBSYS_NFTABLES as u16) << 8;
    let requests = [
        (libc::NFT_MSG_NEWTABLE as u16, CREATE, new_table),
        (libc::NFT_MSG_NEWCHAIN as u16, CREATE, new_chain),
        (libc::NFT_MSG_NEWRULE as u16, APPEND, new_rule),
    ];
    let acknowledged = requests.len();
    let edge = |kind: i32| (kind as u16, REQUEST, libc::AF_UNSPEC as u8, libc::NFNL_SUBSYS_NFTABLES as u16, Vec::new());
    let mut all = vec![edge(libc::NFNL_MSG_BATCH_BEGIN)];
    all.extend(requests.map(|(kind, flags, body)| (subsystem | kind, flags, libc::AF_INET as u8, 0, body)));
    all.push(edge(libc::NFNL_MSG_BATCH_END));
    let mut bytes = Vec::new();
    for (sequence, (kind, flags, family, resource, body)) in (1..).zip(all) {
        // The header of netfilter: family, version, resource.
        let mut content = vec![family, 0];
        content.extend(resource.to_be_bytes());
        content.extend(body);
        bytes.extend(message(kind, flags, sequence, &content));
    }
    (bytes, acknowledged)
}

/// Returns the expressions of the rule: if the protocol is TCP, redirect to the port.
fn rule(port: u16) -> Vec<u8> {
    let register = REGISTER.to_be_bytes();
    let value = |bytes: &[u8]| {
        let mut data = Vec::new();
        attribute(&mut data, DATA_VALUE, bytes);
        data
    };
    let mut rule = Vec::new();
    let mut expression = |name: &str, attributes: &[(u16, &[u8])]| {
        let mut data = Vec::new();
        attributes.iter().for_each(|(kind, value)| attribute(&mut data, *kind, value));
        let mut one = Vec::new();
        attribute(&mut one, EXPRESSION_NAME, &zero_ended(name));
        attribute(&mut one, EXPRESSION_DATA | NESTED, &data);
        attribute(&mut rule, LIST_ELEMENT | NESTED, &one);
    };
    let protocol = (libc::NFT_META_L4PROTO as u32).to_be_bytes();
    expression("meta", &[(META_KEY, &protocol), (META_REGISTER, &register)]);
    let equal = (libc::NFT_CMP_EQ as u32).to_be_bytes();
    let tcp = value(&[libc::IPPROTO_TCP as u8]);
    expression("cmp", &[(CMP_REGISTER, &register), (CMP_OPERATOR, &equal), (CMP_DATA | NESTED, &tcp)]);
    let port = value(&port.to_be_bytes());
    expression("immediate", &[(IMMEDIATE_REGISTER, &register), (IMMEDIATE_DATA | NESTED, &port)]);
    let flags = REDIRECT_HAS_PORT.to_be_bytes();
    expression("redir", &[(REDIRECT_LEAST_PORT, &register), (REDIRECT_MOST_PORT, &register), (REDIRECT_FLAGS, &flags)]);
    rule
}
