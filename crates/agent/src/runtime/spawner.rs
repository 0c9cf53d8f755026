//! The client of a fork server: requests containers, commands and listeners from async code.

use std::collections::HashMap;
use std::io;
use std::net::{SocketAddr, TcpListener};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::io::AsyncReadExt;
use tokio::sync::{mpsc, oneshot};

use super::container::{CommandJob, ContainerJob, ExecJob, Job};
use super::fork_server::{Event, Request, Status};
use super::message;
use crate::network::loopback::ConnectionTable;

/// Why a process could not be started.
#[derive(Debug, thiserror::Error)]
pub enum SpawnError {
    /// The child was forked but could not exec the program, for this reason.
    #[error("{0}")]
    Start(String),
    #[error("cannot send a request to the fork server")]
    Request(#[from] io::Error),
    #[error("the fork server is gone")]
    Gone,
}

/// The three standard streams of a new process.
#[derive(Debug)]
pub struct Stdio {
    pub stdin: OwnedFd,
    pub stdout: OwnedFd,
    pub stderr: OwnedFd,
}

impl Stdio {
    /// Reads from /dev/null and writes both outputs to one descriptor.
    pub fn output_to(out: OwnedFd) -> io::Result<Self> {
        Ok(Self { stdin: std::fs::File::open("/dev/null")?.into(), stderr: out.try_clone()?, stdout: out })
    }
}

/// A handle to a fork server.
#[derive(Clone)]
pub struct Spawner(Arc<Shared>);

struct Shared {
    socket: OwnedFd,
    next: AtomicU64,
    pending: Mutex<Pending>,
}

#[derive(Default)]
struct Pending {
    started: HashMap<u64, oneshot::Sender<Result<i32, String>>>,
    ended: HashMap<u64, oneshot::Sender<Status>>,
    opened: HashMap<u64, oneshot::Sender<Result<Vec<OwnedFd>, String>>>,
    closed: bool,
}

/// A started process.
#[derive(Debug)]
pub struct Process {
    pub id: u64,
    /// The process id in the PID namespace of the fork server.
    pub pid: i32,
    ended: oneshot::Receiver<Status>,
}

impl Process {
    /// Waits for the exit status; a lost fork server counts as SIGKILL.
    pub async fn wait(&mut self) -> Status {
        (&mut self.ended).await.unwrap_or(Status::Signal(9))
    }
}

impl Spawner {
    /// Takes over one end of the connection; forwards the signals that the fork server reports.
    pub(super) fn new(socket: OwnedFd, signals: mpsc::UnboundedSender<i32>) -> io::Result<Self> {
        let shared = Arc::new(Shared { socket, next: AtomicU64::new(1), pending: Mutex::default() });
        let reader = Arc::clone(&shared);
        std::thread::Builder::new().name("spawner".into()).spawn(move || reader.read(&signals))?;
        Ok(Self(shared))
    }

    pub async fn container(
        &self,
        job: ContainerJob,
        stdio: Stdio,
        namespaces: &[&OwnedFd],
    ) -> Result<Process, SpawnError> {
        self.run(&Job::Container(job), stdio, namespaces).await
    }

    pub async fn exec(&self, job: ExecJob, stdio: Stdio) -> Result<Process, SpawnError> {
        self.run(&Job::Exec(job), stdio, &[]).await
    }

    pub async fn command(&self, job: CommandJob, stdio: Stdio) -> Result<Process, SpawnError> {
        self.run(&Job::Command(job), stdio, &[]).await
    }

    /// Starts the gateway of pods to the Internet, which serves a listening Unix socket.
    pub async fn gateway(&self, listener: OwnedFd) -> Result<Process, SpawnError> {
        let null = || std::fs::File::options().write(true).open("/dev/null").map(OwnedFd::from);
        let stdio = Stdio { stdin: listener, stdout: null()?, stderr: null()? };
        self.run(&Job::Gateway, stdio, &[]).await
    }

    /// Sends a signal to a process, unless it has ended.
    pub fn kill(&self, id: u64, signal: i32) {
        let _ = message::send(&self.0.socket, &Request::Kill { id, signal }, &[]);
    }

    /// Opens a port in the fork server's network namespace.
    pub async fn listen(&self, address: SocketAddr) -> io::Result<TcpListener> {
        let opened = self.open(|id| Request::Listen { id, address }).await;
        let failed = |error: io::Error| io::Error::other(format!("cannot listen on {address}: {error}"));
        match opened.map_err(failed)?.pop() {
            Some(fd) => Ok(TcpListener::from(fd)),
            None => Err(io::Error::other(SpawnError::Gone)),
        }
    }

    /// Opens the table of TCP connections in the fork server's network namespace.
    pub async fn connection_table(&self) -> io::Result<ConnectionTable> {
        Ok(ConnectionTable::new(self.open(|id| Request::ConnectionTable { id }).await?))
    }

    async fn open(&self, request: impl FnOnce(u64) -> Request) -> io::Result<Vec<OwnedFd>> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (sender, receiver) = oneshot::channel();
        self.0.lock().opened.insert(id, sender);
        message::send(&self.0.socket, &request(id), &[])?;
        match receiver.await {
            Ok(opened) => opened.map_err(io::Error::other),
            Err(_) => Err(io::Error::other(SpawnError::Gone)),
        }
    }

    async fn run(&self, job: &Job, stdio: Stdio, namespaces: &[&OwnedFd]) -> Result<Process, SpawnError> {
        let id = self.0.next.fetch_add(1, Ordering::Relaxed);
        let (start, started) = oneshot::channel();
        let (end, ended) = oneshot::channel();
        {
            let mut pending = self.0.lock();
            if pending.closed {
                return Err(SpawnError::Gone);
            }
            pending.started.insert(id, start);
            pending.ended.insert(id, end);
        }
        let (errors, report) = rustix::pipe::pipe_with(rustix::pipe::PipeFlags::CLOEXEC).map_err(io::Error::from)?;
        let job = message::pack(job)?;
        let mut fds =
            vec![job.as_fd(), report.as_fd(), stdio.stdin.as_fd(), stdio.stdout.as_fd(), stdio.stderr.as_fd()];
        fds.extend(namespaces.iter().map(|fd| fd.as_fd()));
        message::send(&self.0.socket, &Request::Run { id }, &fds)?;
        drop((report, stdio, job));
        let pid = match started.await {
            Ok(Ok(pid)) => pid,
            Ok(Err(error)) => return Err(SpawnError::Start(error)),
            Err(_) => return Err(SpawnError::Gone),
        };
        // The pipe closes on exec; before that it carries the reason of a failure.
        rustix::fs::fcntl_setfl(&errors, rustix::fs::OFlags::NONBLOCK).map_err(io::Error::from)?;
        let mut text = String::new();
        tokio::net::unix::pipe::Receiver::from_owned_fd(errors)?.read_to_string(&mut text).await?;
        if text.is_empty() { Ok(Process { id, pid, ended }) } else { Err(SpawnError::Start(text)) }
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, Pending> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn read(&self, signals: &mpsc::UnboundedSender<i32>) {
        while let Ok(Some((event, fds))) = message::receive::<Event>(&self.socket) {
            let mut pending = self.lock();
            match event {
                Event::Started { id, pid } => {
                    if let Some(sender) = pending.started.remove(&id) {
                        let _ = sender.send(Ok(pid));
                    }
                }
                Event::Exited { id, status } => {
                    if let Some(sender) = pending.ended.remove(&id) {
                        let _ = sender.send(status);
                    }
                }
                Event::Opened { id } => {
                    if let Some(sender) = pending.opened.remove(&id) {
                        let _ = sender.send(Ok(fds));
                    }
                }
                Event::Failed { id, error } => {
                    pending.ended.remove(&id);
                    if let Some(sender) = pending.started.remove(&id) {
                        let _ = sender.send(Err(error));
                    } else if let Some(sender) = pending.opened.remove(&id) {
                        let _ = sender.send(Err(error));
                    }
                }
                Event::Signal { number } => {
                    let _ = signals.send(number);
                }
            }
        }
        // The fork server is gone: fail everything that waits for it.
        *self.lock() = Pending { closed: true, ..Pending::default() };
        let _ = signals.send(nix::libc::SIGTERM);
    }
}
