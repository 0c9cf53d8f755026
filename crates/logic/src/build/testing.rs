//! Short ways to clusters and their objects, for tests.

use super::{HeadIdentity, WorkerIdentity, head_pod, worker_pod};
use crate::config::Config;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::Pod;
use manta_api::RayCluster;
use serde::de::DeserializeOwned;

/// The hash that head Pods are marked with here.
pub(crate) const HASH: &str = "0123456789ABCDEFGHIJKLMNOPQRSTUV";

/// Reads an object.
pub(crate) fn yaml<T: DeserializeOwned>(text: &str) -> T {
    serde_saphyr::from_str(text).unwrap()
}

/// Takes a cluster as valid.
pub(crate) fn valid(cluster: &RayCluster) -> ValidCluster<'_> {
    ValidCluster { cluster }
}

/// The head Pod, with `*` for a suffix.
pub(crate) fn head(cluster: &RayCluster, config: &Config) -> Pod {
    head_pod(&valid(cluster), config, HeadIdentity { suffix: "*", spec_hash: HASH })
}

/// The first worker of the first group, with `*` for a suffix.
pub(crate) fn worker(cluster: &RayCluster, config: &Config) -> Pod {
    let group = &cluster.spec.worker_group_specs.as_ref().unwrap()[0];
    let identity = WorkerIdentity { suffix: "*", replica_index: 0, replica_name: "", host_index: 0 };
    worker_pod(&valid(cluster), group, config, identity)
}
