//! Reads the operator's requests from the API server's audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;
use std::time::Duration;

use anyhow::{Context, Result};
use jiff::Timestamp;
use serde::Deserialize;

use crate::User;

/// One completed request of the operator, which is the user of that name or a service account.
#[derive(Debug, Clone, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Request {
    pub verb: String,
    #[serde(default)]
    pub object_ref: ObjectRef,
    #[serde(default)]
    response_status: ResponseStatus,
    #[serde(default)]
    user: Who,
    #[serde(default)]
    annotations: Annotations,
    stage: String,
    request_received_timestamp: Option<Timestamp>,
    stage_timestamp: Option<Timestamp>,
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Who {
    username: String,
}

/// The authorization decision that the server recorded.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "authorization.k8s.io/decision")]
    decision: String,
}

/// The object of a request.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default, rename_all = "camelCase")]
pub struct ObjectRef {
    /// Empty for the core group.
    pub api_group: String,
    pub resource: String,
    pub subresource: String,
    pub namespace: String,
    pub name: String,
}

#[derive(Debug, Clone, Default, Deserialize)]
struct ResponseStatus {
    #[serde(default)]
    code: u16,
}

impl Request {
    /// Whether it is a write, successful or not.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether the server returned a success code.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.response_status.code)
    }

    /// Whether RBAC denied it. The code 403 alone does not tell: it also means that a namespace is terminating.
    pub fn is_forbidden(&self) -> bool {
        self.annotations.decision == "forbid"
    }

    /// Returns how long the server took, from the arrival of the request to the end of its response.
    pub fn latency(&self) -> Option<Duration> {
        self.stage_timestamp?.duration_since(self.request_received_timestamp?).try_into().ok()
    }

    /// Returns resource and subresource, such as `pods/status` or `pods`.
    pub fn target(&self) -> String {
        let ObjectRef { resource, subresource, .. } = &self.object_ref;
        if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") }
    }
}

/// Counts requests by verb and target.
pub fn tally<'a>(requests: impl IntoIterator<Item = &'a Request>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(format!("{} {}", request.verb, request.target())).or_default() += 1;
    }
    counts
}

/// Follows the log as it grows.
#[derive(Debug)]
pub struct AuditLog {
    reader: BufReader<File>,
}

impl AuditLog {
    /// Opens the log at its start.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open the audit log {}", path.display()))?;
        Ok(Self { reader: BufReader::new(file) })
    }

    /// Returns the requests completed since the last call; watches count when they start.
    pub fn new_requests(&mut self) -> Result<Vec<Request>> {
        let mut found = Vec::new();
        let mut line = String::new();
        loop {
            line.clear();
            let length = self.reader.read_line(&mut line)?;
            if length == 0 {
                return Ok(found);
            }
            if !line.ends_with('\n') {
                // The server has not finished this line yet: read it again next time.
                self.reader.seek(SeekFrom::Current(-i64::try_from(length)?))?;
                return Ok(found);
            }
            let request: Request = serde_json::from_str(&line).context("cannot parse a line of the audit log")?;
            // The embedded server logs all users; the real one has an audit policy for the operator only.
            let user = &request.user.username;
            let ours = user == User::Operator.name() || user.starts_with("system:serviceaccount:");
            let stage = if request.verb == "watch" { "ResponseStarted" } else { "ResponseComplete" };
            if ours && request.stage == stage {
                found.push(request);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::io::Write;

    #[test]
    fn an_incomplete_line_is_read_again_later() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut log = AuditLog::open(file.path()).unwrap();
        let line = r#"{"stage":"ResponseComplete","user":{"username":"operator"},"verb":"patch","objectRef":{"resource":"pods","subresource":"status"},"responseStatus":{"code":200},"requestReceivedTimestamp":"2026-01-01T00:00:00.100000Z","stageTimestamp":"2026-01-01T00:00:00.104500Z"}"#;
        let (first, rest) = line.split_at(40);
        write!(file, "{first}").unwrap();
        assert!(log.new_requests().unwrap().is_empty());
        writeln!(file, "{rest}").unwrap();
        writeln!(file, r#"{{"stage":"ResponseStarted","user":{{"username":"operator"}},"verb":"watch","objectRef":{{"resource":"pods"}}}}"#).unwrap();
        writeln!(file, r#"{{"stage":"ResponseComplete","user":{{"username":"admin"}},"verb":"watch","objectRef":{{"resource":"pods"}}}}"#).unwrap();
        let found = log.new_requests().unwrap();
        assert_eq!(tally(&found), BTreeMap::from([("patch pods/status".to_owned(), 1), ("watch pods".to_owned(), 1)]));
        assert!(found[0].is_write() && found[0].succeeded() && !found[1].is_write());
        assert_eq!([found[0].latency(), found[1].latency()], [Some(Duration::from_micros(4500)), None]);
        assert!(log.new_requests().unwrap().is_empty());
    }
}
