//! The head Pod, step by step.

use super::builder::PodBuilder;
use super::context::{NodeType, PodContext};
use super::{auth, autoscaler, collector, finish, gcs_ft, params, resources, tls};
use crate::config::{Config, KUBERAY_VERSION};
use crate::labels::{self, annotation};
use crate::names;
use crate::scheduler;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::Pod;
use manta_api::RayCluster;

/// The values that differ between the head Pods of a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HeadIdentity<'a> {
    /// The random suffix of the name, unless the template or the operator's settings fix the name.
    pub suffix: &'a str,
    /// The hash of the spec, which shows when the spec changes.
    pub spec_hash: &'a str,
}

/// Returns the head Pod.
pub fn head_pod(cluster: &ValidCluster<'_>, config: &Config, identity: HeadIdentity<'_>) -> Pod {
    let mut builder = head_builder(cluster, config);
    if builder.metadata.name.is_none() {
        let prefix = builder.metadata.generate_name.as_deref().unwrap_or_default();
        builder.metadata.name = Some(format!("{prefix}{}", identity.suffix));
    }
    builder.annotate(annotation::RECREATE_HASH, identity.spec_hash);
    builder.annotate(annotation::KUBERAY_VERSION, KUBERAY_VERSION);
    let mut pod = builder.build();
    scheduler::mark_head(cluster, config, &mut pod);
    pod
}

/// Returns the head Pod as the template of a Job, without a name or fields of a batch scheduler.
pub(in crate::build) fn head_pod_of_job(cluster: &RayCluster, config: &Config) -> Pod {
    head_builder(cluster, config).build()
}

fn head_builder(cluster: &RayCluster, config: &Config) -> PodBuilder {
    let group = &cluster.spec.head_group_spec;
    let context = PodContext::new(cluster, config, NodeType::Head);
    let mut builder = PodBuilder::new(&context, &group.template, group.ray_start_params.as_ref());
    let prefix = names::pod_prefix(context.cluster_name(), labels::HEAD);
    if config.deterministic_head_pod_name {
        builder.metadata.name = Some(prefix);
    } else {
        builder.metadata.generate_name = Some(prefix + "-");
    }
    resources::apply_group(&mut builder.params, group.resources.as_ref());
    params::apply_labels(&mut builder.params, group.labels.as_ref());
    builder.label(&context, labels::HEAD_GROUP, group.labels.as_ref());
    params::fill_defaults(&context, &mut builder);
    builder.copy_overwrite_annotation(&context);
    autoscaler::add_to_head(&context, &mut builder);
    gcs_ft::configure_head(&context, &mut builder);
    builder.add_metrics_port();
    auth::configure_pod(&context, &mut builder);
    tls::configure_pod(&context, &mut builder);
    collector::add_container(&context, &mut builder);
    finish::finish(&context, &mut builder);
    builder
}
