//! Which unwatched objects are known to exist, so that no pass asks the API server twice.

use crate::lock::lock;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::plan::{LookUps, LookedUp};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};

/// Objects that exist and whose content does not matter, by the object whose plan asked for them.
#[derive(Default)]
pub(crate) struct ExistenceCache {
    found: Mutex<HashMap<ObjectKey, Vec<ObjectKey>>>,
}

impl ExistenceCache {
    /// Returns what is known for an owner without asking.
    pub(crate) fn of(&self, owner: &ObjectKey) -> LookUps {
        let found = lock(&self.found);
        let known = found.get(owner).map(Vec::as_slice).unwrap_or_default();
        known.iter().map(|key| (key.clone(), LookedUp::Found(Arc::new(Value::Null)))).collect()
    }

    /// Remembers an object, if its content does not matter: an account that a user has named, or the token that was
    /// made for the owner.
    pub(crate) fn remember(&self, owner: &ObjectKey, key: &ObjectKey) {
        let lasting = match key.kind {
            Kind::ServiceAccount => true,
            Kind::Secret => key.name == manta_logic::names::clip50(&owner.name),
            _ => false,
        };
        if lasting {
            lock(&self.found).entry(owner.clone()).or_default().push(key.clone());
        }
    }

    /// Forgets an owner that is gone.
    pub(crate) fn forget(&self, owner: &ObjectKey) {
        lock(&self.found).remove(owner);
    }
}
