//! Why an object does not run, or why it died.
//!
//! [`explain`] turns [`Evidence`] into an [`Explanation`]: the first cause with what to do, and the timeline. Gathering the
//! evidence is the operator crate's part, printing it the CLI's.

mod about;
pub mod evidence;
mod rules;
mod text;
mod timeline;

pub use evidence::{Evidence, Log, LogSource, Subject, Unreadable};
pub use text::one_line;
pub use timeline::Entry;

use serde::{Deserialize, Serialize};

/// The answer to "why".
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Explanation {
    pub subject: Subject,
    /// When the evidence was gathered.
    pub at: jiff::Timestamp,
    /// The status in a few words.
    pub state: String,
    pub cause: Cause,
    /// What happened, the oldest first.
    pub timeline: Vec<Entry>,
    /// The logs that belong to the cause.
    pub logs: Vec<Log>,
    /// What could not be read, so that the cause may lie there.
    pub unreadable: Vec<Unreadable>,
}

/// The first cause.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Cause {
    /// A word for programs, such as `ImageNotFound`.
    pub reason: String,
    /// One sentence.
    pub summary: String,
    /// What to do; empty if nothing is wrong.
    pub advice: String,
    /// The object where it shows, as `Kind name`.
    pub object: String,
    /// Whether everything is as it should be.
    pub is_well: bool,
    /// The traceback or other text of many lines that shows it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub details: String,
}

impl Cause {
    fn new(reason: &str, object: impl Into<String>, summary: impl Into<String>, advice: impl Into<String>) -> Self {
        Self {
            reason: reason.to_owned(),
            summary: summary.into(),
            advice: advice.into(),
            object: object.into(),
            ..Self::default()
        }
    }

    fn well(reason: &str, object: impl Into<String>, summary: impl Into<String>) -> Self {
        Self { is_well: true, ..Self::new(reason, object, summary, "") }
    }

    fn with_details(self, details: &str) -> Self {
        Self { details: details.trim_end().to_owned(), ..self }
    }
}

/// Explains an object: same evidence, same answer.
pub fn explain(evidence: &Evidence) -> Explanation {
    let cause = rules::first_cause(evidence);
    Explanation {
        subject: evidence.subject.clone(),
        at: evidence.at,
        state: timeline::state(evidence),
        logs: logs_about(evidence, &cause),
        cause,
        timeline: timeline::of(evidence),
        unreadable: evidence.unreadable.clone(),
    }
}

/// Returns the log of the Pod where the cause shows, and that of the driver.
fn logs_about(evidence: &Evidence, cause: &Cause) -> Vec<Log> {
    if cause.is_well {
        return Vec::new();
    }
    let pod = cause.object.strip_prefix("Pod ");
    let is_about = |log: &&Log| match pod {
        Some(pod) => log.pod == pod,
        None => log.source == LogSource::Driver,
    };
    evidence.logs.iter().filter(|log| !log.lines.is_empty()).filter(is_about).cloned().collect()
}
#[cfg(test)]
mod tests;
