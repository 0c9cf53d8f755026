//! Watch: a stream of changes with backpressure.
//!
//! A watch holds no queue. It reads the next part of the history when the connection can take more, so a
//! client that never reads costs one position, and gets a 410 once that position is compacted.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use bytes::{Bytes, BytesMut};
use http::{HeaderValue, header};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

use super::negotiate::{Accepted, View};
use super::path::{Query, RequestInfo};
use super::{read, respond};
use crate::error::ApiError;
use crate::ops::Cluster;
use crate::registry::Resource;
use crate::schema::FieldError;
use crate::selector::Selection;
use crate::store::{Change, Compacted, Entry, Event, Follower, ListRange};
use crate::table;
use crate::webhook::conversion;

/// The largest number of events and of bytes in one chunk of the stream.
const BATCH: usize = 128;
const BATCH_BYTES: usize = 256 << 10;
/// The bookmark interval.
const BOOKMARKS: Duration = Duration::from_secs(30);
/// The shortest default duration of a watch in seconds; up to twice as long, as in the real server.
const LASTS: u64 = 1800;
/// The longest duration of a watch in seconds, whatever the client asks for: a year.
const LONGEST: u64 = 365 * 24 * 3600;

pub(super) async fn watch(
    cluster: &Arc<Cluster>,
    resource: &Arc<Resource>,
    info: &RequestInfo,
    query: &Query,
    accepted: Accepted,
    stop: CancellationToken,
) -> Result<Response, ApiError> {
    let selection = read::selection(resource, info, query)?;
    query.number("limit")?;
    let wanted = read::revision(query.get("resourceVersion")).map_err(|error| {
        let text = error.to_string();
        ApiError::untyped(text.trim_start_matches("invalid resource version: ").to_owned())
    })?;
    let initial = query.get("sendInitialEvents").map(|_| query.flag("sendInitialEvents"));
    let bookmarks = query.flag("allowWatchBookmarks");
    check_initial(initial, query)?;
    let send_initial = initial.unwrap_or(wanted.is_none());
    let seconds = query.number("timeoutSeconds")?.and_then(|seconds| u64::try_from(seconds).ok()).filter(|s| *s > 0);
    let seconds = seconds.unwrap_or(LASTS + cluster.clock.next() % LASTS).min(LONGEST);
    let end = tokio::time::Instant::now() + Duration::from_secs(seconds);
    if let Some(wanted) = wanted {
        read::wait_for(cluster, wanted).await?;
    }
    let mut watch = Watch {
        cluster: cluster.clone(),
        resource: resource.clone(),
        selection,
        view: accepted.view,
        include_object: query.get("includeObject").unwrap_or("Metadata").to_owned(),
        bookmarks,
        follower: None,
        initial: Vec::new().into_iter(),
        end_of_initial: None,
        headed: false,
        sent: wanted.unwrap_or(0),
        end,
        next_bookmark: tokio::time::Instant::now() + BOOKMARKS,
        stop,
        over: false,
    };
    if send_initial {
        let span = ListRange { namespace: watch.selection.namespace.as_deref(), ..ListRange::default() };
        let late = resource.conversion().is_some() && watch.selection.reads_content();
        let stored = if late { watch.selection.without_content() } else { watch.selection.clone() };
        let page = cluster.store.list(&resource.table, &span, |entry| stored.matches(entry));
        let page = page.map_err(|Compacted| ApiError::internal("the present is forgotten"))?;
        cluster.store.wait_visible(page.revision).await?;
        let mut entries = conversion::entries(cluster, resource, page.entries).await?;
        if late {
            entries.retain(|entry| watch.selection.matches(entry));
        }
        watch.initial = entries.into_iter();
        watch.sent = page.revision;
        watch.end_of_initial = (initial == Some(true) && bookmarks).then_some(page.revision);
    }
    watch.follower = Some(cluster.store.follow(&resource.table, watch.sent));
    let stream = futures::stream::unfold(watch, |mut watch| async move {
        let part = watch.next().await?;
        Some((Ok::<Bytes, std::convert::Infallible>(part), watch))
    });
    let mut response = Response::new(Body::from_stream(stream));
    let headers = response.headers_mut();
    let kind = if accepted.view == View::Table { "application/json;stream=watch" } else { "application/json" };
    headers.insert(header::CONTENT_TYPE, HeaderValue::from_static(kind));
    headers.insert(header::CACHE_CONTROL, HeaderValue::from_static("no-cache, private"));
    Ok(response)
}

fn check_initial(initial: Option<bool>, query: &Query) -> Result<(), ApiError> {
    let invalid =
        |why: &str| Err(ApiError::invalid_options("ListOptions", FieldError::forbidden("resourceVersionMatch", why)));
    match (initial, query.get("resourceVersionMatch")) {
        (Some(_), Some("NotOlderThan")) | (None, None) => Ok(()),
        (Some(_), None) => invalid("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan"),
        (Some(_), Some(other)) => {
            invalid(&format!("sendInitialEvents requires setting resourceVersionMatch to NotOlderThan, got {other:?}"))
        }
        (None, Some(_)) => invalid("resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"),
    }
}

struct Watch {
    cluster: Arc<Cluster>,
    resource: Arc<Resource>,
    selection: Selection,
    view: View,
    include_object: String,
    bookmarks: bool,
    follower: Option<Follower>,
    initial: std::vec::IntoIter<Arc<Entry>>,
    /// The revision of the bookmark that ends the initial events.
    end_of_initial: Option<u64>,
    /// Whether the columns were sent: only the first row of a Table carries them.
    headed: bool,
    /// The revision up to which the client has seen everything.
    sent: u64,
    end: tokio::time::Instant,
    next_bookmark: tokio::time::Instant,
    stop: CancellationToken,
    over: bool,
}

impl Watch {
    /// Returns the next chunk of the stream; `None` ends it.
    async fn next(&mut self) -> Option<Bytes> {
        if let Some(part) = self.next_initial() {
            return Some(part);
        }
        while !self.over {
            if let Some(part) = self.next_changes().await {
                return Some(part);
            }
            let follower = self.follower.as_mut()?;
            tokio::select! {
                biased;
                () = follower.changed() => {}
                () = tokio::time::sleep_until(self.end) => {
                    self.over = true;
                }
                () = tokio::time::sleep_until(self.next_bookmark) => {
                    self.next_bookmark += BOOKMARKS;
                    if self.bookmarks {
                        return Some(self.bookmark(false));
                    }
                }
                () = self.stop.cancelled() => return None,
            }
        }
        None
    }

    fn next_initial(&mut self) -> Option<Bytes> {
        let mut part = BytesMut::new();
        while part.len() < BATCH_BYTES {
            let Some(entry) = self.initial.next() else { break };
            self.write(&mut part, "ADDED", &entry);
        }
        if self.initial.len() == 0
            && let Some(revision) = self.end_of_initial.take()
        {
            self.sent = revision;
            part.extend_from_slice(&self.bookmark(true));
        }
        (!part.is_empty()).then(|| part.freeze())
    }

    async fn next_changes(&mut self) -> Option<Bytes> {
        let mut part = BytesMut::new();
        loop {
            let visible = self.cluster.store.visible();
            let follower = self.follower.as_mut()?;
            let events = match follower.poll(BATCH) {
                Ok(events) => events,
                Err(Compacted) => {
                    self.over = true;
                    let text = format!("too old resource version: {} ({visible})", self.sent);
                    part.extend_from_slice(&line("ERROR", ApiError::expired(text).status().to_string().as_bytes()));
                    return Some(part.freeze());
                }
            };
            let caught_up = events.len() < BATCH;
            let events = match conversion::events(&self.cluster, &self.resource, events).await {
                Ok(events) => events,
                Err(error) => {
                    self.over = true;
                    part.extend_from_slice(&line("ERROR", error.status().to_string().as_bytes()));
                    return Some(part.freeze());
                }
            };
            for event in &events {
                self.write_event(&mut part, event);
                self.sent = self.sent.max(event.entry.revision);
            }
            if caught_up {
                self.sent = self.sent.max(visible);
            }
            if caught_up || part.len() >= BATCH_BYTES {
                return (!part.is_empty()).then(|| part.freeze());
            }
        }
    }

    /// Writes one change as this watch sees it: an object may start or stop matching its selection.
    fn write_event(&mut self, part: &mut BytesMut, event: &Event) {
        let matched = event.before.as_ref().is_some_and(|before| self.selection.matches(before));
        let matches = self.selection.matches(&event.entry);
        match (event.change, matched, matches) {
            (Change::Deleted, true, _) => self.write(part, "DELETED", &event.entry),
            (Change::Deleted, false, _) | (_, false, false) => {}
            (_, false, true) => self.write(part, "ADDED", &event.entry),
            (_, true, true) => self.write(part, "MODIFIED", &event.entry),
            (_, true, false) => {
                // The object no longer matches: the watch reports its last matching state as deleted at the new revision.
                if let Some(before) = &event.before {
                    let gone = Entry::new(event.entry.revision, before.key.clone(), before.value());
                    self.write(part, "DELETED", &gone);
                }
            }
        }
    }

    fn write(&mut self, part: &mut BytesMut, kind: &str, entry: &Entry) {
        match self.view {
            View::Object => {
                let json = respond::served_json(&self.resource, entry);
                part.reserve(json.len() + 40);
                part.extend_from_slice(&line(kind, &json));
            }
            View::Metadata => {
                let value = respond::metadata(&respond::served_value(&self.resource, entry), "PartialObjectMetadata");
                part.extend_from_slice(&line(kind, value.to_string().as_bytes()));
            }
            View::Table => {
                let shown = respond::served_value(&self.resource, entry);
                let now = self.cluster.clock.now();
                let mut row = table::table(&self.resource, now);
                if std::mem::replace(&mut self.headed, true) {
                    row["columnDefinitions"] = Value::Null;
                }
                row["metadata"] = json!({"resourceVersion": entry.revision.to_string()});
                let mut cells = table::row(&self.resource, &shown, now);
                if self.include_object == "Object" {
                    cells["object"] = shown;
                }
                row["rows"] = json!([cells]);
                part.extend_from_slice(&line(kind, row.to_string().as_bytes()));
            }
        }
    }

    fn bookmark(&self, end_of_initial: bool) -> Bytes {
        let mut metadata = json!({"resourceVersion": self.sent.to_string()});
        if end_of_initial {
            metadata["annotations"] = json!({"k8s.io/initial-events-end": "true"});
        }
        let (kind, version) = match self.view {
            View::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1"),
            _ => (&*self.resource.kind, &*self.resource.api_version),
        };
        let object = json!({"kind": kind, "apiVersion": version, "metadata": metadata});
        line("BOOKMARK", object.to_string().as_bytes())
    }
}

fn line(kind: &str, object: &[u8]) -> Bytes {
    let mut line = BytesMut::with_capacity(object.len() + 40);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.freeze()
}
