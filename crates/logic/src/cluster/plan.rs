//! The next step for one RayCluster: the order of decisions.
//!
//! ```text
//! not ours ─▶ nothing        left of an earlier cluster of this name ─▶ deleted, last
//!                            network policies, certificates: also for an invalid spec
//! deleting ─▶ deletion       invalid ─▶ one warning
//! finalizer ─▶ prerequisites (RBAC, ingress, secret, services, claim) ─▶ Pods
//! ```
//! The prerequisites are created before the Pods; one that cannot be created ends the pass.

use super::observed::Observed;
use super::suspend::suspension;
use super::{
    Plan, Planner, auth, deletion, earlier, ingress, mtls, network_policy, pods, rbac, services, status, storage,
};
use crate::config::Config;
use crate::labels::is_managed_by_self;
use crate::plan::{Outcome, Reconciled, StatusPlan};
use crate::validate::ValidCluster;
use jiff::Timestamp;
use manta_api::{RayCluster, RayClusterStatus};
use std::convert::Infallible;

impl Reconciled for RayCluster {
    const CONTROLLER: &'static str = "raycluster-controller";
    type Observed = Observed;
    type Status = RayClusterStatus;
    type Poll = Infallible;
    type Draft<'a> = StatusPlan<RayClusterStatus>;

    fn draft<'a>(_: &'a Observed, _: &'a Config) -> Self::Draft<'a> {
        StatusPlan::Keep
    }

    fn decide(planner: &mut Planner<'_>) {
        if !is_ours(planner.seen) {
            return;
        }
        planner.wake_at(planner.seen.in_flight.expires);
        earlier::plan(planner);
        if planner.seen.cluster.metadata.deletion_timestamp.is_none() {
            planner.act_as("networkpolicy-controller", network_policy::plan);
            planner.act_as("raycluster-mtls-controller", mtls::plan);
        }
        decide(planner);
    }

    fn propose(planner: &mut Planner<'_>) -> StatusPlan<RayClusterStatus> {
        planner.draft.clone()
    }

    fn follows_from(seen: &Observed, written: &RayClusterStatus) -> bool {
        suspension(seen.cluster.status.as_ref()) != suspension(Some(written))
    }

    fn compute_status(
        seen: &Observed,
        plan: &Plan,
        outcome: &Outcome,
        now: Timestamp,
        config: &Config,
    ) -> Option<RayClusterStatus> {
        status::compute(seen, plan, outcome, now, config)
    }
}

fn decide(planner: &mut Planner<'_>) {
    let seen = planner.seen;
    // Before validation, unlike in KubeRay: an invalid spec must not keep a cluster from being deleted.
    if seen.cluster.metadata.deletion_timestamp.is_some() {
        return deletion::plan(planner);
    }
    let valid = match ValidCluster::check(&seen.cluster, planner.config) {
        Ok(valid) => valid,
        Err(invalid) => return planner.event(invalid.event(seen.namespace(), seen.name())),
    };
    if let Some(warning) = valid.restart_policy_warning() {
        planner.event(warning);
    }
    if let Err(invalid) = valid.check_status() {
        planner.event(invalid.event(seen.namespace(), seen.name()));
        return planner.halt(invalid.to_string());
    }
    if let Some(add) = deletion::add_finalizer(seen, planner.config) {
        return planner.push(add);
    }
    planner.draft = StatusPlan::Compute;
    for decide in [rbac::plan, ingress::plan, auth::plan, services::plan, storage::plan] {
        decide(planner, &valid);
        if planner.is_halted() {
            return;
        }
    }
    planner.end_stage();
    pods::plan(planner, &valid);
}

/// Returns whether this operator is the one to act: `managedBy` is absent or our name.
fn is_ours(seen: &Observed) -> bool {
    is_managed_by_self(seen.cluster.spec.managed_by.as_deref())
}
