//! Create, update, patch, delete.

use std::sync::Arc;

use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use bytes::Bytes;
use http::{HeaderMap, HeaderValue, StatusCode, header};
use http_body_util::{BodyExt, LengthLimitError, Limited};
use serde_json::{Value, json};

use super::negotiate::{self, Accepted};
use super::path::{Query, RequestInfo};
use super::{BODY_LIMIT, duplicate_fields, read, respond};
use crate::auth::User;
use crate::error::ApiError;
use crate::ops::{
    self, Cluster, DeleteOptions, FieldValidation, PatchKind, Propagation, Target, WriteOptions, Written,
};
use crate::protobuf;
use crate::registry::Resource;
use crate::schema::FieldError;
use crate::store::nests_deeper_than;
use crate::webhook::{self, conversion};

const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
/// The longest name of a field manager, in characters.
const MAX_MANAGER: usize = 128;
const BODY_TYPES: &str = "application/json, application/yaml, application/vnd.kubernetes.protobuf";
/// The deepest nesting of a YAML body, that of the JSON parser.
const MAX_YAML_DEPTH: usize = 127;

pub(super) async fn create(
    cluster: &Cluster,
    resource: &Arc<Resource>,
    namespace: &str,
    request: Request,
    query: &Query,
    accepted: Accepted,
    user: &User,
) -> Result<Response, ApiError> {
    let mut options = options(request.headers(), query, "CreateOptions", false, user)?;
    let (body, duplicates) = strict_body(request, &resource.kind).await?;
    options.duplicates = duplicates;
    if !resource.is_stored() {
        if accepted.view != negotiate::View::Object {
            return Err(ApiError::not_acceptable());
        }
        let answer = match &*resource.plural {
            "bindings" => {
                let name = body["metadata"]["name"].as_str().unwrap_or("").to_owned();
                let pods = cluster.registry.builtin("", "pods");
                bind(cluster, Target { resource: &pods, namespace, name: &name }, &body, options.dry_run).await?
            }
            _ => cluster.review(resource, namespace, body, user)?,
        };
        return Ok(respond::value(StatusCode::CREATED, accepted, &answer));
    }
    let written = webhook::create(cluster, resource, namespace, body, &options, user).await?;
    finish(cluster, resource, written, accepted).await
}

pub(super) async fn update(
    cluster: &Cluster,
    target: Target<'_>,
    subresource: Option<&str>,
    request: Request,
    query: &Query,
    user: &User,
) -> Result<Response, ApiError> {
    let accepted = negotiate::accepted(request.headers())?;
    let mut options = options(request.headers(), query, "UpdateOptions", false, user)?;
    let (body, duplicates) = strict_body(request, &target.resource.kind).await?;
    options.duplicates = duplicates;
    let update = |options: &WriteOptions| cluster.update(target, subresource, body.clone(), options);
    let written = webhook::modify(cluster, target, subresource, &options, user, update).await?;
    finish(cluster, target.resource, written, accepted).await
}

pub(super) async fn patch(
    cluster: &Cluster,
    target: Target<'_>,
    subresource: Option<&str>,
    request: Request,
    query: &Query,
    user: &User,
) -> Result<Response, ApiError> {
    let accepted = negotiate::accepted(request.headers())?;
    let (kind, options, body) = patch_body(target.resource, request, query, user).await?;
    let patch = |options: &WriteOptions| cluster.patch(target, subresource, kind, &body, options);
    let written = webhook::modify(cluster, target, subresource, &options, user, patch).await?;
    finish(cluster, target.resource, written, accepted).await
}

async fn patch_body(
    resource: &Resource,
    request: Request,
    query: &Query,
    user: &User,
) -> Result<(PatchKind, WriteOptions, Value), ApiError> {
    let given = content_type(request.headers());
    let Some(kind) = PatchKind::of(&given) else {
        return Err(match resource.custom() {
            Some(_) => ApiError::unsupported_media_type(
                "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml",
            ),
            None => ApiError::unsupported_patch(),
        });
    };
    let mut options = options(request.headers(), query, "PatchOptions", kind == PatchKind::Apply, user)?;
    let bytes = read_body(request).await?;
    let (body, duplicates) = match kind {
        PatchKind::Apply => parse_yaml(&bytes)?,
        _ => duplicate_fields::parse_json(&bytes).map_err(|error| unreadable_json(&error))?,
    };
    options.duplicates = duplicates;
    Ok((kind, options, body))
}

pub(super) async fn delete(
    cluster: &Cluster,
    target: Target<'_>,
    request: Request,
    query: &Query,
    user: &User,
) -> Result<Response, ApiError> {
    let accepted = negotiate::accepted(request.headers())?;
    let options = delete_options(request, query).await?;
    webhook::deletion(cluster, target, &options, user).await?;
    let deleted = cluster.delete(target, &options)?;
    cluster.store.wait_visible(if options.dry_run { 0 } else { deleted.entry.revision }).await?;
    let returned = target.resource.builtin().is_some_and(|builtin| builtin.returns_deleted);
    if deleted.gone && !returned {
        let uid = deleted.entry.value()["metadata"]["uid"].as_str().unwrap_or("").to_owned();
        return Ok(respond::value(StatusCode::OK, accepted, &ops::success(target, &uid)));
    }
    let entry = conversion::entry(cluster, target.resource, deleted.entry).await?;
    Ok(respond::object(StatusCode::OK, target.resource, &entry, accepted, cluster.clock.now()))
}

pub(super) async fn delete_collection(
    cluster: &Cluster,
    resource: &Arc<Resource>,
    info: &RequestInfo,
    request: Request,
    query: &Query,
    user: &User,
) -> Result<Response, ApiError> {
    let accepted = negotiate::accepted(request.headers())?;
    let selection = read::selection(resource, info, query)?;
    let options = delete_options(request, query).await?;
    webhook::deletions(cluster, resource, &selection, &options, user).await?;
    let entries = match conversion::select(cluster, resource, &selection).await? {
        Some(chosen) => cluster.delete_all(resource, chosen, &options)?,
        None => cluster.delete_collection(resource, &selection, &options)?,
    };
    let entries = conversion::entries(cluster, resource, entries).await?;
    let revision = entries.iter().map(|entry| entry.revision).max().unwrap_or_else(|| cluster.store.visible());
    cluster.store.wait_visible(if options.dry_run { 0 } else { revision }).await?;
    let meta = respond::ListMeta { revision, next: None, remaining: None, custom: resource.custom().is_some() };
    Ok(respond::list(resource, entries, &meta, accepted, cluster.clock.now()))
}

/// Serves the subresources that are not streams: status, scale and others.
pub(super) async fn subresource(
    cluster: &Cluster,
    target: Target<'_>,
    subresource: &str,
    request: Request,
    query: &Query,
    user: &User,
) -> Result<Response, ApiError> {
    let accepted = negotiate::accepted(request.headers())?;
    let method = request.method().clone();
    let reading = method == http::Method::GET || method == http::Method::HEAD;
    match subresource {
        "scale" if reading => {
            let options = WriteOptions { user: Some(user.clone()), ..WriteOptions::default() };
            let scale = || cluster.scale(target, &options);
            let scale = conversion::converting(cluster, target.resource, &options, scale).await?;
            Ok(respond::value(StatusCode::OK, accepted, &scale))
        }
        "scale" if method == http::Method::PUT => {
            let options = options(request.headers(), query, "UpdateOptions", false, user)?;
            let body = object_body(request, "Scale").await?;
            let scale = webhook::scale(cluster, target, &options, user, |_| Ok(body.clone())).await?;
            settle(cluster, &scale).await?;
            Ok(respond::value(StatusCode::OK, accepted, &scale))
        }
        "scale" => {
            let (kind, options, patch) = patch_body(target.resource, request, query, user).await?;
            let run = |old| kind.run(old, &patch, crate::schema::TypeRef::unknown());
            let scale = webhook::scale(cluster, target, &options, user, run).await?;
            settle(cluster, &scale).await?;
            Ok(respond::value(StatusCode::OK, accepted, &scale))
        }
        "eviction" => {
            let WriteOptions { mut dry_run, .. } = options(request.headers(), query, "CreateOptions", false, user)?;
            let mut body = object_body(request, "Eviction").await?;
            if !body.is_object() {
                return Err(ApiError::bad_request("the body of an eviction must be an object of kind Eviction"));
            }
            dry_run |= DeleteOptions::parse(&body["deleteOptions"])?.dry_run;
            webhook::eviction(cluster, target, &mut body, dry_run, user).await?;
            cluster.evict(target, &body, dry_run)?;
            cluster.store.wait_visible(cluster.store.revision()).await?;
            let success =
                json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201});
            Ok(respond::value(StatusCode::CREATED, accepted, &success))
        }
        "binding" => {
            let WriteOptions { dry_run, .. } = options(request.headers(), query, "CreateOptions", false, user)?;
            let body = object_body(request, "Binding").await?;
            let answer = bind(cluster, target, &body, dry_run).await?;
            Ok(respond::value(StatusCode::CREATED, accepted, &answer))
        }
        "token" => {
            let body = object_body(request, "TokenRequest").await?;
            let answer = cluster.issue_token(target, body)?;
            Ok(respond::value(StatusCode::CREATED, accepted, &answer))
        }
        _ if reading => read::get(cluster, target, accepted).await,
        other if method == http::Method::PUT => update(cluster, target, Some(other), request, query, user).await,
        other => patch(cluster, target, Some(other), request, query, user).await,
    }
}

async fn bind(cluster: &Cluster, target: Target<'_>, body: &Value, dry_run: bool) -> Result<Value, ApiError> {
    let written = cluster.bind(target, body, dry_run)?;
    cluster.store.wait_visible(if dry_run { 0 } else { written.entry.revision }).await?;
    Ok(json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "code": 201}))
}

async fn settle(cluster: &Cluster, value: &Value) -> Result<(), ApiError> {
    let revision = value["metadata"]["resourceVersion"].as_str().and_then(|text| text.parse().ok()).unwrap_or(0);
    Ok(cluster.store.wait_visible(revision).await?)
}

/// Waits until the write is durable, then returns the object.
async fn finish(
    cluster: &Cluster,
    resource: &Resource,
    written: Written,
    accepted: Accepted,
) -> Result<Response, ApiError> {
    cluster.store.wait_visible(written.entry.revision).await?;
    let entry = conversion::entry(cluster, resource, written.entry).await?;
    let status = if written.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = respond::object(status, resource, &entry, accepted, cluster.clock.now());
    for warning in &written.warnings {
        let quoted = warning.replace('\\', "\\\\").replace('"', "\\\"");
        if let Ok(value) = HeaderValue::from_str(&format!("299 - \"{quoted}\"")) {
            response.headers_mut().append(header::WARNING, value);
        }
    }
    Ok(response)
}

fn options(headers: &HeaderMap, query: &Query, kind: &str, apply: bool, user: &User) -> Result<WriteOptions, ApiError> {
    let refuse = |error: FieldError| Err(ApiError::invalid_options(kind, error));
    let validation = match query.get("fieldValidation") {
        None | Some("Warn") => FieldValidation::Warn,
        Some("Ignore") => FieldValidation::Ignore,
        Some("Strict") => FieldValidation::Strict,
        Some(other) => {
            let known = ["", "Ignore", "Strict", "Warn"];
            return refuse(FieldError::not_supported("fieldValidation", &other.into(), &known));
        }
    };
    let dry_run = ops::is_dry_run(query.all("dryRun"), kind)?;
    let agent = headers.get(header::USER_AGENT).and_then(|value| value.to_str().ok());
    let manager = match query.get("fieldManager") {
        Some(manager) => manager,
        None if apply => return refuse(FieldError::required("fieldManager", "is required for apply patch")),
        None => agent.and_then(|agent| agent.split('/').next()).unwrap_or("unknown"),
    };
    if manager.chars().count() > MAX_MANAGER && query.get("fieldManager").is_some() {
        return refuse(FieldError::too_long("fieldManager", MAX_MANAGER as i64));
    }
    if query.get("force").is_some() && !apply {
        return refuse(FieldError::forbidden("force", "may not be specified for non-apply patch"));
    }
    Ok(WriteOptions {
        dry_run,
        validation,
        manager: manager.to_owned(),
        force: query.flag("force"),
        user: Some(user.clone()),
        ..WriteOptions::default()
    })
}

async fn delete_options(request: Request, query: &Query) -> Result<DeleteOptions, ApiError> {
    let given = content_type(request.headers());
    let bytes = read_body(request).await?;
    let body = match (bytes.is_empty(), given.as_str()) {
        (true, _) => Value::Null,
        (false, "application/yaml") => parse_yaml(&bytes)?.0,
        (false, PROTOBUF) => protobuf::decode(&bytes).map_err(ApiError::bad_request)?,
        (false, "" | "application/json") => parse_json(&bytes)?,
        (false, _) => return Err(ApiError::unsupported_media_type(BODY_TYPES)),
    };
    let mut options = DeleteOptions::parse(&body)?;
    if let Some(seconds) = query.number("gracePeriodSeconds")? {
        options.grace_seconds = Some(seconds);
    }
    if let Some(policy) = query.get("propagationPolicy") {
        options.propagation = Some(Propagation::parse(policy)?);
    } else if query.get("orphanDependents").is_some() {
        let orphan = query.flag("orphanDependents");
        options.propagation = Some(if orphan { Propagation::Orphan } else { Propagation::Background });
    }
    options.dry_run |= ops::is_dry_run(query.all("dryRun"), "DeleteOptions")?;
    Ok(options)
}

fn content_type(headers: &HeaderMap) -> String {
    let text = headers.get(header::CONTENT_TYPE).and_then(|value| value.to_str().ok()).unwrap_or("");
    text.split(';').next().unwrap_or("").trim().to_lowercase()
}

/// Parses the body; `kind` is the expected kind, for the error message.
async fn object_body(request: Request, kind: &str) -> Result<Value, ApiError> {
    strict_body(request, kind).await.map(|(body, _)| body)
}

/// Parses the body; returns it with the fields that it has twice.
async fn strict_body(request: Request, kind: &str) -> Result<(Value, Vec<String>), ApiError> {
    let given = content_type(request.headers());
    let bytes = read_body(request).await?;
    match given.as_str() {
        "" | "application/json" => {
            duplicate_fields::parse_json(&bytes).map_err(|error| {
                let shown = if bytes.is_empty() { "<empty>".into() } else { String::from_utf8_lossy(&bytes[..bytes.len().min(40)]) };
                ApiError::bad_request(format!(
                    "the object provided is unrecognized (must be of type {kind}): couldn't get version/kind; json parse error: {error} ({shown})"
                ))
            })
        }
        "application/yaml" => parse_yaml(&bytes),
        PROTOBUF => protobuf::decode(&bytes).map(|body| (body, Vec::new())).map_err(ApiError::bad_request),
        _ => Err(ApiError::unsupported_media_type(BODY_TYPES)),
    }
}

async fn read_body(request: Request<Body>) -> Result<Bytes, ApiError> {
    match Limited::new(request.into_body(), BODY_LIMIT).collect().await {
        Ok(body) => Ok(body.to_bytes()),
        Err(error) if error.is::<LengthLimitError>() => Err(ApiError::too_large(BODY_LIMIT)),
        Err(error) => Err(ApiError::bad_request(format!("the body could not be read: {error}"))),
    }
}

fn parse_json(bytes: &[u8]) -> Result<Value, ApiError> {
    serde_json::from_slice(bytes).map_err(|error| unreadable_json(&error))
}

fn unreadable_json(error: &serde_json::Error) -> ApiError {
    ApiError::bad_request(format!("the object provided is unrecognized: couldn't parse JSON: {error}"))
}

/// Parses YAML; returns it with the fields that it has twice.
fn parse_yaml(bytes: &[u8]) -> Result<(Value, Vec<String>), ApiError> {
    let text = std::str::from_utf8(bytes).map_err(|_| ApiError::bad_request("error decoding YAML: not UTF-8"))?;
    // Most clients send JSON as YAML, which it is; the JSON parser is much faster.
    if let Ok(parsed) = duplicate_fields::parse_json(bytes) {
        return Ok(parsed);
    }
    let parsed = duplicate_fields::parse_yaml(text)
        .map_err(|error| ApiError::bad_request(format!("error decoding YAML: {error}")))?;
    match nests_deeper_than(&parsed.0, MAX_YAML_DEPTH) {
        true => Err(ApiError::bad_request("error decoding YAML: exceeded max depth")),
        false => Ok(parsed),
    }
}
