//! The headless Service that gives the hosts of multi-host groups DNS names.

use crate::build::owner;
use crate::cluster_spec;
use crate::labels;
use crate::names;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::{Service, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::RayClusterSpec;
use std::collections::BTreeMap;

/// Returns whether a group has several hosts per replica.
pub fn needs_headless_service(spec: &RayClusterSpec) -> bool {
    cluster_spec::worker_groups(spec).iter().any(cluster_spec::is_multi_host)
}

/// Returns the headless Service of all workers.
pub fn headless_service(cluster: &ValidCluster<'_>) -> Service {
    let name = cluster_spec::name(cluster);
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let selector = [pair(labels::CLUSTER, name), pair(labels::NODE_TYPE, labels::WORKER)];
    let metadata = ObjectMeta {
        name: Some(names::headless_service(name)),
        namespace: cluster.metadata.namespace.clone(),
        labels: Some(BTreeMap::from([pair(labels::HEADLESS_WORKER_SERVICE, name)])),
        owner_references: Some(vec![owner::cluster_reference(cluster)]),
        ..ObjectMeta::default()
    };
    let spec = ServiceSpec {
        type_: Some("ClusterIP".to_owned()),
        cluster_ip: Some("None".to_owned()),
        publish_not_ready_addresses: Some(true),
        selector: Some(BTreeMap::from(selector)),
        ..ServiceSpec::default()
    };
    Service { metadata, spec: Some(spec), status: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{cluster, valid};
    use serde_json::json;

    #[test]
    fn multi_host_groups_need_the_service() {
        for (hosts, needed) in [(json!(null), false), (json!(0), false), (json!(1), false), (json!(2), true)] {
            let cluster = cluster(json!({"worker": {"numOfHosts": hosts}}));
            assert_eq!(needs_headless_service(&cluster.spec), needed, "{hosts}");
        }
    }

    #[test]
    fn the_service_selects_workers_and_has_no_ports() {
        let cluster = cluster(json!({}));
        let service = headless_service(&valid(&cluster));
        assert_eq!(service.metadata.name.as_deref(), Some("test-cluster-headless"));
        assert_eq!(json!(service.metadata.labels), json!({"ray.io/headless-worker-svc": "test-cluster"}));
        let spec = json!({
            "type": "ClusterIP",
            "clusterIP": "None",
            "publishNotReadyAddresses": true,
            "selector": {"ray.io/cluster": "test-cluster", "ray.io/node-type": "worker"},
        });
        assert_eq!(json!(service.spec), spec);
    }
}
