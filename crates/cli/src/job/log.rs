//! Follows the log of a job over a WebSocket, and reconnects if the stream breaks while the job runs.

use super::{Job, is_terminal};
use anyhow::anyhow;
use futures::StreamExt;
use std::io::Write;
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

/// How often a broken log stream is reopened.
const MAX_RECONNECTS: u32 = 5;
/// The longest message: whatever listens there must not fill this machine's memory.
const MAX_MESSAGE: usize = 64 << 20;

/// Why the log could not be followed any further.
enum Broken {
    /// It can be opened again.
    Stream(anyhow::Error),
    /// Whoever reads it does not take any more.
    Output(anyhow::Error),
}

impl Job {
    /// Prints the log until it ends.
    pub(crate) async fn follow(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let open = || async {
            let host = self.endpoint.address.trim_start_matches("http://");
            let mut request = format!("ws://{host}{}", log_path(&self.id)).into_client_request()?;
            request.headers_mut().extend(self.headers.clone());
            if let Some(token) = &self.token {
                request.headers_mut().insert("x-ray-authorization", format!("Bearer {token}").parse()?);
            }
            let (stream, _) = tokio_tungstenite::connect_async_with_config(request, Some(config()), false).await?;
            Ok(stream)
        };
        let has_ended = || async { self.info().await.is_ok_and(|info| is_terminal(&info.status)) };
        let print = |bytes: Vec<u8>| {
            let printed = out.write_all(&bytes).and_then(|()| out.flush());
            async { Ok(printed?) }
        };
        follow_log(open, has_ended, print).await
    }
}

/// Returns where Ray serves the log of a job, by WebSocket.
pub(crate) fn log_path(id: &str) -> String {
    format!("/api/jobs/{id}/logs/tail")
}

/// Returns the limits of such a WebSocket.
pub(crate) fn config() -> WebSocketConfig {
    WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE))
}

/// Hands a log on, piece by piece, until it ends; opens it again when the stream breaks while the job runs.
pub(crate) async fn follow_log<S, Opened, Ended, Printed>(
    open: impl Fn() -> Opened,
    has_ended: impl Fn() -> Ended,
    mut print: impl FnMut(Vec<u8>) -> Printed,
) -> anyhow::Result<()>
where
    S: AsyncRead + AsyncWrite + Unpin,
    Opened: Future<Output = anyhow::Result<WebSocketStream<S>>>,
    Ended: Future<Output = bool>,
    Printed: Future<Output = anyhow::Result<()>>,
{
    let mut printed = 0;
    for attempt in 0..=MAX_RECONNECTS {
        let followed = match open().await {
            Ok(stream) => tail(stream, &mut printed, &mut print).await,
            Err(error) => Err(Broken::Stream(error)),
        };
        match followed {
            Ok(()) => return Ok(()),
            Err(Broken::Output(error)) => return Err(error),
            Err(Broken::Stream(error)) if attempt == MAX_RECONNECTS => return Err(error),
            Err(Broken::Stream(error)) => {
                if has_ended().await {
                    return Ok(());
                }
                print(format!("INFO -- Lost the log stream ({error:#}); reconnecting.\n").into_bytes()).await?;
                tokio::time::sleep(Duration::from_secs(1 << attempt.min(3))).await;
            }
        }
    }
    Ok(())
}

/// Hands a log on until Ray closes it, and skips the bytes that were printed before.
async fn tail<S, Printed>(
    mut stream: WebSocketStream<S>,
    printed: &mut usize,
    print: &mut impl FnMut(Vec<u8>) -> Printed,
) -> Result<(), Broken>
where
    S: AsyncRead + AsyncWrite + Unpin,
    Printed: Future<Output = anyhow::Result<()>>,
{
    let broken = |why: String| Broken::Stream(anyhow!(why));
    let mut received = 0;
    while let Some(message) = stream.next().await {
        let mut bytes = match message {
            Ok(Message::Text(text)) => text.as_bytes().to_vec(),
            Ok(Message::Binary(bytes)) => bytes.to_vec(),
            Ok(Message::Close(Some(frame))) if u16::from(frame.code) != 1000 => {
                let code = u16::from(frame.code);
                return Err(broken(format!("the log stream was closed with code {code}: {}", frame.reason)));
            }
            Ok(Message::Close(_)) | Err(Error::ConnectionClosed) => return Ok(()),
            Ok(_) => continue,
            Err(error) => return Err(Broken::Stream(error.into())),
        };
        let length = bytes.len();
        bytes.drain(..printed.saturating_sub(received).min(length));
        print(bytes).await.map_err(Broken::Output)?;
        received += length;
        *printed = received.max(*printed);
    }
    Err(broken("the log stream ended without a close frame".to_owned()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use anyhow::bail;
    use futures::SinkExt;
    use tokio_tungstenite::tungstenite::protocol::Role;

    /// Returns a log stream that sends these messages and then closes, or breaks off.
    async fn stream(messages: &[&str], closes: bool) -> WebSocketStream<tokio::io::DuplexStream> {
        let (ours, theirs) = tokio::io::duplex(1 << 16);
        let mut server = WebSocketStream::from_raw_socket(theirs, Role::Server, None).await;
        for message in messages {
            server.send(Message::text(*message)).await.unwrap();
        }
        if closes {
            server.close(None).await.unwrap();
        }
        WebSocketStream::from_raw_socket(ours, Role::Client, None).await
    }

    #[tokio::test(start_paused = true)]
    async fn a_log_that_breaks_off_goes_on_where_it_was() {
        let attempt = std::cell::Cell::new(0);
        let open = || async {
            attempt.set(attempt.get() + 1);
            Ok(match attempt.get() {
                1 => stream(&["one\n", "tw"], false).await,
                _ => stream(&["one\n", "two\n", "three\n"], true).await,
            })
        };
        let mut text = String::new();
        let print = |bytes| {
            text.push_str(&String::from_utf8(bytes).unwrap());
            async { Ok(()) }
        };
        follow_log(open, || async { false }, print).await.unwrap();
        let (before, after) = text.split_once("INFO -- Lost the log stream").unwrap();
        let (_, after) = after.split_once("reconnecting.\n").unwrap();
        assert_eq!(format!("{before}{after}"), "one\ntwo\nthree\n");
    }

    #[tokio::test(start_paused = true)]
    async fn a_reader_that_fails_is_no_end_of_the_log() {
        let open = || async { Ok(stream(&["one\n"], true).await) };
        let followed = follow_log(open, || async { true }, |_| async { bail!("the disk is full") }).await;
        assert_eq!(followed.unwrap_err().to_string(), "the disk is full");
    }
}
