//! Batch schedulers, which schedule the Pods of a cluster as a gang.
//!
//! One scheduler is active for the whole process. Each has its own file, and all have the same operations:
//!
//! | when | function |
//! | --- | --- |
//! | before the Pods of a cluster are created | [`plan_cluster_gang`] creates or updates the objects of the gang |
//! | while a cluster is suspended | [`shrink_suspended_gang`] reduces the gang to nothing |
//! | before a RayJob's cluster is created | [`plan_job_gang`] does the same |
//! | when an object of a cluster or a RayJob is built | `mark_…` adds the labels and fields that the scheduler reads |
//! | when a RayJob has ended or is being suspended | [`shrink_job_gang`] reduces the gang |

mod demand;
mod kai;
mod scheduler_plugins;
mod volcano;
mod workload_aware;
mod yunikorn;

#[cfg(test)]
pub(crate) mod tests;

use crate::action::{Event, Kind, ObjectKey, PodGroupApi, Step};
use crate::cluster_spec::{self, Creator};
use crate::config::{BatchScheduler, Config};
use crate::job::Mode;
use crate::labels::{self, HEAD_GROUP};
use crate::validate::job::has_selector;
use crate::{cluster, job};
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGroup, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::{RayCluster, RayClusterSpec, RayJob};

/// The task group of a submitter Pod.
const SUBMITTER_GROUP: &str = "submittergroup";

/// The steps that come before the Pods of a cluster, or the cluster of a RayJob, are created.
#[derive(Debug, Default, PartialEq)]
pub struct GangPlan {
    /// The writes, each after the one before.
    pub steps: Vec<Step>,
    /// The reason why nothing can be created yet, even if all writes succeed.
    pub blocked: Option<Blocked>,
}

/// The reason why a gang cannot be scheduled yet.
#[derive(Debug, PartialEq)]
pub struct Blocked {
    pub error: String,
    /// The event for the user, if waiting does not help.
    pub event: Option<Event>,
}

impl GangPlan {
    /// Returns a plan with a single step.
    fn from_step(step: Step) -> Self {
        Self { steps: vec![step], blocked: None }
    }

    /// Blocks the plan until a condition changes by itself.
    fn waiting(mut self, error: String) -> Self {
        self.blocked = Some(Blocked { error, event: None });
        self
    }

    /// Returns a plan that is blocked until the user acts.
    fn refused(error: String, event: Event) -> Self {
        Self { steps: Vec::new(), blocked: Some(Blocked { error, event: Some(event) }) }
    }
}

/// The object that a gang belongs to.
#[derive(Clone, Copy)]
enum GangOwner<'a> {
    Cluster(&'a RayCluster),
    Job(&'a RayJob),
}

impl<'a> GangOwner<'a> {
    fn metadata(self) -> &'a ObjectMeta {
        match self {
            GangOwner::Cluster(cluster) => &cluster.metadata,
            GangOwner::Job(job) => &job.metadata,
        }
    }

    fn name(self) -> &'a str {
        self.metadata().name.as_deref().unwrap_or_default()
    }

    fn namespace(self) -> &'a str {
        self.metadata().namespace.as_deref().unwrap_or_default()
    }

    fn kind(self) -> &'static str {
        match self {
            GangOwner::Cluster(_) => RayCluster::KIND,
            GangOwner::Job(_) => RayJob::KIND,
        }
    }

    fn label(self, key: &str) -> Option<&'a str> {
        self.metadata().labels.as_ref()?.get(key).map(String::as_str)
    }

    /// Returns a label that is not empty.
    fn filled_label(self, key: &str) -> Option<&'a str> {
        self.label(key).filter(|value| !value.is_empty())
    }

    fn filled_annotation(self, key: &str) -> Option<&'a str> {
        self.metadata().annotations.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// Returns the spec of the gang's cluster; none if a RayJob runs on a selected cluster.
    fn cluster_spec(self) -> Option<&'a RayClusterSpec> {
        match self {
            GangOwner::Cluster(cluster) => Some(&cluster.spec),
            GangOwner::Job(job) if has_selector(&job.spec) => None,
            GangOwner::Job(job) => job.spec.ray_cluster_spec.as_ref(),
        }
    }
}

/// The labels, annotations and fields that a scheduler reads.
#[derive(Debug, Default, PartialEq)]
struct SchedulerFields {
    labels: Vec<(&'static str, String)>,
    annotations: Vec<(&'static str, String)>,
    scheduler_name: Option<&'static str>,
    /// The `spec.schedulingGroup` of a Pod.
    pod_group: Option<String>,
}

impl SchedulerFields {
    /// Copies a label of the owner under another name unless it is empty.
    fn copy_label(&mut self, owner: GangOwner<'_>, from: &str, to: &'static str) {
        if let Some(value) = owner.filled_label(from) {
            self.labels.push((to, value.to_owned()));
        }
    }

    fn apply_to(&self, metadata: &mut ObjectMeta) {
        for (key, value) in &self.labels {
            metadata.labels.get_or_insert_default().insert((*key).to_owned(), value.clone());
        }
        for (key, value) in &self.annotations {
            metadata.annotations.get_or_insert_default().insert((*key).to_owned(), value.clone());
        }
    }

    fn apply_to_pod(self, metadata: &mut ObjectMeta, spec: &mut PodSpec) {
        self.apply_to(metadata);
        if let Some(name) = self.scheduler_name {
            spec.scheduler_name = Some(name.to_owned());
        }
        if let Some(group) = self.pod_group {
            spec.scheduling_group = Some(PodSchedulingGroup { pod_group_name: Some(group) });
        }
    }
}

fn fields(scheduler: BatchScheduler, owner: GangOwner<'_>, group: &str) -> SchedulerFields {
    match scheduler {
        BatchScheduler::Volcano => volcano::fields(owner, group),
        BatchScheduler::Yunikorn => yunikorn::fields(owner, group),
        BatchScheduler::Kai => kai::fields(owner),
        BatchScheduler::SchedulerPlugins => scheduler_plugins::fields(owner),
        BatchScheduler::KubernetesWorkloads => workload_aware::fields(owner),
    }
}

/// Adds the scheduler's fields to the head Pod.
pub fn mark_head(cluster: &RayCluster, config: &Config, pod: &mut Pod) {
    mark_worker(cluster, HEAD_GROUP, config, pod);
}

/// Adds the scheduler's fields to a Pod of a worker group.
pub fn mark_worker(cluster: &RayCluster, group: &str, config: &Config, pod: &mut Pod) {
    if let Some(scheduler) = config.batch_scheduler {
        let spec = pod.spec.get_or_insert_with(PodSpec::default);
        fields(scheduler, GangOwner::Cluster(cluster), group).apply_to_pod(&mut pod.metadata, spec);
    }
}

/// Adds the scheduler's fields to the Pods of a submitter Job.
pub fn mark_submitter(job: &RayJob, config: &Config, template: &mut PodTemplateSpec) {
    if let Some(scheduler) = config.batch_scheduler {
        let metadata = template.metadata.get_or_insert_with(ObjectMeta::default);
        let spec = template.spec.get_or_insert_with(PodSpec::default);
        fields(scheduler, GangOwner::Job(job), SUBMITTER_GROUP).apply_to_pod(metadata, spec);
    }
}

/// Adds the scheduler's fields to a cluster whose gang includes the submitter; its Pods copy them.
pub fn mark_cluster(job: &RayJob, config: &Config, metadata: &mut ObjectMeta) {
    if let Some(scheduler) = config.batch_scheduler {
        fields(scheduler, GangOwner::Job(job), "").apply_to(metadata);
    }
}

/// Plans the objects of a cluster's gang, which must exist before its Pods are created.
pub fn plan_cluster_gang(seen: &cluster::Observed, config: &Config) -> GangPlan {
    match config.batch_scheduler {
        Some(BatchScheduler::Volcano) => volcano::plan_cluster_gang(seen),
        Some(BatchScheduler::SchedulerPlugins) => scheduler_plugins::plan_cluster_gang(seen),
        Some(BatchScheduler::KubernetesWorkloads) => workload_aware::plan_cluster_gang(seen),
        Some(BatchScheduler::Yunikorn | BatchScheduler::Kai) | None => GangPlan::default(),
    }
}

/// Plans the reduction of a cluster's gang while the cluster is suspended. Only Volcano has queues that it counts in.
pub fn shrink_suspended_gang(seen: &cluster::Observed, config: &Config) -> Option<Step> {
    match config.batch_scheduler {
        Some(BatchScheduler::Volcano) => volcano::shrink_suspended_gang(seen),
        _ => None,
    }
}

/// Plans the objects of a RayJob's gang, which must exist before its cluster is created.
///
/// Only Volcano includes a RayJob's submitter. With the others the gang is the cluster's, and the submitter is
/// scheduled separately; KubeRay refuses such jobs, so they never start.
pub fn plan_job_gang(seen: &job::Observed, mode: Mode, config: &Config) -> GangPlan {
    match config.batch_scheduler {
        Some(BatchScheduler::Volcano) => volcano::plan_job_gang(seen, mode),
        _ => GangPlan::default(),
    }
}

/// Plans the reduction of a RayJob's gang when its cluster has shrunk or been deleted.
pub fn shrink_job_gang(seen: &job::Observed, config: &Config) -> Option<Step> {
    match config.batch_scheduler {
        Some(BatchScheduler::Volcano) => volcano::shrink_job_gang(seen),
        _ => None,
    }
}

/// Returns the kinds of objects that represent the gang of a cluster and must be watched.
pub fn cluster_kinds(cluster: &RayCluster, config: &Config) -> &'static [Kind] {
    const VOLCANO: &[Kind] = &[Kind::PodGroup(PodGroupApi::Volcano)];
    const SCHEDULER_PLUGINS: &[Kind] = &[Kind::PodGroup(PodGroupApi::SchedulerPlugins)];
    const WORKLOAD_AWARE: &[Kind] = &[Kind::Workload, Kind::PodGroup(PodGroupApi::KubernetesWorkloads)];
    match config.batch_scheduler {
        Some(BatchScheduler::Volcano) if cluster_spec::creator(cluster) != Creator::RayJob => VOLCANO,
        Some(BatchScheduler::SchedulerPlugins) if is_gang(GangOwner::Cluster(cluster)) => SCHEDULER_PLUGINS,
        // Also for clusters without a gang: they may have requested one before.
        Some(BatchScheduler::KubernetesWorkloads) => WORKLOAD_AWARE,
        _ => &[],
    }
}

/// Returns kind and name of the object that represents the gang of a RayJob.
pub fn job_pod_group(job: &str, config: &Config) -> Option<(Kind, String)> {
    (config.batch_scheduler == Some(BatchScheduler::Volcano))
        .then(|| (Kind::PodGroup(PodGroupApi::Volcano), volcano::pod_group_name(job)))
}

/// Returns the objects whose plans read the object of this kind and name, whoever created it.
pub fn readers(kind: Kind, namespace: &str, name: &str) -> Vec<ObjectKey> {
    match kind {
        Kind::PodGroup(PodGroupApi::Volcano) => match volcano::owner_name(name) {
            Some(owner) => [Kind::RayCluster, Kind::RayJob].map(|kind| ObjectKey::new(kind, namespace, owner)).into(),
            None => Vec::new(),
        },
        Kind::PodGroup(PodGroupApi::KubernetesWorkloads) => {
            let cluster = workload_aware::cluster_name(name);
            cluster.map(|cluster| ObjectKey::new(Kind::RayCluster, namespace, cluster)).into_iter().collect()
        }
        Kind::PodGroup(PodGroupApi::SchedulerPlugins) | Kind::Workload => {
            vec![ObjectKey::new(Kind::RayCluster, namespace, name)]
        }
        _ => Vec::new(),
    }
}

/// Returns whether the user requests a gang by the label, whatever its value.
fn is_gang(owner: GangOwner<'_>) -> bool {
    owner.label(labels::GANG_SCHEDULING).is_some()
}
