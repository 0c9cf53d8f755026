//! The interface to a node: logs, exec, attach, and connections into pods.
//!
//! The server owns every wire protocol (HTTP, WebSocket channels, port-forward framing); a node only
//! moves bytes. It is given as a table of functions because there is exactly one node agent, and tests
//! want to replace one function at a time. Without a backend these subresources return 503.
//!
//! ```text
//!  kubectl exec ──WebSocket──▶ http/stream ──channels──▶ NodeBackend.exec ──▶ process
//!  kubectl port-forward ─────▶ http/stream ─────────────▶ NodeBackend.dial ──▶ socket in the pod
//! ```

use std::sync::Arc;

use bytes::Bytes;
use futures::future::BoxFuture;
use futures::stream::BoxStream;
use serde_json::Value;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::mpsc;

/// The type of [`NodeBackend::logs`].
pub type LogsFn = dyn Fn(PodRef, LogOptions) -> BoxFuture<'static, Result<LogStream, NodeError>> + Send + Sync;
/// The type of [`NodeBackend::exec`].
pub type ExecFn = dyn Fn(PodRef, ExecOptions, ExecStreams) -> BoxFuture<'static, Result<i32, NodeError>> + Send + Sync;
/// The type of [`NodeBackend::dial`].
pub type DialFn = dyn Fn(PodRef, u16) -> BoxFuture<'static, Result<Box<dyn Duplex>, NodeError>> + Send + Sync;

/// The type of [`NodeBackend::usage`].
pub type UsageFn = dyn Fn() -> BoxFuture<'static, Vec<PodUsage>> + Send + Sync;

/// The functions of a node, as the server calls them.
#[derive(Clone)]
pub struct NodeBackend {
    /// Opens the log of one container; the stream ends when the log does, or never with `follow`.
    pub logs: Arc<LogsFn>,
    /// Runs a command in a container, or attaches to its main process; resolves to the exit code.
    pub exec: Arc<ExecFn>,
    /// Opens a TCP connection to a port as seen from inside the pod.
    pub dial: Arc<DialFn>,
    /// Measures what pods use now.
    pub usage: Arc<UsageFn>,
}

/// What the containers of a pod use.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PodUsage {
    /// The pod's UID.
    pub uid: String,
    /// By the names of the containers.
    pub containers: Vec<(String, Usage)>,
    /// How long CPU use was averaged.
    pub window_seconds: u64,
}

/// An amount of CPU and memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Usage {
    /// Billionths of a CPU.
    pub cpu_nanos: u64,
    /// Bytes that cannot be reclaimed at once.
    pub memory_bytes: u64,
}

/// The pod a call is about, as it was stored when the call arrived.
#[derive(Clone, Debug)]
pub struct PodRef {
    /// The pod's namespace.
    pub namespace: String,
    /// The pod's name.
    pub name: String,
    /// The whole object: uid, nodeName and containers are all in here.
    pub object: Arc<Value>,
}

/// The options of `kubectl logs`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LogOptions {
    /// The container; the server has already resolved a missing name where there is only one.
    pub container: String,
    /// Keep the stream open and send lines as they come.
    pub follow: bool,
    /// The log of the instance before the last restart.
    pub previous: bool,
    /// Prefix each line with its RFC 3339 time.
    pub timestamps: bool,
    /// Only the last lines.
    pub tail_lines: Option<u64>,
    /// Stop after this many bytes.
    pub limit_bytes: Option<u64>,
    /// Only lines from the last seconds.
    pub since_seconds: Option<i64>,
    /// Only lines from this time on.
    pub since_time: Option<jiff::Timestamp>,
}

/// The options of `kubectl exec` and `kubectl attach`.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ExecOptions {
    /// The container; never empty.
    pub container: String,
    /// The command with its arguments; empty means attach to the main process.
    pub command: Vec<String>,
    /// The client sends standard input.
    pub stdin: bool,
    /// The client wants standard output.
    pub stdout: bool,
    /// The client wants standard error.
    pub stderr: bool,
    /// Give the process a terminal.
    pub tty: bool,
}

/// The streams between a client and a process. Dropping a sender ends that stream.
#[derive(Debug)]
pub struct ExecStreams {
    /// The client's input; closed when the client closes it.
    pub stdin: mpsc::Receiver<Bytes>,
    /// The standard output of the process.
    pub stdout: mpsc::Sender<Bytes>,
    /// The standard error of the process.
    pub stderr: mpsc::Sender<Bytes>,
    /// New sizes of the client's terminal.
    pub resize: mpsc::Receiver<TerminalSize>,
}

/// The size of a terminal in characters.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(rename_all = "PascalCase")]
pub struct TerminalSize {
    /// Columns.
    pub width: u16,
    /// Rows.
    pub height: u16,
}

/// Pieces of a log as they become available.
pub type LogStream = BoxStream<'static, Result<Bytes, std::io::Error>>;

/// A connection in both directions.
pub trait Duplex: AsyncRead + AsyncWrite + Send + Unpin + 'static {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin + 'static> Duplex for T {}

/// Why a node could not serve a call.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The container does not exist, or has not started: 400 for logs, as the kubelet answers.
    #[error("{0}")]
    BadRequest(String),
    /// The pod is not known to the node: 404.
    #[error("{0}")]
    NotFound(String),
    /// Anything else: 500.
    #[error("{0}")]
    Internal(String),
}
