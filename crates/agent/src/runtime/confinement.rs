//! What a container's processes may do: their ids, capabilities, system calls and number.

use std::io;

use nix::unistd::{Gid, Uid, setgroups, setresgid, setresuid};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use rustix::thread::{CapabilitySet, CapabilitySets};
use serde::{Deserialize, Serialize};

use super::seccomp;
use super::user_namespace::IdMap;

/// The restrictions of one container, fully decided.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confinement {
    pub ids: IdMap,
    pub uid: u32,
    pub gid: u32,
    /// Supplementary groups; an ordinary user has none to give.
    pub groups: Vec<u32>,
    /// The bits of the capabilities that may be held.
    pub capabilities: u64,
    pub seccomp: Seccomp,
    /// How many processes and threads there may be, where no control group limits them.
    pub max_processes: Option<u64>,
}

/// Which system calls are allowed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Seccomp {
    RuntimeDefault,
    Unconfined,
}

/// The capabilities that container runtimes grant by default.
pub const DEFAULT_CAPABILITIES: CapabilitySet = CapabilitySet::CHOWN
    .union(CapabilitySet::DAC_OVERRIDE)
    .union(CapabilitySet::FSETID)
    .union(CapabilitySet::FOWNER)
    .union(CapabilitySet::MKNOD)
    .union(CapabilitySet::NET_RAW)
    .union(CapabilitySet::SETGID)
    .union(CapabilitySet::SETUID)
    .union(CapabilitySet::SETFCAP)
    .union(CapabilitySet::SETPCAP)
    .union(CapabilitySet::NET_BIND_SERVICE)
    .union(CapabilitySet::SYS_CHROOT)
    .union(CapabilitySet::KILL)
    .union(CapabilitySet::AUDIT_WRITE);

impl Confinement {
    /// Takes on the ids and gives up everything that is not granted; the next step is `execve`.
    pub(super) fn apply(&self) -> io::Result<()> {
        if let Some(most) = self.max_processes {
            let most = getrlimit(Resource::Nproc).maximum.map_or(most, |hard| hard.min(most));
            let limit = Rlimit { current: Some(most), maximum: Some(most) };
            setrlimit(Resource::Nproc, limit).map_err(|e| failed("the limit of processes", e))?;
        }
        rustix::thread::set_no_new_privs(true).map_err(|e| failed("no_new_privs", e))?;
        if self.seccomp == Seccomp::RuntimeDefault {
            seccomp::install(CapabilitySet::from_bits_retain(self.capabilities))
                .map_err(|e| failed("the seccomp filter", e))?;
        }
        let kept = CapabilitySet::from_bits_retain(self.capabilities);
        limit_bounding_set(kept)?;
        rustix::thread::clear_ambient_capability_set().map_err(|e| failed("ambient capabilities", e))?;
        if let IdMap::Range { .. } = self.ids {
            let groups: Vec<Gid> = self.groups.iter().map(|gid| Gid::from_raw(*gid)).collect();
            setgroups(&groups).map_err(|e| failed("supplementary groups", e))?;
        }
        let (uid, gid) = (Uid::from_raw(self.uid), Gid::from_raw(self.gid));
        setresgid(gid, gid, gid).map_err(|e| failed("the group id", e))?;
        setresuid(uid, uid, uid).map_err(|e| failed("the user id", e))?;
        set_capabilities(if self.uid == 0 { kept } else { CapabilitySet::empty() })
    }

    /// Gives up what a process without namespaces can do without: it keeps its ids.
    pub(super) fn apply_without_namespaces(&self) -> io::Result<()> {
        rustix::thread::set_no_new_privs(true).map_err(|e| failed("no_new_privs", e))?;
        if self.seccomp == Seccomp::RuntimeDefault {
            seccomp::install(CapabilitySet::from_bits_retain(self.capabilities))
                .map_err(|e| failed("the seccomp filter", e))?;
        }
        if !nix::unistd::geteuid().is_root() {
            return Ok(());
        }
        let kept = CapabilitySet::from_bits_retain(self.capabilities);
        limit_bounding_set(kept)?;
        let held = rustix::thread::capabilities(None).map_err(|e| failed("capabilities", e))?;
        set_capabilities(kept & held.permitted)
    }
}

fn limit_bounding_set(kept: CapabilitySet) -> io::Result<()> {
    for bit in 0..64 {
        let one = CapabilitySet::from_bits_retain(1 << bit);
        // The kernel knows no capability from some number on.
        let Ok(held) = rustix::thread::capability_is_in_bounding_set(one) else { break };
        if held && !kept.contains(one) {
            rustix::thread::remove_capability_from_bounding_set(one).map_err(|e| failed("the bounding set", e))?;
        }
    }
    Ok(())
}

fn set_capabilities(set: CapabilitySet) -> io::Result<()> {
    let sets = CapabilitySets { effective: set, permitted: set, inheritable: CapabilitySet::empty() };
    rustix::thread::set_capabilities(None, sets).map_err(|e| failed("capabilities", e))
}

fn failed(what: &str, cause: impl std::fmt::Display) -> io::Error {
    io::Error::other(format!("cannot set {what} of the container: {cause}"))
}
