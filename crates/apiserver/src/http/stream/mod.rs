//! Logs, exec, attach, port-forward and proxy: bytes between clients and pods.

mod backend;
mod exec;
mod logs;
mod options;
mod port_forward;
mod proxy;
mod spdy;
mod spdy_upgrade;
mod tunnel;

pub(crate) use backend::Backend;
pub(super) use options::options;

use std::sync::Arc;

use axum::extract::ws::{CloseFrame, Message, WebSocketUpgrade};
use axum::extract::{FromRequestParts, Request};
use axum::response::Response;
use bytes::BytesMut;

use super::path::{Query, RequestInfo};
use crate::error::ApiError;
use crate::node::{NodeError, PodRef};
use crate::ops::{Cluster, Target};

/// Messages in flight in each direction.
const DEPTH: usize = 16;
/// The largest message that is read; clients send pieces of some kilobytes.
const MESSAGE_LIMIT: usize = 4 << 20;

pub(super) async fn serve(
    cluster: &Arc<Cluster>,
    target: Target<'_>,
    subresource: &str,
    info: &RequestInfo,
    request: Request,
    query: &Query,
) -> Result<Response, ApiError> {
    let Some(node) = cluster.node() else {
        return Err(ApiError::unavailable("there is no node that runs pods"));
    };
    if subresource == "proxy" {
        return proxy::serve(cluster, target, info, request).await;
    }
    let object = Arc::new(cluster.get(target)?.value());
    let pod = PodRef { namespace: target.namespace.into(), name: target.name.into(), object };
    match subresource {
        "log" => logs::serve(&node, pod, request, query).await,
        "portforward" => port_forward::serve(node, pod, request, query).await,
        "exec" | "attach" => exec::serve(node, pod, request, query, subresource == "exec").await,
        _ => Err(ApiError::no_such_path()),
    }
}

/// Returns the container that is meant; a pod with one container needs no name.
fn container(pod: &PodRef, query: &Query) -> Result<String, ApiError> {
    let names = |list: &str| -> Vec<String> {
        let all = pod.object["spec"][list].as_array().into_iter().flatten();
        all.filter_map(|one| one["name"].as_str().map(str::to_owned)).collect()
    };
    let (main, initial) = (names("containers"), names("initContainers"));
    let annotated = pod.object["metadata"]["annotations"]["kubectl.kubernetes.io/default-container"].as_str();
    let default = annotated.filter(|name| main.iter().any(|known| known == name));
    let ephemeral = names("ephemeralContainers");
    match query.get("container").or(default) {
        Some(name) if main.iter().chain(&initial).chain(&ephemeral).any(|known| known == name) => Ok(name.to_owned()),
        Some(name) => Err(ApiError::bad_request(format!("container {name} is not valid for pod {}", pod.name))),
        None if main.len() == 1 => Ok(main.concat()),
        None => {
            let mut text =
                format!("a container name must be specified for pod {}, choose one of: [{}]", pod.name, main.join(" "));
            if !initial.is_empty() {
                text.push_str(&format!(" or one of the init containers: [{}]", initial.join(" ")));
            }
            Err(ApiError::bad_request(text))
        }
    }
}

fn node_error(error: NodeError) -> ApiError {
    match error {
        NodeError::BadRequest(text) => ApiError::bad_request(text),
        NodeError::NotFound(_) => ApiError::no_such_path(),
        NodeError::Internal(text) => ApiError::internal(text),
    }
}

async fn websocket_upgrade(request: Request, protocols: &'static [&'static str]) -> Result<WebSocketUpgrade, ApiError> {
    let (mut parts, _) = request.into_parts();
    let upgrade = WebSocketUpgrade::from_request_parts(&mut parts, &()).await;
    let upgrade = upgrade.map_err(|_| {
        ApiError::bad_request(format!("unable to upgrade: this path speaks WebSocket ({})", protocols.join(", ")))
    })?;
    Ok(upgrade.max_message_size(MESSAGE_LIMIT).protocols(protocols.iter().copied()))
}

/// Returns the normal close message; kubectl reports any other as a failure of every channel.
fn close_message() -> Message {
    Message::Close(Some(CloseFrame { code: 1000, reason: "".into() }))
}

/// Returns a message of Kubernetes' channel protocol: its first byte names the channel.
fn frame(channel: u8, content: &[u8]) -> Message {
    let mut bytes = BytesMut::with_capacity(content.len() + 1);
    bytes.extend_from_slice(&[channel]);
    bytes.extend_from_slice(content);
    Message::Binary(bytes.freeze())
}
