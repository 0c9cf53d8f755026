//! The Secret that holds the cluster's token.
//!
//! Secrets are never watched: whether it exists is looked up, remembered for a while, and looked up again now and then.

use super::Planner;
use super::observed::Observed;
use crate::action::{DRAWN_WHEN_WRITTEN, Kind, Step};
use crate::build;
use crate::cluster_spec;
use crate::plan::LookedUp;
use crate::validate::ValidCluster;
use serde_json::Value;

/// How many seconds after a pass the Secret is looked up again: nothing else would show that somebody deleted it.
const LOOK_AGAIN: i64 = 300;
/// The same while it is about to be deleted.
const LOOK_AGAIN_SOON: i64 = 2;

pub(super) fn plan(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    let seen = planner.seen;
    if !cluster_spec::needs_auth_secret(&valid.spec) {
        return;
    }
    let name = cluster_spec::auth_secret_name(&seen.cluster);
    let key = seen.key(Kind::Secret, &name);
    match planner.found(&key) {
        None => planner.look_up(key),
        Some(LookedUp::Found(_)) => planner.wake_after(LOOK_AGAIN),
        Some(LookedUp::Failed(error)) => planner.halt(error),
        Some(LookedUp::Absent) => {
            let secret = build::auth_secret(valid, DRAWN_WHEN_WRITTEN);
            planner.push(Step::create(key, &secret, "token authentication is on"));
        }
    }
}

/// Returns whether Pods have to wait: they would start with a token that is about to change.
pub(super) fn must_wait(planner: &mut Planner<'_>) -> bool {
    let seen = planner.seen;
    let name = cluster_spec::auth_secret_name(&seen.cluster);
    let Some(LookedUp::Found(secret)) = planner.found(&seen.key(Kind::Secret, &name)) else { return false };
    let waits = planner.config.safeguards.owner_checks && is_leftover(secret, seen);
    if waits {
        planner.wait_for(format!("Secret {} of an earlier cluster of this name to be deleted", seen.path(&name)));
        planner.wake_after(LOOK_AGAIN_SOON);
    }
    waits
}

/// Returns whether a Secret goes away by itself: it is being deleted, or belongs to an earlier cluster of this name.
fn is_leftover(secret: &Value, seen: &Observed) -> bool {
    let metadata = &secret["metadata"];
    let owners = metadata["ownerReferences"].as_array().map(Vec::as_slice).unwrap_or_default();
    let earlier = |owner: &Value| {
        owner["controller"] == true
            && owner["kind"] == "RayCluster"
            && owner["name"] == seen.name()
            && owner["uid"] != seen.uid()
    };
    !metadata["deletionTimestamp"].is_null() || owners.iter().any(earlier)
}
