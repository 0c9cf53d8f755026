//! Network isolation: one policy for the head and one per worker group.
//!
//! A plan of its own: it runs for every RayCluster, valid or not.

use super::observed::Observed;
use super::plan::is_ours;
use crate::action::{Accept, Action, Event, Kind, Stage, Step, create, replace};
use crate::build;
use crate::config::Config;
use crate::labels::CLUSTER;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde::Deserialize;
use std::collections::BTreeSet;

/// What to do about the policies of one cluster.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Plan {
    pub stages: Vec<Stage>,
    pub events: Vec<Event>,
    /// Why isolation cannot be had; tried again after a back-off.
    pub halt: Option<String>,
}

/// Decides which policies to make, change and remove.
pub fn plan(seen: &Observed, cfg: &Config) -> Plan {
    let mut plan = Plan::default();
    if !cfg.gates.ray_cluster_network_policy || seen.cluster.metadata.deletion_timestamp.is_some() || !is_ours(seen) {
        return plan;
    }
    let mut names = BTreeSet::new();
    for policy in build::network_policies(&seen.cluster) {
        let name = policy.metadata.name.clone().unwrap_or_default();
        if names.insert(name.clone()) {
            ensure(seen, &name, &policy, &mut plan);
        }
        if plan.halt.is_some() {
            return plan; // the first collision ends it, and nothing stale is removed
        }
    }
    remove_stale(seen, &names, &mut plan);
    plan
}

fn ensure(seen: &Observed, name: &str, wanted: &NetworkPolicy, plan: &mut Plan) {
    let path = seen.path(name);
    let Some(live) = seen.related(Kind::NetworkPolicy, name) else {
        if !seen.in_flight.is_creating(Kind::NetworkPolicy, name) {
            plan.stages.push(vec![
                Step::new(create(seen.key(Kind::NetworkPolicy, name), wanted), "spec.networkPolicy asks for it")
                    .done(Event::normal("CreatedNetworkPolicy", "Create", format!("Created NetworkPolicy {path}")))
                    .failed(Event::warning(
                        "FailedToCreateNetworkPolicy",
                        "Create",
                        format!("Failed to create NetworkPolicy {path}: "),
                    )),
            ]);
        }
        return;
    };
    if !live.metadata.is_controlled_by(seen.uid()) {
        plan.events.push(Event::warning(
            "NetworkPolicyNameCollision",
            "Validate",
            format!(
                "NetworkPolicy {path} already exists and is not owned by this RayCluster, network isolation will not be applied. Rename the existing NetworkPolicy or use a different RayCluster name to avoid the collision"
            ),
        ));
        plan.halt = Some(format!("NetworkPolicy {path} already exists and is not owned by this RayCluster"));
        return;
    }
    let updated = NetworkPolicy::deserialize(&live.object)
        .map(|live| build::network_policy_update(wanted, &live))
        .unwrap_or_default();
    if let Some(updated) = updated {
        plan.stages.push(vec![
            Step::new(replace(seen.key(Kind::NetworkPolicy, name), &updated), "the policy differs from the spec")
                .done(Event::normal("UpdatedNetworkPolicy", "Update", format!("Updated NetworkPolicy {path}")))
                .failed(Event::warning(
                    "FailedToUpdateNetworkPolicy",
                    "Update",
                    format!("Failed to update NetworkPolicy {path}: "),
                )),
        ]);
    }
}

fn remove_stale(seen: &Observed, wanted: &BTreeSet<String>, plan: &mut Plan) {
    for (kind, live) in &seen.related {
        let ours = *kind == Kind::NetworkPolicy
            && live.metadata.label(CLUSTER) == Some(seen.name())
            && live.metadata.is_controlled_by(seen.uid());
        if !ours || wanted.contains(&live.metadata.name) || live.metadata.deletion_timestamp.is_some() {
            continue;
        }
        let path = seen.path(&live.metadata.name);
        plan.stages.push(vec![
            Step::new(
                Action::Delete {
                    key: seen.key(Kind::NetworkPolicy, &live.metadata.name),
                    uid: live.metadata.uid.clone(),
                    force: false,
                },
                "no group of the spec needs it any more",
            )
            .done(Event::normal("DeletedNetworkPolicy", "Delete", format!("Deleted NetworkPolicy {path}")))
            .failed(Event::warning(
                "FailedToDeleteNetworkPolicy",
                "Delete",
                format!("Failed to delete NetworkPolicy {path}: "),
            ))
            .accept(Accept::NotFound),
        ]);
    }
}
