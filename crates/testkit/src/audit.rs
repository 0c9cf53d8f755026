//! Reads what the operator asked of the server from the audit log.

use std::collections::BTreeMap;
use std::fs::File;
use std::io::{BufRead, BufReader, Seek, SeekFrom};
use std::path::Path;

use anyhow::{Context, Result};
use serde::Deserialize;

use crate::User;

/// One answered request of the operator, be it the user of that name or a service account.
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
}

#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Who {
    username: String,
}

/// What the server noted about its decision.
#[derive(Debug, Clone, Default, Deserialize)]
#[serde(default)]
struct Annotations {
    #[serde(rename = "authorization.k8s.io/decision")]
    decision: String,
}

/// What a request was about.
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
    /// Whether it changed something, or tried to.
    pub fn is_write(&self) -> bool {
        matches!(self.verb.as_str(), "create" | "update" | "patch" | "delete" | "deletecollection")
    }

    /// Whether the server did as asked.
    pub fn succeeded(&self) -> bool {
        (200..300).contains(&self.response_status.code)
    }

    /// Whether the caller has not the right to do this. A code of 403 alone also says that a namespace is going.
    pub fn is_forbidden(&self) -> bool {
        self.annotations.decision == "forbid"
    }

    /// `pods/status` or `pods`.
    pub fn target(&self) -> String {
        let ObjectRef { resource, subresource, .. } = &self.object_ref;
        if subresource.is_empty() { resource.clone() } else { format!("{resource}/{subresource}") }
    }
}

/// How many of the requests there were by verb and target.
pub fn tally<'a>(requests: impl IntoIterator<Item = &'a Request>) -> BTreeMap<String, usize> {
    let mut counts = BTreeMap::new();
    for request in requests {
        *counts.entry(format!("{} {}", request.verb, request.target())).or_default() += 1;
    }
    counts
}

/// Reads the log bit by bit.
#[derive(Debug)]
pub struct AuditLog {
    reader: BufReader<File>,
}

impl AuditLog {
    /// Opens the log at its beginning.
    pub fn open(path: &Path) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open the audit log {}", path.display()))?;
        Ok(Self { reader: BufReader::new(file) })
    }

    /// The requests answered since the last call; long-running ones (watches) when they began.
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
                // The server is in the middle of a line: read it again next time.
                self.reader.seek(SeekFrom::Current(-i64::try_from(length)?))?;
                return Ok(found);
            }
            let request: Request = serde_json::from_str(&line).context("a line of the audit log is not as expected")?;
            // The embedded server logs everybody; a policy keeps the real one from it.
            let user = &request.user.username;
            let ours = user == User::Operator.name() || user.starts_with("system:serviceaccount:");
            let began = request.verb == "watch";
            if ours && request.stage == if began { "ResponseStarted" } else { "ResponseComplete" } {
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
    fn half_a_line_is_left_for_the_next_time() {
        let mut file = tempfile::NamedTempFile::new().unwrap();
        let mut log = AuditLog::open(file.path()).unwrap();
        let line = r#"{"stage":"ResponseComplete","user":{"username":"operator"},"verb":"patch","objectRef":{"resource":"pods","subresource":"status"},"responseStatus":{"code":200}}"#;
        let (first, rest) = line.split_at(40);
        write!(file, "{first}").unwrap();
        assert!(log.new_requests().unwrap().is_empty());
        writeln!(file, "{rest}").unwrap();
        writeln!(file, r#"{{"stage":"ResponseStarted","user":{{"username":"operator"}},"verb":"watch","objectRef":{{"resource":"pods"}}}}"#).unwrap();
        writeln!(file, r#"{{"stage":"ResponseComplete","user":{{"username":"admin"}},"verb":"watch","objectRef":{{"resource":"pods"}}}}"#).unwrap();
        let found = log.new_requests().unwrap();
        assert_eq!(tally(&found), BTreeMap::from([("patch pods/status".to_owned(), 1), ("watch pods".to_owned(), 1)]));
        assert!(found[0].is_write() && found[0].succeeded() && !found[1].is_write());
        assert!(log.new_requests().unwrap().is_empty());
    }
}
