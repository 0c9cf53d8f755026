//! Operators delete what they saw, and nothing else.

use super::{Checker, text, uid};
use tokio::time::Instant;

impl Checker {
    /// Returns what is wrong with a deletion by an operator that arrives now and was sent at a time.
    pub(crate) fn operator_deletes(&self, path: &str, sent: Instant) -> Option<String> {
        let seen = self.lock();
        let (resource, name) = resource_and_name(path)?;
        let object = seen.get(kind(resource)?, name)?;
        let newer = seen.first_seen.get(&uid(object)).is_some_and(|first| *first > sent);
        if newer {
            return Some(format!("{resource}/{name} was deleted, and created after somebody sent that"));
        }
        if resource == "pods" { seen.deleted_without_need(&text(&object["metadata"]["name"])) } else { None }
    }

    /// Reports a deletion that took effect.
    pub(crate) fn operator_deleted(&self, wrong: Option<String>) {
        self.lock().report(wrong);
    }
}

fn resource_and_name(path: &str) -> Option<(&str, &str)> {
    let (_, rest) = path.split_once("/namespaces/")?;
    let (resource, name) = rest.split_once('/')?.1.split_once('/')?;
    Some((resource, name))
}

fn kind(resource: &str) -> Option<&'static str> {
    Some(match resource {
        "pods" => "Pod",
        "services" => "Service",
        "secrets" => "Secret",
        "jobs" => "Job",
        "rayclusters" => "RayCluster",
        "rayjobs" => "RayJob",
        _ => return None,
    })
}
