//! Turns a forked child into a container, a command in a container, or a command on the host.

use std::convert::Infallible;
use std::ffi::CString;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use nix::sched::{CloneFlags, setns, unshare};
use nix::sys::signal::{SaFlags, SigAction, SigHandler, SigSet, SigmaskHow, Signal, sigaction, sigprocmask};
use nix::sys::wait::{WaitStatus, waitpid};
use nix::unistd::{dup2_stderr, dup2_stdin, dup2_stdout, execve, setsid};
use serde::{Deserialize, Serialize};

use super::confinement::Confinement;
use super::fork::{Fork, SingleThread, exit_now};
use super::{process_tree, rootfs, user_namespace};
use crate::network::egress::gateway;

/// A process with its own file system and its own process ids.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ContainerJob {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
    /// The directory that becomes `/`; without one there are no namespaces and the host's own files are seen.
    pub root: Option<PathBuf>,
    /// An image that is the beginning of `/`.
    pub overlay: Option<rootfs::Overlay>,
    pub mounts: Vec<rootfs::MountStep>,
    pub confinement: Confinement,
    /// `cgroup.procs` files to enter.
    pub cgroups: Vec<PathBuf>,
    pub tty: bool,
}

/// A further process in a running container.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ExecJob {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
    /// The container's process id as `init` counts; without one there is nothing to enter.
    pub target: Option<i32>,
    pub confinement: Confinement,
    pub cgroups: Vec<PathBuf>,
    pub tty: bool,
}

/// A process outside all containers.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct CommandJob {
    pub argv: Vec<String>,
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
pub(super) enum Job {
    Container(ContainerJob),
    Exec(ExecJob),
    Command(CommandJob),
    /// The gateway of pods to the Internet, which listens on its standard input.
    Gateway,
}

/// The descriptors of a job.
pub(super) struct JobFds {
    pub(super) stdin: OwnedFd,
    pub(super) stdout: OwnedFd,
    pub(super) stderr: OwnedFd,
    /// Network, host name and IPC namespaces of the pod.
    pub(super) namespaces: Vec<OwnedFd>,
}

/// Runs in the child; returns only the error that kept it from executing the program.
pub(super) fn run(one: SingleThread, job: &Job, fds: &JobFds) -> io::Error {
    let done = match job {
        Job::Container(job) => run_container(one, job, fds),
        Job::Exec(job) => run_exec(one, job, fds),
        Job::Command(job) => {
            let program = Program { argv: &job.argv, env: &job.env, cwd: &job.cwd, tty: false };
            exec(&program, fds, || Ok(()))
        }
        Job::Gateway => become_gateway(fds),
    };
    match done {
        Ok(never) => match never {},
        Err(error) => error,
    }
}

fn run_container(one: SingleThread, job: &ContainerJob, fds: &JobFds) -> io::Result<Infallible> {
    join_cgroups(&job.cgroups)?;
    let program = Program { argv: &job.argv, env: &job.env, cwd: &job.cwd, tty: job.tty };
    let confinement = &job.confinement;
    let Some(root) = &job.root else {
        process_tree::supervise(one, || close_from(0))?;
        return exec(&program, fds, || confinement.apply_without_namespaces());
    };
    for namespace in &fds.namespaces {
        setns(namespace, CloneFlags::empty())?;
    }
    unshare(CloneFlags::CLONE_NEWCGROUP)?;
    rootfs::build(root, job.overlay.as_ref(), confinement.ids.owner(0, 0), &job.mounts)?;
    rootfs::enter(root)?;
    new_session_keyring();
    user_namespace::enter(one, confinement.ids, confinement.uid, confinement.gid)?;
    exec(&program, fds, || confinement.apply())
}

fn run_exec(one: SingleThread, job: &ExecJob, fds: &JobFds) -> io::Result<Infallible> {
    join_cgroups(&job.cgroups)?;
    let program = Program { argv: &job.argv, env: &job.env, cwd: &job.cwd, tty: job.tty };
    let confinement = &job.confinement;
    let Some(target) = job.target else {
        rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
        return exec(&program, fds, || confinement.apply_without_namespaces());
    };
    let pid = rustix::process::Pid::from_raw(target).ok_or_else(|| io::Error::other("the container is not running"))?;
    let target = rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty())?;
    // Until it becomes the program, this is a copy of the agent that processes of the container can see: they must
    // neither trace it nor look through its descriptors.
    rustix::process::set_dumpable_behavior(rustix::process::DumpableBehavior::NotDumpable)?;
    new_session_keyring();
    let all = CloneFlags::CLONE_NEWUSER
        | CloneFlags::CLONE_NEWNS
        | CloneFlags::CLONE_NEWPID
        | CloneFlags::CLONE_NEWNET
        | CloneFlags::CLONE_NEWUTS
        | CloneFlags::CLONE_NEWIPC
        | CloneFlags::CLONE_NEWCGROUP;
    setns(&target, all)?;
    // The PID namespace is entered by children only, so this process stays behind and waits.
    match one.fork(CloneFlags::empty())? {
        Fork::Child => {
            rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
            exec(&program, fds, || confinement.apply())
        }
        Fork::Parent(pid) => {
            // The waiter must not keep the streams open, nor the pipe that reports a failed exec.
            close_from(0)?;
            loop {
                match waitpid(pid, None) {
                    Ok(WaitStatus::Exited(_, code)) => exit_now(code),
                    Ok(WaitStatus::Signaled(_, signal, _)) => exit_now(128 + signal as i32),
                    Ok(_) | Err(nix::Error::EINTR) => {}
                    Err(_) => exit_now(126),
                }
            }
        }
    }
}

/// Serves pods that reach out to the Internet; ends with the fork server.
fn become_gateway(fds: &JobFds) -> io::Result<Infallible> {
    rustix::process::set_parent_process_death_signal(Some(rustix::process::Signal::KILL))?;
    dup2_stdin(&fds.stdin)?;
    dup2_stdout(&fds.stdout)?;
    dup2_stderr(&fds.stderr)?;
    // Also the pipe that reports a failed start: the gateway has started.
    close_from(3)?;
    let listener = std::io::stdin().as_fd().try_clone_to_owned()?.into();
    let code = i32::from(gateway::run(listener).is_err());
    exit_now(code)
}

/// Leaves the keys of whoever started the agent behind.
fn new_session_keyring() {
    const JOIN_SESSION_KEYRING: nix::libc::c_int = 1;
    // SAFETY: a null name asks for an anonymous keyring; no memory is passed. A kernel without keyrings has no keys.
    unsafe { nix::libc::syscall(nix::libc::SYS_keyctl, JOIN_SESSION_KEYRING, std::ptr::null::<u8>()) };
}

fn join_cgroups(cgroups: &[PathBuf]) -> io::Result<()> {
    for file in cgroups {
        std::fs::write(file, "0").map_err(|e| named("cannot enter cgroup", file, &e))?;
    }
    Ok(())
}

/// What a child becomes.
struct Program<'a> {
    argv: &'a [String],
    env: &'a [(String, String)],
    cwd: &'a Path,
    tty: bool,
}

/// Becomes the program; `confine` gives up privileges as late as possible, but before anything of the container runs.
fn exec(program: &Program<'_>, fds: &JobFds, confine: impl FnOnce() -> io::Result<()>) -> io::Result<Infallible> {
    let Program { argv, env, cwd, tty } = *program;
    let text = |s: &str| CString::new(s).map_err(|_| io::Error::other(format!("a zero byte in {s:?}")));
    let args = argv.iter().map(|a| text(a)).collect::<io::Result<Vec<_>>>()?;
    let vars = env.iter().map(|(k, v)| text(&format!("{k}={v}"))).collect::<io::Result<Vec<_>>>()?;

    setsid()?;
    dup2_stdin(&fds.stdin)?;
    dup2_stdout(&fds.stdout)?;
    dup2_stderr(&fds.stderr)?;
    if tty {
        rustix::process::ioctl_tiocsctty(std::io::stdin().as_fd())?;
    }
    reset_signals()?;
    mark_cloexec(3)?;
    confine()?;
    std::env::set_current_dir(cwd).map_err(|e| named("cannot enter the working directory", cwd, &e))?;
    rustix::process::umask(rustix::fs::Mode::from_raw_mode(0o022));

    let name = argv.first().ok_or_else(|| io::Error::other("no command specified"))?;
    let path = env.iter().find(|(k, _)| k == "PATH").map(|(_, v)| v.as_str()).unwrap_or("/usr/bin:/bin");
    let program = find(name, path)
        .ok_or_else(|| io::Error::other(format!("exec: \"{name}\": executable file not found in $PATH")))?;
    if is_own_program(&program) {
        return Err(io::Error::other(format!("exec: \"{name}\": is a link to the agent itself")));
    }
    let program = CString::new(program.as_os_str().as_bytes()).map_err(io::Error::other)?;
    execve(&program, &args, &vars).map_err(|e| io::Error::other(format!("exec: \"{name}\": {}", e.desc())))
}

fn find(name: &str, path: &str) -> Option<PathBuf> {
    if name.contains('/') {
        return Some(PathBuf::from(name));
    }
    let runnable = |p: &PathBuf| nix::unistd::access(p, nix::unistd::AccessFlags::X_OK).is_ok() && p.is_file();
    path.split(':').filter(|d| !d.is_empty()).map(|d| Path::new(d).join(name)).find(runnable)
}

/// Whether a path leads to the agent's own program, as `/proc/self/exe` does until another one is executed: running it
/// would give the container a descriptor of a file of the host.
fn is_own_program(path: &Path) -> bool {
    use std::os::unix::fs::MetadataExt;
    let id = |path: &Path| std::fs::metadata(path).map(|meta| (meta.dev(), meta.ino())).ok();
    id(path).is_some() && id(path) == id(Path::new("/proc/self/exe"))
}

/// Resets all signals to their defaults and unblocks them.
fn reset_signals() -> io::Result<()> {
    let default = SigAction::new(SigHandler::SigDfl, SaFlags::empty(), SigSet::empty());
    for signal in Signal::iterator().filter(|s| !matches!(s, Signal::SIGKILL | Signal::SIGSTOP)) {
        // SAFETY: the default action runs no code of ours.
        unsafe { sigaction(signal, &default) }?;
    }
    sigprocmask(SigmaskHow::SIG_SETMASK, Some(&SigSet::empty()), None)?;
    Ok(())
}

/// Marks every descriptor but the standard streams close-on-exec.
fn mark_cloexec(first: u32) -> io::Result<()> {
    close_range(first, nix::libc::CLOSE_RANGE_CLOEXEC)
}

fn close_from(first: u32) -> io::Result<()> {
    close_range(first, 0)
}

fn close_range(first: u32, flags: u32) -> io::Result<()> {
    // SAFETY: called right before exec or in a process that only waits, so no owner of these
    // descriptors will use them again.
    let rc = unsafe { nix::libc::syscall(nix::libc::SYS_close_range, first, u32::MAX, flags) };
    if rc == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

pub(super) fn named(what: &str, path: &Path, cause: &dyn std::fmt::Display) -> io::Error {
    io::Error::other(format!("{what} {}: {cause}", path.display()))
}

/// Reports why a child could not execute its program.
pub(super) fn report(pipe: &OwnedFd, error: &io::Error) {
    let _ = nix::unistd::write(pipe, error.to_string().as_bytes());
}
