//! Port-forward over SPDY: for each connection of the client a stream of data and one for what went wrong.
//!
//! ```text
//!   client ──Open error, Open data (same requestid)──▶ dial a port of the pod
//!   client ◀──────────────Data──────────────────────▶ pod
//!   client ◀──── text on the error stream if there is no such port
//! ```

use std::collections::HashMap;

use bytes::Bytes;
use futures::{Sink, SinkExt, Stream, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio::task::{AbortHandle, JoinSet};

use super::DEPTH;
use super::spdy::{self, Decoder, Encoder, Frame};
use crate::node::{NodeBackend, PodRef};

/// The largest number of open streams per client; each connection uses two.
const STREAMS: usize = 2048;

/// Serves one client until it disconnects.
pub(super) async fn run(
    incoming: impl Stream<Item = Bytes>,
    outgoing: impl Sink<Bytes>,
    node: &NodeBackend,
    pod: &PodRef,
) {
    let (sender, mut frames) = mpsc::channel::<Bytes>(DEPTH);
    let reading = async {
        let mut session = Session {
            node,
            pod,
            outgoing: sender,
            encoder: Encoder::new(),
            streams: HashMap::new(),
            waiting: HashMap::new(),
            connections: JoinSet::new(),
        };
        let mut decoder = Decoder::new();
        futures::pin_mut!(incoming);
        while let Some(piece) = incoming.next().await {
            decoder.feed(&piece);
            loop {
                match decoder.next() {
                    Ok(Some(Frame::GoAway)) => return,
                    Ok(Some(frame)) => session.take(frame).await,
                    Ok(None) => break,
                    Err(error) => return tracing::debug!(%error, "port-forward ended"),
                }
            }
        }
    };
    // Writing continues while a slow pod blocks the reading, so neither can deadlock the other.
    let writing = async {
        futures::pin_mut!(outgoing);
        while let Some(frame) = frames.recv().await {
            if outgoing.send(frame).await.is_err() {
                return;
            }
        }
    };
    tokio::select! {
        () = reading => {}
        () = writing => {}
    }
}

/// The state of an open stream.
enum Open {
    /// An error stream, which the client only reads.
    Errors,
    /// Into the pod; nothing more once the client is done.
    Data { to_pod: Option<mpsc::Sender<Bytes>>, connection: AbortHandle },
    /// A stream whose counterpart is not open yet.
    Waiting,
}

/// The first stream of a pair.
struct Half {
    stream: u32,
    is_data: bool,
}

struct Session<'a> {
    node: &'a NodeBackend,
    pod: &'a PodRef,
    outgoing: mpsc::Sender<Bytes>,
    encoder: Encoder,
    streams: HashMap<u32, Open>,
    /// First halves by request.
    waiting: HashMap<String, Half>,
    connections: JoinSet<(u32, u32)>,
}

impl Session<'_> {
    async fn take(&mut self, frame: Frame) {
        self.forget_ended();
        match frame {
            Frame::Open { stream, headers, .. } => self.open(stream, &headers).await,
            Frame::Data { stream, fin, bytes } => self.data(stream, fin, bytes).await,
            Frame::Reset { stream } => {
                if let Some(Open::Data { connection, .. }) = self.streams.remove(&stream) {
                    connection.abort();
                }
            }
            Frame::Ping(id) => self.send(spdy::pong(id)).await,
            Frame::GoAway | Frame::Other => {}
        }
    }

    async fn send(&self, frame: Bytes) {
        // Without a receiver the client is gone, and reading ends as well.
        let _ = self.outgoing.send(frame).await;
    }

    fn forget_ended(&mut self) {
        while let Some(ended) = self.connections.try_join_next() {
            if let Ok((data, errors)) = ended {
                self.streams.remove(&data);
                self.streams.remove(&errors);
            }
        }
    }

    async fn open(&mut self, stream: u32, headers: &[(String, String)]) {
        let header = |name: &str| headers.iter().find(|(key, _)| key == name).map(|(_, value)| value.as_str());
        let port = header("port").and_then(|port| port.parse::<u16>().ok()).filter(|port| *port != 0);
        let is_data = match header("streamtype") {
            Some("data") => Some(true),
            Some("error") => Some(false),
            _ => None,
        };
        let (Some(port), Some(is_data), true) = (port, is_data, self.streams.len() < STREAMS) else {
            return self.send(spdy::refuse(stream)).await;
        };
        let reply = self.encoder.reply(stream);
        self.send(reply).await;
        // The first clients sent no requestid: their error stream came right before the data stream.
        let request = header("requestid").map_or_else(
            || format!("stream {}", if is_data { stream.saturating_sub(2) } else { stream }),
            str::to_owned,
        );
        match self.waiting.remove(&request) {
            Some(first) if first.is_data != is_data => {
                let (data, errors) = if is_data { (stream, first.stream) } else { (first.stream, stream) };
                self.connect(data, errors, port);
            }
            _ => {
                self.streams.insert(stream, Open::Waiting);
                self.waiting.insert(request, Half { stream, is_data });
            }
        }
    }

    fn connect(&mut self, data: u32, errors: u32, port: u16) {
        let (to_pod, from_client) = mpsc::channel(DEPTH);
        let wires = Wires { data, errors, from_client, outgoing: self.outgoing.clone() };
        let (node, pod) = (self.node.clone(), self.pod.clone());
        let connection = self.connections.spawn(async move {
            wires.carry(&node, pod, port).await;
            (data, errors)
        });
        self.streams.insert(errors, Open::Errors);
        self.streams.insert(data, Open::Data { to_pod: Some(to_pod), connection });
    }

    async fn data(&mut self, stream: u32, fin: bool, bytes: Bytes) {
        if let Some(Open::Data { to_pod, .. }) = self.streams.get_mut(&stream) {
            if let Some(sender) = to_pod
                && !bytes.is_empty()
                && sender.send(bytes).await.is_err()
            {
                *to_pod = None;
            }
            if fin {
                *to_pod = None;
            }
        }
    }
}

/// The channels of one connection between client and pod.
struct Wires {
    data: u32,
    errors: u32,
    from_client: mpsc::Receiver<Bytes>,
    outgoing: mpsc::Sender<Bytes>,
}

impl Wires {
    async fn carry(mut self, node: &NodeBackend, pod: PodRef, port: u16) {
        let complaint = match (node.dial)(pod.clone(), port).await {
            Ok(connection) => {
                let (mut reader, mut writer) = tokio::io::split(connection);
                let (outgoing, data) = (self.outgoing.clone(), self.data);
                let from_client = &mut self.from_client;
                let inward = async {
                    while let Some(bytes) = from_client.recv().await {
                        if writer.write_all(&bytes).await.is_err() {
                            return;
                        }
                    }
                    // The pod may already have closed the connection.
                    let _ = writer.shutdown().await;
                };
                let outward = async {
                    let mut buffer = vec![0; 16 << 10];
                    while let Ok(read @ 1..) = reader.read(&mut buffer).await {
                        if outgoing.send(spdy::data(data, &buffer[..read], false)).await.is_err() {
                            return;
                        }
                    }
                };
                // The pod ends the connection: it may continue after the client has closed its side.
                futures::pin_mut!(inward, outward);
                if let futures::future::Either::Left(((), outward)) = futures::future::select(inward, outward).await {
                    outward.await;
                }
                Vec::new()
            }
            Err(error) => {
                format!("error forwarding port {port} to pod {}/{}: {error}", pod.namespace, pod.name).into_bytes()
            }
        };
        for frame in [spdy::data(self.errors, &complaint, true), spdy::data(self.data, &[], true)] {
            // Whoever does not listen any more needs no end either.
            let _ = self.outgoing.send(frame).await;
        }
    }
}
