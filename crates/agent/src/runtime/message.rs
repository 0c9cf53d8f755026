//! Messages with file descriptors over a local socket.

use std::io::{self, IoSlice, IoSliceMut, Read, Seek, Write};
use std::mem::MaybeUninit;
use std::os::fd::{BorrowedFd, OwnedFd};

use rustix::fs::{MemfdFlags, memfd_create};
use rustix::net::{
    AddressFamily, RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, SendAncillaryBuffer, SendAncillaryMessage,
    SendFlags, SocketFlags, SocketType, recvmsg, sendmsg, socketpair,
};
use serde::Serialize;
use serde::de::DeserializeOwned;

const MAX_FDS: usize = 10;
const MAX_MESSAGE: usize = 64 * 1024;

/// Returns the two ends of a connection that preserves message boundaries.
pub(super) fn pair() -> io::Result<(OwnedFd, OwnedFd)> {
    Ok(socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, SocketFlags::CLOEXEC, None)?)
}

pub(super) fn send<T: Serialize>(socket: &OwnedFd, message: &T, fds: &[BorrowedFd<'_>]) -> io::Result<()> {
    let bytes = serde_json::to_vec(message)?;
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = SendAncillaryBuffer::new(&mut space);
    if !fds.is_empty() && !control.push(SendAncillaryMessage::ScmRights(fds)) {
        return Err(io::Error::other("too many file descriptors in one message"));
    }
    sendmsg(socket, &[IoSlice::new(&bytes)], &mut control, SendFlags::NOSIGNAL)?;
    Ok(())
}

/// Returns the next message, or `None` when the peer has closed.
pub(super) fn receive<T: DeserializeOwned>(socket: &OwnedFd) -> io::Result<Option<(T, Vec<OwnedFd>)>> {
    let mut bytes = vec![0; MAX_MESSAGE];
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(MAX_FDS))];
    let mut control = RecvAncillaryBuffer::new(&mut space);
    let got = loop {
        match recvmsg(socket, &mut [IoSliceMut::new(&mut bytes)], &mut control, RecvFlags::CMSG_CLOEXEC) {
            // The peer closed with unread data; reported once, and what it sent before can still be read.
            Err(rustix::io::Errno::INTR | rustix::io::Errno::CONNRESET) => {}
            other => break other?,
        }
    };
    let mut fds = Vec::new();
    for message in control.drain() {
        if let RecvAncillaryMessage::ScmRights(rights) = message {
            fds.extend(rights);
        }
    }
    if got.bytes == 0 {
        return Ok(None);
    }
    Ok(Some((serde_json::from_slice(&bytes[..got.bytes])?, fds)))
}

/// Serializes a value of any size into a memfd, to be passed as a descriptor.
pub(super) fn pack<T: Serialize>(value: &T) -> io::Result<OwnedFd> {
    let mut file = std::fs::File::from(memfd_create("manta-job", MemfdFlags::CLOEXEC)?);
    file.write_all(&serde_json::to_vec(value)?)?;
    file.rewind()?;
    Ok(file.into())
}

pub(super) fn unpack<T: DeserializeOwned>(fd: OwnedFd) -> io::Result<T> {
    let mut bytes = Vec::new();
    std::fs::File::from(fd).read_to_end(&mut bytes)?;
    Ok(serde_json::from_slice(&bytes)?)
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;

    use super::*;

    #[test]
    fn messages_carry_values_and_descriptors() {
        let (a, b) = pair().unwrap();
        let job = pack(&vec![7u32; 100_000]).unwrap();
        send(&a, &"hello", &[job.as_fd()]).unwrap();
        let (text, mut fds) = receive::<String>(&b).unwrap().unwrap();
        assert_eq!((&*text, fds.len()), ("hello", 1));
        assert_eq!(unpack::<Vec<u32>>(fds.remove(0)).unwrap().len(), 100_000);
        drop(a);
        assert!(receive::<String>(&b).unwrap().is_none());
    }

    #[test]
    fn a_peer_that_closes_with_unread_data_is_an_end_of_stream() {
        let (a, b) = pair().unwrap();
        send(&a, &"unread", &[]).unwrap();
        send(&b, &"last words", &[]).unwrap();
        drop(b);
        assert_eq!(receive::<String>(&a).unwrap().unwrap().0, "last words");
        assert!(receive::<String>(&a).unwrap().is_none());
    }
}
