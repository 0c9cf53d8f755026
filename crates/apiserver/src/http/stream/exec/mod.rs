//! Exec and attach: a process of a pod, its input and output in the hands of a client.
//!
//! Clients come by WebSocket, those before kubectl 1.31 by SPDY. Both know the same channels.

mod spdy;
mod websocket;

use std::pin::pin;

use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{DEPTH, Query, container, spdy_upgrade, websocket_upgrade};
use crate::error::ApiError;
use crate::node::{ExecOptions, ExecStreams, NodeBackend, NodeError, PodRef, TerminalSize};

/// What bytes from the process are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Output {
    Stdout,
    Stderr,
}

/// A message from the client.
#[derive(Debug, PartialEq, Eq)]
enum Input {
    Stdin(Bytes),
    EndOfStdin,
    Resize(Bytes),
}

/// The client is no longer there.
struct Gone;

/// A client connection.
trait Client: Send {
    fn send(&mut self, output: Output, bytes: &[u8]) -> impl Future<Output = Result<(), Gone>> + Send;
    /// Returns the next message, or `None` once the client is gone. Cancel safe.
    fn receive(&mut self) -> impl Future<Output = Option<Input>> + Send;
    /// Sends the exit status and closes the connection.
    fn finish(self, status: &[u8]) -> impl Future<Output = ()> + Send;
}

pub(super) async fn serve(
    node: NodeBackend,
    pod: PodRef,
    request: Request,
    query: &Query,
    run: bool,
) -> Result<Response, ApiError> {
    let options = ExecOptions {
        container: container(&pod, query)?,
        command: if run { query.all("command").map(str::to_owned).collect() } else { Vec::new() },
        stdin: query.flag("stdin"),
        stdout: query.flag("stdout"),
        stderr: query.flag("stderr"),
        tty: query.flag("tty"),
    };
    if run && options.command.is_empty() {
        return Err(ApiError::bad_request("you must specify at least one command for the container"));
    }
    if spdy_upgrade::is_wanted(request.headers()) {
        return spdy_upgrade::to_spdy(request, spdy::PROTOCOL, async move |incoming, outgoing| {
            spdy::serve(incoming, outgoing, options, |client, options| carry(client, node, pod, options)).await;
        });
    }
    let upgrade = websocket_upgrade(request, websocket::PROTOCOLS).await?;
    Ok(upgrade.on_upgrade(move |socket| carry(websocket::Socket::new(socket), node, pod, options)))
}

/// Copies bytes between a client and a process until the process ends.
async fn carry(mut client: impl Client, node: NodeBackend, pod: PodRef, options: ExecOptions) {
    let (input, stdin) = mpsc::channel(DEPTH);
    let (stdout, mut output) = mpsc::channel(DEPTH);
    let (stderr, mut errors) = mpsc::channel(DEPTH);
    let (sizes, resize) = mpsc::channel(DEPTH);
    let mut input = options.stdin.then_some(input);
    let streams = ExecStreams { stdin, stdout, stderr, resize };
    let mut process = pin!((node.exec)(pod, options, streams));
    let mut result = None;
    let (mut open_out, mut open_err) = (true, true);
    // What the process has not taken yet. Waiting for it must not keep the process from running.
    let mut waiting = None;
    while result.is_none() || open_out || open_err {
        tokio::select! {
            ended = &mut process, if result.is_none() => result = Some(ended),
            piece = output.recv(), if open_out => match piece {
                Some(piece) => if client.send(Output::Stdout, &piece).await.is_err() { return },
                None => open_out = false,
            },
            piece = errors.recv(), if open_err => match piece {
                Some(piece) => if client.send(Output::Stderr, &piece).await.is_err() { return },
                None => open_err = false,
            },
            takes = hand_over(input.as_ref(), &mut waiting), if waiting.is_some() => if !takes { input = None },
            heard = client.receive(), if waiting.is_none() => match heard {
                Some(Input::Stdin(bytes)) => waiting = Some(bytes),
                Some(Input::EndOfStdin) => input = None,
                Some(Input::Resize(text)) => if let Ok(size) = serde_json::from_slice::<TerminalSize>(&text) {
                    // A size that comes while older ones wait is dropped; the next one will send.
                    let _ = sizes.try_send(size);
                },
                // Dropping the future ends the process.
                None => return,
            },
        }
    }
    client.finish(outcome(result.unwrap_or(Ok(0))).to_string().as_bytes()).await;
}

/// Passes pending input to the process; returns false once it accepts no more. Cancel safe.
async fn hand_over(input: Option<&mpsc::Sender<Bytes>>, waiting: &mut Option<Bytes>) -> bool {
    let room = match input {
        Some(input) => input.reserve().await.ok(),
        None => None,
    };
    match (room, waiting.take()) {
        (Some(room), Some(bytes)) => {
            room.send(bytes);
            true
        }
        _ => false,
    }
}

/// Returns the `Status` that ends an exec.
fn outcome(result: Result<i32, NodeError>) -> Value {
    match result {
        Ok(0) => json!({"metadata": {}, "status": "Success"}),
        Ok(code) => json!({
            "metadata": {},
            "status": "Failure",
            "message": format!("command terminated with non-zero exit code: command terminated with exit code {code}"),
            "reason": "NonZeroExitCode",
            "details": {"causes": [{"reason": "ExitCode", "message": code.to_string()}]},
        }),
        Err(error) => {
            json!({"metadata": {}, "status": "Failure", "message": error.to_string(), "reason": "InternalError", "code": 500})
        }
    }
}
