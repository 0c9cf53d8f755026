//! Which unwatched objects are known to exist, so that not every pass asks the API server.

use crate::lock::lock;
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::plan::{LookUps, LookedUp};
use serde_json::Value;
use std::collections::HashMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// How long an object that was found is believed to exist.
const BELIEVED_FOR: Duration = Duration::from_secs(60);

/// Objects that exist, by the object whose plan asked for them.
#[derive(Default)]
pub(crate) struct ExistenceCache {
    by_owner: Mutex<HashMap<ObjectKey, Known>>,
}

/// What is known to exist for one object, which a later one of the same name must not inherit.
struct Known {
    uid: String,
    found: Vec<(ObjectKey, Arc<Value>, Instant)>,
}

impl ExistenceCache {
    /// Returns what is known for the owner of this UID without asking.
    pub(crate) fn of(&self, owner: &ObjectKey, uid: &str) -> LookUps {
        let by_owner = lock(&self.by_owner);
        let Some(known) = by_owner.get(owner).filter(|known| known.uid == uid) else { return LookUps::new() };
        let believed = known.found.iter().filter(|(_, _, since)| since.elapsed() < BELIEVED_FOR);
        believed.map(|(key, object, _)| (key.clone(), LookedUp::Found(Arc::clone(object)))).collect()
    }

    /// Remembers an object that was found, if it stays: an account that a user has named, or the cluster's token. Only
    /// its metadata is kept.
    pub(crate) fn remember(&self, owner: &ObjectKey, uid: &str, key: &ObjectKey, found: &LookedUp) {
        let LookedUp::Found(object) = found else { return };
        let lasting = match key.kind {
            Kind::ServiceAccount => true,
            Kind::Secret => key.name == manta_logic::names::clip50(&owner.name),
            _ => false,
        };
        let metadata = &object["metadata"];
        // One that belongs to an earlier object of the owner's name is about to go.
        let owners = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
        let kind = owner.kind.resource().kind;
        let is_earlier = |other: &Value| other["kind"] == kind && other["name"] == owner.name && other["uid"] != uid;
        let stays = metadata["deletionTimestamp"].is_null() && !owners.iter().any(is_earlier);
        let mut by_owner = lock(&self.by_owner);
        if let Some(known) = by_owner.get_mut(owner) {
            known.found.retain(|(other, _, since)| other != key && since.elapsed() < BELIEVED_FOR);
        }
        if !lasting || !stays {
            return;
        }
        let kept = Arc::new(serde_json::json!({"metadata": {"ownerReferences": metadata["ownerReferences"]}}));
        let known = by_owner.entry(owner.clone()).or_insert_with(|| Known { uid: uid.to_owned(), found: Vec::new() });
        if known.uid != uid {
            *known = Known { uid: uid.to_owned(), found: Vec::new() };
        }
        known.found.push((key.clone(), kept, Instant::now()));
    }

    /// Forgets an owner that is gone.
    pub(crate) fn forget(&self, owner: &ObjectKey) {
        lock(&self.by_owner).remove(owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn owner() -> ObjectKey {
        ObjectKey::new(Kind::RayCluster, "ns", "demo")
    }

    fn secret() -> ObjectKey {
        ObjectKey::new(Kind::Secret, "ns", "demo")
    }

    fn found(metadata: Value) -> LookedUp {
        LookedUp::Found(Arc::new(json!({"metadata": metadata, "data": {"auth_token": "c2VjcmV0"}})))
    }

    #[tokio::test(start_paused = true)]
    async fn what_was_found_is_asked_for_again_now_and_then() {
        let cache = ExistenceCache::default();
        cache.remember(&owner(), "1", &secret(), &found(json!({})));
        assert!(cache.of(&owner(), "1").contains_key(&secret()));
        assert!(!format!("{:?}", cache.of(&owner(), "1")).contains("c2VjcmV0"), "tokens are not kept");
        tokio::time::advance(BELIEVED_FOR).await;
        assert!(cache.of(&owner(), "1").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn a_cluster_does_not_inherit_what_an_earlier_one_found() {
        let cache = ExistenceCache::default();
        cache.remember(&owner(), "1", &secret(), &found(json!({})));
        assert!(cache.of(&owner(), "2").is_empty());
        cache.remember(&owner(), "2", &secret(), &LookedUp::Absent);
        assert!(cache.of(&owner(), "2").is_empty());
        cache.remember(&owner(), "2", &secret(), &found(json!({})));
        assert!(cache.of(&owner(), "2").contains_key(&secret()) && cache.of(&owner(), "1").is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn what_is_going_or_may_change_is_not_remembered() {
        let cache = ExistenceCache::default();
        let claim = ObjectKey::new(Kind::PersistentVolumeClaim, "ns", "data");
        let other = ObjectKey::new(Kind::Secret, "ns", "certificates");
        cache.remember(&owner(), "1", &secret(), &found(json!({"deletionTimestamp": "2026-03-01T08:00:00Z"})));
        let earlier = json!({"kind": "RayCluster", "name": "demo", "uid": "0", "controller": true});
        cache.remember(&owner(), "1", &secret(), &found(json!({"ownerReferences": [earlier]})));
        cache.remember(&owner(), "1", &claim, &found(json!({})));
        cache.remember(&owner(), "1", &other, &found(json!({})));
        assert!(cache.of(&owner(), "1").is_empty());
    }
}
