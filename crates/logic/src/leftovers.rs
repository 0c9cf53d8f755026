//! What is left of an earlier object of the same kind and name.
//!
//! Whatever belonged to a deleted object is the garbage collector's to delete. It can miss the deletion: an object that was
//! deleted and created again while the watch of kube-controller-manager was interrupted looks to it like one that has
//! changed, and then it never deletes what the first one had. The second one waits for these names for ever.
//!
//! An object that exists proves that an earlier one of its name is gone. Only the API server can prove that it exists: to
//! a cache that lags, the objects of a later one look like those of an earlier one.

use crate::action::{Kind, ObjectKey, Step};
use crate::plan::{LookedUp, Planner, Reconciled};
use crate::reasons;
use crate::view::MetaView;

/// How many seconds later the API server is asked again, if it did not reply.
const ASK_AGAIN: i64 = 5;

/// Deletes those of the objects that an earlier object of the same kind and name controlled. The one with this key and UID
/// has the name now.
pub(crate) fn plan<'o, K: Reconciled>(
    planner: &mut Planner<'_, K>,
    key: &ObjectKey,
    uid: &str,
    objects: impl IntoIterator<Item = (Kind, &'o MetaView)>,
) {
    let left = objects.into_iter().filter(|(_, meta)| meta.deletion_timestamp.is_none() && is_left(meta, key, uid));
    let left: Vec<(Kind, &MetaView)> = left.collect();
    if left.is_empty() {
        return;
    }
    match planner.found(key) {
        None => planner.look_up(key.clone()),
        Some(LookedUp::Found(live)) if live["metadata"]["uid"] == uid => {
            for (kind, meta) in left {
                planner.finally(delete(kind, meta, key));
            }
        }
        // The watch is about to show another object, or none, which wakes this one.
        Some(LookedUp::Found(_) | LookedUp::Absent) => {}
        Some(LookedUp::Failed(_)) => planner.wake_after(ASK_AGAIN),
    }
}

/// Returns whether an object belonged to an earlier object of this kind and name, and to nobody else.
pub(crate) fn is_left(meta: &MetaView, key: &ObjectKey, uid: &str) -> bool {
    let [owner] = &*meta.owner_references else { return false };
    owner.controller
        && owner.is_ray
        && owner.kind == key.kind.resource().kind
        && owner.name == key.name
        && !owner.uid.is_empty()
        && owner.uid != uid
}

fn delete(kind: Kind, meta: &MetaView, key: &ObjectKey) -> Step {
    let (word, owner) = (kind.resource().kind, key.kind.resource().kind);
    let path = format!("{}/{}", key.namespace, meta.name);
    let why = format!("it belonged to an earlier {owner} of this name");
    let note = format!("{word} {path}, which belonged to an earlier {owner} of this name");
    Step::delete(ObjectKey::new(kind, &key.namespace, &meta.name), &meta.uid, why)
        .on_success(reasons::DELETED_LEFTOVER, format!("Deleted {note}"))
        .on_failure(reasons::FAILED_TO_DELETE_LEFTOVER, format!("Failed to delete {note}: "))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(owners: &Value, expect: bool) {
        let meta: MetaView = serde_json::from_value(json!({"name": "x", "ownerReferences": owners})).unwrap();
        let key = ObjectKey::new(Kind::RayCluster, "ns", "demo");
        assert_eq!(is_left(&meta, &key, "now"), expect, "{owners}");
    }

    fn owner(change: &[(&str, Value)]) -> Value {
        let mut owner = json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "demo", "uid": "before", "controller": true});
        for (field, value) in change {
            owner[*field] = value.clone();
        }
        owner
    }

    #[test]
    fn only_what_belonged_to_an_earlier_object_alone_is_left_of_it() {
        check(&json!([owner(&[])]), true);
        check(&json!([owner(&[("apiVersion", json!("ray.io/v1alpha1"))])]), true);
        for (field, other) in [
            ("uid", json!("now")),
            ("uid", json!("")),
            ("name", json!("other")),
            ("kind", json!("RayJob")),
            ("apiVersion", json!("example.com/v1")),
            ("controller", json!(false)),
        ] {
            check(&json!([owner(&[(field, other)])]), false);
        }
        check(&json!([]), false);
        check(&json!([owner(&[]), owner(&[("controller", json!(false)), ("uid", json!("another"))])]), false);
    }
}
