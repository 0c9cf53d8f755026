//! The volume claim of the embedded (RocksDB) store.

use super::Planner;
use crate::action::{Accept, Event, Kind, Step};
use crate::build;
use crate::cluster_spec;
use crate::plan::LookedUp;
use crate::reasons;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) fn plan(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    if !cluster_spec::is_gcs_ft_enabled(&planner.seen.cluster) || !cluster_spec::is_gcs_storage_embedded(&valid.spec) {
        return;
    }
    match cluster_spec::gcs_user_claim(&valid.spec) {
        Some(name) => check_named_claim(planner, name),
        None => plan_own_claim(planner, valid),
    }
}

/// A claim that the user named is never owned nor changed.
fn check_named_claim(planner: &mut Planner<'_>, name: &str) {
    let seen = planner.seen;
    let key = seen.key(Kind::PersistentVolumeClaim, name);
    match planner.found(&key) {
        None => planner.look_up(key),
        Some(LookedUp::Found(_)) => {}
        Some(LookedUp::Failed(error)) => planner.halt(error),
        Some(LookedUp::Absent) => planner.event(Event::warning(
            reasons::FAILED_TO_CREATE_PVC,
            "Validate",
            format!(
                "GcsFaultToleranceOptions.Storage.ClaimName \"{name}\" not found in namespace {}; the head Pod will not start until it exists",
                seen.namespace()
            ),
        )),
    }
}

fn plan_own_claim(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    let seen = planner.seen;
    let name = cluster_spec::gcs_claim_name(&seen.cluster);
    if seen.in_flight.is_creating(Kind::PersistentVolumeClaim, &name) {
        return;
    }
    if let Some(live) = seen.related(Kind::PersistentVolumeClaim, &name) {
        return adopt(planner, valid, &live.object);
    }
    let key = seen.key(Kind::PersistentVolumeClaim, &name);
    match planner.found(&key) {
        None => planner.look_up(key),
        Some(LookedUp::Failed(error)) => planner.halt(error),
        Some(LookedUp::Found(live)) => adopt(planner, valid, live),
        Some(LookedUp::Absent) => {
            let path = seen.path(&name);
            planner.push(
                Step::create(key, &build::gcs_storage_claim(valid), "the embedded store needs a volume")
                    .on_success(reasons::CREATED_PVC, format!("Created GCS storage PVC {path}"))
                    .on_failure(reasons::FAILED_TO_CREATE_PVC, format!("Failed to create GCS storage PVC {path}, "))
                    .accept(Accept::AlreadyExists),
            );
        }
    }
}

/// Uses a claim that exists: warns of what cannot be changed any more, and sets who owns it.
fn adopt(planner: &mut Planner<'_>, valid: &ValidCluster<'_>, live: &Value) {
    let seen = planner.seen;
    let path = seen.path(&cluster_spec::gcs_claim_name(&seen.cluster));
    let live = match PersistentVolumeClaim::deserialize(live) {
        Ok(live) => live,
        Err(error) => return planner.halt(format!("cannot read PersistentVolumeClaim {path}: {error}")),
    };
    let wanted = build::gcs_storage_claim(valid).spec.unwrap_or_default();
    if let Some(drift) = build::claim_drift(&wanted, &live.spec.unwrap_or_default()) {
        planner.event(Event::warning(
            reasons::FAILED_TO_CREATE_PVC,
            "Update",
            format!(
                "GCS storage PVC {path} already exists and cannot be reconfigured in place ({drift}); delete the PVC to recreate it with the new settings"
            ),
        ));
    }
    let retain = build::outlives_cluster(&valid.spec);
    let mut owners = live.metadata.owner_references.unwrap_or_default();
    let is_ours = |owner: &OwnerReference| owner.uid == seen.uid() && owner.controller == Some(true);
    if retain != owners.iter().any(is_ours) {
        return;
    }
    if retain {
        owners.retain(|owner| !is_ours(owner));
    } else if owners.iter().any(|owner| owner.controller == Some(true)) {
        return planner.halt(format!("PersistentVolumeClaim {path} is controlled by another object"));
    } else {
        owners.push(build::owner::cluster_reference(valid));
    }
    let patch = json!({"metadata": {"ownerReferences": owners, "resourceVersion": live.metadata.resource_version}});
    let key = seen.key(Kind::PersistentVolumeClaim, &cluster_spec::gcs_claim_name(&seen.cluster));
    let why = if retain { "the volume outlives the cluster" } else { "the volume goes with the cluster" };
    planner.push(Step::merge(key, patch, why));
}
