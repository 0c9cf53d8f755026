//! Owner references, by which objects are deleted together with their owner.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use manta_api::{API_VERSION, RayCluster};

/// Returns the reference to the RayCluster that controls an object.
pub fn cluster_reference(cluster: &RayCluster) -> OwnerReference {
    controller_reference(RayCluster::KIND, &cluster.metadata)
}

/// Returns the reference to an object of the Ray API that controls another.
pub fn controller_reference(kind: &str, owner: &ObjectMeta) -> OwnerReference {
    OwnerReference {
        api_version: API_VERSION.to_owned(),
        kind: kind.to_owned(),
        name: owner.name.clone().unwrap_or_default(),
        uid: owner.uid.clone().unwrap_or_default(),
        controller: Some(true),
        block_owner_deletion: Some(true),
    }
}
