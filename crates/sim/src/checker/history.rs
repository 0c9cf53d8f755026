//! A status does not go backwards.

use crate::object::{generation, name, text, uid};
use serde_json::Value;

/// Returns what is wrong with a status after an earlier one of the same object.
pub(super) fn went_back(kind: &str, earlier: &Value, now: &Value) -> Option<String> {
    if !kind.starts_with("Ray") || uid(earlier) != uid(now) {
        return None;
    }
    let observed = |object: &Value| object["status"]["observedGeneration"].as_i64();
    if observed(now).is_some_and(|observed| observed > generation(now)) {
        return Some(format!("{kind} {} observed a generation that was never there", name(now)));
    }
    if observed(now) < observed(earlier) {
        return Some(format!("{kind} {} observed an earlier generation than before", name(now)));
    }
    // Times are written in one form, which sorts by time.
    let scheduled = |object: &Value| text(&object["status"]["lastScheduleTime"]);
    (scheduled(now) < scheduled(earlier))
        .then(|| format!("{kind} {} was last scheduled earlier than before", name(now)))
}
