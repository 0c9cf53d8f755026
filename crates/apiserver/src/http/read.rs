//! Get and list.

use std::sync::Arc;

use axum::response::Response;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use http::StatusCode;
use serde_json::{Value, json};

use super::negotiate::Accepted;
use super::path::{Query, RequestInfo};
use super::respond::{self, ListMeta};
use crate::error::ApiError;
use crate::ops::{Cluster, Target};
use crate::registry::Resource;
use crate::schema::FieldError;
use crate::selector::{self, Selection};
use crate::store::{Compacted, ListRange, ObjectKey, Page};
use crate::webhook::conversion;

/// How long a list waits for a revision from the future.
const FUTURE_REVISION_TIMEOUT: std::time::Duration = std::time::Duration::from_secs(3);

pub(super) async fn get(cluster: &Cluster, target: Target<'_>, accepted: Accepted) -> Result<Response, ApiError> {
    let entry = cluster.get(target)?;
    cluster.store.wait_visible(entry.revision).await?;
    let entry = conversion::entry(cluster, target.resource, entry).await?;
    Ok(respond::object(StatusCode::OK, target.resource, &entry, accepted, cluster.clock.now()))
}

pub(super) async fn list(
    cluster: &Cluster,
    resource: &Arc<Resource>,
    info: &RequestInfo,
    query: &Query,
    accepted: Accepted,
) -> Result<Response, ApiError> {
    let selection = selection(resource, info, query)?;
    let limit = query.number("limit")?.filter(|limit| *limit > 0).and_then(|limit| usize::try_from(limit).ok());
    query.number("timeoutSeconds")?;
    let token = query.get("continue").map(Continue::parse).transpose()?;
    let wanted = revision(query.get("resourceVersion"))?;
    let matching = query.get("resourceVersionMatch");
    check_match(matching, query, token.is_some())?;
    if token.as_ref().is_some_and(|token| token.revision > cluster.store.revision()) {
        return Err(invalid_continue());
    }
    let at = match &token {
        Some(token) => (token.revision > 0).then_some(token.revision),
        None if matching == Some("Exact") => wanted,
        None => None,
    };
    if let Some(wanted) = wanted.filter(|_| token.is_none()) {
        wait_for(cluster, wanted).await?;
    }
    let after = token.as_ref().map(|token| &token.after);
    // What only a webhook can tell is known too late to count the objects of a page: there is one page.
    let late = resource.conversion().is_some() && selection.reads_content();
    let stored = if late { selection.without_content() } else { selection.clone() };
    let limit = limit.filter(|_| !late);
    let span = ListRange { namespace: selection.namespace.as_deref(), after, limit, at };
    let mut page =
        match single(cluster, resource, &stored, &span) {
            Some(page) => page,
            None => cluster.store.list(&resource.table, &span, |entry| stored.matches(entry)).map_err(|Compacted| {
                match &token {
                    Some(token) => ApiError::expired_continue(&Continue { revision: 0, ..token.clone() }.to_text()),
                    None => ApiError::expired("The resourceVersion for the provided list is too old."),
                }
            })?,
        };
    cluster.store.wait_visible(page.revision).await?;
    page.entries = conversion::entries(cluster, resource, page.entries).await?;
    if late {
        page.entries.retain(|entry| selection.matches(entry));
    }
    let last = page.entries.last().filter(|_| page.more);
    let meta = ListMeta {
        revision: page.revision,
        next: last.map(|last| Continue { revision: page.revision, after: ObjectKey::clone(&last.key) }.to_text()),
        remaining: page.remaining.filter(|_| selection.is_plain()),
        custom: resource.custom().is_some(),
    };
    Ok(respond::list(resource, page.entries, &meta, accepted, cluster.clock.now()))
}

/// Looks a single name up directly instead of scanning the table.
fn single(cluster: &Cluster, resource: &Resource, selection: &Selection, span: &ListRange<'_>) -> Option<Page> {
    let name = selection.name()?;
    if span.at.is_some() || span.after.is_some() || (resource.namespaced && selection.namespace.is_none()) {
        return None;
    }
    let key = ObjectKey::new(selection.namespace.as_deref().unwrap_or(""), name);
    let revision = cluster.store.revision();
    let found = cluster.store.get(&resource.table, &key).filter(|entry| selection.matches(entry));
    let revision = found.as_ref().map_or(revision, |found| found.revision.max(revision));
    Some(Page { revision, entries: found.into_iter().collect(), more: false, remaining: None })
}

pub(super) async fn wait_for(cluster: &Cluster, wanted: u64) -> Result<(), ApiError> {
    if wanted <= cluster.store.visible() {
        return Ok(());
    }
    if wanted <= cluster.store.revision() {
        return Ok(cluster.store.wait_visible(wanted).await?);
    }
    let mut waited = std::time::Duration::ZERO;
    let step = std::time::Duration::from_millis(50);
    while waited < FUTURE_REVISION_TIMEOUT {
        tokio::time::sleep(step).await;
        waited += step;
        if wanted <= cluster.store.visible() {
            return Ok(());
        }
    }
    Err(ApiError::too_new(wanted, cluster.store.visible()))
}

/// Parses the selection of a list or watch from its path and query.
pub(super) fn selection(resource: &Resource, info: &RequestInfo, query: &Query) -> Result<Selection, ApiError> {
    let labels = selector::parse_labels(query.get("labelSelector").unwrap_or("")).map_err(ApiError::bad_request)?;
    let mut text = query.get("fieldSelector").unwrap_or("").to_owned();
    if let Some(name) = &info.name {
        text = format!("metadata.name={name}");
    }
    let fields = selector::parse_fields(&text).map_err(ApiError::bad_request)?;
    for rule in &fields {
        resource.check_selectable(&rule.path)?;
    }
    let namespace = info.namespace.as_deref().filter(|_| resource.namespaced).map(Into::into);
    Ok(Selection { namespace, labels, fields })
}

/// Returns a revision in a query; nothing and zero both mean "any".
pub(super) fn revision(text: Option<&str>) -> Result<Option<u64>, ApiError> {
    match text {
        None | Some("0") => Ok(None),
        Some(text) => text.parse().map(Some).map_err(|_| {
            let message = format!(
                "invalid resource version: resourceVersion: Invalid value: {text:?}: strconv.ParseUint: parsing {text:?}: invalid syntax"
            );
            ApiError::bad_request(message)
        }),
    }
}

fn check_match(matching: Option<&str>, query: &Query, continuing: bool) -> Result<(), ApiError> {
    let forbidden =
        |why: &str| Err(ApiError::invalid_options("ListOptions", FieldError::forbidden("resourceVersionMatch", why)));
    match matching {
        None | Some("NotOlderThan" | "Exact") if continuing && matching.is_some() => {
            forbidden("resourceVersionMatch is forbidden when continue is provided")
        }
        None => Ok(()),
        Some("NotOlderThan" | "Exact") if query.get("resourceVersion").is_none() => {
            forbidden("resourceVersionMatch is forbidden unless resourceVersion is provided")
        }
        Some("Exact") if query.get("resourceVersion") == Some("0") => {
            forbidden("resourceVersionMatch \"exact\" is forbidden for resourceVersion \"0\"")
        }
        Some("NotOlderThan" | "Exact") => Ok(()),
        Some(other) => {
            let known = ["Exact", "NotOlderThan", ""];
            let error = FieldError::not_supported("resourceVersionMatch", &other.into(), &known);
            Err(ApiError::invalid_options("ListOptions", error))
        }
    }
}

/// A continue token.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Continue {
    /// The revision of the first part; zero means "whatever is now".
    revision: u64,
    after: ObjectKey,
}

fn invalid_continue() -> ApiError {
    ApiError::bad_request("invalid continue token: continue key is not valid")
}

impl Continue {
    fn to_text(&self) -> String {
        let start = format!("{}/{}", self.after.namespace, self.after.name);
        BASE64.encode(json!({"v": "meta.k8s.io/v1", "rv": self.revision, "start": start}).to_string())
    }

    fn parse(text: &str) -> Result<Continue, ApiError> {
        let bytes = BASE64.decode(text.trim_end_matches('=')).map_err(|_| invalid_continue())?;
        let value: Value = serde_json::from_slice(&bytes).map_err(|_| invalid_continue())?;
        let start = value["start"].as_str().and_then(|start| start.split_once('/'));
        let (namespace, name) = start.ok_or_else(invalid_continue)?;
        let revision = value["rv"].as_u64().ok_or_else(invalid_continue)?;
        Ok(Continue { revision, after: ObjectKey::new(namespace, name) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn continue_tokens_survive_the_round_trip() {
        let token = Continue { revision: 7, after: ObjectKey::new("n", "a") };
        assert_eq!(Continue::parse(&token.to_text()).ok(), Some(token));
        assert!(Continue::parse("nonsense").is_err());
    }
}
