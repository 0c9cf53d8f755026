//! The PersistentVolumeClaim of the embedded (RocksDB) storage, and its comparison with an existing one.

use super::owner;
use crate::cluster_spec;
use crate::labels;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, PersistentVolumeClaimSpec, VolumeResourceRequirements};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity as QuantityText;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::{RayClusterSpec, StorageDeletionPolicy};
use manta_quantity::Quantity;
use std::collections::BTreeMap;

const DEFAULT_SIZE: &str = "1Gi";
const DEFAULT_ACCESS_MODE: &str = "ReadWriteOnce";

/// Returns the claim that the operator creates if the user names none.
pub fn gcs_storage_claim(cluster: &ValidCluster<'_>) -> PersistentVolumeClaim {
    let storage = cluster_spec::gcs_storage(&cluster.spec);
    let owners = (!outlives_cluster(&cluster.spec)).then(|| vec![owner::cluster_reference(cluster)]);
    let metadata = ObjectMeta {
        name: Some(cluster_spec::gcs_claim_name(cluster)),
        namespace: cluster.metadata.namespace.clone(),
        labels: Some(BTreeMap::from([(labels::CLUSTER.to_owned(), cluster_spec::name(cluster).to_owned())])),
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

/// Returns whether the claim is retained when the cluster is deleted, so that it has no owner.
pub fn outlives_cluster(spec: &RayClusterSpec) -> bool {
    cluster_spec::gcs_storage(spec)
        .is_some_and(|storage| storage.deletion_policy == Some(StorageDeletionPolicy::Retain))
}

/// Returns a description of how an existing claim differs from the wanted one.
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
    // A claim without a class gets the default class, whichever that is.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{cluster, valid};
    use serde_json::{Value, json};

    fn made(storage: Value) -> PersistentVolumeClaim {
        let options = json!({"backend": "rocksdb", "storage": storage});
        let cluster = cluster(json!({
            "metadata": {"ownerReferences": [{"apiVersion": "ray.io/v1", "kind": "RayService", "name": "web", "uid": "u"}]},
            "spec": {"gcsFaultToleranceOptions": options},
        }));
        gcs_storage_claim(&valid(&cluster))
    }

    #[test]
    fn the_claim_has_an_owner_unless_it_is_retained() {
        let claim = made(json!(null));
        assert_eq!(claim.metadata.name.as_deref(), Some("test-cluster-gcs-pvc"));
        assert_eq!(claim.metadata.owner_references.unwrap()[0].kind, "RayCluster");
        let spec = json!({"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}});
        assert_eq!(json!(claim.spec), spec);
        assert_eq!(made(json!({"deletionPolicy": "Retain"})).metadata.owner_references, None);
        assert!(made(json!({"deletionPolicy": "DeleteWithCluster"})).metadata.owner_references.is_some());
        let claim = made(json!({"size": "5Gi", "accessModes": ["ReadWriteMany"], "storageClassName": "fast"}));
        let spec = json!({
            "accessModes": ["ReadWriteMany"],
            "resources": {"requests": {"storage": "5Gi"}},
            "storageClassName": "fast",
        });
        assert_eq!(json!(claim.spec), spec);
    }

    #[test]
    fn differences_are_described() {
        let check = |wanted: Value, current: Value, expect: Option<&str>| {
            let (wanted, current) = (made(wanted).spec.unwrap(), made(current).spec.unwrap());
            assert_eq!(claim_drift(&wanted, &current).as_deref(), expect);
        };
        check(json!(null), json!(null), None);
        check(json!({"size": "1024Mi"}), json!({"size": "1Gi"}), None);
        check(json!({"size": "2Gi"}), json!(null), Some("requested size 2Gi != current 1Gi"));
        check(json!(null), json!({"storageClassName": "fast"}), None);
        check(
            json!({"storageClassName": "fast"}),
            json!({"storageClassName": "slow"}),
            Some("storageClassName fast != current slow"),
        );
        check(json!({"storageClassName": "fast"}), json!(null), Some("storageClassName fast != current <default>"));
        let modes = |modes: &[&str]| json!({"accessModes": modes});
        check(modes(&["ReadWriteOnce", "ReadOnlyMany"]), modes(&["ReadOnlyMany", "ReadWriteOnce"]), None);
        check(
            json!({"size": "2Gi", "accessModes": ["ReadWriteOnce", "ReadOnlyMany"]}),
            json!(null),
            Some(
                "requested size 2Gi != current 1Gi; \
                 accessModes [ReadWriteOnce ReadOnlyMany] != current [ReadWriteOnce]",
            ),
        );
    }
}
