//! The standard streams of a container: its output goes into a log, its input comes from clients that attach.

use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use k8s_openapi::api::core::v1::Container;
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, openpt, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::{AsyncWrite, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::{Mutex, mpsc};

use crate::logs::{self, Log};
use crate::runtime::Stdio;

/// The input of a container with `stdin` or `tty`.
#[derive(Clone)]
pub(crate) struct Input {
    /// Taken after the first client of a container with `stdinOnce`.
    writer: Arc<Mutex<Option<Box<dyn AsyncWrite + Send + Unpin>>>>,
    terminal: Option<Arc<OwnedFd>>,
    once: bool,
}

pub(super) struct ContainerStreams {
    pub(super) stdio: Stdio,
    pub(super) log: Log,
    pub(super) input: Option<Input>,
}

/// Opens the streams that a container asks for.
pub(super) async fn open(container: &Container, log_path: &Path) -> io::Result<ContainerStreams> {
    let path = log_path.to_path_buf();
    let once = container.stdin_once == Some(true);
    let input = |writer: Box<dyn AsyncWrite + Send + Unpin>, terminal: Option<Arc<OwnedFd>>| Input {
        writer: Arc::new(Mutex::new(Some(writer))),
        terminal,
        once,
    };
    if container.tty == Some(true) {
        let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
        let controller = openpt(flags)?;
        unlockpt(&controller)?;
        let terminal = ioctl_tiocgptpeer(&controller, flags)?;
        let file = |fd: &OwnedFd| Ok::<_, io::Error>(tokio::fs::File::from_std(fd.try_clone()?.into()));
        let log = logs::record(path, file(&controller)?, tokio::io::empty()).await?;
        let input = input(Box::new(file(&controller)?), Some(Arc::new(controller)));
        let stdio = Stdio { stdin: terminal.try_clone()?, stdout: terminal.try_clone()?, stderr: terminal };
        return Ok(ContainerStreams { stdio, log, input: (container.stdin == Some(true)).then_some(input) });
    }
    let (stdout, out) = pipe::pipe()?;
    let (stderr, err) = pipe::pipe()?;
    let (stdin, input): (OwnedFd, _) = if container.stdin == Some(true) {
        let (sender, receiver) = pipe::pipe()?;
        (receiver.into_blocking_fd()?, Some(input(Box::new(sender), None)))
    } else {
        (std::fs::File::open("/dev/null")?.into(), None)
    };
    let stdio = Stdio { stdin, stdout: stdout.into_blocking_fd()?, stderr: stderr.into_blocking_fd()? };
    Ok(ContainerStreams { stdio, log: logs::record(path, out, err).await?, input })
}

impl Input {
    /// Passes on what a client types, until it is gone.
    pub(crate) async fn feed(self, mut typed: mpsc::Receiver<Bytes>) {
        while let Some(bytes) = typed.recv().await {
            let mut writer = self.writer.lock().await;
            let Some(writer) = writer.as_mut() else { return };
            if writer.write_all(&bytes).await.is_err() || writer.flush().await.is_err() {
                return;
            }
        }
        if self.once {
            self.writer.lock().await.take();
        }
    }

    /// Passes on the sizes of a client's terminal, until it is gone.
    pub(crate) async fn resize(self, mut sizes: mpsc::Receiver<(u16, u16)>) {
        let Some(terminal) = self.terminal else { return };
        while let Some((columns, rows)) = sizes.recv().await {
            let size = Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 };
            let _ = tcsetwinsize(terminal.as_fd(), size);
        }
    }
}
