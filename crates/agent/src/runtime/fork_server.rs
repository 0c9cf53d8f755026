//! A process that forks on request: `init` for containers, `outer` for commands on the host.

use std::collections::HashMap;
use std::fs::File;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};

use nix::sched::CloneFlags;
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::sys::wait::{WaitPidFlag, WaitStatus, waitpid};
use nix::unistd::Pid;
use rustix::event::{PollFd, PollFlags, poll};
use serde::{Deserialize, Serialize};

use super::container::{self, Job, JobFds};
use super::fork::{Fork, SingleThread, exit_now};
use super::message;
use super::process_tree;

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Request {
    /// Descriptors: job, error pipe, stdin, stdout, stderr, then the pod's namespaces.
    Run {
        id: u64,
    },
    Kill {
        id: u64,
        signal: i32,
    },
    Listen {
        id: u64,
        address: SocketAddr,
    },
    /// Opens the table of TCP connections of this process's network namespace.
    ConnectionTable {
        id: u64,
    },
}

#[derive(Debug, Serialize, Deserialize)]
pub(super) enum Event {
    Started {
        id: u64,
        pid: i32,
    },
    Exited {
        id: u64,
        status: Status,
    },
    /// Comes with the listening socket, or the files of the connection table.
    Opened {
        id: u64,
    },
    Failed {
        id: u64,
        error: String,
    },
    /// The outer process was asked to stop.
    Signal {
        number: i32,
    },
}

/// How a process ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub enum Status {
    Code(i32),
    Signal(i32),
}

impl Status {
    /// The exit code as a shell and the kubelet report it.
    pub fn code(self) -> i32 {
        match self {
            Self::Code(code) => code,
            Self::Signal(signal) => 128 + signal,
        }
    }
}

/// Serves requests until the process `until` ends; returns how it ended.
pub(super) fn serve(one: SingleThread, socket: OwnedFd, until: Pid, pass_on: &[Signal]) -> io::Result<Status> {
    let mut mask = SigSet::empty();
    mask.add(Signal::SIGCHLD);
    pass_on.iter().for_each(|s| mask.add(*s));
    mask.thread_block()?;
    let signals = SignalFd::with_flags(&mask, SfdFlags::SFD_CLOEXEC | SfdFlags::SFD_NONBLOCK)?;
    let mut server = Server { one, socket, children: HashMap::new(), stop_requests: 0 };
    let mut connected = true;
    loop {
        // Reap first: a child may have ended before its signal could be seen.
        if let Some(status) = server.reap(until)? {
            return Ok(status);
        }
        let readable = {
            let mut fds = vec![PollFd::new(&signals, PollFlags::IN)];
            if connected {
                fds.push(PollFd::new(&server.socket, PollFlags::IN));
            }
            match poll(&mut fds, None) {
                Err(rustix::io::Errno::INTR) => continue,
                other => other?,
            };
            fds.get(1).is_some_and(|fd| !fd.revents().is_empty())
        };
        while let Some(info) = signals.read_signal()? {
            let number = i32::try_from(info.ssi_signo).unwrap_or_default();
            if number != Signal::SIGCHLD as i32 {
                server.stop_requests += 1;
                let _ = message::send(&server.socket, &Event::Signal { number }, &[]);
                if server.stop_requests > 2 {
                    let _ = kill(until, Signal::SIGKILL);
                }
            }
        }
        if readable {
            match message::receive::<Request>(&server.socket)? {
                Some((request, fds)) => server.handle(request, fds)?,
                None => connected = false,
            }
        }
    }
}

struct Server {
    one: SingleThread,
    socket: OwnedFd,
    children: HashMap<Pid, Child>,
    stop_requests: u32,
}

/// A process started by request.
struct Child {
    id: u64,
    /// It supervises a process tree without namespaces.
    is_process_tree: bool,
}

impl Server {
    fn handle(&mut self, request: Request, fds: Vec<OwnedFd>) -> io::Result<()> {
        let (id, done) = match request {
            Request::Run { id } => (id, self.run(id, fds)),
            Request::Kill { id, signal } => {
                // Only children not yet reaped are here, so the number cannot mean somebody else.
                if let (Some((pid, child)), Ok(signal)) =
                    (self.children.iter().find(|(_, child)| child.id == id), Signal::try_from(signal))
                {
                    let end = child.is_process_tree && signal == Signal::SIGKILL;
                    let _ = kill(*pid, if end { process_tree::KILL_TREE } else { signal });
                }
                (id, Ok(()))
            }
            Request::Listen { id, address } => (id, self.listen(id, address)),
            Request::ConnectionTable { id } => (id, self.open_connection_table(id)),
        };
        match done {
            Ok(()) => Ok(()),
            Err(error) => self.send_event(&Event::Failed { id, error: error.to_string() }, &[]),
        }
    }

    fn run(&mut self, id: u64, fds: Vec<OwnedFd>) -> io::Result<()> {
        let mut fds = fds.into_iter();
        let mut next = || fds.next().ok_or_else(|| io::Error::other("a request lacks file descriptors"));
        let (job, errors) = (next()?, next()?);
        let (stdin, stdout, stderr) = (next()?, next()?, next()?);
        let fds = JobFds { stdin, stdout, stderr, namespaces: fds.collect() };
        let job: Job = message::unpack(job)?;
        let flags = match &job {
            Job::Container(job) if job.root.is_some() => CloneFlags::CLONE_NEWNS | CloneFlags::CLONE_NEWPID,
            Job::Container(_) | Job::Exec(_) | Job::Command(_) | Job::Gateway => CloneFlags::empty(),
        };
        match self.one.fork(flags)? {
            Fork::Parent(pid) => {
                let is_process_tree = matches!(&job, Job::Container(job) if job.root.is_none());
                self.children.insert(pid, Child { id, is_process_tree });
                self.send_event(&Event::Started { id, pid: pid.as_raw() }, &[])
            }
            Fork::Child => {
                let error = container::run(self.one, &job, &fds);
                container::report(&errors, &error);
                exit_now(127)
            }
        }
    }

    fn listen(&mut self, id: u64, address: SocketAddr) -> io::Result<()> {
        let listener = TcpListener::bind(address)?;
        listener.set_nonblocking(true)?;
        self.send_event(&Event::Opened { id }, &[listener.as_fd()])
    }

    /// Opens the files here, because the kernel shows user ids as the process that opens them knows them.
    fn open_connection_table(&mut self, id: u64) -> io::Result<()> {
        let mut files = vec![File::open("/proc/self/net/tcp")?];
        // Without IPv6 there is no such file.
        files.extend(File::open("/proc/self/net/tcp6").ok());
        self.send_event(&Event::Opened { id }, &files.iter().map(File::as_fd).collect::<Vec<_>>())
    }

    /// Reaps ended children; returns the status of `until` if it is among them.
    fn reap(&mut self, until: Pid) -> io::Result<Option<Status>> {
        loop {
            let (pid, status) = match waitpid(None, Some(WaitPidFlag::WNOHANG)) {
                Ok(WaitStatus::Exited(pid, code)) => (pid, Status::Code(code)),
                Ok(WaitStatus::Signaled(pid, signal, _)) => (pid, Status::Signal(signal as i32)),
                Ok(WaitStatus::StillAlive) | Err(nix::Error::ECHILD) => return Ok(None),
                Ok(_) | Err(nix::Error::EINTR) => continue,
                Err(error) => return Err(error.into()),
            };
            if pid == until {
                return Ok(Some(status));
            }
            if let Some(child) = self.children.remove(&pid) {
                self.send_event(&Event::Exited { id: child.id, status }, &[])?;
            }
        }
    }

    fn send_event(&self, event: &Event, fds: &[std::os::fd::BorrowedFd<'_>]) -> io::Result<()> {
        match message::send(&self.socket, event, fds) {
            // The main process is gone; the loop ends when it is reaped.
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            Err(error) if error.kind() == io::ErrorKind::ConnectionReset => Ok(()),
            other => other,
        }
    }
}
