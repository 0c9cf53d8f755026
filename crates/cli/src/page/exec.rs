//! A shell in a container, in the browser: one WebSocket per terminal.
//!
//! Binary messages are what is typed and printed. Text messages are JSON: the first names the container, later ones the size
//! of the terminal, and the last one, from here, how the command ended.

use super::failure::sentence;
use super::live::{BEAT, PROTOCOL, SILENCE, send_in_time};
use super::question::parse;
use super::session::Session;
use crate::commands::shell::SHELL;
use axum::extract::Extension;
use axum::extract::ws::{Message, WebSocket, WebSocketUpgrade};
use axum::response::Response;
use futures::{Sink, Stream, StreamExt};
use k8s_openapi::api::core::v1::Pod;
use kube::Api;
use kube::api::{AttachParams, TerminalSize};
use serde::Deserialize;
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// The longest message of a browser: something that is pasted.
const MAX_MESSAGE: usize = 1 << 20;
/// How long a browser may take to name the container.
const START_TIMEOUT: Duration = Duration::from_secs(10);
/// How long the exit status of a command may lag behind its output.
const END_TIMEOUT: Duration = Duration::from_secs(1);

/// The container, and the size of the terminal.
#[derive(Deserialize)]
struct Start {
    namespace: String,
    pod: String,
    container: Option<String>,
    #[serde(flatten)]
    size: Size,
}

#[derive(Clone, Copy, Deserialize)]
struct Size {
    columns: u16,
    rows: u16,
}

impl From<Size> for TerminalSize {
    fn from(size: Size) -> Self {
        Self { width: size.columns.clamp(1, 500), height: size.rows.clamp(1, 500) }
    }
}

pub(super) async fn connect(Extension(session): Extension<Arc<Session>>, upgrade: WebSocketUpgrade) -> Response {
    upgrade
        .protocols([PROTOCOL])
        .max_message_size(MAX_MESSAGE)
        .on_upgrade(async move |socket| serve(socket, &session).await)
}

async fn serve(mut socket: WebSocket, session: &Session) {
    let Ok(Some(Ok(Message::Text(text)))) = tokio::time::timeout(START_TIMEOUT, socket.recv()).await else { return };
    let Ok(start) = parse::<Start>(text.as_bytes()) else { return };
    let end = match run(&mut socket, session, start).await {
        Ok(end) => end,
        Err(error) => sentence(&error),
    };
    // The browser may be gone already.
    if send_in_time(&mut socket, Message::Text(json!({"end": end}).to_string().into())).await {
        send_in_time(&mut socket, Message::Close(None)).await;
    }
}

/// Runs a shell until it ends or the browser leaves; returns how it ended.
async fn run(socket: &mut WebSocket, session: &Session, start: Start) -> Result<String, kube::Error> {
    let pods: Api<Pod> = Api::namespaced(session.target.client.clone(), &start.namespace);
    let params = AttachParams { container: start.container, ..AttachParams::default() };
    let params = params.stdin(true).stdout(true).stderr(false).tty(true);
    let mut process = pods.exec(&start.pod, ["sh", "-c", SHELL], &params).await?;
    let status = process.take_status();
    let (input, output, sizes) = (process.stdin(), process.stdout(), process.terminal_size());
    let (mut sender, mut receiver) = socket.split();
    if let (Some(input), Some(output), Some(mut sizes)) = (input, output, sizes) {
        // A terminal that has no size yet shows nothing wrong.
        let _ = sizes.try_send(start.size.into());
        tokio::select! {
            () = type_into(input, sizes, &mut receiver, session) => {}
            () = print_to(output, &mut sender) => {}
            () = session.ended() => {}
        }
    }
    let status = match status {
        Some(status) => tokio::time::timeout(END_TIMEOUT, status).await.ok().flatten(),
        None => None,
    };
    process.abort();
    let failed = status.filter(|status| status.status.as_deref() == Some("Failure"));
    Ok(failed.and_then(|status| status.message).unwrap_or_default())
}

/// Passes on what is typed, and the size of the terminal, until the browser leaves.
async fn type_into(
    mut input: impl AsyncWrite + Unpin,
    mut sizes: futures::channel::mpsc::Sender<TerminalSize>,
    receiver: &mut (impl Stream<Item = Result<Message, axum::Error>> + Unpin),
    session: &Session,
) {
    // Whoever is there answers pings.
    while let Ok(Some(Ok(message))) = tokio::time::timeout(SILENCE, receiver.next()).await {
        match message {
            Message::Binary(bytes) => {
                session.touch();
                if input.write_all(&bytes).await.is_err() || input.flush().await.is_err() {
                    return;
                }
            }
            Message::Text(text) => {
                if let Ok(size) = serde_json::from_str::<Size>(&text) {
                    // The next size counts, if this one is too much.
                    let _ = sizes.try_send(size.into());
                }
            }
            Message::Close(_) => return,
            Message::Ping(_) | Message::Pong(_) => {}
        }
    }
}

/// Passes on what is printed, until the command ends or the browser stops reading.
async fn print_to(mut output: impl AsyncRead + Unpin, sender: &mut (impl Sink<Message> + Unpin)) {
    let mut buffer = vec![0; 16 << 10];
    let mut beat = tokio::time::interval(BEAT);
    loop {
        let message = tokio::select! {
            read = output.read(&mut buffer) => match read {
                Ok(0) | Err(_) => return,
                Ok(length) => Message::Binary(buffer[..length].to_vec().into()),
            },
            _ = beat.tick() => Message::Ping(Default::default()),
        };
        if !send_in_time(sender, message).await {
            return;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::page::session::tests::session_by_token;
    use futures::stream;
    use tokio::time::Instant;

    #[tokio::test(start_paused = true)]
    async fn a_terminal_ends_when_its_browser_is_gone_without_a_word() {
        let session = session_by_token();
        let start = Instant::now();
        let (sizes, _sizes) = futures::channel::mpsc::channel(1);
        type_into(tokio::io::sink(), sizes, &mut stream::pending(), &session).await;
        assert_eq!(start.elapsed(), SILENCE);
    }

    #[tokio::test(start_paused = true)]
    async fn a_quiet_command_pings_its_browser() {
        let (mut sender, mut received) = futures::channel::mpsc::unbounded();
        let (_keeps_running, output) = tokio::io::duplex(1);
        let printing = print_to(output, &mut sender);
        assert!(tokio::time::timeout(BEAT * 2, printing).await.is_err(), "it goes on");
        assert!(matches!(received.next().await, Some(Message::Ping(_))));
        assert!(matches!(received.next().await, Some(Message::Ping(_))));
    }
}
