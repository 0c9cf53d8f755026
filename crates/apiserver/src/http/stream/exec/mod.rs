//! Exec and attach, in Kubernetes' channel protocol over WebSocket.
//!
//! The first byte of each message names a channel (0 in, 1 out, 2 error, 3 result, 4 size, and with v5 255 to
//! close one).

use axum::extract::Request;
use axum::extract::ws::{Message, WebSocket};
use axum::response::Response;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{DEPTH, Query, container, farewell, frame, upgrade};
use crate::error::ApiError;
use crate::node::{ExecOptions, ExecStreams, NodeBackend, NodeError, PodRef, TerminalSize};

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const RESULT: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

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
    let upgrade = upgrade(request, &["v5.channel.k8s.io", "v4.channel.k8s.io"]).await?;
    Ok(upgrade.on_upgrade(move |socket| carry(socket, node, pod, options)))
}

/// Carries bytes between a socket and a process until the process ends.
async fn carry(socket: WebSocket, node: NodeBackend, pod: PodRef, options: ExecOptions) {
    let (mut sender, mut receiver) = socket.split();
    let (input, stdin) = mpsc::channel(DEPTH);
    let (stdout, mut output) = mpsc::channel(DEPTH);
    let (stderr, mut errors) = mpsc::channel(DEPTH);
    let (sizes, resize) = mpsc::channel(DEPTH);
    let mut input = options.stdin.then_some(input);
    let streams = ExecStreams { stdin, stdout, stderr, resize };
    let mut process = (node.exec)(pod, options, streams);
    let mut result = None;
    let (mut open_out, mut open_err) = (true, true);
    while result.is_none() || open_out || open_err {
        tokio::select! {
            ended = &mut process, if result.is_none() => result = Some(ended),
            piece = output.recv(), if open_out => match piece {
                Some(piece) => if sender.send(frame(STDOUT, &piece)).await.is_err() { return },
                None => open_out = false,
            },
            piece = errors.recv(), if open_err => match piece {
                Some(piece) => if sender.send(frame(STDERR, &piece)).await.is_err() { return },
                None => open_err = false,
            },
            message = receiver.next() => match message {
                Some(Ok(Message::Binary(bytes))) => accept(&bytes, &mut input, &sizes).await,
                Some(Ok(Message::Text(text))) => accept(text.as_bytes(), &mut input, &sizes).await,
                Some(Ok(Message::Ping(_) | Message::Pong(_))) => {}
                // The client is gone: dropping the future ends the process.
                Some(Ok(Message::Close(_)) | Err(_)) | None => return,
            },
        }
    }
    let status = outcome(result.unwrap_or(Ok(0)));
    // The client may have left without waiting for the result.
    let _ = sender.send(frame(RESULT, status.to_string().as_bytes())).await;
    let _ = sender.send(farewell()).await;
}

async fn accept(bytes: &[u8], input: &mut Option<mpsc::Sender<Bytes>>, sizes: &mpsc::Sender<TerminalSize>) {
    let Some((channel, content)) = bytes.split_first() else { return };
    match *channel {
        STDIN if !content.is_empty() => {
            if let Some(sender) = input
                && sender.send(Bytes::copy_from_slice(content)).await.is_err()
            {
                *input = None;
            }
        }
        RESIZE => {
            if let Ok(size) = serde_json::from_slice(content) {
                // A size that comes while older ones wait is dropped; the next one will tell.
                let _ = sizes.try_send(size);
            }
        }
        CLOSE if content == [STDIN] => *input = None,
        _ => {}
    }
}

/// The `Status` that ends an exec.
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
