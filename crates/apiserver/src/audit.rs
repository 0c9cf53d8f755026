//! The audit log: one line of JSON per request, on request.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::sync::{Mutex, PoisonError};

use http::{Method, StatusCode, Uri};
use serde_json::json;

use crate::auth::User;

/// An open audit log.
pub(crate) struct Audit {
    file: Mutex<File>,
}

impl Audit {
    pub(crate) fn open(path: &Path) -> std::io::Result<Audit> {
        let file = File::options().create(true).append(true).open(path)?;
        Ok(Audit { file: Mutex::new(file) })
    }

    pub(crate) fn record(&self, user: &User, method: &Method, uri: &Uri, status: StatusCode, begun: jiff::Timestamp) {
        let mut line = json!({
            "kind": "Event",
            "apiVersion": "audit.k8s.io/v1",
            "level": "Metadata",
            "stage": "ResponseComplete",
            "requestURI": uri.path_and_query().map_or("", |path| path.as_str()),
            "verb": method.as_str().to_lowercase(),
            "user": user.to_value(),
            "responseStatus": {"code": status.as_u16()},
            "requestReceivedTimestamp": begun.to_string(),
        })
        .to_string();
        line.push('\n');
        let mut file = self.file.lock().unwrap_or_else(PoisonError::into_inner);
        if let Err(error) = file.write_all(line.as_bytes()) {
            tracing::warn!(%error, "cannot write the audit log");
        }
    }
}
