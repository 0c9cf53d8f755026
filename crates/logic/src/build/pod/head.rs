//! The head Pod, step by step.

use super::draft::{Draft, Node, Role};
use super::{auth, autoscaler, collector, finish, gcs_ft, params, resources, tls};
use crate::config::{Config, KUBERAY_VERSION};
use crate::labels::{self, annotation};
use crate::names;
use crate::scheduler;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::Pod;
use manta_api::RayCluster;

/// What is new about each head Pod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadIdentity<'a> {
    /// What the Pod's name ends in, unless the user or the operator's settings fix the name.
    pub suffix: &'a str,
    /// The hash of the spec, by which a later change of it is noticed.
    pub spec_hash: &'a str,
}

/// The head Pod.
pub fn head_pod(cluster: &ValidCluster<'_>, config: &Config, identity: HeadIdentity<'_>) -> Pod {
    let mut draft = draft(cluster, config);
    if draft.metadata.name.is_none() {
        let prefix = draft.metadata.generate_name.as_deref().unwrap_or_default();
        draft.metadata.name = Some(format!("{prefix}{}", identity.suffix));
    }
    draft.annotate(annotation::RECREATE_HASH, identity.spec_hash);
    draft.annotate(annotation::KUBERAY_VERSION, KUBERAY_VERSION);
    let mut pod = draft.into_pod();
    scheduler::mark_head(cluster, config, &mut pod);
    pod
}

/// The head Pod as the base of a Job: neither named nor marked.
pub(in crate::build) fn head_pod_of_job(cluster: &RayCluster, config: &Config) -> Pod {
    draft(cluster, config).into_pod()
}

fn draft(cluster: &RayCluster, config: &Config) -> Draft {
    let group = &cluster.spec.head_group_spec;
    let node = Node::new(cluster, config, Role::Head);
    let mut draft = Draft::new(&node, &group.template, group.ray_start_params.as_ref());
    let prefix = names::pod_prefix(node.cluster_name(), labels::HEAD);
    if config.deterministic_head_pod_name {
        draft.metadata.name = Some(prefix);
    } else {
        draft.metadata.generate_name = Some(prefix + "-");
    }
    resources::apply_group(&mut draft.params, group.resources.as_ref());
    params::apply_labels(&mut draft.params, group.labels.as_ref());
    draft.label(&node, labels::HEAD_GROUP, group.labels.as_ref());
    params::fill_defaults(&node, &mut draft);
    draft.copy_overwrite_annotation(&node);
    autoscaler::add_to_head(&node, &mut draft);
    gcs_ft::configure_head(&node, &mut draft);
    draft.add_metrics_port();
    auth::configure_pod(&node, &mut draft);
    tls::configure_pod(&node, &mut draft);
    collector::add_container(&node, &mut draft);
    finish::finish(&node, &mut draft);
    draft
}
