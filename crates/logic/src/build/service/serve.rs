//! The serve Service of a RayCluster, of a RayService, and of each of the two clusters of an incremental upgrade.

use super::head::user_metadata;
use crate::build::owner;
use crate::cluster_spec::{self, Creator};
use crate::labels;
use crate::names;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use manta_api::{RayCluster, RayService};
use std::collections::BTreeMap;

/// The head container has no serve port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "Please specify a port named 'serve' (or with the prefix 'serve-', e.g. 'serve-grpc') in the Ray head container; \
     otherwise, the Kubernetes service for Ray Serve will not be created."
)]
pub struct MissingServePort;

/// Returns the serve Service that a RayCluster requests by annotation.
pub fn cluster_serve_service(cluster: &ValidCluster<'_>) -> Result<Service, MissingServePort> {
    let ports = serving_ports(cluster).ok_or(MissingServePort)?;
    let service_type = cluster.spec.head_group_spec.service_type.as_ref();
    let owner = owner::cluster_reference(cluster);
    let mut service = generated(cluster_spec::name(cluster), Creator::RayCluster, cluster, service_type, owner);
    let spec = service.spec.get_or_insert_default();
    spec.ports = Some(ports);
    // Pods of a plain cluster do not have the serve label.
    spec.selector.get_or_insert_default().remove(labels::SERVE);
    Ok(service)
}

/// Returns the serve Service of a RayService, which selects its active cluster.
pub fn service_serve_service(service: &RayService, cluster: &RayCluster) -> Result<Service, MissingServePort> {
    let name = service.metadata.name.as_deref().unwrap_or_default();
    let service_type = service.spec.ray_cluster_config.head_group_spec.service_type.as_ref();
    let owner = owner::controller_reference(RayService::KIND, &service.metadata);
    let mut built = generated(name, Creator::RayService, cluster, service_type, owner);
    let ports = serving_ports(cluster);
    let Some(given) = &service.spec.serve_service else {
        built.spec.get_or_insert_default().ports = Some(ports.ok_or(MissingServePort)?);
        return Ok(built);
    };
    Ok(customised(given, built, ports))
}

/// Returns the serve Service of one cluster of a RayService with incremental upgrades.
pub fn upgrade_serve_service(service: &RayService, cluster: &RayCluster) -> Result<Service, MissingServePort> {
    let ports = serving_ports(cluster).ok_or(MissingServePort)?;
    let service_type = service.spec.ray_cluster_config.head_group_spec.service_type.as_ref();
    let owner = owner::cluster_reference(cluster);
    let mut built = generated(cluster_spec::name(cluster), Creator::RayService, cluster, service_type, owner);
    built.spec.get_or_insert_default().ports = Some(ports);
    Ok(built)
}

/// Returns whether a port of the head is a serve port.
pub fn is_serving_port(name: &str) -> bool {
    name == "serve" || name.starts_with("serve-")
}

/// Returns the serve ports of the head.
fn serving_ports(cluster: &RayCluster) -> Option<Vec<ServicePort>> {
    let all = cluster_spec::head_ports(&cluster.spec).into_iter().filter(|(name, _)| is_serving_port(name));
    let ports: Vec<_> =
        all.map(|(name, port)| ServicePort { name: Some(name), port, ..ServicePort::default() }).collect();
    (!ports.is_empty()).then_some(ports)
}

/// Returns the Service without its ports.
fn generated(
    base: &str,
    creator: Creator,
    cluster: &RayCluster,
    service_type: Option<&String>,
    owner: OwnerReference,
) -> Service {
    let pair = |key: &str, value: &str| (key.to_owned(), value.to_owned());
    let metadata = ObjectMeta {
        name: Some(names::serve_service(base)),
        namespace: cluster.metadata.namespace.clone(),
        labels: Some(BTreeMap::from([
            pair(labels::ORIGINATED_FROM_CR_NAME, base),
            pair(labels::ORIGINATED_FROM_CRD, creator.as_str()),
            pair(labels::SERVE, &format!("{base}-serve")),
        ])),
        owner_references: Some(vec![owner]),
        ..ObjectMeta::default()
    };
    let selector = BTreeMap::from([pair(labels::CLUSTER, cluster_spec::name(cluster)), pair(labels::SERVE, "true")]);
    let spec = ServiceSpec {
        type_: service_type.filter(|type_| !type_.is_empty()).cloned(),
        selector: Some(selector),
        ..ServiceSpec::default()
    };
    Service { metadata, spec: Some(spec), status: None }
}

/// Returns the user's Service with the selector and ports of the generated one.
fn customised(given: &Service, built: Service, ports: Option<Vec<ServicePort>>) -> Service {
    let built_spec = built.spec.unwrap_or_default();
    let mut spec = given.spec.clone().unwrap_or_default();
    if let Some(mut ports) = ports {
        // The head determines the ports; the user's Service may describe them.
        let theirs = spec.ports.unwrap_or_default();
        for port in &mut ports {
            if let Some(same) = theirs.iter().find(|theirs| theirs.name == port.name) {
                *port = same.clone();
            }
        }
        spec.ports = Some(ports);
    }
    if spec.type_.as_deref().is_none_or(str::is_empty) {
        spec.type_ = built_spec.type_;
    }
    spec.selector = built_spec.selector;
    let mut metadata = user_metadata(given, built.metadata.name.unwrap_or_default(), built.metadata.namespace);
    metadata.labels.get_or_insert_default().extend(built.metadata.labels.unwrap_or_default());
    metadata.owner_references = built.metadata.owner_references;
    Service { metadata, spec: Some(spec), status: None }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{cluster, valid};
    use serde_json::{Value, json};

    /// Returns a RayService whose cluster has these ports, with an optional serve Service.
    fn made(ports: Value, serve_service: Value) -> Result<Value, MissingServePort> {
        let cluster = cluster(json!({"ray": {"ports": ports}}));
        let service: RayService = serde_json::from_value(json!({
            "metadata": {"name": "rayservice-sample", "namespace": "test-ns", "uid": "u"},
            "spec": {"serveService": serve_service, "rayClusterConfig": {"headGroupSpec": {"serviceType": "ClusterIP"}}},
        }))
        .unwrap();
        service_serve_service(&service, &cluster).map(|service| json!(service))
    }

    fn port(name: &str, number: i32) -> Value {
        json!({"name": name, "containerPort": number})
    }

    #[test]
    fn the_service_of_a_rayservice_selects_serving_pods() {
        let service = made(json!([]), json!(null)).unwrap();
        let metadata = &service["metadata"];
        assert_eq!(metadata["name"], "rayservice-sample-serve-svc");
        let labels = json!({
            "ray.io/originated-from-cr-name": "rayservice-sample",
            "ray.io/originated-from-crd": "RayService",
            "ray.io/serve": "rayservice-sample-serve",
        });
        assert_eq!(metadata["labels"], labels);
        assert_eq!(metadata["ownerReferences"][0]["kind"], "RayService");
        let spec = json!({
            "type": "ClusterIP",
            "selector": {"ray.io/cluster": "test-cluster", "ray.io/serve": "true"},
            "ports": [{"name": "serve", "port": 8000}],
        });
        assert_eq!(service["spec"], spec);
    }

    #[test]
    fn the_service_of_a_cluster_selects_all_its_pods() {
        let cluster = cluster(json!({"head": {"serviceType": "NodePort"}}));
        let service = json!(cluster_serve_service(&valid(&cluster)).unwrap());
        assert_eq!(service["metadata"]["name"], "test-cluster-serve-svc");
        assert_eq!(service["metadata"]["labels"]["ray.io/originated-from-crd"], "RayCluster");
        assert_eq!(service["metadata"]["ownerReferences"][0]["kind"], "RayCluster");
        assert_eq!(service["spec"]["selector"], json!({"ray.io/cluster": "test-cluster"}));
        assert_eq!(service["spec"]["type"], "NodePort");
    }

    #[test]
    fn each_cluster_of_an_incremental_upgrade_has_its_own_service() {
        let cluster = cluster(json!({}));
        let spec = json!({"serveService": {"metadata": {"name": "not-me"}}});
        let service = serde_json::from_value(json!({"metadata": {"name": "web"}, "spec": spec})).unwrap();
        let service = json!(upgrade_serve_service(&service, &cluster).unwrap());
        assert_eq!(service["metadata"]["name"], "test-cluster-serve-svc");
        let labels = json!({
            "ray.io/originated-from-cr-name": "test-cluster",
            "ray.io/originated-from-crd": "RayService",
            "ray.io/serve": "test-cluster-serve",
        });
        assert_eq!(service["metadata"]["labels"], labels);
        assert_eq!(service["metadata"]["ownerReferences"][0]["kind"], "RayCluster");
        assert_eq!(service["spec"]["selector"]["ray.io/serve"], "true");
    }

    #[test]
    fn a_missing_serve_port_is_an_error() {
        let error = made(json!([port("dashboard", 8265)]), json!(null)).unwrap_err();
        assert_eq!(
            error.to_string(),
            "Please specify a port named 'serve' (or with the prefix 'serve-', e.g. 'serve-grpc') in the Ray head \
             container; otherwise, the Kubernetes service for Ray Serve will not be created."
        );
        let cluster = cluster(json!({"ray": {"ports": [port("dashboard", 8265)]}}));
        assert_eq!(cluster_serve_service(&valid(&cluster)), Err(MissingServePort));
        assert_eq!(upgrade_serve_service(&RayService::default(), &cluster), Err(MissingServePort));
    }

    #[test]
    fn a_user_defined_service_describes_the_ports_of_the_head() {
        let check = |ports: Value, theirs: Value, expect: Value| {
            let service = made(ports, json!({"spec": {"ports": theirs, "selector": {"a": "b"}}})).unwrap();
            assert_eq!(service["spec"]["ports"], expect);
            assert_eq!(service["spec"]["selector"].as_object().unwrap().len(), 2);
        };
        let theirs = json!([{"name": "serve", "port": 12345}, {"name": "client", "port": 98765}]);
        check(json!([port("serve", 8000)]), theirs, json!([{"name": "serve", "port": 12345}]));
        let ports = json!([port("serve", 8000), port("serve-grpc", 9000), port("gcs", 6379), port("dashboard", 8265)]);
        let both = json!([{"name": "serve", "port": 8000}, {"name": "serve-grpc", "port": 9000}]);
        check(ports.clone(), json!([]), both.clone());
        assert_eq!(made(ports.clone(), json!(null)).unwrap()["spec"]["ports"], both);
        let theirs = json!([{"name": "serve-grpc", "port": 9000}]);
        check(json!([port("serve", 8000)]), theirs, json!([{"name": "serve", "port": 8000}]));
        let h2c = json!({"name": "serve-grpc", "port": 9000, "appProtocol": "kubernetes.io/h2c"});
        check(ports, json!([h2c]), json!([{"name": "serve", "port": 8000}, h2c]));
        let theirs = json!([{"name": "z", "port": 1}, {"name": "serve", "port": 2}]);
        check(json!([port("dashboard", 8265)]), theirs.clone(), theirs);
    }

    #[test]
    fn a_user_defined_service_keeps_its_name_and_type() {
        let given = json!({
            "metadata": {"name": "mine", "namespace": "other", "labels": {"ray.io/serve": "user", "a": "b"}},
            "spec": {"type": "NodePort"},
        });
        let service = made(json!([]), given).unwrap();
        assert_eq!(service["metadata"]["name"], "mine");
        assert_eq!(service["metadata"]["namespace"], "test-ns");
        assert_eq!(service["metadata"]["labels"]["ray.io/serve"], "rayservice-sample-serve");
        assert_eq!(service["metadata"]["labels"]["a"], "b");
        assert_eq!(service["spec"]["type"], "NodePort");
        let service = made(json!([]), json!({})).unwrap();
        assert_eq!(service["metadata"]["name"], "rayservice-sample-serve-svc");
        assert_eq!(service["spec"]["type"], "ClusterIP");
    }

    #[test]
    fn serve_ports_are_recognized_by_name() {
        for (name, expect) in [
            ("serve", true),
            ("serve-grpc", true),
            ("serve-http", true),
            ("server", false),
            ("dashboard", false),
            ("gcs-server", false),
            ("metrics", false),
            ("", false),
        ] {
            assert_eq!(is_serving_port(name), expect, "{name}");
        }
    }
}
