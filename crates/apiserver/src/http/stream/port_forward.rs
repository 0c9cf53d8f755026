//! Port-forward, in the three ways that clients know.
//!
//! kubectl opens SPDY inside a WebSocket, older clients open SPDY itself; the Python client and kube-rs use a
//! WebSocket with two channels for each port. All lead to connections that the node opens.

use axum::extract::Request;
use axum::extract::ws::{Message, WebSocket};
use axum::response::Response;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;

use super::{DEPTH, Query, close_message, frame, spdy_upgrade, tunnel, websocket_upgrade};
use crate::error::ApiError;
use crate::node::{NodeBackend, PodRef};

const TUNNELLED: &str = "SPDY/3.1+portforward.k8s.io";

pub(super) async fn serve(
    node: NodeBackend,
    pod: PodRef,
    request: Request,
    query: &Query,
) -> Result<Response, ApiError> {
    if spdy_upgrade::is_wanted(request.headers()) {
        return spdy_upgrade::to_spdy(request, "portforward.k8s.io", async move |incoming, outgoing| {
            tunnel::run(incoming, outgoing, &node, &pod).await;
        });
    }
    let ports = ports(query)?;
    let upgrade = websocket_upgrade(request, &[TUNNELLED, "v4.channel.k8s.io", "portforward.k8s.io"]).await?;
    if upgrade.selected_protocol().is_some_and(|chosen| chosen == TUNNELLED) {
        return Ok(upgrade.on_upgrade(move |socket| tunnelled(socket, node, pod)));
    }
    // Only here the ports are in the query; SPDY names them per stream.
    if ports.is_empty() {
        return Err(ApiError::bad_request("you must specify at least 1 port"));
    }
    Ok(upgrade.on_upgrade(move |socket| channels(socket, node, pod, ports)))
}

fn ports(query: &Query) -> Result<Vec<u16>, ApiError> {
    let given = query.all("ports").flat_map(|list| list.split(','));
    given.map(|port| port.parse().map_err(|_| ApiError::bad_request(format!("invalid port {port:?}")))).collect()
}

/// SPDY in the messages of a WebSocket.
async fn tunnelled(socket: WebSocket, node: NodeBackend, pod: PodRef) {
    let (sender, receiver) = socket.split();
    let incoming = receiver
        .take_while(|message| std::future::ready(!matches!(message, Ok(Message::Close(_)) | Err(_))))
        .filter_map(|message| {
            std::future::ready(match message {
                Ok(Message::Binary(bytes)) => Some(bytes),
                _ => None,
            })
        });
    let mut sender = sender.with(|bytes: Bytes| std::future::ready(Ok::<_, axum::Error>(Message::Binary(bytes))));
    tunnel::run(incoming, &mut sender, &node, &pod).await;
    // The client may already be gone.
    let _ = sender.into_inner().send(close_message()).await;
}

/// Two channels for each port, data and error, each begun by the port's number.
async fn channels(socket: WebSocket, node: NodeBackend, pod: PodRef, ports: Vec<u16>) {
    let (mut sender, mut receiver) = socket.split();
    let (outgoing, mut messages) = mpsc::channel::<Message>(DEPTH);
    let mut writers = Vec::new();
    let mut tasks = tokio::task::JoinSet::new();
    for (index, port) in ports.iter().enumerate() {
        let Ok(channel) = u8::try_from(index * 2) else { return };
        for below in [channel, channel + 1] {
            if sender.send(frame(below, &port.to_le_bytes())).await.is_err() {
                return;
            }
        }
        match (node.dial)(pod.clone(), *port).await {
            Ok(connection) => {
                let (mut reader, writer) = tokio::io::split(connection);
                writers.push(Some(writer));
                let outgoing = outgoing.clone();
                tasks.spawn(async move {
                    let mut buffer = vec![0; 16 << 10];
                    while let Ok(read @ 1..) = reader.read(&mut buffer).await {
                        if outgoing.send(frame(channel, &buffer[..read])).await.is_err() {
                            return;
                        }
                    }
                });
            }
            Err(error) => {
                writers.push(None);
                if sender.send(frame(channel + 1, error.to_string().as_bytes())).await.is_err() {
                    return;
                }
            }
        }
    }
    drop(outgoing);
    loop {
        tokio::select! {
            message = messages.recv() => match message {
                Some(message) => if sender.send(message).await.is_err() { return },
                None => break,
            },
            message = receiver.next() => match message {
                Some(Ok(Message::Binary(bytes))) => {
                    let Some((channel, content)) = bytes.split_first() else { continue };
                    if let Some(Some(writer)) = writers.get_mut(usize::from(channel / 2))
                        && writer.write_all(content).await.is_err()
                    {
                        break;
                    }
                }
                Some(Ok(Message::Close(_)) | Err(_)) | None => break,
                Some(Ok(_)) => {}
            },
        }
    }
    let _ = sender.send(close_message()).await;
}
