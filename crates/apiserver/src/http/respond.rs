//! Responses: one object, a list, an error.

use std::sync::Arc;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, StatusCode, header};
use serde_json::{Value, json};

use super::negotiate::{Accepted, Format, View};
use crate::error::ApiError;
use crate::registry::Resource;
use crate::store::Entry;
use crate::table;

/// The size at which a chunk of a streamed list is sent.
const CHUNK: usize = 64 << 10;

/// Returns a response that carries an error as a `Status`.
pub(super) fn failure(error: &ApiError) -> Response {
    let status = StatusCode::from_u16(error.code()).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut response = json(status, &error.status());
    if status == StatusCode::TOO_MANY_REQUESTS || status == StatusCode::GATEWAY_TIMEOUT {
        response.headers_mut().insert(header::RETRY_AFTER, HeaderValue::from_static("1"));
    }
    response
}

/// Returns a JSON response.
pub(super) fn json(status: StatusCode, value: &Value) -> Response {
    raw(status, "application/json", serde_json::to_vec(value).unwrap_or_default().into())
}

/// Returns a response in the negotiated encoding.
pub(super) fn value(status: StatusCode, accepted: Accepted, value: &Value) -> Response {
    match accepted.format {
        Format::Json => json(status, value),
        Format::Yaml => match serde_saphyr::to_string(value) {
            Ok(text) => raw(status, "application/yaml", text.into()),
            Err(error) => failure(&ApiError::internal(error)),
        },
    }
}

/// Returns a response of raw bytes.
pub(super) fn raw(status: StatusCode, kind: &'static str, bytes: Bytes) -> Response {
    let mut response = Response::new(Body::from(bytes));
    *response.status_mut() = status;
    let headers = response.headers_mut();
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

/// Returns the JSON of an entry at the version of a resource.
pub(super) fn served_json(resource: &Resource, entry: &Entry) -> Bytes {
    let defaults = resource.custom().and_then(|custom| custom.defaults_for(entry.revision));
    // What was stored before the storage version changed still has the old one.
    let is_served = match resource.custom() {
        Some(_) => entry.has_api_version(&resource.api_version),
        None => resource.serves_stored_form(),
    };
    if is_served && defaults.is_none() {
        return entry.json.clone();
    }
    serde_json::to_vec(&served_value(resource, entry)).unwrap_or_default().into()
}

pub(super) fn served_value(resource: &Resource, entry: &Entry) -> Value {
    let mut value = entry.value();
    resource.to_served(&mut value);
    if let Some(schema) = resource.custom().and_then(|custom| custom.defaults_for(entry.revision)) {
        schema.default(&mut value);
    }
    value
}

/// Returns the response for one object.
pub(super) fn object(
    status: StatusCode,
    resource: &Resource,
    entry: &Entry,
    accepted: Accepted,
    now: jiff::Timestamp,
) -> Response {
    match (accepted.view, accepted.format) {
        (View::Object, Format::Json) => raw(status, "application/json", served_json(resource, entry)),
        (View::Object, Format::Yaml) => value(status, accepted, &served_value(resource, entry)),
        (View::Metadata, _) => {
            value(status, accepted, &metadata(&served_value(resource, entry), "PartialObjectMetadata"))
        }
        (View::Table, _) => {
            let shown = served_value(resource, entry);
            let revision = shown["metadata"]["resourceVersion"].clone();
            let mut answer = table::table(resource, now);
            answer["metadata"] = json!({"resourceVersion": revision});
            answer["rows"] = json!([table::row(resource, &shown, now)]);
            value(status, accepted, &answer)
        }
    }
}

/// Returns the metadata of an object, as an object.
pub(super) fn metadata(value: &Value, kind: &str) -> Value {
    json!({"kind": kind, "apiVersion": "meta.k8s.io/v1", "metadata": value["metadata"]})
}

/// The metadata of a list.
pub(super) struct ListMeta {
    pub(super) revision: u64,
    pub(super) next: Option<String>,
    pub(super) remaining: Option<usize>,
    /// Lists of custom objects carry an empty `continue`.
    pub(super) custom: bool,
}

impl ListMeta {
    fn to_value(&self) -> Value {
        let mut meta = json!({"resourceVersion": self.revision.to_string()});
        if self.custom {
            meta["continue"] = "".into();
        }
        if let Some(next) = &self.next {
            meta["continue"] = next.as_str().into();
            if let Some(remaining) = self.remaining {
                meta["remainingItemCount"] = remaining.into();
            }
        }
        meta
    }
}

/// Returns the response for a list, streamed in chunks so that it is never buffered whole.
pub(super) fn list(
    resource: &Arc<Resource>,
    entries: Vec<Arc<Entry>>,
    meta: &ListMeta,
    accepted: Accepted,
    now: jiff::Timestamp,
) -> Response {
    let (kind, version) = match accepted.view {
        View::Object => (&*resource.list_kind, &*resource.api_version),
        View::Metadata => ("PartialObjectMetadataList", "meta.k8s.io/v1"),
        View::Table => {
            let mut answer = table::table(resource, now);
            answer["metadata"] = meta.to_value();
            let rows: Vec<Value> =
                entries.iter().map(|entry| table::row(resource, &served_value(resource, entry), now)).collect();
            // The plain table of kinds without columns of their own is `null` in the real server.
            let plain = resource.builtin().is_some() && answer["columnDefinitions"][1]["name"] == "Created At";
            answer["rows"] = if rows.is_empty() && plain { Value::Null } else { rows.into() };
            return value(StatusCode::OK, accepted, &answer);
        }
    };
    if accepted.format == Format::Yaml {
        let items: Vec<Value> = entries
            .iter()
            .map(|entry| match accepted.view {
                View::Metadata => metadata(&served_value(resource, entry), "PartialObjectMetadata"),
                _ => served_value(resource, entry),
            })
            .collect();
        let whole = json!({"kind": kind, "apiVersion": version, "metadata": meta.to_value(), "items": items});
        return value(StatusCode::OK, accepted, &whole);
    }
    let head = format!(
        "{{\"kind\":{},\"apiVersion\":{},\"metadata\":{},\"items\":[",
        json!(kind),
        json!(version),
        meta.to_value()
    );
    let mut parts = Parts {
        resource: resource.clone(),
        entries: entries.into_iter(),
        view: accepted.view,
        head: Some(head),
        first: true,
    };
    let Some(start) = parts.next() else { return raw(StatusCode::OK, "application/json", Bytes::new()) };
    if parts.is_done() {
        return raw(StatusCode::OK, "application/json", start);
    }
    let stream = futures::stream::iter(std::iter::once(start).chain(parts).map(Ok::<_, std::convert::Infallible>));
    let mut response = Response::new(Body::from_stream(stream));
    response.headers_mut().insert(header::CONTENT_TYPE, HeaderValue::from_static("application/json"));
    response.headers_mut().insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    response
}

struct Parts {
    resource: Arc<Resource>,
    entries: std::vec::IntoIter<Arc<Entry>>,
    view: View,
    head: Option<String>,
    first: bool,
}

impl Parts {
    fn is_done(&self) -> bool {
        self.head.is_none() && self.entries.len() == 0
    }
}

impl Iterator for Parts {
    type Item = Bytes;

    fn next(&mut self) -> Option<Bytes> {
        if self.is_done() {
            return None;
        }
        let mut part = BytesMut::new();
        if let Some(head) = self.head.take() {
            part.extend_from_slice(head.as_bytes());
        }
        while part.len() < CHUNK {
            let Some(entry) = self.entries.next() else { break };
            if !std::mem::take(&mut self.first) {
                part.extend_from_slice(b",");
            }
            match self.view {
                View::Metadata => {
                    let value = metadata(&served_value(&self.resource, &entry), "PartialObjectMetadata");
                    part.extend_from_slice(value.to_string().as_bytes());
                }
                _ => part.extend_from_slice(&served_json(&self.resource, &entry)),
            }
        }
        if self.entries.len() == 0 {
            part.extend_from_slice(b"]}\n");
        }
        Some(part.freeze())
    }
}
