//! A client that speaks SPDY: it opens a stream for each channel, and the process begins when all are open.

use std::collections::VecDeque;
use std::time::Duration;

use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use tokio::sync::mpsc;

use super::super::spdy::{self, Decoder, Encoder, Frame};
use super::super::spdy_upgrade::{Incoming, Outgoing};
use super::{Client, DEPTH, Gone, Input, Output};
use crate::node::ExecOptions;

pub(super) const PROTOCOL: &str = "v4.channel.k8s.io";
/// How long a client may take to open its streams, and to close after the end.
const STREAM_TIMEOUT: Duration = Duration::from_secs(30);
/// The largest number of messages that are buffered before all streams are open.
const EARLY: usize = 64;

/// Waits for the client's streams, then serves the process until the client is gone.
pub(super) async fn serve<Carried: Future<Output = ()>>(
    incoming: Incoming,
    mut outgoing: Outgoing,
    options: ExecOptions,
    carry: impl FnOnce(Connection, ExecOptions) -> Carried,
) {
    let (sender, mut frames) = mpsc::channel::<Bytes>(DEPTH);
    let talking = async {
        let mut connection = Connection::new(incoming, sender);
        match tokio::time::timeout(STREAM_TIMEOUT, connection.open(&options)).await {
            Ok(Some(())) => carry(connection, options).await,
            Ok(None) => {}
            Err(_) => tracing::debug!("timed out waiting for the client's streams"),
        }
    };
    // Frames queued at the end are still written, as the sender is dropped with the connection; and once nothing can be
    // written any more, the receiver is dropped with this block, so that nobody waits for it.
    let writing = async move {
        while let Some(frame) = frames.recv().await {
            if outgoing.send(frame).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(talking, writing);
}

/// The streams by what they are for; 0 is none.
#[derive(Default)]
struct Streams {
    result: u32,
    stdin: u32,
    stdout: u32,
    stderr: u32,
    resize: u32,
}

impl Streams {
    fn named(&mut self, name: &str) -> Option<&mut u32> {
        Some(match name {
            "error" => &mut self.result,
            "stdin" => &mut self.stdin,
            "stdout" => &mut self.stdout,
            "stderr" => &mut self.stderr,
            "resize" => &mut self.resize,
            _ => return None,
        })
    }

    fn are_all_there(&self, options: &ExecOptions) -> bool {
        let needed = [
            (true, self.result),
            (options.stdin, self.stdin),
            (options.stdout, self.stdout),
            (options.stderr, self.stderr),
            (options.tty, self.resize),
        ];
        needed.iter().all(|(needed, stream)| !needed || *stream != 0)
    }
}

pub(super) struct Connection {
    incoming: Incoming,
    decoder: Decoder,
    encoder: Encoder,
    outgoing: mpsc::Sender<Bytes>,
    streams: Streams,
    /// Replies to the client's frames that are not sent yet.
    replies: VecDeque<Bytes>,
    /// Input that arrived before all streams were open.
    early: VecDeque<Input>,
}

impl Connection {
    fn new(incoming: Incoming, outgoing: mpsc::Sender<Bytes>) -> Self {
        Self {
            incoming,
            decoder: Decoder::new(),
            encoder: Encoder::new(),
            outgoing,
            streams: Streams::default(),
            replies: VecDeque::new(),
            early: VecDeque::new(),
        }
    }

    /// Waits until every stream that the options ask for is open and acknowledged: what comes on a stream
    /// before the reply is lost.
    async fn open(&mut self, options: &ExecOptions) -> Option<()> {
        while !self.streams.are_all_there(options) || !self.replies.is_empty() {
            if let Some(heard) = self.step().await? {
                self.early.push_back(heard);
            }
            if self.early.len() > EARLY {
                return None;
            }
        }
        Some(())
    }

    /// Reads one frame or writes a pending one; returns `None` once the client is gone. Cancel safe.
    async fn step(&mut self) -> Option<Option<Input>> {
        if !self.replies.is_empty() {
            let room = self.outgoing.reserve().await.ok()?;
            if let Some(reply) = self.replies.pop_front() {
                room.send(reply);
            }
            return Some(None);
        }
        match self.decoder.next() {
            Ok(Some(Frame::GoAway)) => None,
            Ok(Some(frame)) => Some(self.take(frame)),
            Ok(None) => {
                let piece = self.incoming.next().await?;
                self.decoder.feed(&piece);
                Some(None)
            }
            Err(error) => {
                tracing::debug!(%error, "exec client disconnected");
                None
            }
        }
    }

    fn take(&mut self, frame: Frame) -> Option<Input> {
        match frame {
            Frame::Open { stream, headers, .. } => {
                let name = headers.iter().find(|(name, _)| name == "streamtype").map_or("", |(_, value)| value);
                let reply = match self.streams.named(name) {
                    Some(slot) if *slot == 0 => {
                        *slot = stream;
                        self.encoder.reply(stream)
                    }
                    _ => spdy::refuse(stream),
                };
                self.replies.push_back(reply);
                None
            }
            Frame::Data { stream, bytes, fin } if stream == self.streams.stdin => {
                if fin && !bytes.is_empty() {
                    self.early.push_back(Input::EndOfStdin);
                }
                if bytes.is_empty() { fin.then_some(Input::EndOfStdin) } else { Some(Input::Stdin(bytes)) }
            }
            Frame::Data { stream, bytes, .. } if stream == self.streams.resize => Some(Input::Resize(bytes)),
            Frame::Reset { stream } if stream == self.streams.stdin => Some(Input::EndOfStdin),
            Frame::Ping(id) => {
                self.replies.push_back(spdy::pong(id));
                None
            }
            Frame::Data { .. } | Frame::Reset { .. } | Frame::GoAway | Frame::Other => None,
        }
    }
}

impl Client for Connection {
    async fn send(&mut self, output: Output, bytes: &[u8]) -> Result<(), Gone> {
        let stream = match output {
            Output::Stdout => self.streams.stdout,
            Output::Stderr => self.streams.stderr,
        };
        if stream == 0 {
            return Ok(());
        }
        self.outgoing.send(spdy::data(stream, bytes, false)).await.map_err(|_| Gone)
    }

    async fn receive(&mut self) -> Option<Input> {
        loop {
            if let Some(heard) = self.early.pop_front() {
                return Some(heard);
            }
            if let Some(heard) = self.step().await? {
                return Some(heard);
            }
        }
    }

    async fn finish(mut self, status: &[u8]) {
        let ends = [(self.streams.stdout, &[][..]), (self.streams.stderr, &[]), (self.streams.result, status)];
        for (stream, bytes) in ends {
            if stream != 0 && self.outgoing.send(spdy::data(stream, bytes, true)).await.is_err() {
                return;
            }
        }
        // A connection that is closed with something unread may lose what was written: the client closes it.
        let left = async { while self.receive().await.is_some() {} };
        let _ = tokio::time::timeout(STREAM_TIMEOUT, left).await;
    }
}
