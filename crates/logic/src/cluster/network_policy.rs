//! Network isolation: one policy for the head and one per worker group.
//!
//! It acts as a controller of its own, for every RayCluster, valid or not.

use super::Planner;
use super::existing::{self, Existing};
use crate::action::{Event, Kind, Step};
use crate::build;
use crate::labels::CLUSTER;
use crate::reasons;
use k8s_openapi::api::networking::v1::NetworkPolicy;
use serde::Deserialize;
use std::collections::BTreeSet;

/// Creates, changes and removes the policies of one cluster.
pub(super) fn plan(planner: &mut Planner<'_>) {
    if !planner.config.gates.ray_cluster_network_policy {
        return;
    }
    let mut names = BTreeSet::new();
    for policy in build::network_policies(&planner.seen.cluster) {
        let name = policy.metadata.name.clone().unwrap_or_default();
        if names.insert(name.clone()) {
            ensure(planner, &name, &policy);
        }
        if planner.is_halted() {
            return; // the first collision ends it, and nothing stale is removed
        }
    }
    remove_stale(planner, &names);
}

fn ensure(planner: &mut Planner<'_>, name: &str, wanted: &NetworkPolicy) {
    let seen = planner.seen;
    let (key, path) = (seen.key(Kind::NetworkPolicy, name), seen.path(name));
    let live = match existing::find(planner, Kind::NetworkPolicy, name) {
        Existing::Found(live) => live,
        Existing::Unknown => return,
        Existing::Absent => {
            return planner.then(
                Step::create(key, wanted, "spec.networkPolicy asks for it")
                    .on_success(reasons::CREATED_NETWORK_POLICY, format!("Created NetworkPolicy {path}"))
                    .on_failure(
                        reasons::FAILED_TO_CREATE_NETWORK_POLICY,
                        format!("Failed to create NetworkPolicy {path}: "),
                    ),
            );
        }
    };
    if !live.metadata.is_controlled_by(seen.uid()) {
        let collision = format!("NetworkPolicy {path} already exists and is not owned by this RayCluster");
        planner.event(Event::warning(
            reasons::NETWORK_POLICY_NAME_COLLISION,
            "Validate",
            format!(
                "{collision}, network isolation will not be applied. Rename the existing NetworkPolicy or use a different RayCluster name to avoid the collision"
            ),
        ));
        return planner.halt(collision);
    }
    let updated = NetworkPolicy::deserialize(&live.object)
        .map(|live| build::network_policy_update(wanted, &live))
        .unwrap_or_default();
    if let Some(updated) = updated {
        planner.then(
            Step::replace(key, &updated, "the policy differs from the spec")
                .on_success(reasons::UPDATED_NETWORK_POLICY, format!("Updated NetworkPolicy {path}"))
                .on_failure(
                    reasons::FAILED_TO_UPDATE_NETWORK_POLICY,
                    format!("Failed to update NetworkPolicy {path}: "),
                ),
        );
    }
}

fn remove_stale(planner: &mut Planner<'_>, wanted: &BTreeSet<String>) {
    let seen = planner.seen;
    for (kind, live) in &seen.related {
        let meta = &live.metadata;
        let ours = *kind == Kind::NetworkPolicy
            && meta.label(CLUSTER) == Some(seen.name())
            && meta.is_controlled_by(seen.uid());
        if !ours || wanted.contains(meta.name.as_str()) || meta.deletion_timestamp.is_some() {
            continue;
        }
        let path = seen.path(&meta.name);
        let why = "no group of the spec needs it any more";
        planner.then(
            Step::delete(seen.key(Kind::NetworkPolicy, &meta.name), &meta.uid, why)
                .on_success(reasons::DELETED_NETWORK_POLICY, format!("Deleted NetworkPolicy {path}"))
                .on_failure(
                    reasons::FAILED_TO_DELETE_NETWORK_POLICY,
                    format!("Failed to delete NetworkPolicy {path}: "),
                ),
        );
    }
}
