//! `…/proxy`: HTTP requests passed on to a port of a pod, or of a pod behind a service.

mod html;
mod tls;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use futures::TryStreamExt;
use http::{HeaderMap, HeaderValue, Method, StatusCode, header};
use http_body_util::{BodyExt, Limited};

use super::super::respond;
use super::RequestInfo;
use super::backend::Backend;
use crate::error::ApiError;
use crate::ops::{Cluster, Target};

/// Passes an HTTP request on to a port of a pod, or of a pod behind a service.
pub(super) async fn serve(
    cluster: &Cluster,
    target: Target<'_>,
    info: &RequestInfo,
    request: Request,
) -> Result<Response, ApiError> {
    // `[scheme:]name[:port]`
    let parts: Vec<&str> = target.name.split(':').collect();
    let (scheme, name, port) = match parts.as_slice() {
        [name] => ("", *name, ""),
        [name, port] => ("", *name, *port),
        [scheme @ ("" | "http" | "https"), name, port] => (*scheme, *name, *port),
        _ => return Err(ApiError::bad_request(format!("invalid proxy target {:?}", target.name))),
    };
    if let Some(place) = with_slash(&request, info) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::MOVED_PERMANENTLY;
        response.headers_mut().insert(header::LOCATION, place);
        return Ok(response);
    }
    let target = Target { name, ..target };
    let backend = match &*target.resource.plural {
        "services" => Backend::of_service(cluster, target, port)?,
        "pods" => {
            let pod = cluster.get(target)?.value();
            let first = pod["spec"]["containers"][0]["ports"][0]["containerPort"].as_u64().unwrap_or(80);
            Backend::of_pod(pod, port.parse().unwrap_or_else(|_| u16::try_from(first).unwrap_or(80)))
        }
        _ => return Err(ApiError::no_such_path()),
    };
    let connection = backend.connect(cluster).await?;
    let port = backend.port;
    let connection = if scheme == "https" { tls::connect(connection).await? } else { connection };
    let io = hyper_util::rt::TokioIo::new(connection);
    let (mut client, driver) = hyper::client::conn::http1::handshake(io)
        .await
        .map_err(|error| ApiError::unavailable(format!("cannot talk to port {port}: {error}")))?;
    tokio::spawn(driver.with_upgrades());
    let prefix = prefix(request.uri().path(), info);
    let query = request.uri().query().map(|query| format!("?{query}")).unwrap_or_default();
    // To many servers `/jobs` and `/jobs/` are two places.
    let slash = if request.uri().path().ends_with('/') && !info.rest.is_empty() { "/" } else { "" };
    let (mut head, body) = request.into_parts();
    head.uri = format!("/{}{slash}{query}", info.rest.join("/"))
        .parse()
        .map_err(|_| ApiError::bad_request("the path cannot be passed on"))?;
    head.headers.remove(header::AUTHORIZATION);
    let host = format!("{}:{port}", backend.host().unwrap_or("localhost"));
    if let Ok(host) = HeaderValue::from_str(&host) {
        head.headers.insert(header::HOST, host);
    }
    let answer = client.send_request(Request::from_parts(head, body)).await;
    match answer {
        Ok(answer) if is_page(answer.headers()) => {
            let (mut head, body) = answer.into_parts();
            let failed = |error| ApiError::unavailable(format!("error trying to reach service: {error}"));
            let page = Limited::new(body, PAGE_LIMIT).collect().await.map_err(failed)?.to_bytes();
            let page = html::rewrite_links(&String::from_utf8_lossy(&page), &prefix);
            head.headers.remove(header::CONTENT_LENGTH);
            Ok(Response::from_parts(head, Body::from(page)))
        }
        Ok(answer) => {
            let (head, body) = answer.into_parts();
            let stream = http_body_util::BodyDataStream::new(body).map_err(std::io::Error::other);
            Ok(Response::from_parts(head, Body::from_stream(stream)))
        }
        Err(error) => {
            let text = format!("error trying to reach service: {error}");
            Ok(respond::failure(&ApiError::unavailable(text))).map(|mut response: Response| {
                *response.status_mut() = StatusCode::BAD_GATEWAY;
                response
            })
        }
    }
}

/// The largest page whose links are rewritten.
const PAGE_LIMIT: usize = 16 << 20;

/// Whether a response is a page that can be read: one that is compressed is passed on as it is.
fn is_page(headers: &HeaderMap) -> bool {
    let kind = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or_default();
    kind.starts_with("text/html") && !headers.contains_key(header::CONTENT_ENCODING)
}

/// Returns the path up to `/proxy`.
fn prefix(path: &str, info: &RequestInfo) -> String {
    let mut parts: Vec<&str> = path.trim_end_matches('/').split('/').collect();
    parts.truncate(parts.len().saturating_sub(info.rest.len()));
    parts.join("/")
}

/// Returns where to look for the root of a pod: without the slash at the end, its relative links would lead astray.
fn with_slash(request: &Request, info: &RequestInfo) -> Option<HeaderValue> {
    let reads = matches!(*request.method(), Method::GET | Method::HEAD);
    let uri = request.uri();
    if !reads || !info.rest.is_empty() || uri.path().ends_with('/') || request.headers().contains_key(header::UPGRADE) {
        return None;
    }
    let query = uri.query().map(|query| format!("?{query}")).unwrap_or_default();
    HeaderValue::from_str(&format!("{}/{query}", uri.path())).ok()
}
