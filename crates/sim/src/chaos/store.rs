//! Shows the checker every state of the real control plane: what etcd stores, in the order in which it was stored.
//!
//! Watches of the API server do not suffice. Each has one kind, so two of them show changes in another order than they
//! happened, and a watch that starts over after an outage leaves out what was there in between.

use crate::checker::Checker;
use crate::object::{name, text, uid};
use anyhow::{Context, Result, bail};
use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use futures::TryStreamExt;
use http::{Request, header};
use http_body_util::{BodyStream, Full};
use hyper::client::conn::http1::handshake;
use hyper_util::rt::TokioIo;
use serde::Deserialize;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::net::TcpStream;
use tokio::time::sleep;
use tokio_util::task::AbortOnDropHandle;

/// How long to wait before asking an etcd again that is not there.
const RETRY: Duration = Duration::from_millis(200);
/// Where the API server stores everything, and what follows.
const EVERYTHING: (&str, &str) = ("/registry/", "/registry0");
/// What is stored in a namespace and is not left over: it expires, or belongs to processes.
const PASSING: [&str; 2] = ["/registry/events/", "/registry/leases/"];

/// Where the kinds are stored that the checker looks at.
const KINDS: [(&str, &str); 10] = [
    ("/registry/pods/default/", "Pod"),
    ("/registry/services/specs/default/", "Service"),
    ("/registry/secrets/default/", "Secret"),
    ("/registry/events/default/", "Event"),
    ("/registry/endpointslices/default/", "EndpointSlice"),
    ("/registry/jobs/default/", "Job"),
    ("/registry/ray.io/rayclusters/default/", "RayCluster"),
    ("/registry/ray.io/rayjobs/default/", "RayJob"),
    ("/registry/ray.io/rayservices/default/", "RayService"),
    ("/registry/ray.io/raycronjobs/default/", "RayCronJob"),
];

/// What etcd stores.
#[derive(Clone)]
pub(super) struct Store {
    /// Host and port of etcd.
    address: String,
    checker: Checker,
    seen: Arc<Mutex<Seen>>,
}

#[derive(Default)]
struct Seen {
    revision: i64,
    keys: BTreeSet<String>,
    /// The UID of the last Service of each name.
    services: BTreeMap<String, String>,
    /// Name and UID of the Service that each EndpointSlice belongs to.
    slices: BTreeMap<String, (String, String)>,
    failure: Option<String>,
}

impl Seen {
    /// Notes what a change says about a Service or an EndpointSlice.
    fn note_service(&mut self, kind: &str, key: &str, object: &Value) {
        if kind == "Service" {
            self.services.insert(name(object), uid(object));
        }
        if kind == "EndpointSlice" {
            let service = &object["metadata"]["ownerReferences"][0];
            self.slices.insert(key.to_owned(), (text(&service["name"]), text(&service["uid"])));
        }
    }

    /// Returns whether an object is an EndpointSlice of a Service that was created again under its name. If
    /// kube-apiserver restarts meanwhile, the garbage collector never learns that the first one was deleted. Both the slice
    /// and the collector are kube-controller-manager's.
    fn is_missed_slice(&self, key: &str) -> bool {
        let service = self.slices.get(key);
        service.is_some_and(|(name, uid)| self.services.get(name).is_some_and(|last| last != uid))
    }
}

/// A message of etcd's watch, in the JSON of its gateway.
#[derive(Deserialize)]
struct Message {
    result: Option<Changes>,
    error: Option<serde_json::Value>,
}

#[derive(Deserialize)]
struct Changes {
    #[serde(default)]
    events: Vec<Change>,
    #[serde(default)]
    canceled: bool,
    #[serde(default)]
    cancel_reason: String,
}

#[derive(Deserialize)]
struct Change {
    #[serde(rename = "type", default)]
    kind: String,
    kv: KeyValue,
}

#[derive(Deserialize)]
struct KeyValue {
    key: String,
    mod_revision: String,
    #[serde(default)]
    value: String,
}

impl Store {
    pub(super) fn new(etcd: String, checker: Checker) -> Self {
        Self { address: etcd, checker, seen: Arc::default() }
    }

    /// Follows all changes from the first one on, until dropped.
    pub(super) async fn follow(self) {
        loop {
            // It ends when etcd is killed.
            if let Err(error) = self.watch().await
                && error.downcast_ref::<Unreadable>().is_some()
            {
                self.lock().failure = Some(format!("{error:#}"));
                return;
            }
            sleep(RETRY).await;
        }
    }

    /// Returns why the changes cannot be followed any more.
    pub(super) fn failure(&self) -> Option<String> {
        self.lock().failure.clone()
    }

    /// Returns everything in the namespace that would be left over if it were there at the end.
    pub(super) fn objects(&self) -> BTreeSet<String> {
        let seen = self.lock();
        let lasts =
            |key: &&String| key.contains("/default/") && !PASSING.iter().any(|passing| key.starts_with(passing));
        seen.keys.iter().filter(lasts).filter(|key| !seen.is_missed_slice(key)).cloned().collect()
    }

    async fn watch(&self) -> Result<()> {
        let start = self.lock().revision + 1;
        let encode = |key: &str| BASE64_STANDARD.encode(key);
        let body = json!({"create_request": {
            "key": encode(EVERYTHING.0), "range_end": encode(EVERYTHING.1), "start_revision": start.to_string(),
        }});
        let stream = TcpStream::connect(&self.address).await?;
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await?;
        let connection = AbortOnDropHandle::new(tokio::spawn(connection));
        let request = Request::post("/v3/watch").header(header::HOST, &self.address);
        let response = sender.send_request(request.body(Full::new(Bytes::from(body.to_string())))?).await?;
        if !response.status().is_success() {
            bail!("etcd refuses to be watched: {}", response.status());
        }
        let mut frames = BodyStream::new(response.into_body());
        let mut text = Vec::new();
        while let Some(frame) = frames.try_next().await? {
            text.extend_from_slice(&frame.into_data().unwrap_or_default());
            while let Some(end) = text.iter().position(|byte| *byte == b'\n') {
                let line: Vec<u8> = text.drain(..=end).collect();
                self.receive(&line)?;
            }
        }
        connection.await??;
        Ok(())
    }

    fn receive(&self, line: &[u8]) -> Result<()> {
        let message: Message = serde_json::from_slice(line).context(Unreadable)?;
        if let Some(error) = message.error {
            bail!("etcd's watch ended: {error}");
        }
        let Some(changes) = message.result else { return Ok(()) };
        if changes.canceled {
            return Err(
                anyhow::Error::new(Unreadable).context(format!("etcd's watch ended: {}", changes.cancel_reason))
            );
        }
        changes.events.iter().try_for_each(|change| self.see(change)).context(Unreadable)
    }

    fn see(&self, change: &Change) -> Result<()> {
        let decode = |text: &str| BASE64_STANDARD.decode(text);
        let key = String::from_utf8(decode(&change.kv.key)?)?;
        let is_deletion = change.kind == "DELETE";
        {
            let mut seen = self.lock();
            seen.revision = change.kv.mod_revision.parse()?;
            if is_deletion {
                seen.keys.remove(&key)
            } else {
                seen.keys.insert(key.clone())
            };
        }
        let found = KINDS.iter().find_map(|(folder, kind)| Some((*kind, key.strip_prefix(folder)?)));
        let Some((kind, name)) = found else { return Ok(()) };
        if is_deletion {
            self.checker.gone(kind, name);
        } else {
            let json = decode(&change.kv.value)?;
            let object = serde_json::from_slice(&json).with_context(|| format!("{key} is no JSON"))?;
            self.lock().note_service(kind, &key, &object);
            self.checker.see(kind, Arc::new(object), &json);
        }
        Ok(())
    }

    fn lock(&self) -> MutexGuard<'_, Seen> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What etcd sends cannot be understood, or it does not go on from the last change.
#[derive(Debug, Clone, Copy)]
struct Unreadable;

impl std::fmt::Display for Unreadable {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.write_str("cannot follow what etcd stores")
    }
}

impl std::error::Error for Unreadable {}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_slice_of_a_service_that_was_created_again_may_stay() {
        let mut seen = Seen::default();
        let service = |uid: &str| json!({"metadata": {"name": "web", "uid": uid}});
        let owners = json!([{"kind": "Service", "name": "web", "uid": "first"}]);
        seen.note_service("Service", "web", &service("first"));
        seen.note_service("EndpointSlice", "web-abc", &json!({"metadata": {"ownerReferences": owners}}));
        assert!(!seen.is_missed_slice("web-abc"));
        seen.note_service("Service", "web", &service("second"));
        assert!(seen.is_missed_slice("web-abc") && !seen.is_missed_slice("web-def"));
    }
}
