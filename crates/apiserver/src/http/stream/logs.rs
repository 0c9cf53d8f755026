//! `kubectl logs`, and logs by WebSocket for clients in browsers.

use axum::body::Body;
use axum::extract::Request;
use axum::extract::ws::Message;
use axum::response::Response;
use futures::StreamExt;
use http::{HeaderValue, header};

use super::{Query, close_message, container, node_error, websocket_upgrade};
use crate::error::ApiError;
use crate::node::{LogOptions, NodeBackend, PodRef};

const PROTOCOLS: &[&str] = &["binary.k8s.io"];

pub(super) async fn serve(
    node: &NodeBackend,
    pod: PodRef,
    request: Request,
    query: &Query,
) -> Result<Response, ApiError> {
    let count = |key: &str| Ok::<_, ApiError>(query.number(key)?.and_then(|number| u64::try_from(number).ok()));
    let since_time = query.get("sinceTime").map(str::parse).transpose();
    let options = LogOptions {
        container: container(&pod, query)?,
        follow: query.flag("follow"),
        previous: query.flag("previous"),
        timestamps: query.flag("timestamps"),
        tail_lines: count("tailLines")?,
        limit_bytes: count("limitBytes")?,
        since_seconds: query.number("sinceSeconds")?,
        since_time: since_time.map_err(|_| ApiError::bad_request("sinceTime is no RFC 3339 time"))?,
    };
    let upgrade = request.headers().get(header::UPGRADE).and_then(|value| value.to_str().ok());
    let upgrade = match upgrade.is_some_and(|value| value.eq_ignore_ascii_case("websocket")) {
        true => Some(websocket_upgrade(request, PROTOCOLS).await?),
        false => None,
    };
    let mut stream = (node.logs)(pod, options).await.map_err(node_error)?;
    if let Some(upgrade) = upgrade {
        return Ok(upgrade.on_upgrade(async move |mut socket| {
            while let Some(Ok(bytes)) = stream.next().await {
                if socket.send(Message::Binary(bytes)).await.is_err() {
                    return;
                }
            }
            let _ = socket.send(close_message()).await;
        }));
    }
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}
