//! The Ingress that leads to the dashboard.

use super::cluster_facts as facts;
use super::owner;
use crate::labels::{self, annotation};
use crate::names::{self, clip50, clip63};
use crate::validate::ValidCluster;
use k8s_openapi::api::networking::v1::{
    HTTPIngressPath, HTTPIngressRuleValue, Ingress, IngressBackend, IngressRule, IngressServiceBackend, IngressSpec,
    ServiceBackendPort,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::RayCluster;
use std::collections::BTreeMap;

/// The name of a cluster's Ingress.
pub fn ingress_name(cluster: &str) -> String {
    clip50(&format!("{cluster}-head-ingress"))
}

/// The Ingress.
pub fn ingress(cluster: &ValidCluster<'_>) -> Ingress {
    let name = facts::name(cluster);
    let options = cluster.spec.head_group_spec.ingress_options.as_ref();
    let class = facts::annotation(cluster, annotation::INGRESS_CLASS).map(str::to_owned);
    let mut annotations = cluster.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(annotation::INGRESS_CLASS);
    let service = IngressServiceBackend {
        name: names::head_service(name, &cluster.spec),
        port: Some(ServiceBackendPort { number: Some(facts::dashboard_port(&cluster.spec)), name: None }),
    };
    let path = options.and_then(|options| options.path.clone()).filter(|path| !path.is_empty());
    let path_type = options.and_then(|options| options.path_type.as_ref()).map(ToString::to_string);
    let path = HTTPIngressPath {
        path: Some(path.unwrap_or_else(|| "/".to_owned())),
        path_type: path_type.filter(|type_| !type_.is_empty()).unwrap_or_else(|| "Prefix".to_owned()),
        backend: IngressBackend { service: Some(service), resource: None },
    };
    let rule = IngressRule {
        host: options.and_then(|options| options.host.clone()).filter(|host| !host.is_empty()),
        http: Some(HTTPIngressRuleValue { paths: vec![path] }),
    };
    let spec = IngressSpec {
        ingress_class_name: class,
        rules: Some(vec![rule]),
        tls: options.and_then(|options| options.tls.clone()).filter(|tls| !tls.is_empty()),
        default_backend: None,
    };
    let metadata = ObjectMeta {
        name: Some(ingress_name(name)),
        namespace: cluster.metadata.namespace.clone(),
        labels: Some(dashboard_labels(cluster)),
        annotations: Some(annotations).filter(|annotations| !annotations.is_empty()),
        owner_references: Some(vec![owner::cluster_reference(cluster)]),
        ..ObjectMeta::default()
    };
    Ingress { metadata, spec: Some(spec), status: None }
}

/// The labels of an Ingress or Route to the dashboard.
pub(super) fn dashboard_labels(cluster: &RayCluster) -> BTreeMap<String, String> {
    let name = facts::name(cluster);
    let identifier = clip63(&format!("{name}-head"));
    let labels = [
        (labels::CLUSTER, name),
        (labels::IDENTIFIER, &identifier),
        (labels::APP_NAME, labels::KUBERAY),
        (labels::CREATED_BY, labels::KUBERAY_OPERATOR),
    ];
    BTreeMap::from(labels.map(|(key, value)| (key.to_owned(), value.to_owned())))
}

/// What must be written to make a live Ingress the wanted one: the whole object, or nothing.
///
/// Labels, annotations and spec count, so what others added is taken back; a class that the API
/// server filled in is adopted.
pub fn ingress_update(wanted: &Ingress, live: &Ingress) -> Option<Ingress> {
    let empty = BTreeMap::new();
    let mut spec = wanted.spec.clone().unwrap_or_default();
    if spec.ingress_class_name.is_none() {
        spec.ingress_class_name = live.spec.as_ref().and_then(|spec| spec.ingress_class_name.clone());
    }
    let same = live.metadata.labels.as_ref().unwrap_or(&empty) == wanted.metadata.labels.as_ref().unwrap_or(&empty)
        && live.metadata.annotations.as_ref().unwrap_or(&empty)
            == wanted.metadata.annotations.as_ref().unwrap_or(&empty)
        && live.spec.as_ref() == Some(&spec);
    if same {
        return None;
    }
    let mut updated = live.clone();
    updated.metadata.labels = wanted.metadata.labels.clone();
    updated.metadata.annotations = wanted.metadata.annotations.clone();
    updated.spec = Some(spec);
    Some(updated)
}
