//! The head's Service, of a RayCluster and of those that make RayClusters.
//!
//! It always has a port: the head's container without ports counts as having all of Ray's.

use crate::build::cluster_facts::{self as facts, Creator};
use crate::build::owner;
use crate::config::Config;
use crate::labels;
use crate::names::{self, clip63};
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::{Service, ServicePort, ServiceSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::RayCluster;
use std::collections::BTreeMap;

type Map = BTreeMap<String, String>;

/// The head Service of a RayCluster.
pub fn head_service(cluster: &ValidCluster<'_>, config: &Config) -> Service {
    let template = cluster.spec.head_group_spec.template.metadata.as_ref();
    let app_name = template.and_then(|meta| meta.labels.as_ref()?.get(labels::APP_NAME)).map(String::as_str);
    let annotations = cluster.spec.head_service_annotations.as_ref();
    let mut service = build(cluster, config, app_name, annotations);
    service.metadata.owner_references = Some(vec![owner::cluster_reference(cluster)]);
    service
}

/// The head Service of a RayJob or RayService, which leads to the cluster made for it.
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
    let name = names::head_service(facts::name(cluster), &cluster.spec);
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

/// What is kept of the metadata of a Service that a user wrote into a spec.
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

/// The labels by which the head Pod is found, which are the Service's own labels too.
fn selector(cluster: &RayCluster, app_name: Option<&str>) -> Map {
    let name = facts::name(cluster);
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
    facts::head_ports(&cluster.spec).into_iter().map(port).collect()
}
