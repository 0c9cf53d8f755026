//! The volume claim of the embedded (RocksDB) storage, and how an existing one may differ.

use super::cluster_facts as facts;
use super::owner;
use crate::labels;
use crate::quantity::Quantity;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::{RayClusterSpec, StorageDeletionPolicy};
use std::collections::BTreeMap;

const DEFAULT_SIZE: &str = "1Gi";
const DEFAULT_ACCESS_MODE: &str = "ReadWriteOnce";

/// The claim that the operator makes where the user names none.
pub fn gcs_storage_claim(cluster: &ValidCluster<'_>) -> PersistentVolumeClaim {
    let storage = facts::gcs_storage(&cluster.spec);
    let owners = (!outlives_cluster(&cluster.spec)).then(|| vec![owner::cluster_reference(cluster)]);
    let metadata = ObjectMeta {
        name: Some(facts::gcs_claim_name(cluster)),
        namespace: cluster.metadata.namespace.clone(),
        labels: Some(BTreeMap::from([(labels::CLUSTER.to_owned(), facts::name(cluster).to_owned())])),
        owner_references: owners,
        ..ObjectMeta::default()
    };
    let size =
        storage.and_then(|storage| storage.size.clone()).unwrap_or_else(|| QuantityText(DEFAULT_SIZE.to_owned()));
    let access_modes = storage.and_then(|storage| storage.access_modes.clone()).filter(|modes| !modes.is_empty());
    let spec = PersistentVolumeClaimSpec {
        access_modes: Some(access_modes.unwrap_or_else(|| vec![DEFAULT_ACCESS_MODE.to_owned()])),
        storage_class_name: storage.and_then(|storage| storage.storage_class_name.clone()),
        resources: Some(VolumeResourceRequirements {
            requests: Some(BTreeMap::from([("storage".to_owned(), size)])),
            limits: None,
        }),
        ..PersistentVolumeClaimSpec::default()
    };
    PersistentVolumeClaim { metadata, spec: Some(spec), status: None }
}

/// Whether the claim stays when the cluster goes, and so has no owner.
pub fn outlives_cluster(spec: &RayClusterSpec) -> bool {
    facts::gcs_storage(spec).is_some_and(|storage| storage.deletion_policy == Some(StorageDeletionPolicy::Retain))
}

/// How an existing claim differs from the wanted one, in words; nothing if it does not.
pub fn claim_drift(wanted: &PersistentVolumeClaimSpec, current: &PersistentVolumeClaimSpec) -> Option<String> {
    let drifts = [size_drift(wanted, current), class_drift(wanted, current), access_mode_drift(wanted, current)];
    let drifts: Vec<String> = drifts.into_iter().flatten().collect();
    (!drifts.is_empty()).then(|| drifts.join("; "))
}

fn size_drift(wanted: &PersistentVolumeClaimSpec, current: &PersistentVolumeClaimSpec) -> Option<String> {
    let size = |spec: &PersistentVolumeClaimSpec| {
        let text = &spec.resources.as_ref()?.requests.as_ref()?.get("storage")?.0;
        Quantity::parse(text).ok()
    };
    let (wanted, current) = (size(wanted).unwrap_or(Quantity::ZERO), size(current).unwrap_or(Quantity::ZERO));
    (wanted != current).then(|| format!("requested size {wanted} != current {current}"))
}

fn class_drift(wanted: &PersistentVolumeClaimSpec, current: &PersistentVolumeClaimSpec) -> Option<String> {
    // A class that nobody asked for is the default one, whichever that is.
    let wanted = wanted.storage_class_name.as_deref()?;
    let current = current.storage_class_name.as_deref();
    (current != Some(wanted))
        .then(|| format!("storageClassName {wanted} != current {}", current.unwrap_or("<default>")))
}

fn access_mode_drift(wanted: &PersistentVolumeClaimSpec, current: &PersistentVolumeClaimSpec) -> Option<String> {
    let modes = |spec: &PersistentVolumeClaimSpec| spec.access_modes.clone().unwrap_or_default();
    let sorted = |mut modes: Vec<String>| {
        modes.sort();
        modes
    };
    let (wanted, current) = (modes(wanted), modes(current));
    (sorted(wanted.clone()) != sorted(current.clone()))
        .then(|| format!("accessModes [{}] != current [{}]", wanted.join(" "), current.join(" ")))
}
