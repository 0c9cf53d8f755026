//! A worker Pod, step by step.

use super::draft::{Draft, Node, Role};
use super::{auth, collector, finish, gcs_ft, params, resources, tls, wait_gcs};
use crate::cluster_spec;
use crate::config::Config;
use crate::labels;
use crate::names;
use crate::scheduler;
use crate::validate::ValidCluster;
use k8s_openapi::api::core::v1::Pod;
use manta_api::WorkerGroupSpec;

/// Which worker of its group a Pod is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WorkerIdentity<'a> {
    /// What the Pod's name ends in.
    pub suffix: &'a str,
    /// The lowest number that is free in the group.
    pub replica_index: u32,
    /// What the hosts of one replica have in common; only written for groups of several hosts.
    pub replica_name: &'a str,
    /// The host's place in its replica; only written for groups of several hosts.
    pub host_index: u32,
}

/// A worker Pod of a group.
pub fn worker_pod(
    cluster: &ValidCluster<'_>,
    group: &WorkerGroupSpec,
    config: &Config,
    identity: WorkerIdentity<'_>,
) -> Pod {
    let node = Node::new(cluster, config, Role::Worker);
    let mut draft = Draft::new(&node, &group.template, group.ray_start_params.as_ref());
    let prefix = names::pod_prefix(&format!("{}-{}", node.cluster_name(), group.group_name), labels::WORKER);
    draft.metadata.name = Some(format!("{prefix}-{}", identity.suffix));
    draft.metadata.generate_name = Some(prefix + "-");
    wait_gcs::add_container(&node, &mut draft);
    resources::apply_group(&mut draft.params, group.resources.as_ref());
    params::apply_labels(&mut draft.params, group.labels.as_ref());
    draft.label(&node, &group.group_name, group.labels.as_ref());
    if config.gates.ray_multi_host_indexing {
        add_index_labels(&mut draft, group, identity);
    }
    params::fill_defaults(&node, &mut draft);
    draft.copy_overwrite_annotation(&node);
    gcs_ft::configure_worker(&node, &mut draft);
    draft.add_metrics_port();
    if cluster_spec::is_autoscaling(&cluster.spec) && cluster_spec::is_autoscaler_v2(&cluster.spec) {
        draft.spec.restart_policy = Some("Never".to_owned());
    }
    auth::configure_pod(&node, &mut draft);
    tls::configure_pod(&node, &mut draft);
    collector::add_container(&node, &mut draft);
    finish::finish(&node, &mut draft);
    let mut pod = draft.into_pod();
    scheduler::mark_worker(cluster, &group.group_name, config, &mut pod);
    pod
}

fn add_index_labels(draft: &mut Draft, group: &WorkerGroupSpec, identity: WorkerIdentity<'_>) {
    let labels = draft.metadata.labels.get_or_insert_default();
    labels.insert(labels::REPLICA_INDEX.to_owned(), identity.replica_index.to_string());
    if cluster_spec::is_multi_host(group) {
        labels.insert(labels::REPLICA_NAME.to_owned(), identity.replica_name.to_owned());
        labels.insert(labels::HOST_INDEX.to_owned(), identity.host_index.to_string());
    }
}
