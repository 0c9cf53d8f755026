//! Forks the current process.

use std::io;

use nix::sched::CloneFlags;
use nix::unistd::Pid;

/// Proof that this process has a single thread, so that forking it is safe.
#[derive(Debug, Clone, Copy)]
pub(super) struct SingleThread(());

pub(super) enum Fork {
    Parent(Pid),
    Child,
}

impl SingleThread {
    /// Counts the threads of this process.
    pub(super) fn check() -> io::Result<Self> {
        match std::fs::read_dir("/proc/self/task")?.count() {
            1 => Ok(Self(())),
            n => Err(io::Error::other(format!("cannot fork safely: the process already has {n} threads"))),
        }
    }

    /// Forks; the child starts in the new namespaces of `flags` and is single-threaded too.
    pub(super) fn fork(self, flags: CloneFlags) -> io::Result<Fork> {
        let flags = flags.bits() | nix::libc::SIGCHLD;
        // SAFETY: without CLONE_VM the child gets its own copy of the memory, and with a single
        // thread no lock can be held by a thread that the copy lacks; no stack is passed, so both
        // continue on their own copy of this one.
        let pid = unsafe { nix::libc::syscall(nix::libc::SYS_clone, nix::libc::c_long::from(flags), 0, 0, 0, 0) };
        match pid {
            -1 => Err(io::Error::last_os_error()),
            0 => Ok(Fork::Child),
            pid => Ok(Fork::Parent(Pid::from_raw(i32::try_from(pid).map_err(io::Error::other)?))),
        }
    }
}

/// Exits at once, without running exit handlers.
pub(super) fn exit_now(code: i32) -> ! {
    // SAFETY: _exit only ends the process.
    unsafe { nix::libc::_exit(code) }
}
