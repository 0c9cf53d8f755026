//! The volume claim of the embedded (RocksDB) store.

use super::observed::{LookedUp, Observed};
use super::plan::Draft;
use crate::action::{Accept, Action, Event, Kind, Step, create};
use crate::build::{self, cluster_facts as facts};
use crate::config::Config;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::PersistentVolumeClaim;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use serde::Deserialize;
use serde_json::{Value, json};

pub(super) fn plan(seen: &Observed, valid: &ValidCluster<'_>, _cfg: &Config, draft: &mut Draft) {
    if !facts::is_gcs_ft_enabled(&seen.cluster) || !facts::is_gcs_storage_embedded(&valid.spec) {
        return;
    }
    match facts::gcs_user_claim(&valid.spec) {
        Some(name) => check_named_claim(seen, name, draft),
        None => plan_own_claim(seen, valid, draft),
    }
}

/// A claim that the user named is never owned nor changed.
fn check_named_claim(seen: &Observed, name: &str, draft: &mut Draft) {
    let key = seen.key(Kind::PersistentVolumeClaim, name);
    match seen.looked_up.get(&key) {
        None => draft.look_up(key),
        Some(LookedUp::Found(_)) => {}
        Some(LookedUp::Failed(error)) => draft.halt(error.clone()),
        Some(LookedUp::Absent) => draft.events.push(Event::warning(
            "FailedToCreatePVC",
            "Validate",
            format!(
                "GcsFaultToleranceOptions.Storage.ClaimName \"{name}\" not found in namespace {}; the head Pod will not start until it exists",
                seen.namespace()
            ),
        )),
    }
}

fn plan_own_claim(seen: &Observed, valid: &ValidCluster<'_>, draft: &mut Draft) {
    let name = facts::gcs_claim_name(&seen.cluster);
    if seen.in_flight.is_creating(Kind::PersistentVolumeClaim, &name) {
        return;
    }
    if let Some(live) = seen.related(Kind::PersistentVolumeClaim, &name) {
        return adopt(seen, valid, &live.object, draft);
    }
    let key = seen.key(Kind::PersistentVolumeClaim, &name);
    match seen.looked_up.get(&key) {
        None => draft.look_up(key),
        Some(LookedUp::Failed(error)) => draft.halt(error.clone()),
        Some(LookedUp::Found(live)) => adopt(seen, valid, live, draft),
        Some(LookedUp::Absent) => {
            let path = seen.path(&name);
            draft.push(
                Step::new(create(key, &build::gcs_storage_claim(valid)), "the embedded store needs a volume")
                    .done(Event::normal("CreatedPVC", "Create", format!("Created GCS storage PVC {path}")))
                    .failed(Event::warning(
                        "FailedToCreatePVC",
                        "Create",
                        format!("Failed to create GCS storage PVC {path}, "),
                    ))
                    .accept(Accept::AlreadyExists),
            );
        }
    }
}

/// Uses a claim that exists: tells what cannot be changed any more, and sets who owns it.
fn adopt(seen: &Observed, valid: &ValidCluster<'_>, live: &Value, draft: &mut Draft) {
    let path = seen.path(&facts::gcs_claim_name(&seen.cluster));
    let live = match PersistentVolumeClaim::deserialize(live) {
        Ok(live) => live,
        Err(error) => return draft.halt(format!("cannot read PersistentVolumeClaim {path}: {error}")),
    };
    let wanted = build::gcs_storage_claim(valid).spec.unwrap_or_default();
    if let Some(drift) = build::claim_drift(&wanted, &live.spec.unwrap_or_default()) {
        draft.events.push(Event::warning(
            "FailedToCreatePVC",
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
        return draft.halt(format!("PersistentVolumeClaim {path} is controlled by another object"));
    } else {
        owners.push(build::owner::cluster_reference(valid));
    }
    let patch = json!({"metadata": {"ownerReferences": owners, "resourceVersion": live.metadata.resource_version}});
    draft.push(Step::new(
        Action::Merge {
            key: seen.key(Kind::PersistentVolumeClaim, &facts::gcs_claim_name(&seen.cluster)),
            patch: Box::new(patch),
        },
        if retain { "the volume outlives the cluster" } else { "the volume goes with the cluster" },
    ));
}
