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
use crate::view::{MetaView, OwnerView};
use manta_api::RayCluster;
use serde::Deserialize;

/// How many seconds after a pass an unwatched object is looked up again: nothing else would show that somebody deleted it.
pub(super) const LOOK_AGAIN: i64 = 300;
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

/// Returns the metadata of the Secret, if it has been looked up and is there.
pub(super) fn known_secret(planner: &Planner<'_>) -> Option<MetaView> {
    let seen = planner.seen;
    match planner.found(&seen.key(Kind::Secret, &cluster_spec::auth_secret_name(&seen.cluster))) {
        Some(LookedUp::Found(secret)) => MetaView::deserialize(&secret["metadata"]).ok(),
        _ => None,
    }
}

/// Returns whether Pods have to wait: they would start with a token that is about to change.
pub(super) fn must_wait(planner: &mut Planner<'_>) -> bool {
    let seen = planner.seen;
    let Some(secret) = known_secret(planner) else { return false };
    let waits = planner.config.safeguards.owner_checks && is_about_to_go(&secret, seen);
    if waits {
        let name = cluster_spec::auth_secret_name(&seen.cluster);
        planner.wait_for(format!("Secret {} of an earlier cluster of this name to be deleted", seen.path(&name)));
        planner.wake_after(LOOK_AGAIN_SOON);
    }
    waits
}

/// Returns whether a Secret is being deleted, or belongs to an earlier cluster of this name and will be.
fn is_about_to_go(secret: &MetaView, seen: &Observed) -> bool {
    let earlier = |owner: &OwnerView| {
        owner.controller && owner.kind == RayCluster::KIND && owner.name == seen.name() && owner.uid != seen.uid()
    };
    secret.deletion_timestamp.is_some() || secret.owner_references.iter().any(earlier)
}
