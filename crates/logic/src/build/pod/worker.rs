//! A worker Pod, step by step.

use super::builder::PodBuilder;
use super::context::{NodeType, PodContext};
use super::{auth, collector, finish, gcs_ft, params, resources, tls, wait_gcs};
use crate::cluster_spec;
use crate::config::Config;
use crate::labels;
use crate::names;
use crate::scheduler;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::Pod;
use manta_api::WorkerGroupSpec;

/// The values that differ between the worker Pods of a group.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerIdentity<'a> {
    /// The random suffix of the name.
    pub suffix: &'a str,
    /// The lowest free replica number of the group.
    pub replica_index: u32,
    /// The name that the hosts of one replica share; only used in multi-host groups.
    pub replica_name: &'a str,
    /// The number of the host in its replica; only used in multi-host groups.
    pub host_index: u32,
}

/// Returns a worker Pod of a group.
pub fn worker_pod(
    cluster: &ValidCluster<'_>,
    group: &WorkerGroupSpec,
    config: &Config,
    identity: WorkerIdentity<'_>,
) -> Pod {
    let context = PodContext::new(cluster, config, NodeType::Worker);
    let mut builder = PodBuilder::new(&context, &group.template, group.ray_start_params.as_ref());
    let prefix = names::pod_prefix(&format!("{}-{}", context.cluster_name(), group.group_name), labels::WORKER);
    builder.metadata.name = Some(format!("{prefix}-{}", identity.suffix));
    builder.metadata.generate_name = Some(prefix + "-");
    wait_gcs::add_container(&context, &mut builder);
    resources::apply_group(&mut builder.params, group.resources.as_ref());
    params::apply_labels(&mut builder.params, group.labels.as_ref());
    builder.label(&context, &group.group_name, group.labels.as_ref());
    if config.gates.ray_multi_host_indexing {
        add_index_labels(&mut builder, group, identity);
    }
    params::fill_defaults(&context, &mut builder);
    builder.copy_overwrite_annotation(&context);
    gcs_ft::configure_worker(&context, &mut builder);
    builder.add_metrics_port();
    if cluster_spec::is_autoscaling(&cluster.spec) && cluster_spec::is_autoscaler_v2(&cluster.spec) {
        builder.spec.restart_policy = Some("Never".to_owned());
    }
    auth::configure_pod(&context, &mut builder);
    tls::configure_pod(&context, &mut builder);
    collector::add_container(&context, &mut builder);
    finish::finish(&context, &mut builder);
    let mut pod = builder.build();
    scheduler::mark_worker(cluster, &group.group_name, config, &mut pod);
    pod
}

fn add_index_labels(builder: &mut PodBuilder, group: &WorkerGroupSpec, identity: WorkerIdentity<'_>) {
    let labels = builder.metadata.labels.get_or_insert_default();
    labels.insert(labels::REPLICA_INDEX.to_owned(), identity.replica_index.to_string());
    if cluster_spec::is_multi_host(group) {
        labels.insert(labels::REPLICA_NAME.to_owned(), identity.replica_name.to_owned());
        labels.insert(labels::HOST_INDEX.to_owned(), identity.host_index.to_string());
    }
}
