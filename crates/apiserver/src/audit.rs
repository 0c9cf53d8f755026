//! The audit log: one line of JSON per request, on request.

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

    /// Notes one request; a watch when it begins, everything else when it is answered.
    pub(crate) fn record(
        &self,
        user: &User,
        asked: &Attributes,
        uri: &Uri,
        status: StatusCode,
        begun: jiff::Timestamp,
    ) {
        let stage = if asked.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
        let mut line = json!({
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "stage": stage,
            "requestURI": uri.path_and_query().map_or("", |path| path.as_str()),
            "verb": asked.verb,
            "user": user.to_value(),
            "responseStatus": {"code": status.as_u16()},
            "requestReceivedTimestamp": begun.to_string(),
        });
        if !asked.resource.is_empty() {
            line["objectRef"] = reference(asked);
        }
        let line = format!("{line}\n");
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "cannot write the audit log");
        }
    }
}

/// What a request is about, without what it leaves out.
fn reference(asked: &Attributes) -> Value {
    let parts = [
        ("resource", &asked.resource),
        ("namespace", &asked.namespace),
        ("name", &asked.name),
        ("apiGroup", &asked.group),
        ("apiVersion", &asked.version),
        ("subresource", &asked.subresource),
    ];
    parts.into_iter().filter(|(_, text)| !text.is_empty()).map(|(key, text)| (key, text.as_str())).collect()
}
