//! `kubectl logs`.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderValue, header};

use super::{Query, container, node_error};
use crate::error::ApiError;
use crate::node::{LogOptions, NodeBackend, PodRef};

pub(super) async fn serve(node: &NodeBackend, pod: PodRef, query: &Query) -> Result<Response, ApiError> {
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
    let stream = (node.logs)(pod, options).await.map_err(node_error)?;
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    Ok(response)
}
