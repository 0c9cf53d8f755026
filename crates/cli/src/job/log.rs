//! Follows the log of a job over a WebSocket, and reconnects if the stream breaks while the job runs.

use super::{Job, is_terminal};
use anyhow::bail;
use futures::StreamExt;
use std::io::Write;
use std::time::Duration;
use tokio_tungstenite::tungstenite::client::IntoClientRequest;
use tokio_tungstenite::tungstenite::protocol::WebSocketConfig;
use tokio_tungstenite::tungstenite::{Error, Message};

/// How often a broken log stream is reopened.
const MAX_RECONNECTS: u32 = 5;
/// The longest message: whatever listens there must not fill this machine's memory.
const MAX_MESSAGE: usize = 64 << 20;

impl Job {
    /// Prints the log until it ends.
    pub(crate) async fn follow(&self, out: &mut impl Write) -> anyhow::Result<()> {
        let mut printed = 0;
        for attempt in 0..=MAX_RECONNECTS {
            match self.tail(&mut printed, out).await {
                Ok(()) => return Ok(()),
                Err(error) if attempt == MAX_RECONNECTS => return Err(error),
                Err(error) => {
                    if self.info().await.is_ok_and(|info| is_terminal(&info.status)) {
                        return Ok(());
                    }
                    writeln!(out, "INFO -- Lost the log stream ({error:#}); reconnecting.")?;
                    tokio::time::sleep(Duration::from_secs(1 << attempt.min(3))).await;
                }
            }
        }
        Ok(())
    }

    /// Prints the log stream until Ray closes it, and skips the bytes that were printed before.
    async fn tail(&self, printed: &mut usize, out: &mut impl Write) -> anyhow::Result<()> {
        let host = self.endpoint.address.trim_start_matches("http://");
        let mut request = format!("ws://{host}/api/jobs/{}/logs/tail", self.id).into_client_request()?;
        request.headers_mut().extend(self.headers.clone());
        if let Some(token) = &self.token {
            request.headers_mut().insert("x-ray-authorization", format!("Bearer {token}").parse()?);
        }
        let config = WebSocketConfig::default().max_message_size(Some(MAX_MESSAGE));
        let (mut stream, _) = tokio_tungstenite::connect_async_with_config(request, Some(config), false).await?;
        let mut received = 0;
        while let Some(message) = stream.next().await {
            let bytes = match message {
                Ok(Message::Text(text)) => text.as_bytes().to_vec(),
                Ok(Message::Binary(bytes)) => bytes.to_vec(),
                Ok(Message::Close(Some(frame))) if u16::from(frame.code) != 1000 => {
                    bail!("the log stream was closed with code {}: {}", u16::from(frame.code), frame.reason)
                }
                Ok(Message::Close(_)) | Err(Error::ConnectionClosed) => return Ok(()),
                Ok(_) => continue,
                Err(error) => return Err(error.into()),
            };
            let fresh = bytes.len().saturating_sub(printed.saturating_sub(received).min(bytes.len()));
            out.write_all(&bytes[bytes.len() - fresh..])?;
            out.flush()?;
            received += bytes.len();
            *printed = received.max(*printed);
        }
        bail!("the log stream ended without a close frame")
    }
}
