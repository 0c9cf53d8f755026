//! Operators change and delete nothing that is not theirs.

use super::deletions::{kind, resource_and_name};
use super::{Checker, Seen};
use crate::object::{name, uid};
use http::Method;
use serde_json::Value;

impl Checker {
    /// Takes note of an object that is somebody else's, though it looks like an operator's.
    pub(crate) fn foreign_created(&self, kind: &'static str, object: &Value) {
        self.lock().foreign.insert(uid(object), (kind, name(object)));
    }

    /// Returns the kinds and names of these objects that are there.
    pub(crate) fn foreign(&self) -> Vec<(&'static str, String)> {
        let seen = self.lock();
        let present =
            |(kind, name): &&(&'static str, String)| seen.get(kind, name).is_some_and(|object| seen.is_foreign(object));
        seen.foreign.values().filter(present).cloned().collect()
    }

    /// Returns what is wrong with a request of an operator that arrives now, if it succeeds.
    pub(crate) fn operator_touches(&self, method: &Method, path: &str) -> Option<String> {
        let seen = self.lock();
        let (resource, name) = resource_and_name(path)?;
        let name = name.split('/').next()?;
        let object = seen.get(kind(resource)?, name).filter(|object| seen.is_foreign(object))?;
        Some(format!("{method} {resource}/{}, which is somebody else's", crate::object::name(object)))
    }
}

impl Seen {
    /// Returns whether an object is somebody else's.
    pub(super) fn is_foreign(&self, object: &Value) -> bool {
        self.foreign.contains_key(&uid(object))
    }
}
