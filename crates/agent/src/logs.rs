//! Container logs: written to files in the CRI format, read by `kubectl logs`.
//!
//! ```text
//!   stdout, stderr ──▶ <time> stdout F <line>   in <folder>/<n>.log, rotated to <n>.log.1
//! ```

use std::collections::VecDeque;
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;
use futures::stream::{self, BoxStream, StreamExt};
use jiff::Timestamp;
use tokio::fs::File;
use tokio::io::{AsyncBufReadExt, AsyncRead, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::sync::{Mutex, broadcast, watch};

/// The size at which a log file is rotated.
const ROTATE_AT: u64 = 16 << 20;
/// Longer lines are stored in parts, as the kubelet does.
const MAX_LINE: usize = 16 << 10;

/// The log of one run of one container.
#[derive(Debug, Clone)]
pub struct Log {
    path: PathBuf,
    progress: watch::Receiver<Progress>,
    live: broadcast::Sender<(Stream, Bytes)>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Progress {
    bytes: u64,
    rotations: u64,
    finished: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Stream {
    Stdout,
    Stderr,
}

impl Stream {
    fn name(self) -> &'static str {
        match self {
            Self::Stdout => "stdout",
            Self::Stderr => "stderr",
        }
    }
}

/// How long the end of a container waits for the end of its log.
const COMPLETE_WITHIN: std::time::Duration = std::time::Duration::from_secs(2);

/// What to read of a log.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct LogQuery {
    pub follow: bool,
    pub timestamps: bool,
    pub tail_lines: Option<u64>,
    pub limit_bytes: Option<u64>,
    pub since: Option<Timestamp>,
}

/// Begins a log that is filled from the two streams of a process; ends when both are closed.
pub async fn record(
    path: PathBuf,
    stdout: impl AsyncRead + Unpin + Send + 'static,
    stderr: impl AsyncRead + Unpin + Send + 'static,
) -> io::Result<Log> {
    if let Some(folder) = path.parent() {
        tokio::fs::create_dir_all(folder).await?;
    }
    let file = File::options().create(true).append(true).open(&path).await?;
    let (sender, progress) = watch::channel(Progress::default());
    let (live, _) = broadcast::channel(256);
    let log = Log { path: path.clone(), progress, live: live.clone() };
    let writer = Arc::new(Mutex::new(Writer { path, file, progress: Progress::default(), sender }));
    tokio::spawn(async move {
        let (out, err) = (Arc::clone(&writer), Arc::clone(&writer));
        tokio::join!(pump(Stream::Stdout, stdout, out, live.clone()), pump(Stream::Stderr, stderr, err, live));
        writer.lock().await.finish();
    });
    Ok(log)
}

struct Writer {
    path: PathBuf,
    file: File,
    progress: Progress,
    sender: watch::Sender<Progress>,
}

impl Writer {
    async fn write(&mut self, line: &[u8]) -> io::Result<()> {
        self.file.write_all(line).await?;
        self.file.flush().await?;
        self.progress.bytes += line.len() as u64;
        if self.progress.bytes >= ROTATE_AT {
            tokio::fs::rename(&self.path, rotated(&self.path)).await?;
            self.file = File::options().create(true).append(true).open(&self.path).await?;
            self.progress.bytes = 0;
            self.progress.rotations += 1;
        }
        self.sender.send_replace(self.progress);
        Ok(())
    }

    fn finish(&mut self) {
        self.progress.finished = true;
        self.sender.send_replace(self.progress);
    }
}

async fn pump(
    stream: Stream,
    source: impl AsyncRead + Unpin,
    writer: Arc<Mutex<Writer>>,
    live: broadcast::Sender<(Stream, Bytes)>,
) {
    let mut source = BufReader::with_capacity(MAX_LINE, source);
    let store = async |line: &[u8]| {
        let stored = encode(Timestamp::now(), stream, line);
        if let Err(error) = writer.lock().await.write(&stored).await {
            tracing::warn!(%error, "cannot write a container's log; the disk may be full");
        }
    };
    let mut pending = Vec::new();
    loop {
        let chunk = match source.fill_buf().await {
            Ok(chunk) if !chunk.is_empty() => Bytes::copy_from_slice(chunk),
            // A terminal whose last user is gone reports an error instead of an end of file.
            _ => break,
        };
        source.consume(chunk.len());
        for line in complete_lines(&mut pending, &chunk) {
            store(&line).await;
        }
        // Clients that attach also see the beginnings of lines, such as prompts.
        let _ = live.send((stream, chunk));
    }
    if !pending.is_empty() {
        store(&pending).await;
    }
}

/// Adds a piece of output to what is left of the last line, and takes out the lines that are complete or full.
fn complete_lines(pending: &mut Vec<u8>, chunk: &[u8]) -> Vec<Vec<u8>> {
    let mut lines = Vec::new();
    for byte in chunk {
        pending.push(*byte);
        if *byte == b'\n' || pending.len() == MAX_LINE {
            lines.push(std::mem::take(pending));
        }
    }
    lines
}

/// `P` marks a part of a line that goes on.
fn encode(now: Timestamp, stream: Stream, line: &[u8]) -> Vec<u8> {
    let (body, tag) = match line.strip_suffix(b"\n") {
        Some(body) => (body, "F"),
        None => (line, "P"),
    };
    let mut out = format!("{now:.9} {} {tag} ", stream.name()).into_bytes();
    out.extend(body);
    out.push(b'\n');
    out
}

fn rotated(path: &Path) -> PathBuf {
    path.with_extension("log.1")
}

/// Removes the log of a run.
pub async fn remove(path: &Path) {
    let _ = tokio::fs::remove_file(rotated(path)).await;
    let _ = tokio::fs::remove_file(path).await;
}

impl Log {
    /// What the process prints from now on.
    pub fn live(&self) -> broadcast::Receiver<(Stream, Bytes)> {
        self.live.subscribe()
    }

    /// Waits until both streams are closed and stored, for a while at most: a process that got away may hold them.
    pub async fn wait_until_complete(&self) {
        let mut progress = self.progress.clone();
        let _ = tokio::time::timeout(COMPLETE_WITHIN, progress.wait_for(|progress| progress.finished)).await;
    }

    /// Returns whether the container has closed its output.
    pub fn is_closed(&self) -> bool {
        self.progress.borrow().finished
    }

    /// Waits until the container has closed its output, however long that takes.
    pub async fn wait_until_closed(&self) {
        let mut progress = self.progress.clone();
        let _ = progress.wait_for(|progress| progress.finished).await;
    }

    /// The last lines, for a termination message.
    pub async fn tail(&self, lines: u64, bytes: usize) -> String {
        let mut stream = self.read(LogQuery { tail_lines: Some(lines), ..LogQuery::default() }).await;
        let mut text = Vec::new();
        while let Some(Ok(piece)) = stream.next().await {
            text.extend_from_slice(&piece);
        }
        let from = text.len().saturating_sub(bytes);
        String::from_utf8_lossy(&text[from..]).into_owned()
    }

    /// The log as pieces of text; with `follow` until the container ends.
    pub async fn read(&self, query: LogQuery) -> BoxStream<'static, io::Result<Bytes>> {
        let mut stored: VecDeque<Vec<u8>> = VecDeque::new();
        let before = *self.progress.borrow();
        let mut position = 0;
        for (path, current) in [(rotated(&self.path), false), (self.path.clone(), true)] {
            let Ok(file) = File::open(&path).await else { continue };
            let mut lines = BufReader::new(file);
            loop {
                let mut line = Vec::new();
                match lines.read_until(b'\n', &mut line).await {
                    Ok(n) if n > 0 && line.ends_with(b"\n") => {
                        position += if current { n as u64 } else { 0 };
                        stored.push_back(line);
                        if query.tail_lines.is_some_and(|limit| stored.len() as u64 > limit) {
                            stored.pop_front();
                        }
                    }
                    _ => break,
                }
            }
        }
        let first = stored.into_iter().filter_map({
            let query = query.clone();
            move |line| decode(&line, &query)
        });
        let first = stream::iter(first.map(Ok).collect::<Vec<_>>());
        let all: BoxStream<'static, io::Result<Bytes>> = if query.follow {
            let rest = follow(self.path.clone(), position, before.rotations, self.progress.clone(), query.clone());
            first.chain(rest).boxed()
        } else {
            first.boxed()
        };
        match query.limit_bytes {
            Some(limit) => limited(all, limit).boxed(),
            None => all,
        }
    }
}

/// Lines added after `position`, until the log is finished.
fn follow(
    path: PathBuf,
    position: u64,
    rotations: u64,
    progress: watch::Receiver<Progress>,
    query: LogQuery,
) -> impl futures::Stream<Item = io::Result<Bytes>> + Send + 'static {
    let state = (path, position, rotations, progress, query);
    stream::unfold(state, |(path, mut position, mut rotations, mut progress, query)| async move {
        loop {
            let seen = *progress.borrow_and_update();
            if seen.rotations != rotations {
                (position, rotations) = (0, seen.rotations);
            }
            if seen.bytes > position {
                let mut bytes = match read_from(&path, position).await {
                    Ok(bytes) => bytes,
                    Err(error) => return Some((Err(error), (path, position, rotations, progress, query))),
                };
                // Only whole lines: the rest comes with the next look.
                let end = bytes.iter().rposition(|b| *b == b'\n').map_or(0, |at| at + 1);
                bytes.truncate(end);
                position += end as u64;
                let text: Vec<u8> = bytes
                    .split_inclusive(|b| *b == b'\n')
                    .filter_map(|line| decode(line, &query))
                    .flat_map(|line| line.to_vec())
                    .collect();
                if !text.is_empty() {
                    return Some((Ok(Bytes::from(text)), (path, position, rotations, progress, query)));
                }
            }
            if seen.finished || progress.changed().await.is_err() {
                return None;
            }
        }
    })
}

async fn read_from(path: &Path, position: u64) -> io::Result<Vec<u8>> {
    use tokio::io::AsyncSeekExt;
    let mut file = File::open(path).await?;
    file.seek(io::SeekFrom::Start(position)).await?;
    let mut bytes = Vec::new();
    file.read_to_end(&mut bytes).await?;
    Ok(bytes)
}

fn limited(
    all: BoxStream<'static, io::Result<Bytes>>,
    limit: u64,
) -> impl futures::Stream<Item = io::Result<Bytes>> + Send {
    stream::unfold((all, limit), |(mut all, left)| async move {
        if left == 0 {
            return None;
        }
        let piece = all.next().await?;
        Some(match piece {
            Ok(bytes) => {
                let keep = bytes.slice(..bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX)));
                let left = left - keep.len() as u64;
                (Ok(keep), (all, left))
            }
            Err(error) => (Err(error), (all, 0)),
        })
    })
}

/// The text of a stored line, if it is wanted.
fn decode(line: &[u8], query: &LogQuery) -> Option<Bytes> {
    let line = line.strip_suffix(b"\n").unwrap_or(line);
    let mut parts = line.splitn(4, |b| *b == b' ');
    let (time, _, tag, text) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
    if let Some(since) = query.since {
        let at: Timestamp = std::str::from_utf8(time).ok()?.parse().ok()?;
        if at < since {
            return None;
        }
    }
    let mut out = Vec::with_capacity(line.len() + 1);
    if query.timestamps {
        out.extend(time);
        out.push(b' ');
    }
    out.extend(text);
    if tag == b"F" {
        out.push(b'\n');
    }
    Some(Bytes::from(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    async fn all(log: &Log, query: LogQuery) -> String {
        let mut stream = log.read(query).await;
        let mut text = Vec::new();
        while let Some(piece) = stream.next().await {
            text.extend_from_slice(&piece.unwrap());
        }
        String::from_utf8(text).unwrap()
    }

    #[tokio::test]
    async fn clients_that_attach_see_the_beginnings_of_lines() {
        let dir = tempfile::tempdir().unwrap();
        let (mut print, stdout) = tokio::io::duplex(64);
        let log = record(dir.path().join("0.log"), stdout, tokio::io::empty()).await.unwrap();
        let mut live = log.live();
        print.write_all(b"prompt> ").await.unwrap();
        assert_eq!(live.recv().await.unwrap().1, "prompt> ");
        drop(print);
        log.wait_until_closed().await;
        assert_eq!(all(&log, LogQuery::default()).await, "prompt> ");
    }

    #[tokio::test]
    async fn lines_come_back_as_they_were_printed() {
        let dir = tempfile::tempdir().unwrap();
        let (mut print, stdout) = tokio::io::duplex(1 << 20);
        let log = record(dir.path().join("c/0.log"), stdout, tokio::io::empty()).await.unwrap();
        let followed = tokio::spawn({
            let log = log.clone();
            async move { all(&log, LogQuery { follow: true, ..LogQuery::default() }).await }
        });
        let long = "x".repeat(MAX_LINE + 5);
        print.write_all(format!("one\n\x1b[32mtwo\x1b[0m\n\n{long}\nend").as_bytes()).await.unwrap();
        drop(print);
        let expect = format!("one\n\x1b[32mtwo\x1b[0m\n\n{long}\nend");
        assert_eq!(followed.await.unwrap(), expect);
        assert_eq!(all(&log, LogQuery::default()).await, expect);
        let tail = LogQuery { tail_lines: Some(1), ..LogQuery::default() };
        assert_eq!(all(&log, tail).await, "end");
        let limit = LogQuery { limit_bytes: Some(5), ..LogQuery::default() };
        assert_eq!(all(&log, limit).await, "one\n\x1b");
        let stamped = all(&log, LogQuery { timestamps: true, tail_lines: Some(1), ..LogQuery::default() }).await;
        let (time, text) = stamped.split_once(' ').unwrap();
        assert!(time.parse::<Timestamp>().is_ok() && text == "end");
        let future = Timestamp::now() + jiff::SignedDuration::from_secs(60);
        assert_eq!(all(&log, LogQuery { since: Some(future), ..LogQuery::default() }).await, "");
        assert_eq!(log.tail(80, 4).await, "\nend");
    }

    #[tokio::test]
    async fn a_big_log_is_rotated_and_still_followed() {
        let dir = tempfile::tempdir().unwrap();
        let (mut print, stdout) = tokio::io::duplex(1 << 16);
        let log = record(dir.path().join("0.log"), stdout, tokio::io::empty()).await.unwrap();
        let line = format!("{}\n", "y".repeat(8000));
        let count = usize::try_from(ROTATE_AT).unwrap() / line.len() + 50;
        for _ in 0..count {
            print.write_all(line.as_bytes()).await.unwrap();
        }
        drop(print);
        let last = all(&log, LogQuery { follow: true, tail_lines: Some(1), ..LogQuery::default() }).await;
        assert!(last.ends_with(&line));
        assert!(dir.path().join("0.log.1").exists());
        assert!(std::fs::metadata(dir.path().join("0.log")).unwrap().len() < ROTATE_AT);
    }
}
