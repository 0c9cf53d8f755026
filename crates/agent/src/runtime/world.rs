//! Entering the world: the namespaces in which everything of local mode lives.

use std::fs;
use std::io;
use std::os::fd::OwnedFd;

use nix::mount::{MsFlags, mount};
use nix::sched::CloneFlags;
use nix::sys::signal::Signal;
use nix::sys::wait::waitpid;
use nix::unistd::{Uid, getegid, geteuid};
use tokio::sync::mpsc;

use super::fork::{Fork, SingleThread, exit_now};
use super::server::{self, Status};
use super::spawner::Spawner;
use super::wire;

/// How far the world is set apart from the machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Isolation {
    /// Namespaces made with the rights of root.
    Root,
    /// The same inside a user namespace.
    UserNamespace,
    /// Nothing is set apart: pods share the machine's network and files.
    Shared,
}

/// What the main process of a world is given.
pub struct World {
    pub isolation: Isolation,
    /// The connections to `init` and to the outer process, not yet in use: threads come later.
    links: Links,
}

struct Links {
    init: OwnedFd,
    outer: OwnedFd,
}

/// Both ways to start processes, and the requests to stop.
pub struct Hands {
    /// Starts containers.
    pub containers: Spawner,
    /// Opens ports and runs commands in the machine's own namespaces.
    pub machine: Spawner,
    /// Signals the outer process received; a closed world counts as one.
    pub stop: mpsc::UnboundedReceiver<i32>,
}

impl World {
    /// Begins to use the connections; threads exist from here on.
    pub fn open(self) -> io::Result<Hands> {
        let (tell, stop) = mpsc::unbounded_channel();
        let containers = Spawner::new(self.links.init, tell.clone())?;
        let machine = Spawner::new(self.links.outer, tell)?;
        Ok(Hands { containers, machine, stop })
    }
}

/// Why there can be no world here.
#[derive(Debug, thiserror::Error)]
pub enum WorldError {
    #[error(
        "this machine does not let an ordinary user make namespaces ({cause}); run as root, or allow it with \
         `sysctl -w kernel.unprivileged_userns_clone=1 user.max_user_namespaces=10000` (on Ubuntu also \
         `sysctl -w kernel.apparmor_restrict_unprivileged_userns=0`)"
    )]
    NoUserNamespaces { cause: io::Error },
    #[error("cannot make namespaces although running as root ({cause}); a container needs --privileged for this")]
    NoNamespaces { cause: io::Error },
    #[error("cannot start the local world")]
    Start(#[from] io::Error),
}

/// Runs `main` inside a new world and returns its exit code. Must be called before any thread starts.
pub fn enter_world(main: impl FnOnce(World) -> i32) -> Result<i32, WorldError> {
    let one = SingleThread::check()?;
    let isolation = best_isolation(one)?;
    enter(one, isolation, main)
}

/// The same, but where there can be no namespaces `main` runs without them and is told why.
pub fn enter_world_or_share(main: impl FnOnce(World, Option<WorldError>) -> i32) -> Result<i32, WorldError> {
    let one = SingleThread::check()?;
    match best_isolation(one) {
        Ok(isolation) => enter(one, isolation, |world| main(world, None)),
        Err(why) => enter(one, Isolation::Shared, |world| main(world, Some(why))),
    }
}

fn best_isolation(one: SingleThread) -> Result<Isolation, WorldError> {
    if geteuid().is_root() {
        probe(one, Isolation::Root).map_err(|cause| WorldError::NoNamespaces { cause })?;
        return Ok(Isolation::Root);
    }
    probe(one, Isolation::UserNamespace).map_err(|cause| WorldError::NoUserNamespaces { cause })?;
    Ok(Isolation::UserNamespace)
}

fn enter(one: SingleThread, isolation: Isolation, main: impl FnOnce(World) -> i32) -> Result<i32, WorldError> {
    let (outer_here, outer_there) = wire::pair()?;
    let identity = Identity::current();
    match one.fork(namespaces(isolation))? {
        Fork::Parent(init) => {
            drop(outer_there);
            let stops = [Signal::SIGINT, Signal::SIGTERM, Signal::SIGHUP, Signal::SIGQUIT];
            Ok(server::serve(one, outer_here, init, &stops)?.code())
        }
        Fork::Child => {
            drop(outer_here);
            let code = match init(one, isolation, &identity, outer_there, main) {
                Ok(status) => status.code(),
                Err(error) => {
                    complain(&format!("cannot set up the local world: {error}"));
                    1
                }
            };
            exit_now(code)
        }
    }
}

/// PID 1 of the world: prepares it, starts `main`, then forks on request until `main` ends.
fn init(
    one: SingleThread,
    isolation: Isolation,
    identity: &Identity,
    outer: OwnedFd,
    main: impl FnOnce(World) -> i32,
) -> io::Result<Status> {
    prepare(isolation, identity)?;
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    let (here, there) = wire::pair()?;
    match one.fork(CloneFlags::empty())? {
        Fork::Parent(pid) => {
            drop((outer, there));
            server::serve(one, here, pid, &[])
        }
        Fork::Child => {
            drop(here);
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            let world = World { isolation, links: Links { init: there, outer } };
            std::process::exit(main(world))
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
        Isolation::Shared => CloneFlags::empty(),
    }
}

/// Tries it in a process that ends at once: reading settings would not tell the whole truth.
fn probe(one: SingleThread, isolation: Isolation) -> io::Result<()> {
    let identity = Identity::current();
    match one.fork(namespaces(isolation))? {
        Fork::Child => match prepare(isolation, &identity) {
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

/// Inside the new namespaces: become root of them and see only our own processes.
fn prepare(isolation: Isolation, identity: &Identity) -> io::Result<()> {
    if isolation == Isolation::Shared {
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

/// One line for the person at the terminal, before any logging exists.
fn complain(text: &str) {
    use std::io::Write;
    let _ = writeln!(io::stderr(), "{text}");
}
