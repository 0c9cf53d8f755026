//! The optional audit log: one line of JSON per request.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use http::{StatusCode, Uri};
use serde_json::{Value, json};

use crate::auth::{Attributes, User};

/// An open audit log.
pub(crate) struct Audit {
    file: Mutex<File>,
}

impl Audit {
    pub(crate) fn open(path: &Path) -> std::io::Result<Audit> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Audit { file: Mutex::new(file) })
    }

    /// Records one request now: a watch when it starts, every other request when it completes.
    pub(crate) fn record(
        &self,
        user: &User,
        attributes: &Attributes,
        uri: &Uri,
        status: StatusCode,
        begun: jiff::Timestamp,
        now: jiff::Timestamp,
    ) {
        let stage = if attributes.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
        let mut line = json!({
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "stage": stage,
            "requestURI": uri.path_and_query().map_or("", |path| path.as_str()),
            "verb": attributes.verb,
            "user": user.to_value(),
            "responseStatus": {"code": status.as_u16()},
            "requestReceivedTimestamp": begun.to_string(),
            "stageTimestamp": now.to_string(),
        });
        if !attributes.resource.is_empty() {
            line["objectRef"] = reference(attributes);
        }
        let line = format!("{line}\n");
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "cannot write the audit log");
        }
    }
}

/// Returns the `objectRef` of a request, without empty fields.
fn reference(attributes: &Attributes) -> Value {
    let parts = [
        ("resource", &attributes.resource),
        ("namespace", &attributes.namespace),
        ("name", &attributes.name),
        ("apiGroup", &attributes.group),
        ("apiVersion", &attributes.version),
        ("subresource", &attributes.subresource),
    ];
    parts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(key, text)| (key, text.as_str())).collect()
}
