//! Golden files: every object that is built for a few complete clusters.

use super::testing::{HASH, valid, yaml};
use super::*;
use crate::cluster_spec::{self, Creator};
use crate::config::Config;
use k8s_openapi::api::core::v1::{Container, EnvVar};
use manta_api::{RayCluster, RayService};
use serde_json::{Value, json};

/// Returns every object that is built for a cluster.
fn objects(cluster: &RayCluster, config: &Config) -> Vec<Value> {
    let valid = valid(cluster);
    let mut made = vec![json!(head_pod(&valid, config, HeadIdentity { suffix: "x2v4z", spec_hash: HASH }))];
    for group in cluster_spec::worker_groups(&cluster.spec) {
        let replica_name = format!("{}-bcdfg", group.group_name);
        let identity = WorkerIdentity { suffix: "k9m7n", replica_index: 3, replica_name: &replica_name, host_index: 1 };
        made.push(json!(worker_pod(&valid, group, config, identity)));
    }
    made.push(json!(head_service(&valid, config)));
    made.extend(needs_headless_service(&cluster.spec).then(|| json!(headless_service(&valid))));
    made.push(json!(cluster_serve_service(&valid).unwrap()));
    made.extend([json!(ingress(&valid)), route(&valid)]);
    if cluster_spec::is_autoscaling(&cluster.spec) {
        made.extend([
            json!(rbac::service_account(&valid)),
            json!(rbac::role(&valid)),
            json!(rbac::role_binding(&valid)),
        ]);
    }
    if cluster_spec::needs_auth_secret(&cluster.spec) {
        made.push(json!(auth_secret(&valid, "KioqKioqKioqKioqKioqKioqKioqKioqKioqKioqKio=")));
    }
    if cluster_spec::is_gcs_storage_embedded(&cluster.spec) {
        made.push(json!(gcs_storage_claim(&valid)));
    }
    if cluster_spec::is_redis_ft_enabled(cluster) {
        made.push(json!(redis_cleanup_job(&valid, config)));
    }
    made.extend(network_policies(cluster).into_iter().map(|policy| json!(policy)));
    if cluster_spec::is_tls_enabled(&cluster.spec, &config.gates) {
        made.extend([
            mtls::self_signed_issuer(cluster),
            mtls::ca_certificate(cluster),
            mtls::ca_issuer(cluster),
            mtls::head_certificate(cluster, config, &["10.0.0.5"]),
            mtls::worker_certificate(cluster, &["10.0.0.7", "10.0.0.6"]),
        ]);
    }
    made
}

#[test]
fn a_cluster_with_everything() {
    let cluster = yaml(include_str!("fixtures/everything.cluster.yaml"));
    insta::assert_yaml_snapshot!("everything", objects(&cluster, &Config::default()));
}

#[test]
fn a_cluster_with_everything_and_custom_operator_settings() {
    let cluster: RayCluster = yaml(include_str!("fixtures/everything.cluster.yaml"));
    let sidecar =
        |name: &str| Container { name: name.to_owned(), image: Some("side:1".to_owned()), ..Container::default() };
    let default_env =
        |name: &str| EnvVar { name: name.to_owned(), value: Some("default".to_owned()), value_from: None };
    let config = Config {
        cluster_domain: "lab.internal".to_owned(),
        inject_init_container: false,
        inject_probes: false,
        login_shell: true,
        deterministic_head_pod_name: true,
        head_cluster_ip_service: true,
        head_sidecars: vec![sidecar("head-side")],
        worker_sidecars: vec![sidecar("worker-side")],
        default_container_envs: vec![default_env("RAY_PORT"), default_env("HTTP_PROXY")],
        default_pod_annotations: [("note".to_owned(), "default".to_owned())].into(),
        default_pod_labels: [("cost".to_owned(), "lab".to_owned())].into(),
        gates: crate::config::FeatureGates::KUBERAY,
        ..Config::default()
    };
    insta::assert_yaml_snapshot!("everything-with-settings", objects(&cluster, &config));
}

#[test]
fn a_cluster_of_a_rayservice() {
    let cluster: RayCluster = yaml(include_str!("fixtures/redis-service.cluster.yaml"));
    let service: RayService = serde_json::from_value(json!({
        "metadata": {"name": "web", "namespace": "shop", "uid": "45c48cce-2e2d-4fbd-8a1b-9c0d1e2f3a4b"},
        "spec": {
            "rayClusterConfig": cluster.spec,
            "serveService": {"metadata": {"name": "web-public"}, "spec": {"type": "LoadBalancer", "ports": [
                {"name": "serve", "port": 80, "targetPort": 8100}, {"name": "other", "port": 81},
            ]}},
            "upgradeStrategy": {"clusterUpgradeOptions": {"gatewayClassName": "istio"}},
        },
    }))
    .unwrap();
    let config = Config::default();
    let mut made = objects(&cluster, &config);
    let backend = gateway::Backend { cluster: &cluster, weight: 100 };
    made.extend([
        json!(owner_head_service(Creator::RayService, &service.metadata, &cluster, &config)),
        json!(service_serve_service(&service, &cluster).unwrap()),
        json!(upgrade_serve_service(&service, &cluster).unwrap()),
        gateway::gateway(&service).unwrap(),
        gateway::http_route(&service, backend, None),
    ]);
    insta::assert_yaml_snapshot!("redis-service", made);
}
