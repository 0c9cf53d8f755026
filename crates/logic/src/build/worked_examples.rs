//! The Pods and head Services of three complete clusters, field by field and in order.

use super::testing::{HASH, head, valid, worker, yaml};
use super::*;
use crate::config::Config;
use manta_api::RayCluster;
use serde_json::{Value, json};

/// Builds both Pods of a cluster and compares them with the expected ones.
fn check(name: &str, cluster: &str, head_pod: &str, worker_pod: &str, ports: &[(&str, i32)]) {
    let cluster: RayCluster = yaml(cluster);
    let config = Config::default();
    for (made, expect) in [(head(&cluster, &config), head_pod), (worker(&cluster, &config), worker_pod)] {
        let mut made = serde_json::to_value(made).unwrap();
        let metadata = made["metadata"].as_object_mut().unwrap();
        let chosen = metadata.remove("name").unwrap();
        let prefix = metadata["generateName"].as_str().unwrap();
        assert_eq!(chosen, format!("{prefix}*"), "{name}: the name is the prefix and the suffix");
        let expect: Value = yaml(&expect.replace("<HASH>", HASH));
        assert_eq!(made, expect, "{name}");
    }
    let service = head_service(&valid(&cluster), &config).spec.unwrap();
    let made: Vec<_> = service.ports.iter().flatten().map(|port| (port.name.as_deref().unwrap(), port.port)).collect();
    assert_eq!(made, ports, "{name}");
    assert_eq!(service.cluster_ip.as_deref(), Some("None"), "{name}");
    assert!(service.ports.iter().flatten().all(|port| port.app_protocol.as_deref() == Some("tcp")), "{name}");
}

#[test]
fn a_plain_cluster() {
    check(
        "sample",
        include_str!("fixtures/sample.cluster.yaml"),
        include_str!("fixtures/sample.head.yaml"),
        include_str!("fixtures/sample.worker.yaml"),
        &[("client", 10001), ("dashboard", 8265), ("gcs-server", 6379), ("metrics", 8080)],
    );
}

#[test]
fn a_cluster_with_an_autoscaler() {
    let cluster = include_str!("fixtures/autoscaler-v2.cluster.yaml");
    check(
        "autoscaler-v2",
        cluster,
        include_str!("fixtures/autoscaler-v2.head.yaml"),
        include_str!("fixtures/autoscaler-v2.worker.yaml"),
        &[("client", 10001), ("dashboard", 8265), ("gcs", 6379), ("metrics", 8080)],
    );
    let cluster: RayCluster = yaml(cluster);
    let cluster = valid(&cluster);
    let names = [
        rbac::service_account(&cluster).metadata.name,
        rbac::role(&cluster).metadata.name,
        rbac::role_binding(&cluster).metadata.name,
    ];
    assert_eq!(json!(names), json!(["raycluster-autoscaler", "raycluster-autoscaler", "raycluster-autoscaler"]));
}

#[test]
fn a_cluster_with_redis() {
    let cluster = include_str!("fixtures/external-redis.cluster.yaml");
    check(
        "external-redis",
        cluster,
        include_str!("fixtures/external-redis.head.yaml"),
        include_str!("fixtures/external-redis.worker.yaml"),
        &[("client", 10001), ("dashboard", 8265), ("metrics", 8080), ("redis", 6379)],
    );
    let cluster: RayCluster = yaml(cluster);
    let job = redis_cleanup_job(&valid(&cluster), &Config::default());
    assert_eq!(job.metadata.name.as_deref(), Some("raycluster-external-redis-redis-cleanup"));
    let pod = job.spec.unwrap().template.spec.unwrap();
    assert!(!pod.containers[0].args.as_ref().unwrap()[0].contains("REDIS_USERNAME"));
}
