//! The head Service of a RayCluster, a RayJob or a RayService.

use crate::build::owner;
use crate::cluster_spec::{self, Creator};
use crate::config::Config;
use crate::labels;
use crate::names::{self, clip63};
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::RayCluster;
use std::collections::BTreeMap;

type Map = BTreeMap<String, String>;

/// Returns the head Service of a RayCluster.
pub fn head_service(cluster: &ValidCluster<'_>, config: &Config) -> Service {
    let template = cluster.spec.head_group_spec.template.metadata.as_ref();
    let app_name = template.and_then(|meta| meta.labels.as_ref()?.get(labels::APP_NAME)).map(String::as_str);
    let annotations = cluster.spec.head_service_annotations.as_ref();
    let mut service = build(cluster, config, app_name, annotations);
    service.metadata.owner_references = Some(vec![owner::cluster_reference(cluster)]);
    service
}

/// Returns the head Service of a RayJob or RayService, which selects the head of its cluster.
pub fn owner_head_service(creator: Creator, metadata: &ObjectMeta, cluster: &RayCluster, config: &Config) -> Service {
    let name = metadata.name.as_deref().unwrap_or_default();
    let labels = [
        (labels::ORIGINATED_FROM_CR_NAME, name),
        (labels::ORIGINATED_FROM_CRD, creator.as_str()),
        (labels::NODE_TYPE, labels::HEAD),
        (labels::IDENTIFIER, &clip63(&format!("{name}-head"))),
    ];
    let mut service = build(cluster, config, None, None);
    service.metadata.name = Some(names::owner_head_service(name));
    service.metadata.namespace = metadata.namespace.clone();
    service.metadata.labels = Some(Map::from(labels.map(|(key, value)| (key.to_owned(), value.to_owned()))));
    service.metadata.owner_references = Some(vec![owner::controller_reference(creator.as_str(), metadata)]);
    service
}

fn build(cluster: &RayCluster, config: &Config, app_name: Option<&str>, annotations: Option<&Map>) -> Service {
    let name = names::head_service(cluster_spec::name(cluster), &cluster.spec);
    let selector = selector(cluster, app_name);
    let ports = ports(cluster);
    let service_type = cluster.spec.head_group_spec.service_type.clone().filter(|type_| !type_.is_empty());
    let Some(given) = &cluster.spec.head_group_spec.head_service else {
        let inside = service_type.as_deref().is_none_or(|type_| type_ == "ClusterIP");
        let headless = inside && !config.head_cluster_ip_service;
        let spec = ServiceSpec {
            type_: service_type,
            ports: Some(ports),
            cluster_ip: headless.then(|| "None".to_owned()),
            publish_not_ready_addresses: headless.then_some(true),
            selector: Some(selector.clone()),
            ..ServiceSpec::default()
        };
        let metadata = ObjectMeta {
            name: Some(name),
            namespace: cluster.metadata.namespace.clone(),
            labels: Some(selector),
            annotations: annotations.filter(|annotations| !annotations.is_empty()).cloned(),
            ..ObjectMeta::default()
        };
        return Service { metadata, spec: Some(spec), status: None };
    };
    let mut spec = given.spec.clone().unwrap_or_default();
    spec.ports.get_or_insert_default().extend(ports);
    if spec.type_.as_deref().is_none_or(str::is_empty) {
        spec.type_ = service_type;
    }
    let mut metadata = user_metadata(given, name, cluster.metadata.namespace.clone());
    metadata.labels.get_or_insert_default().extend(selector.clone());
    if let Some(annotations) = annotations.filter(|annotations| !annotations.is_empty()) {
        metadata.annotations.get_or_insert_default().extend(annotations.clone());
    }
    spec.selector = Some(selector);
    Service { metadata, spec: Some(spec), status: None }
}

/// Returns the metadata of a Service in a spec, reduced to labels and annotations.
pub(super) fn user_metadata(given: &Service, name: String, namespace: Option<String>) -> ObjectMeta {
    ObjectMeta {
        name: given.metadata.name.clone().filter(|name| !name.is_empty()).or(Some(name)),
        namespace,
        labels: given.metadata.labels.clone(),
        annotations: given.metadata.annotations.clone(),
        finalizers: given.metadata.finalizers.clone(),
        ..ObjectMeta::default()
    }
}

/// Returns the selector of the head Pod, which is also the Service's set of labels.
fn selector(cluster: &RayCluster, app_name: Option<&str>) -> Map {
    let name = cluster_spec::name(cluster);
    let labels = [
        (labels::CLUSTER, name),
        (labels::NODE_TYPE, labels::HEAD),
        (labels::IDENTIFIER, &clip63(&format!("{name}-head"))),
        (labels::APP_NAME, app_name.unwrap_or(labels::KUBERAY)),
        (labels::CREATED_BY, labels::KUBERAY_OPERATOR),
    ];
    Map::from(labels.map(|(key, value)| (key.to_owned(), value.to_owned())))
}

fn ports(cluster: &RayCluster) -> Vec<ServicePort> {
    let port = |(name, port)| ServicePort {
        name: Some(name),
        port,
        app_protocol: Some("tcp".to_owned()),
        ..ServicePort::default()
    };
    cluster_spec::head_ports(&cluster.spec).into_iter().map(port).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{cluster, valid};
    use serde_json::{Value, json};

    fn made(given: Value) -> Value {
        made_with(given, &Config::default())
    }

    fn made_with(given: Value, config: &Config) -> Value {
        let cluster = cluster(given);
        let service = head_service(&valid(&cluster), config);
        assert_eq!(service, head_service(&valid(&cluster), config), "two builds are equal");
        json!(service)
    }

    /// Returns names and numbers of the ports in order.
    fn ports(service: &Value) -> Vec<(&str, i64)> {
        let ports = service["spec"]["ports"].as_array().unwrap().iter();
        ports.map(|port| (port["name"].as_str().unwrap(), port["port"].as_i64().unwrap())).collect()
    }

    #[test]
    fn the_service_is_headless_by_default() {
        let labels = json!({
            "ray.io/cluster": "test-cluster",
            "ray.io/node-type": "head",
            "ray.io/identifier": "test-cluster-head",
            "app.kubernetes.io/name": "kuberay",
            "app.kubernetes.io/created-by": "kuberay-operator",
        });
        let port = |name: &str, port: i32| json!({"name": name, "port": port, "appProtocol": "tcp"});
        let expect = json!({
            "apiVersion": "v1",
            "kind": "Service",
            "metadata": {
                "name": "test-cluster-head-svc",
                "namespace": "test-ns",
                "labels": labels,
                "ownerReferences": [{
                    "apiVersion": "ray.io/v1", "kind": "RayCluster", "name": "test-cluster", "uid": "test-uid",
                    "controller": true, "blockOwnerDeletion": true,
                }],
            },
            "spec": {
                "clusterIP": "None",
                "publishNotReadyAddresses": true,
                "ports": [
                    port("client", 10001), port("dashboard", 8265), port("gcs-server", 6379), port("metrics", 8080),
                    port("serve", 8000),
                ],
                "selector": labels,
            },
        });
        assert_eq!(made(json!({})), expect);
    }

    #[test]
    fn ports_are_those_of_the_head_container() {
        let check = |given: Value, expect: &[(&str, i64)]| {
            assert_eq!(ports(&made(json!({"ray": {"ports": given}}))), expect);
        };
        let all = [("client", 10001), ("dashboard", 8265), ("gcs-server", 6379), ("metrics", 8080), ("serve", 8000)];
        check(json!([]), &all);
        check(json!([{"name": "random", "containerPort": 1234}]), &[("metrics", 8080), ("random", 1234)]);
        check(json!([{"name": "metrics", "containerPort": 8081}]), &[("metrics", 8081)]);
        check(json!([{"containerPort": 1234}]), &[("1234-port", 1234), ("metrics", 8080)]);
        let twice = json!([{"name": "a", "containerPort": 1}, {"name": "a", "containerPort": 2}]);
        check(twice, &[("a", 2), ("metrics", 8080)]);
    }

    #[test]
    fn service_types_and_operator_settings_assign_a_cluster_ip() {
        let flag = Config { head_cluster_ip_service: true, ..Config::default() };
        for (type_, config, headless) in [
            (json!(null), Config::default(), true),
            (json!("ClusterIP"), Config::default(), true),
            (json!("ClusterIP"), flag, false),
            (json!("NodePort"), Config::default(), false),
        ] {
            let service = made_with(json!({"head": {"serviceType": type_}}), &config);
            assert_eq!(service["spec"]["type"], type_);
            assert_eq!(service["spec"]["clusterIP"] == "None", headless);
            assert_eq!(service["spec"]["publishNotReadyAddresses"] == true, headless);
        }
    }

    #[test]
    fn the_selector_uses_only_the_app_name_of_the_template() {
        let labels = json!({"app.kubernetes.io/name": "testname", "ray.io/identifier": "x", "other": "y"});
        let service = made(json!({
            "head": {"template": {"metadata": {"labels": labels}}, "labels": {"app.kubernetes.io/name": "not-me"}},
            "spec": {"headServiceAnnotations": {"key": "value"}},
        }));
        let selector = service["spec"]["selector"].as_object().unwrap();
        assert_eq!(selector.len(), 5);
        assert_eq!(selector["app.kubernetes.io/name"], "testname");
        assert_eq!(selector["ray.io/identifier"], "test-cluster-head");
        assert_eq!(service["metadata"]["annotations"], json!({"key": "value"}));
    }

    #[test]
    fn a_user_defined_service_gets_defaults() {
        let service = made(json!({
            "spec": {"headServiceAnnotations": {"both": "operator", "operators": "1"}},
            "head": {"serviceType": "NodePort", "headService": {
                "metadata": {
                    "name": "mine", "namespace": "other",
                    "labels": {"ray.io/cluster": "user", "mine": "1"},
                    "annotations": {"both": "user", "users": "1"},
                },
                "spec": {
                    "type": "LoadBalancer", "clusterIP": "", "selector": {"app": "user"},
                    "ports": [{"name": "metrics", "port": 1}], "sessionAffinity": "ClientIP",
                },
            }},
            "ray": {"ports": [{"name": "dashboard", "containerPort": 8265}]},
        }));
        let metadata = &service["metadata"];
        assert_eq!((&metadata["name"], &metadata["namespace"]), (&json!("mine"), &json!("test-ns")));
        assert_eq!(metadata["labels"]["ray.io/cluster"], "test-cluster");
        assert_eq!(metadata["labels"]["mine"], "1");
        assert_eq!(metadata["annotations"], json!({"both": "operator", "operators": "1", "users": "1"}));
        let spec = &service["spec"];
        assert_eq!((&spec["type"], &spec["clusterIP"]), (&json!("LoadBalancer"), &json!("")));
        assert_eq!(spec["sessionAffinity"], "ClientIP");
        assert_eq!(spec["selector"].as_object().unwrap().len(), 5);
        assert_eq!(ports(&service), [("metrics", 1), ("dashboard", 8265), ("metrics", 8080)]);
        assert_eq!(spec["publishNotReadyAddresses"], json!(null));
        // An empty Service gets all defaults but keeps its cluster IP.
        let service = made(json!({"head": {"serviceType": "NodePort", "headService": {}}}));
        assert_eq!(service["metadata"]["name"], "test-cluster-head-svc");
        assert_eq!((&service["spec"]["type"], &service["spec"]["clusterIP"]), (&json!("NodePort"), &json!(null)));
        assert_eq!(ports(&service).len(), 5);
    }

    #[test]
    fn services_of_owners_select_their_cluster() {
        let cluster = cluster(json!({
            "head": {
                "headService": {"metadata": {"name": "not-me"}},
                "template": {"metadata": {"labels": {"app.kubernetes.io/name": "not-me"}}},
            },
            "spec": {"headServiceAnnotations": {"not": "me"}},
        }));
        let owner = ObjectMeta {
            name: Some("web".to_owned()),
            namespace: Some("test-ns".to_owned()),
            uid: Some("u".to_owned()),
            ..ObjectMeta::default()
        };
        for (creator, kind) in [(Creator::RayService, "RayService"), (Creator::RayJob, "RayJob")] {
            let service = json!(owner_head_service(creator, &owner, &cluster, &Config::default()));
            assert_eq!(service["metadata"]["name"], "web-head-svc");
            let labels = json!({
                "ray.io/originated-from-cr-name": "web",
                "ray.io/originated-from-crd": kind,
                "ray.io/node-type": "head",
                "ray.io/identifier": "web-head",
            });
            assert_eq!(service["metadata"]["labels"], labels);
            assert_eq!(service["metadata"]["annotations"], json!(null));
            assert_eq!(service["metadata"]["ownerReferences"][0]["kind"], kind);
            assert_eq!(service["spec"]["selector"]["ray.io/cluster"], "test-cluster");
            assert_eq!(service["spec"]["selector"]["app.kubernetes.io/name"], "kuberay");
        }
    }
}
