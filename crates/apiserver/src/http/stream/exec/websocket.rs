//! A client on a WebSocket: the first byte of each message names a channel (0 in, 1 out, 2 error, 3 result, 4 size,
//! and with v5 255 to close one). The oldest protocol, without a version, reports failures only, as plain text.

use axum::extract::ws::{Message, WebSocket};
use serde_json::Value;

use super::super::{close_message, frame};
use super::{Client, Gone, Input, Output};

pub(super) const PROTOCOLS: &[&str] = &["v5.channel.k8s.io", "v4.channel.k8s.io", OLDEST];
const OLDEST: &str = "channel.k8s.io";

const STDIN: u8 = 0;
const STDOUT: u8 = 1;
const STDERR: u8 = 2;
const RESULT: u8 = 3;
const RESIZE: u8 = 4;
const CLOSE: u8 = 255;

pub(super) struct Socket {
    socket: WebSocket,
}

impl Socket {
    pub(super) fn new(socket: WebSocket) -> Self {
        Self { socket }
    }
}

impl Client for Socket {
    async fn send(&mut self, output: Output, bytes: &[u8]) -> Result<(), Gone> {
        let channel = match output {
            Output::Stdout => STDOUT,
            Output::Stderr => STDERR,
        };
        self.socket.send(frame(channel, bytes)).await.map_err(|_| Gone)
    }

    async fn receive(&mut self) -> Option<Input> {
        loop {
            let bytes = match self.socket.recv().await?.ok()? {
                Message::Binary(bytes) => bytes,
                Message::Text(text) => text.into(),
                Message::Ping(_) | Message::Pong(_) => continue,
                Message::Close(_) => return None,
            };
            match bytes.split_first() {
                Some((&STDIN, content)) if !content.is_empty() => return Some(Input::Stdin(bytes.slice(1..))),
                Some((&RESIZE, _)) => return Some(Input::Resize(bytes.slice(1..))),
                Some((&CLOSE, [STDIN])) => return Some(Input::EndOfStdin),
                _ => {}
            }
        }
    }

    async fn finish(mut self, status: &[u8]) {
        let is_oldest = self.socket.protocol().is_some_and(|protocol| protocol == OLDEST);
        if let Some(result) = if is_oldest { failure(status) } else { Some(status.to_vec()) } {
            let _ = self.socket.send(frame(RESULT, &result)).await;
        }
        let _ = self.socket.send(close_message()).await;
    }
}

/// Returns the message of a `Status` that is no success.
fn failure(status: &[u8]) -> Option<Vec<u8>> {
    let status: Value = serde_json::from_slice(status).unwrap_or_default();
    let failed = status["status"] != "Success";
    failed.then(|| status["message"].as_str().unwrap_or_default().as_bytes().to_vec())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_oldest_protocol_reports_failures_only() {
        assert_eq!(failure(br#"{"status": "Success"}"#), None);
        assert_eq!(failure(br#"{"status": "Failure", "message": "no"}"#), Some(b"no".to_vec()));
    }
}
