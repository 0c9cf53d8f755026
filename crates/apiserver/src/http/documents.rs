//! `/openapi`: documents of megabytes, which a client that has them already does not get again.

use axum::body::Body;
use axum::response::Response;
use http::{HeaderMap, HeaderValue, StatusCode, header};

use super::negotiate::{self, Accepted, Format, View};
use super::respond;
use crate::openapi::{self, protobuf};
use crate::registry::Snapshot;

/// Serves a document, or says that the client's copy is still good.
pub(super) fn serve(now: &Snapshot, version: &str, path: &[&str], headers: &HeaderMap) -> Option<Response> {
    let asks_for = |media_type| negotiate::accepts(headers, media_type);
    let binary = version == "v2" && (asks_for(protobuf::MEDIA_TYPE) || asks_for(protobuf::OLD_MEDIA_TYPE));
    let json = Accepted { view: View::Object, format: Format::Json };
    let accepted = negotiate::accepted(headers).unwrap_or(json);
    let form = match (binary, accepted.format) {
        (true, _) => "protobuf",
        (_, Format::Yaml) => "yaml",
        (_, Format::Json) => "json",
    };
    let tag = format!("\"{}-{form}\"", openapi::hash(now, path));
    let mut response = if holds(headers, &tag) {
        let mut response = Response::new(Body::empty());
        *response.status_mut() = StatusCode::NOT_MODIFIED;
        response
    } else {
        match (version, path) {
            ("v2", []) if binary => {
                let document = protobuf::encode(&openapi::version_two(now));
                respond::raw(StatusCode::OK, protobuf::MEDIA_TYPE, document.into())
            }
            ("v2", []) if accepted.format == Format::Json => {
                respond::raw(StatusCode::OK, "application/json", openapi::version_two_json(now).into())
            }
            ("v2", []) => respond::value(StatusCode::OK, accepted, &openapi::version_two(now)),
            ("v3", []) => respond::value(StatusCode::OK, accepted, &openapi::root(now)),
            ("v3", path) => respond::value(StatusCode::OK, accepted, &openapi::document(now, path)?),
            _ => return None,
        }
    };
    let fields = response.headers_mut();
    fields.insert(header::VARY, HeaderValue::from_static("Accept"));
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        fields.insert(header::ETAG, tag);
    }
    Some(response)
}

/// Returns whether the client has a document with this tag.
fn holds(headers: &HeaderMap, tag: &str) -> bool {
    let known = headers.get(header::IF_NONE_MATCH).and_then(|value| value.to_str().ok()).unwrap_or("");
    known.split(',').any(|known| known.trim().trim_start_matches("W/") == tag)
}
