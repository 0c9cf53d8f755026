//! Looks at single objects that are not watched: Secrets, and what a user has named.

use kube::Client;
use kube::core::request::Request;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::cluster::LookedUp;
use serde_json::Value;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};

use crate::act;
use crate::stores::lock;

/// Answers of the API server that stay true, so that no pass asks twice.
#[derive(Default)]
pub(crate) struct Memory {
    found: Mutex<HashMap<ObjectKey, Vec<ObjectKey>>>,
}

impl Memory {
    /// What is known for an owner without asking.
    pub(crate) fn of(&self, owner: &ObjectKey) -> BTreeMap<ObjectKey, LookedUp> {
        let found = lock(&self.found);
        let known = found.get(owner).map(Vec::as_slice).unwrap_or_default();
        known.iter().map(|key| (key.clone(), LookedUp::Found(Arc::new(Value::Null)))).collect()
    }

    /// Remembers that an object exists where its content does not matter: an account that a user has
    /// named, or the token that was made for the owner.
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

    /// The owner is gone.
    pub(crate) fn forget(&self, owner: &ObjectKey) {
        lock(&self.found).remove(owner);
    }
}

/// Asks the API server for one object.
pub(crate) async fn look_up(client: &Client, key: &ObjectKey) -> LookedUp {
    let request = match Request::new(act::collection(key)).get(&key.name, &Default::default()) {
        Ok(request) => request,
        Err(error) => return LookedUp::Failed(error.to_string()),
    };
    match client.request::<Value>(request).await {
        Ok(found) => LookedUp::Found(Arc::new(found)),
        Err(kube::Error::Api(status)) if status.code == 404 => LookedUp::Absent,
        Err(error) => LookedUp::Failed(act::text(&error)),
    }
}
