//! The Ingress for the dashboard.

use super::owner;
use crate::cluster_spec;
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

/// Returns the name of a cluster's Ingress.
pub fn ingress_name(cluster: &str) -> String {
    clip50(&format!("{cluster}-head-ingress"))
}

/// Returns the Ingress.
pub fn ingress(cluster: &ValidCluster<'_>) -> Ingress {
    let name = cluster_spec::name(cluster);
    let options = cluster.spec.head_group_spec.ingress_options.as_ref();
    let class = cluster_spec::annotation(cluster, annotation::INGRESS_CLASS).map(str::to_owned);
    let mut annotations = cluster.metadata.annotations.clone().unwrap_or_default();
    annotations.remove(annotation::INGRESS_CLASS);
    let service = IngressServiceBackend {
        name: names::head_service(name, &cluster.spec),
        port: Some(ServiceBackendPort { number: Some(cluster_spec::dashboard_port(&cluster.spec)), name: None }),
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

/// Returns the labels of an Ingress or Route for the dashboard.
pub(super) fn dashboard_labels(cluster: &RayCluster) -> BTreeMap<String, String> {
    let name = cluster_spec::name(cluster);
    let identifier = clip63(&format!("{name}-head"));
    let labels = [
        (labels::CLUSTER, name),
        (labels::IDENTIFIER, &identifier),
        (labels::APP_NAME, labels::KUBERAY),
        (labels::CREATED_BY, labels::KUBERAY_OPERATOR),
    ];
    BTreeMap::from(labels.map(|(key, value)| (key.to_owned(), value.to_owned())))
}

/// Returns the object to write if a live Ingress differs from the wanted one.
///
/// Labels, annotations and spec are compared, so changes by others are reverted; a default class that the API server has
/// set is kept.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{cluster, valid};
    use serde_json::{Value, json};

    fn made(given: Value) -> Ingress {
        let cluster = cluster(given);
        ingress(&valid(&cluster))
    }

    #[test]
    fn the_ingress_routes_to_the_dashboard() {
        let given = made(json!({"metadata": {"annotations": {"a": "b"}}}));
        assert_eq!(given.metadata.name.as_deref(), Some("test-cluster-head-ingress"));
        assert_eq!(json!(given.metadata.annotations), json!({"a": "b"}));
        let backend = json!({"service": {"name": "test-cluster-head-svc", "port": {"number": 8265}}});
        let path = json!({"path": "/", "pathType": "Prefix", "backend": backend});
        assert_eq!(json!(given.spec), json!({"rules": [{"http": {"paths": [path]}}]}));
    }

    #[test]
    fn class_annotation_and_options_are_applied() {
        let tls = json!([{"hosts": ["ray.example"], "secretName": "cert"}]);
        let options = json!({"host": "ray.example", "path": "/ray", "pathType": "Exact", "tls": tls});
        let made = made(json!({
            "metadata": {"annotations": {"kubernetes.io/ingress.class": "nginx"}},
            "head": {"ingressOptions": options, "headService": {"metadata": {"name": "mine"}}},
            "ray": {"ports": [{"name": "dashboard", "containerPort": 9265}]},
        }));
        assert_eq!(made.metadata.annotations, None);
        let backend = json!({"service": {"name": "mine", "port": {"number": 9265}}});
        let path = json!({"path": "/ray", "pathType": "Exact", "backend": backend});
        let rule = json!({"host": "ray.example", "http": {"paths": [path]}});
        assert_eq!(json!(made.spec), json!({"ingressClassName": "nginx", "rules": [rule], "tls": tls}));
    }

    #[test]
    fn long_names_keep_their_end() {
        let name = ingress_name(&"c".repeat(53));
        assert_eq!((name.len(), name.ends_with("ccc-head-ingress")), (50, true));
    }

    #[test]
    fn drift_is_reverted_except_for_a_default_class() {
        let wanted = made(json!({"metadata": {"annotations": {"a": "b"}}}));
        let mut live = wanted.clone();
        live.metadata.resource_version = Some("7".to_owned());
        assert_eq!(ingress_update(&wanted, &live), None);
        live.spec.as_mut().unwrap().ingress_class_name = Some("default".to_owned());
        assert_eq!(ingress_update(&wanted, &live), None);
        let classed = made(json!({"metadata": {"annotations": {"a": "b", annotation::INGRESS_CLASS: "nginx"}}}));
        let updated = ingress_update(&classed, &live).unwrap();
        assert_eq!(updated.spec.unwrap().ingress_class_name.as_deref(), Some("nginx"));

        let mut drifted = live.clone();
        drifted.metadata.labels = None;
        drifted.metadata.annotations.as_mut().unwrap().insert("foreign".to_owned(), "x".to_owned());
        let updated = ingress_update(&wanted, &drifted).unwrap();
        assert_eq!(updated, live, "the class that was filled in and the resource version stay");

        let (mut bare, mut none) = (wanted.clone(), live);
        bare.metadata.annotations = None;
        none.metadata.annotations = Some(BTreeMap::new());
        assert_eq!(ingress_update(&bare, &none), None, "no annotations are empty ones");
    }
}
