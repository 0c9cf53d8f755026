//! Messages of other programs, and what they mean.

use super::super::Cause;
use super::super::text::{shorten, unfinished};

/// A message that contains all of these parts, in lower case.
pub(super) struct Pattern {
    pub(super) parts: &'static [&'static str],
    pub(super) reason: &'static str,
    pub(super) advice: &'static str,
}

/// Returns the first pattern that a message matches.
pub(super) fn find<'a>(patterns: &'a [Pattern], message: &str) -> Option<&'a Pattern> {
    let lower = message.to_lowercase();
    patterns.iter().find(|pattern| pattern.parts.iter().all(|part| lower.contains(part)))
}

impl Pattern {
    /// Returns the cause: what happened, and the message that says so.
    pub(super) fn cause(&self, object: String, what: &str, message: &str) -> Cause {
        Cause::new(self.reason, object, sentence(what, message), self.advice)
    }
}

/// Returns `what: message.` as one sentence on one line.
pub(super) fn sentence(what: &str, message: &str) -> String {
    let message = message.split_whitespace().collect::<Vec<_>>().join(" ");
    match unfinished(&message) {
        "" => format!("{}.", unfinished(what)),
        message => format!("{}: {}.", unfinished(what), shorten(message)),
    }
}
