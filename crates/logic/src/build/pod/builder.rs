//! The builder that every step of a Ray Pod works on.

use super::context::PodContext;
use crate::build::owner;
use crate::cluster_spec::{self, Creator};
use crate::config::Config;
use crate::labels::{self, annotation};
use crate::names;
use k8s_openapi::api::core::v1::{Container, ContainerPort, Pod, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use std::collections::BTreeMap;

/// A Pod under construction, with the Ray container apart from the rest.
pub(super) struct PodBuilder {
    pub(super) metadata: ObjectMeta,
    /// The parameters of `ray start`.
    pub(super) params: BTreeMap<String, String>,
    /// The first container.
    pub(super) ray: Container,
    /// The other containers.
    pub(super) sidecars: Vec<Container>,
    /// Everything else; `containers` is empty until [`PodBuilder::build`].
    pub(super) spec: PodSpec,
}

impl PodBuilder {
    /// Returns a builder with the template and the parameters of a group.
    pub(super) fn new(
        context: &PodContext<'_>,
        template: &PodTemplateSpec,
        params: Option<&BTreeMap<String, String>>,
    ) -> Self {
        let mut spec = template.spec.clone().unwrap_or_default();
        let mut containers = std::mem::take(&mut spec.containers).into_iter();
        // A valid template has a container.
        let ray = containers.next().unwrap_or_default();
        let given = template.metadata.as_ref();
        let metadata = ObjectMeta {
            name: given.and_then(|meta| meta.name.clone()).filter(|name| !name.is_empty()),
            namespace: context.cluster.metadata.namespace.clone(),
            labels: given.and_then(|meta| meta.labels.clone()),
            annotations: given.and_then(|meta| meta.annotations.clone()),
            finalizers: given.and_then(|meta| meta.finalizers.clone()),
            owner_references: Some(vec![owner::cluster_reference(context.cluster)]),
            ..ObjectMeta::default()
        };
        Self { metadata, params: params.cloned().unwrap_or_default(), ray, sidecars: containers.collect(), spec }
    }

    /// Sets the labels: the group's override the template's, and both override the operator's, except for the labels
    /// that select Pods.
    pub(super) fn label(
        &mut self,
        context: &PodContext<'_>,
        group: &str,
        group_labels: Option<&BTreeMap<String, String>>,
    ) {
        let labels = self.metadata.labels.get_or_insert_default();
        if let Some(group_labels) = group_labels {
            labels.extend(group_labels.iter().map(|(key, value)| (key.clone(), value.clone())));
        }
        let cluster = context.cluster_name();
        let node_type = context.node_type.as_str();
        for (key, value) in [(labels::CLUSTER, cluster), (labels::NODE_TYPE, node_type), (labels::GROUP, group)] {
            labels.insert(key.to_owned(), value.to_owned());
        }
        for (key, value) in [
            (labels::IS_RAY_NODE, "yes"),
            (labels::APP_NAME, labels::KUBERAY),
            (labels::CREATED_BY, labels::KUBERAY_OPERATOR),
        ] {
            labels.entry(key.to_owned()).or_insert_with(|| value.to_owned());
        }
        let identifier = || names::clip63(&format!("{cluster}-{node_type}"));
        labels.entry(labels::IDENTIFIER.to_owned()).or_insert_with(identifier);
    }

    /// Sets an annotation.
    pub(super) fn annotate(&mut self, key: &str, value: impl Into<String>) {
        self.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.into());
    }

    /// Copies the annotation that keeps the container's command from the cluster to the Pod.
    pub(super) fn copy_overwrite_annotation(&mut self, context: &PodContext<'_>) {
        if cluster_spec::is_true(cluster_spec::annotation(context.cluster, annotation::OVERWRITE_CONTAINER_CMD)) {
            self.annotate(annotation::OVERWRITE_CONTAINER_CMD, "true");
        }
    }

    /// Declares the metrics port unless the container declares one.
    pub(super) fn add_metrics_port(&mut self) {
        if cluster_spec::container_port(&self.ray, "metrics").is_none() {
            self.ray.ports.get_or_insert_default().push(ContainerPort {
                name: Some("metrics".to_owned()),
                container_port: cluster_spec::DEFAULT_METRICS_PORT,
                ..ContainerPort::default()
            });
        }
    }

    /// Adds the sidecars and the default metadata from the operator's configuration.
    pub(super) fn add_operator_defaults(&mut self, config: &Config, sidecars: &[Container]) {
        self.sidecars.extend_from_slice(sidecars);
        add_absent(&mut self.metadata.annotations, &config.default_pod_annotations);
        add_absent(&mut self.metadata.labels, &config.default_pod_labels);
    }

    /// Sets the Serve label on Pods of a RayService: the head gets no traffic until the controller enables it.
    pub(super) fn add_serve_label(&mut self, context: &PodContext<'_>) {
        if context.creator == Creator::RayService {
            let value = context.is_serve_worker().to_string();
            self.metadata.labels.get_or_insert_default().insert(labels::SERVE.to_owned(), value);
        }
    }

    /// Returns the init containers.
    pub(super) fn init_containers(&mut self) -> &mut [Container] {
        self.spec.init_containers.as_deref_mut().unwrap_or_default()
    }

    /// Returns the finished Pod.
    pub(super) fn build(self) -> Pod {
        let mut spec = self.spec;
        spec.containers = Vec::with_capacity(1 + self.sidecars.len());
        spec.containers.push(self.ray);
        spec.containers.extend(self.sidecars);
        Pod { metadata: self.metadata, spec: Some(spec), status: None }
    }
}

fn add_absent(map: &mut Option<BTreeMap<String, String>>, defaults: &BTreeMap<String, String>) {
    for (key, value) in defaults {
        map.get_or_insert_default().entry(key.clone()).or_insert_with(|| value.clone());
    }
}

#[cfg(test)]
mod tests {
    use crate::build::testing::{annotation, cluster, head, label, ray, valid, worker};
    use crate::build::{WorkerIdentity, worker_pod};
    use crate::config::{Config, FeatureGates};
    use crate::labels;
    use serde_json::{Value, json};
    use std::collections::BTreeMap;

    #[test]
    fn pods_of_a_rayservice_get_the_serve_label() {
        let group = json!({"template": {"metadata": {"labels": {labels::SERVE: "mine"}}}});
        for (creator, on_head, on_worker) in
            [("RayService", "false", "true"), ("RayJob", "mine", "mine"), ("Other", "mine", "mine")]
        {
            let metadata = json!({"labels": {labels::ORIGINATED_FROM_CRD: creator}});
            let cluster = cluster(json!({"metadata": metadata, "head": group, "worker": group}));
            assert_eq!(label(&head(&cluster, &Config::default()), labels::SERVE), Some(on_head));
            assert_eq!(label(&worker(&cluster, &Config::default()), labels::SERVE), Some(on_worker));
        }
    }

    #[test]
    fn template_names_apply_to_the_head_only() {
        let group = json!({"template": {"metadata": {"name": "ray-test", "namespace": "other"}}});
        let cluster = cluster(json!({"head": group, "worker": group}));
        let before = cluster.clone();
        let (head, worker) = (head(&cluster, &Config::default()), worker(&cluster, &Config::default()));
        assert_eq!(head.metadata.name.as_deref(), Some("ray-test"));
        assert_eq!(head.metadata.generate_name.as_deref(), Some("test-cluster-head-"));
        assert_eq!(worker.metadata.name.as_deref(), Some("test-cluster-small-worker-*"));
        for pod in [head, worker] {
            assert_eq!(pod.metadata.namespace.as_deref(), Some("test-ns"));
        }
        assert_eq!(cluster, before);
    }

    #[test]
    fn long_names_are_truncated_and_head_names_may_be_deterministic() {
        let fixed = Config { deterministic_head_pod_name: true, ..Config::default() };
        let long = cluster(json!({"metadata": {"name": "C".repeat(60)}}));
        let short = cluster(json!({}));
        let names = |pod: k8s_openapi::api::core::v1::Pod| (pod.metadata.name.unwrap(), pod.metadata.generate_name);
        let cut = "c".repeat(50);
        assert_eq!(names(head(&short, &fixed)), ("test-cluster-head".to_owned(), None));
        assert_eq!(names(head(&long, &fixed)), (format!("{cut}-head"), None));
        assert_eq!(names(head(&long, &Config::default())), (format!("{cut}-head-*"), Some(format!("{cut}-head-"))));
        assert_eq!(names(worker(&long, &fixed)), (format!("{cut}-worker-*"), Some(format!("{cut}-worker-"))));
    }

    #[test]
    fn hosts_of_a_multi_host_replica_are_numbered() {
        let identity = WorkerIdentity { suffix: "*", replica_index: 0, replica_name: "small-abcde", host_index: 2 };
        let gate_off = Config {
            gates: FeatureGates { ray_multi_host_indexing: false, ..FeatureGates::default() },
            ..Config::default()
        };
        let check = |hosts: i32, config: &Config, expect: [Option<&str>; 3]| {
            let cluster = cluster(json!({"worker": {"numOfHosts": hosts}}));
            let group = &cluster.spec.worker_group_specs.as_ref().unwrap()[0];
            let pod = worker_pod(&valid(&cluster), group, config, identity);
            let made = [labels::REPLICA_NAME, labels::REPLICA_INDEX, labels::HOST_INDEX].map(|key| label(&pod, key));
            assert_eq!(made, expect);
        };
        check(4, &Config::default(), [Some("small-abcde"), Some("0"), Some("2")]);
        check(1, &Config::default(), [None, Some("0"), None]);
        check(4, &gate_off, [None, None, None]);
    }

    #[test]
    fn a_metrics_port_is_declared_once() {
        for (ports, expect) in [
            (json!([]), json!([{"name": "metrics", "containerPort": 8080}])),
            (json!([{"name": "metrics", "containerPort": 8081}]), json!([{"name": "metrics", "containerPort": 8081}])),
        ] {
            let cluster = cluster(json!({"both": {"ports": ports}}));
            for pod in [head(&cluster, &Config::default()), worker(&cluster, &Config::default())] {
                assert_eq!(json!(ray(&pod).ports), expect);
            }
        }
    }

    #[test]
    fn group_labels_override_template_labels_but_not_selectors() {
        let check = |template: Value, group: Value, expect: &[(&str, &str)]| {
            let spec = json!({"template": {"metadata": {"labels": template}}, "labels": group});
            let cluster = cluster(json!({"head": spec, "worker": spec}));
            for pod in [head(&cluster, &Config::default()), worker(&cluster, &Config::default())] {
                for (key, value) in expect {
                    assert_eq!(label(&pod, key), Some(*value), "{key}");
                }
            }
        };
        check(json!({"a": "1"}), json!({"b": "2"}), &[("a", "1"), ("b", "2")]);
        check(json!({"a": "1"}), json!({"a": "2"}), &[("a", "2")]);
        check(json!({"a": "1"}), json!({}), &[("a", "1")]);
        check(json!(null), json!({"b": "2"}), &[("b", "2")]);
        let given = json!({
            labels::CLUSTER: "x",
            labels::APP_NAME: "x",
            labels::CREATED_BY: "x",
            labels::IDENTIFIER: "x",
            labels::IS_RAY_NODE: "x",
        });
        let expect = [
            (labels::CLUSTER, "test-cluster"),
            (labels::APP_NAME, "x"),
            (labels::CREATED_BY, "x"),
            (labels::IDENTIFIER, "x"),
            (labels::IS_RAY_NODE, "x"),
        ];
        check(given.clone(), json!(null), &expect);
        check(json!(null), given, &expect);
        let taken = json!({"labels": {labels::NODE_TYPE: "x", labels::GROUP: "x"}});
        let pod = worker(&cluster(json!({"worker": taken})), &Config::default());
        assert_eq!((label(&pod, labels::NODE_TYPE), label(&pod, labels::GROUP)), (Some("worker"), Some("small")));
        let plain = worker(&cluster(json!({})), &Config::default());
        assert_eq!(plain.metadata.labels.unwrap().len(), 8);
    }

    #[test]
    fn template_metadata_overrides_default_metadata() {
        let map = |value: &str| BTreeMap::from([("key".to_owned(), value.to_owned())]);
        let config =
            Config { default_pod_annotations: map("default"), default_pod_labels: map("default"), ..Config::default() };
        let own = json!({"template": {"metadata": {"labels": map("own"), "annotations": map("own")}}});
        for (given, on, off) in [(json!({}), Some("default"), None), (own, Some("own"), Some("own"))] {
            let cluster = cluster(json!({"head": given, "worker": given}));
            for (config, expect) in [(&config, on), (&Config::default(), off)] {
                for pod in [head(&cluster, config), worker(&cluster, config)] {
                    assert_eq!((label(&pod, "key"), annotation(&pod, "key")), (expect, expect));
                }
            }
        }
    }
}
