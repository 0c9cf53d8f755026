//! Runs commands in a running container, for probes, hooks and `kubectl exec`.

use std::io;
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};

use bytes::Bytes;
use rustix::fs::{Mode, OFlags};
use rustix::pty::{OpenptFlags, ioctl_tiocgptpeer, unlockpt};
use rustix::termios::{Winsize, tcsetwinsize};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::unix::pipe;
use tokio::sync::mpsc;

use crate::runtime::beneath;
use crate::runtime::confinement::Confinement;
use crate::runtime::{ExecJob, Spawner, Stdio};

/// A running container to execute commands in.
#[derive(Clone)]
pub struct ExecTarget {
    pub spawner: Spawner,
    /// The container's process.
    pub pid: i32,
    /// Whether it has namespaces to enter.
    pub is_isolated: bool,
    pub env: Vec<(String, String)>,
    pub cwd: PathBuf,
    pub cgroups: Vec<PathBuf>,
    pub confinement: Confinement,
}

impl ExecTarget {
    fn job(&self, argv: Vec<String>, tty: bool) -> ExecJob {
        let mut env = self.env.clone();
        if tty && !env.iter().any(|(name, _)| name == "TERM") {
            env.push(("TERM".to_owned(), "xterm".to_owned()));
        }
        ExecJob {
            argv,
            env,
            cwd: self.cwd.clone(),
            target: self.is_isolated.then_some(self.pid),
            cgroups: self.cgroups.clone(),
            confinement: self.confinement.clone(),
            tty,
        }
    }
}

/// The streams between a client and a process; a closed channel is the end of that stream.
#[derive(Debug)]
pub struct Streams {
    pub stdin: Option<mpsc::Receiver<Bytes>>,
    pub stdout: mpsc::Sender<Bytes>,
    pub stderr: mpsc::Sender<Bytes>,
    /// Columns and rows.
    pub resize: mpsc::Receiver<(u16, u16)>,
}

/// Kills the process when the caller stops waiting for it, as a probe does after its timeout.
struct KillOnDrop<'a> {
    spawner: &'a Spawner,
    id: Option<u64>,
}

impl Drop for KillOnDrop<'_> {
    fn drop(&mut self) {
        if let Some(id) = self.id {
            self.spawner.kill(id, nix::libc::SIGKILL);
        }
    }
}

/// Runs a command and returns its exit code and the beginning of its output.
pub async fn capture(inside: &ExecTarget, argv: Vec<String>, limit: usize) -> Result<(i32, String), String> {
    let to_text = |e: io::Error| e.to_string();
    let (sender, mut receiver) = pipe::pipe().map_err(to_text)?;
    let stdio = Stdio::output_to(sender.into_blocking_fd().map_err(to_text)?).map_err(to_text)?;
    let mut process = inside.spawner.exec(inside.job(argv, false), stdio).await.map_err(|e| e.to_string())?;
    let mut guard = KillOnDrop { spawner: &inside.spawner, id: Some(process.id) };
    let mut output = Vec::new();
    let reading = async {
        let mut chunk = [0; 4096];
        while let Ok(n) = receiver.read(&mut chunk).await {
            if n == 0 {
                break;
            }
            let room = limit.saturating_sub(output.len());
            output.extend_from_slice(&chunk[..n.min(room)]);
        }
        // A background process may keep the pipe open, so only the exit of the command ends the wait.
        std::future::pending::<()>().await;
    };
    let status = tokio::select! {
        status = process.wait() => status,
        () = reading => unreachable!("reading never ends by itself"),
    };
    guard.id = None;
    // Drain what was written before the exit.
    let mut rest = [0; 4096];
    while let Ok(n) = receiver.try_read(&mut rest) {
        let room = limit.saturating_sub(output.len());
        if n == 0 || room == 0 {
            break;
        }
        output.extend_from_slice(&rest[..n.min(room)]);
    }
    Ok((status.code(), String::from_utf8_lossy(&output).into_owned()))
}

/// Runs a command for a client; returns its exit code.
pub async fn interactive(inside: &ExecTarget, argv: Vec<String>, tty: bool, streams: Streams) -> Result<i32, String> {
    let done = if tty { with_terminal(inside, argv, streams).await } else { with_pipes(inside, argv, streams).await };
    done.map_err(|e| e.to_string())
}

async fn with_pipes(inside: &ExecTarget, argv: Vec<String>, streams: Streams) -> io::Result<i32> {
    let (stdout, out) = pipe::pipe()?;
    let (stderr, err) = pipe::pipe()?;
    let (feed, stdin): (Option<pipe::Sender>, OwnedFd) = match &streams.stdin {
        Some(_) => {
            let (sender, receiver) = pipe::pipe()?;
            (Some(sender), receiver.into_blocking_fd()?)
        }
        None => (None, std::fs::File::open("/dev/null")?.into()),
    };
    let stdio = Stdio { stdin, stdout: stdout.into_blocking_fd()?, stderr: stderr.into_blocking_fd()? };
    let mut process = inside.spawner.exec(inside.job(argv, false), stdio).await.map_err(io::Error::other)?;
    let mut guard = KillOnDrop { spawner: &inside.spawner, id: Some(process.id) };
    let feeding = tokio::spawn(async move {
        if let (Some(mut sender), Some(mut input)) = (feed, streams.stdin) {
            while let Some(bytes) = input.recv().await {
                if sender.write_all(&bytes).await.is_err() {
                    break;
                }
            }
        }
    });
    let printing = tokio::spawn(copy(out, streams.stdout));
    let complaining = tokio::spawn(copy(err, streams.stderr));
    let status = process.wait().await;
    guard.id = None;
    feeding.abort();
    // Drain the output, unless a background process keeps the pipe open.
    let rest = futures::future::join(printing, complaining);
    let _ = tokio::time::timeout(std::time::Duration::from_secs(2), rest).await;
    Ok(status.code())
}

async fn with_terminal(inside: &ExecTarget, argv: Vec<String>, mut streams: Streams) -> io::Result<i32> {
    let flags = OpenptFlags::RDWR | OpenptFlags::NOCTTY | OpenptFlags::CLOEXEC;
    // Allocated from the container's own devpts, so that programs in it can find their terminal by name.
    let root = beneath::open_dir(Path::new(&format!("/proc/{}/root", inside.pid)))?;
    let open = OFlags::RDWR | OFlags::NOCTTY;
    let controller = beneath::open(root, Path::new("dev/pts/ptmx"), open, Mode::empty())?;
    unlockpt(&controller)?;
    let terminal = ioctl_tiocgptpeer(&controller, flags)?;
    let confinement = &inside.confinement;
    let (uid, gid) = confinement.ids.owner(confinement.uid, confinement.gid).ids();
    rustix::fs::fchown(&terminal, uid, gid)?;
    let stdio = Stdio { stdin: terminal.try_clone()?, stdout: terminal.try_clone()?, stderr: terminal };
    let mut process = inside.spawner.exec(inside.job(argv, true), stdio).await.map_err(io::Error::other)?;
    let mut guard = KillOnDrop { spawner: &inside.spawner, id: Some(process.id) };

    let sizes = controller.try_clone()?;
    let resizing = tokio::spawn(async move {
        while let Some((columns, rows)) = streams.resize.recv().await {
            let _ = tcsetwinsize(&sizes, Winsize { ws_col: columns, ws_row: rows, ws_xpixel: 0, ws_ypixel: 0 });
        }
    });
    let mut keyboard = tokio::fs::File::from_std(std::fs::File::from(controller.try_clone()?));
    let feeding = tokio::spawn(async move {
        let Some(mut input) = streams.stdin else { return };
        while let Some(bytes) = input.recv().await {
            if keyboard.write_all(&bytes).await.is_err() || keyboard.flush().await.is_err() {
                return;
            }
        }
    });
    let screen = tokio::fs::File::from_std(std::fs::File::from(controller));
    let printing = tokio::spawn(copy(screen, streams.stdout));
    let status = process.wait().await;
    guard.id = None;
    resizing.abort();
    feeding.abort();
    let _ = tokio::time::timeout(std::time::Duration::from_secs(2), printing).await;
    Ok(status.code())
}

async fn copy(mut from: impl tokio::io::AsyncRead + Unpin, to: mpsc::Sender<Bytes>) {
    let mut chunk = vec![0; 16 << 10];
    loop {
        match from.read(&mut chunk).await {
            Ok(n) if n > 0 => {
                if to.send(Bytes::copy_from_slice(&chunk[..n])).await.is_err() {
                    return;
                }
            }
            // A terminal whose last user is gone reports an error instead of an end of file.
            _ => return,
        }
    }
}
