//! Port-forward, in the three ways that clients know.
//!
//! kubectl opens SPDY inside a WebSocket, older clients open SPDY itself; the Python client and kube-rs use a
//! WebSocket with two channels for each port. All lead to connections that the node opens.

use axum::body::Body;
use axum::extract::Request;
use axum::extract::ws::{Message, WebSocket};
use axum::response::Response;
use bytes::Bytes;
use futures::{SinkExt, StreamExt};
use http::{HeaderMap, HeaderValue, StatusCode, header};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::sync::mpsc;
use tokio_util::codec::{BytesCodec, FramedRead, FramedWrite};

use super::{DEPTH, Query, farewell, frame, tunnel, upgrade};
use crate::error::ApiError;
use crate::node::{NodeBackend, PodRef};

const TUNNELLED: &str = "SPDY/3.1+portforward.k8s.io";

pub(super) async fn serve(
    node: NodeBackend,
    pod: PodRef,
    request: Request,
    query: &Query,
) -> Result<Response, ApiError> {
    if is_spdy(request.headers()) {
        return plain_spdy(node, pod, request);
    }
    let ports = ports(query)?;
    let upgrade = upgrade(request, &[TUNNELLED, "v4.channel.k8s.io", "portforward.k8s.io"]).await?;
    if upgrade.selected_protocol().is_some_and(|chosen| chosen == TUNNELLED) {
        return Ok(upgrade.on_upgrade(move |socket| tunnelled(socket, node, pod)));
    }
    // Only here the ports are in the query; SPDY names them as it goes.
    if ports.is_empty() {
        return Err(ApiError::bad_request("you must specify at least 1 port"));
    }
    Ok(upgrade.on_upgrade(move |socket| channels(socket, node, pod, ports)))
}

fn ports(query: &Query) -> Result<Vec<u16>, ApiError> {
    let given = query.all("ports").flat_map(|list| list.split(','));
    given.map(|port| port.parse().map_err(|_| ApiError::bad_request(format!("invalid port {port:?}")))).collect()
}

fn is_spdy(headers: &HeaderMap) -> bool {
    headers.get(header::UPGRADE).is_some_and(|wanted| wanted.as_bytes().eq_ignore_ascii_case(b"SPDY/3.1"))
}

/// SPDY on the connection itself.
fn plain_spdy(node: NodeBackend, pod: PodRef, mut request: Request) -> Result<Response, ApiError> {
    let Some(upgraded) = request.extensions_mut().remove::<hyper::upgrade::OnUpgrade>() else {
        return Err(ApiError::bad_request("unable to upgrade: the connection cannot change its protocol"));
    };
    tokio::spawn(async move {
        let Ok(upgraded) = upgraded.await else { return };
        let (reader, writer) = tokio::io::split(TokioIo::new(upgraded));
        let incoming = FramedRead::new(reader, BytesCodec::new())
            .take_while(|piece| std::future::ready(piece.is_ok()))
            .filter_map(|piece| std::future::ready(piece.ok().map(|bytes| bytes.freeze())));
        tunnel::run(incoming, FramedWrite::new(writer, BytesCodec::new()), &node, &pod).await;
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(header::CONNECTION, HeaderValue::from_static("Upgrade"));
    headers.insert(header::UPGRADE, HeaderValue::from_static("SPDY/3.1"));
    headers.insert("X-Stream-Protocol-Version", HeaderValue::from_static("portforward.k8s.io"));
    Ok(response)
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
    let _ = sender.into_inner().send(farewell()).await;
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
    let _ = sender.send(farewell()).await;
}
