//! Enters the namespaces that the whole of local mode runs in.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use nix::mount::{MsFlags, mount};
use nix::sched::{CloneFlags, unshare};
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{Uid, getegid, geteuid};
use tokio::sync::mpsc;

use super::fork::{Fork, SingleThread, exit_now};
use super::fork_server::{self, Status};
use super::message;
use super::spawner::Spawner;

/// How well local mode is isolated from the host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Namespaces created by root.
    Root,
    /// The same inside a user namespace.
    UserNamespace,
    /// No namespaces: pods share the host's network and files.
    None,
}

/// The main process inside the namespaces.
pub struct IsolatedProcess {
    pub isolation: Isolation,
    /// Connections to `init` and to the outer process; unused until threads may start.
    links: Links,
}

struct Links {
    init: OwnedFd,
    outer: OwnedFd,
}

/// The two fork servers, and the requests to stop.
pub struct Spawners {
    /// Starts containers.
    pub containers: Spawner,
    /// Opens ports and runs commands in the host's own namespaces.
    pub host: Spawner,
    /// Signals that the outer process received; a lost connection counts as SIGTERM.
    pub stop: mpsc::UnboundedReceiver<i32>,
}

impl IsolatedProcess {
    /// Starts to use the connections; the process has threads from here on.
    pub fn connect(self) -> io::Result<Spawners> {
        let (sender, stop) = mpsc::unbounded_channel();
        let containers = Spawner::new(self.links.init, sender.clone())?;
        let host = Spawner::new(self.links.outer, sender)?;
        Ok(Spawners { containers, host, stop })
    }
}

/// Why the namespaces cannot be created.
#[derive(Debug, thiserror::Error)]
pub enum IsolationError {
    #[error(
        "this machine does not let an ordinary user create namespaces ({cause}); run as root, or allow it with \
         `sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000` (on Ubuntu also \
         `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`)"
    )]
    NoUserNamespaces { cause: io::Error },
    #[error(
        "cannot create namespaces although running as root ({cause}); a container needs --privileged for this, and \
         `sysctl user.max_user_namespaces` must not be 0"
    )]
    NoNamespaces { cause: io::Error },
    #[error("cannot start the isolated process")]
    Start(#[from] io::Error),
}

/// Runs `main` in new namespaces and returns its exit code; the caller must have a single thread.
pub fn enter_namespaces(main: impl FnOnce(IsolatedProcess) -> i32) -> Result<i32, IsolationError> {
    let one = SingleThread::check()?;
    let isolation = best_isolation(one)?;
    enter(one, isolation, main)
}

/// Does the same, but runs `main` without namespaces, with the reason, where none can be created.
pub fn enter_namespaces_or_share_host(
    main: impl FnOnce(IsolatedProcess, Option<IsolationError>) -> i32,
) -> Result<i32, IsolationError> {
    let one = SingleThread::check()?;
    match best_isolation(one) {
        Ok(isolation) => enter(one, isolation, |process| main(process, None)),
        Err(why) => enter(one, Isolation::None, |process| main(process, Some(why))),
    }
}

fn best_isolation(one: SingleThread) -> Result<Isolation, IsolationError> {
    if geteuid().is_root() {
        probe(one, Isolation::Root).map_err(|cause| IsolationError::NoNamespaces { cause })?;
        return Ok(Isolation::Root);
    }
    probe(one, Isolation::UserNamespace).map_err(|cause| IsolationError::NoUserNamespaces { cause })?;
    Ok(Isolation::UserNamespace)
}

fn enter(
    one: SingleThread,
    isolation: Isolation,
    main: impl FnOnce(IsolatedProcess) -> i32,
) -> Result<i32, IsolationError> {
    let (outer_here, outer_there) = message::pair()?;
    let identity = Identity::current();
    match one.fork(namespaces(isolation))? {
        Fork::Parent(init) => {
            drop(outer_there);
            let stops = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
            Ok(fork_server::serve(one, outer_here, init, &stops)?.code())
        }
        Fork::Child => {
            drop(outer_here);
            let code = match init(one, isolation, &identity, outer_there, main) {
                Ok(status) => status.code(),
                Err(error) => {
                    print_error(&format!("cannot set up the namespaces: {error}"));
                    1
                }
            };
            exit_now(code)
        }
    }
}

/// Runs as PID 1: prepares the namespaces, starts `main`, then forks on request until `main` ends.
fn init(
    one: SingleThread,
    isolation: Isolation,
    identity: &Identity,
    outer: OwnedFd,
    main: impl FnOnce(IsolatedProcess) -> i32,
) -> io::Result<Status> {
    prepare(isolation, identity)?;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let (here, there) = message::pair()?;
    match one.fork(CloneFlags::empty())? {
        Fork::Parent(pid) => {
            drop((outer, there));
            fork_server::serve(one, here, pid, &[])
        }
        Fork::Child => {
            drop(here);
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            let process = IsolatedProcess { isolation, links: Links { init: there, outer } };
            std::process::exit(main(process))
        }
    }
}

fn namespaces(isolation: Isolation) -> CloneFlags {
    let all = CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWUTS;
    match isolation {
        Isolation::Root => all,
        Isolation::UserNamespace => all | CloneFlags::CLONE_NEWUSER,
        Isolation::None => CloneFlags::empty(),
    }
}

/// Creates the namespaces in a short-lived process; sysctls alone do not show whether it works.
fn probe(one: SingleThread, isolation: Isolation) -> io::Result<()> {
    let identity = Identity::current();
    match one.fork(namespaces(isolation))? {
        // Every container gets a user namespace of its own inside these.
        Fork::Child => match prepare(isolation, &identity).and_then(|()| Ok(unshare(CloneFlags::CLONE_NEWUSER)?)) {
            Ok(()) => exit_now(0),
            Err(error) => exit_now(error.raw_os_error().unwrap_or(255)),
        },
        Fork::Parent(pid) => match waitpid(pid, None)? {
            nix::sys::wait::WaitStatus::Exited(_, 0) => Ok(()),
            nix::sys::wait::WaitStatus::Exited(_, code) if code != 255 => Err(io::Error::from_raw_os_error(code)),
            other => Err(io::Error::other(format!("the attempt ended with {other:?}"))),
        },
    }
}

struct Identity {
    uid: u32,
    gid: u32,
}

impl Identity {
    fn current() -> Self {
        Self { uid: geteuid().as_raw(), gid: getegid().as_raw() }
    }
}

/// Becomes root of the new namespaces and mounts a /proc that shows only their processes.
fn prepare(isolation: Isolation, identity: &Identity) -> io::Result<()> {
    if isolation == Isolation::None {
        return Ok(());
    }
    if isolation == Isolation::UserNamespace {
        fs::write("/proc/self/setgroups", "deny")?;
        fs::write("/proc/self/uid_map", format!("0 {} 1\n", identity.uid))?;
        fs::write("/proc/self/gid_map", format!("0 {} 1\n", identity.gid))?;
        if !Uid::effective().is_root() {
            return Err(io::Error::other("not root in the new user namespace"));
        }
    }
    let none: Option<&str> = None;
    mount(none, "/", none, MsFlags::MS_REC | MsFlags::MS_PRIVATE, none)?;
    let flags = MsFlags::MS_NOSUID | MsFlags::MS_NODEV | MsFlags::MS_NOEXEC;
    mount(Some("proc"), "/proc", Some("proc"), flags, none)?;
    Ok(())
}

/// Prints an error to the terminal before logging is set up.
fn print_error(text: &str) {
    use std::io::Write;
    let _ = writeln!(io::stderr(), "{text}");
}
