//! The Secret that holds the cluster's token.
//!
//! Secrets are never cached: whether it exists is looked up once and then remembered.

use super::Planner;
use crate::action::{DRAWN_WHEN_WRITTEN, Kind, Step};
use crate::build;
use crate::cluster_spec;
use crate::plan::LookedUp;
use crate::validate::ValidCluster;

pub(super) fn plan(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    let seen = planner.seen;
    if !cluster_spec::needs_auth_secret(&valid.spec) {
        return;
    }
    let name = cluster_spec::auth_secret_name(&seen.cluster);
    let key = seen.key(Kind::Secret, &name);
    match planner.found(&key) {
        None => planner.look_up(key),
        Some(LookedUp::Found(_)) => {}
        Some(LookedUp::Failed(error)) => planner.halt(error),
        Some(LookedUp::Absent) => {
            let secret = build::auth_secret(valid, DRAWN_WHEN_WRITTEN);
            planner.push(Step::create(key, &secret, "token authentication is on"));
        }
    }
}
