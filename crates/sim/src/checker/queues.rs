//! What waits in a queue of Kueue runs when Kueue says so.

use super::{Checker, Seen};
use crate::kueue::is_queued;
use crate::object::{controller, name, text, uid};
use serde_json::Value;

impl Checker {
    /// Takes note of what Kueue is about to write.
    pub(crate) fn kueue_decided(&self, uid: &str, suspend: bool) {
        let mut seen = self.lock();
        seen.queue.insert(uid.to_owned(), suspend);
        if !suspend {
            seen.admitted.insert(uid.to_owned());
        }
    }

    /// Returns whether Kueue has ever admitted an object.
    pub(crate) fn was_admitted(&self, uid: &str) -> bool {
        self.lock().admitted.contains(uid)
    }
}

impl Seen {
    /// Nobody but Kueue suspends or resumes what waits in its queue.
    pub(super) fn overruled(&self, kind: &str, object: &Value) -> Option<String> {
        if !is_queued(object) {
            return None;
        }
        let decided = self.queue.get(&uid(object)).copied().unwrap_or(true);
        let suspended = object["spec"]["suspend"] == true;
        let what = if suspended { "suspended" } else { "resumed" };
        (suspended != decided).then(|| format!("{kind} {} was {what}, and not by Kueue", name(object)))
    }

    /// Nothing is created for what was never admitted.
    pub(super) fn not_admitted(&self, kind: &str, object: &Value) -> Option<String> {
        let owner = controller(object)?;
        let owner = self.get(owner["kind"].as_str()?, owner["name"].as_str()?).filter(|found| {
            is_queued(found) && uid(found) == text(&owner["uid"]) && !self.admitted.contains(&uid(found))
        })?;
        Some(format!("{kind} {} was created before Kueue admitted {}", name(object), name(owner)))
    }
}
