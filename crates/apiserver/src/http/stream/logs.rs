//! `kubectl logs`, and logs by WebSocket for clients in browsers.

use axum::body::Body;
use axum::extract::Request;
use axum::extract::ws::Message;
use axum::response::Response;
use futures::StreamExt;
use http::{HeaderValue, header};

use super::{Query, close_message, container, node_error, websocket_upgrade};
use crate::error::{ApiError, Named};
use crate::node::{LogOptions, NodeBackend, PodRef};
use crate::schema::FieldError;

const PROTOCOLS: &[&str] = &["binary.k8s.io"];

pub(super) async fn serve(
    node: &NodeBackend,
    pod: PodRef,
    request: Request,
    query: &Query,
) -> Result<Response, ApiError> {
    check_numbers(&pod.name, query)?;
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

/// Refuses numbers that mean nothing, such as the last -1 lines, which would be all.
fn check_numbers(pod: &str, query: &Query) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    for (key, least, why) in [
        ("tailLines", 0, "must be greater than or equal to 0"),
        ("limitBytes", 1, "must be greater than 0"),
        ("sinceSeconds", 1, "must be greater than 0"),
    ] {
        if let Some(number) = query.number(key)?.filter(|number| *number < least) {
            errors.push(FieldError::invalid(key, &number.into(), why));
        }
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid(Named { group: "", what: "PodLogOptions", name: pod }, &errors)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_lines_and_bytes_are_checked() {
        let check = |text: &str, expect: &str| {
            let query = Query::parse(text).expect("escaped");
            let got = check_numbers("p", &query).map_err(|error| error.to_string());
            let fits =
                if expect.is_empty() { got.is_ok() } else { got.as_ref().is_err_and(|why| why.contains(expect)) };
            assert!(fits, "{text}: {got:?}");
        };
        check("tailLines=0&limitBytes=1&sinceSeconds=1", "");
        check("", "");
        check("tailLines=-1", "tailLines: Invalid value: -1: must be greater than or equal to 0");
        check("limitBytes=0", "limitBytes: Invalid value: 0: must be greater than 0");
        check("sinceSeconds=-5", "sinceSeconds: Invalid value: -5: must be greater than 0");
        check("tailLines=x", "invalid syntax");
    }
}
