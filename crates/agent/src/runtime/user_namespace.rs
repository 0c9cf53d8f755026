//! The user namespace of a container: which ids inside stand for which ids outside.
//!
//! Started by root, every id inside maps into a range of ids that nobody on the host has, so that root inside is an
//! unprivileged user outside. An ordinary user has a single id to give: the one user of the container is that user.
//! All pods share the range, so that the files in a claim belong to the same ids in every pod that mounts it.

use std::fs;
use std::io::{self, Read, Write};

use nix::sched::{CloneFlags, unshare};
use nix::sys::wait::{WaitStatus, waitpid};
use serde::{Deserialize, Serialize};

use super::beneath::Owner;
use super::fork::{Fork, SingleThread, exit_now};

/// How many ids a container has, as every container runtime maps.
const COUNT: u32 = 65_536;
/// Where the range begins unless root has one in /etc/subuid: above the ids of people, below what systemd reserves.
const DEFAULT_BASE: u32 = 0x6f00_0000;

/// How the ids of containers map to ids of the agent's own user namespace.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum IdMap {
    /// A range that begins here.
    Range { base: u32 },
    /// One id, which is the agent's own.
    Single,
}

impl IdMap {
    /// Returns the mapping that this process can set up.
    pub fn detect() -> Self {
        let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
        let base = subordinate_base(&read("/etc/subuid"))
            .filter(|base| subordinate_base(&read("/etc/subgid")) == Some(*base))
            .unwrap_or(DEFAULT_BASE);
        let is_root = nix::unistd::geteuid().is_root();
        if is_root && covers(&read("/proc/self/uid_map"), base) && covers(&read("/proc/self/gid_map"), base) {
            Self::Range { base }
        } else {
            Self::Single
        }
    }

    /// Returns the ids outside that stand for a user and group inside.
    pub fn owner(self, uid: u32, gid: u32) -> Owner {
        Owner { uid: self.outside(uid), gid: self.outside(gid) }
    }

    fn outside(self, id: u32) -> u32 {
        match self {
            // An id above the range gets the one after it.
            Self::Range { base } => base + id.min(COUNT),
            Self::Single => 0,
        }
    }

    /// Returns the text of `uid_map` or `gid_map` for a container whose process has `id`.
    fn table(self, id: u32) -> String {
        match self {
            Self::Range { base } if id < COUNT => format!("0 {base} {COUNT}\n"),
            Self::Range { base } => format!("0 {base} {COUNT}\n{id} {} 1\n", base + COUNT),
            Self::Single => format!("{id} 0 1\n"),
        }
    }
}

/// Returns the first id of root's own range in the text of /etc/subuid, if it is large enough.
fn subordinate_base(text: &str) -> Option<u32> {
    text.lines().find_map(|line| {
        let mut fields = line.trim().split(':');
        let (name, start, count) = (fields.next()?, fields.next()?.parse().ok()?, fields.next()?.parse::<u32>().ok()?);
        (name == "root" && start >= COUNT && count > COUNT && start < u32::MAX - COUNT).then_some(start)
    })
}

/// Whether the process may use the whole range, given the text of its own `uid_map`.
fn covers(table: &str, base: u32) -> bool {
    let (first, last) = (u64::from(base), u64::from(base) + u64::from(COUNT));
    table.lines().any(|line| {
        let mut fields = line.split_whitespace().map(|f| f.parse::<u64>().ok());
        match (fields.next().flatten(), fields.nth(1).flatten()) {
            (Some(start), Some(count)) => start <= first && last < start.saturating_add(count),
            _ => false,
        }
    })
}

/// Moves this process into a user and a mount namespace of its own.
///
/// The mounts made so far become locked: nobody inside can unmount them or make them writable, whatever capabilities
/// they hold. The process still has the ids it had; the caller changes them.
pub(super) fn enter(one: SingleThread, map: IdMap, uid: u32, gid: u32) -> io::Result<()> {
    // Only a process outside the new namespace may write more than one id into its tables.
    let (ready, go) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC)?;
    let this = nix::unistd::getpid();
    match one.fork(CloneFlags::empty())? {
        Fork::Child => {
            drop(go);
            let _ = fs::File::from(ready).read(&mut [0]);
            let write = |name: &str, text: String| fs::write(format!("/proc/{this}/{name}"), text);
            let done = write("uid_map", map.table(uid)).and_then(|()| write("gid_map", map.table(gid)));
            exit_now(done.err().map_or(0, |error| error.raw_os_error().unwrap_or(255)))
        }
        Fork::Parent(helper) => {
            drop(ready);
            let created = unshare(CloneFlags::CLONE_NEWUSER);
            let _ = fs::File::from(go).write(&[1]);
            let status = loop {
                match waitpid(helper, None) {
                    Err(nix::Error::EINTR) => {}
                    other => break other?,
                }
            };
            created.map_err(|e| io::Error::other(format!("cannot create a user namespace: {}", e.desc())))?;
            match status {
                WaitStatus::Exited(_, 0) => {}
                WaitStatus::Exited(_, code) => {
                    let cause = io::Error::from_raw_os_error(code);
                    return Err(io::Error::other(format!("cannot map the ids of the container: {cause}")));
                }
                other => return Err(io::Error::other(format!("cannot map the ids of the container: {other:?}"))),
            }
            unshare(CloneFlags::CLONE_NEWNS)
                .map_err(|e| io::Error::other(format!("cannot create a mount namespace: {}", e.desc())))
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_map_into_the_range() {
        let map = IdMap::Range { base: 1_000_000 };
        assert_eq!(map.owner(0, 1000), Owner { uid: 1_000_000, gid: 1_001_000 });
        assert_eq!(map.owner(4_000_000_000, 0).uid, 1_065_536);
        assert_eq!(map.table(1000), "0 1000000 65536\n");
        assert_eq!(map.table(70_000), "0 1000000 65536\n70000 1065536 1\n");
        assert_eq!((IdMap::Single.table(1000), IdMap::Single.owner(7, 7)), ("1000 0 1\n".into(), Owner::default()));
    }

    #[test]
    fn ranges_are_read_from_the_systems_files() {
        assert_eq!(subordinate_base("me:100000:65536\nroot:200000:131072\n"), Some(200_000));
        for text in ["", "root:200000:65536", "root:1:131072", "root:x:y", "root:4294967295:70000"] {
            assert_eq!(subordinate_base(text), None, "{text}");
        }
        assert!(covers("         0          0 4294967295\n", DEFAULT_BASE));
        assert!(!covers("0 100000 65536\n", DEFAULT_BASE) && !covers("0 65534 1\n", 0) && !covers("", 0));
    }
}
