//! The Secret that holds the cluster's token.
//!
//! Secrets are never cached: whether it exists is looked up once and then remembered.

use super::observed::{LookedUp, Observed};
use super::plan::Draft;
use crate::action::{DRAWN_WHEN_WRITTEN, Kind, Step, create};
use crate::build::{self, cluster_facts as facts};
use crate::config::Config;
use crate::validate::ValidCluster;

pub(super) fn plan(seen: &Observed, valid: &ValidCluster<'_>, _cfg: &Config, draft: &mut Draft) {
    if !facts::needs_auth_secret(&valid.spec) {
        return;
    }
    let name = facts::auth_secret_name(&seen.cluster);
    let key = seen.key(Kind::Secret, &name);
    if seen.in_flight.is_creating(Kind::Secret, &name) {
        return;
    }
    match seen.looked_up.get(&key) {
        None => draft.look_up(key),
        Some(LookedUp::Found(_)) => {}
        Some(LookedUp::Failed(error)) => draft.halt(error.clone()),
        Some(LookedUp::Absent) => draft
            .push(Step::new(create(key, &build::auth_secret(valid, DRAWN_WHEN_WRITTEN)), "token authentication is on")),
    }
}
