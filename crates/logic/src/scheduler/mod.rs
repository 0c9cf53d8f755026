//! Batch schedulers: who places the Pods of a cluster as one, and what it needs for that.
//!
//! One scheduler is active for the whole process. Each has a file of its own; what they are asked is
//! the same and is here:
//!
//! | when | question |
//! | --- | --- |
//! | before the Pods of a cluster are made | [`gather_cluster`]: which objects must stand for the gang? |
//! | before a RayJob's cluster is made | [`gather_job`]: the same |
//! | an object is made for a cluster or a RayJob | `mark_…`: what must it carry? |
//! | a RayJob has ended or is being suspended | [`release_job`]: what is no longer asked for? |

mod demand;
mod kai;
mod scheduler_plugins;
mod volcano;
mod workload_aware;
mod yunikorn;

#[cfg(test)]
pub(crate) mod tests;

use crate::action::{Event, Kind, ObjectKey, PodGroupApi, Stage, Step};
use crate::cluster_spec::{self, Creator};
use crate::config::{BatchScheduler, Config};
use crate::job::Mode;
use crate::labels::{self, HEAD_GROUP};
use crate::{cluster, job};
use k8s_openapi::api::core::v1::{Pod, PodSchedulingGroup, PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::{RayCluster, RayClusterSpec, RayJob};

/// The group that a submitter Pod is in.
const SUBMITTER_GROUP: &str = "submittergroup";

/// What must be done before a cluster's Pods, or a RayJob's cluster, may be made.
#[derive(Debug, Default, PartialEq)]
pub struct Gang {
    /// Writes, in order.
    pub stages: Vec<Stage>,
    /// Why nothing may be made yet, even if all writes succeed.
    pub blocked: Option<Blocked>,
}

/// Why a gang cannot be placed yet.
#[derive(Debug, PartialEq)]
pub struct Blocked {
    pub error: String,
    /// What to tell the user, where waiting does not help.
    pub event: Option<Event>,
}

impl Gang {
    /// Does one thing.
    fn doing(step: Step) -> Self {
        Self { stages: vec![vec![step]], blocked: None }
    }

    /// Waits for something that ends by itself.
    fn waiting(mut self, error: String) -> Self {
        self.blocked = Some(Blocked { error, event: None });
        self
    }

    /// Waits for the user.
    fn refused(error: String, event: Event) -> Self {
        Self { stages: Vec::new(), blocked: Some(Blocked { error, event: Some(event) }) }
    }
}

/// The object that something is made for.
#[derive(Clone, Copy)]
enum Parent<'a> {
    Cluster(&'a RayCluster),
    Job(&'a RayJob),
}

impl<'a> Parent<'a> {
    fn metadata(self) -> &'a ObjectMeta {
        match self {
            Parent::Cluster(cluster) => &cluster.metadata,
            Parent::Job(job) => &job.metadata,
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
            Parent::Cluster(_) => RayCluster::KIND,
            Parent::Job(_) => RayJob::KIND,
        }
    }

    fn label(self, key: &str) -> Option<&'a str> {
        self.metadata().labels.as_ref()?.get(key).map(String::as_str)
    }

    /// A label that says something.
    fn filled_label(self, key: &str) -> Option<&'a str> {
        self.label(key).filter(|value| !value.is_empty())
    }

    fn filled_annotation(self, key: &str) -> Option<&'a str> {
        self.metadata().annotations.as_ref()?.get(key).map(String::as_str).filter(|value| !value.is_empty())
    }

    /// The spec of the cluster that the Pods are for; none where a RayJob runs on somebody else's.
    fn cluster_spec(self) -> Option<&'a RayClusterSpec> {
        match self {
            Parent::Cluster(cluster) => Some(&cluster.spec),
            Parent::Job(job) if has_selector(job) => None,
            Parent::Job(job) => job.spec.ray_cluster_spec.as_ref(),
        }
    }
}

/// Whether a RayJob runs on a cluster that is not its own.
fn has_selector(job: &RayJob) -> bool {
    job.spec.cluster_selector.as_ref().is_some_and(|selector| !selector.is_empty())
}

/// What an object carries for its scheduler.
#[derive(Debug, Default, PartialEq)]
struct Marks {
    labels: Vec<(&'static str, String)>,
    annotations: Vec<(&'static str, String)>,
    scheduler_name: Option<&'static str>,
    /// `spec.schedulingGroup` of a Pod.
    pod_group: Option<String>,
}

impl Marks {
    /// Copies a label of the parent under another name, if it says something.
    fn copy_label(&mut self, parent: Parent<'_>, from: &str, to: &'static str) {
        if let Some(value) = parent.filled_label(from) {
            self.labels.push((to, value.to_owned()));
        }
    }

    fn put_on(&self, metadata: &mut ObjectMeta) {
        for (key, value) in &self.labels {
            metadata.labels.get_or_insert_default().insert((*key).to_owned(), value.clone());
        }
        for (key, value) in &self.annotations {
            metadata.annotations.get_or_insert_default().insert((*key).to_owned(), value.clone());
        }
    }

    fn put_on_pod(self, metadata: &mut ObjectMeta, spec: &mut PodSpec) {
        self.put_on(metadata);
        if let Some(name) = self.scheduler_name {
            spec.scheduler_name = Some(name.to_owned());
        }
        if let Some(group) = self.pod_group {
            spec.scheduling_group = Some(PodSchedulingGroup { pod_group_name: Some(group) });
        }
    }
}

fn marks(scheduler: BatchScheduler, parent: Parent<'_>, group: &str) -> Marks {
    match scheduler {
        BatchScheduler::Volcano => volcano::marks(parent, group),
        BatchScheduler::Yunikorn => yunikorn::marks(parent, group),
        BatchScheduler::Kai => kai::marks(parent),
        BatchScheduler::SchedulerPlugins => scheduler_plugins::marks(parent),
        BatchScheduler::KubernetesWorkloads => workload_aware::marks(parent),
    }
}

/// Hands the head Pod to the scheduler.
pub fn mark_head(cluster: &RayCluster, config: &Config, pod: &mut Pod) {
    mark_worker(cluster, HEAD_GROUP, config, pod);
}

/// Hands a Pod of a worker group to the scheduler.
pub fn mark_worker(cluster: &RayCluster, group: &str, config: &Config, pod: &mut Pod) {
    if let Some(scheduler) = config.batch_scheduler {
        let spec = pod.spec.get_or_insert_with(PodSpec::default);
        marks(scheduler, Parent::Cluster(cluster), group).put_on_pod(&mut pod.metadata, spec);
    }
}

/// Hands the Pods of a submitter Job to the scheduler.
pub fn mark_submitter(job: &RayJob, config: &Config, template: &mut PodTemplateSpec) {
    if let Some(scheduler) = config.batch_scheduler {
        let metadata = template.metadata.get_or_insert_with(ObjectMeta::default);
        let spec = template.spec.get_or_insert_with(PodSpec::default);
        marks(scheduler, Parent::Job(job), SUBMITTER_GROUP).put_on_pod(metadata, spec);
    }
}

/// Marks a cluster whose gang also holds the submitter: Pods take over what it carries.
pub fn mark_cluster(job: &RayJob, config: &Config, metadata: &mut ObjectMeta) {
    if let Some(scheduler) = config.batch_scheduler {
        marks(scheduler, Parent::Job(job), "").put_on(metadata);
    }
}

/// The objects that must stand for a cluster's gang before its Pods are made.
pub fn gather_cluster(seen: &cluster::Observed, config: &Config) -> Gang {
    match config.batch_scheduler {
        Some(BatchScheduler::Volcano) => volcano::gather_cluster(seen),
        Some(BatchScheduler::SchedulerPlugins) => scheduler_plugins::gather_cluster(seen),
        Some(BatchScheduler::KubernetesWorkloads) => workload_aware::gather_cluster(seen),
        Some(BatchScheduler::Yunikorn | BatchScheduler::Kai) | None => Gang::default(),
    }
}

/// The objects that must stand for a RayJob's gang before its cluster is made.
///
/// Only Volcano counts a RayJob's submitter in. With the others the gang is the cluster's, and the
/// submitter is placed by itself; KubeRay refuses such jobs, and they never start.
pub fn gather_job(seen: &job::Observed, mode: Mode, config: &Config) -> Gang {
    match config.batch_scheduler {
        Some(BatchScheduler::Volcano) => volcano::gather_job(seen, mode),
        _ => Gang::default(),
    }
}

/// What to do about a RayJob's gang when its cluster shrinks or is gone.
pub fn release_job(seen: &job::Observed, config: &Config) -> Option<Step> {
    match config.batch_scheduler {
        Some(BatchScheduler::Volcano) => volcano::release_job(seen),
        _ => None,
    }
}

/// The kinds of objects that stand for the gang of a cluster, so that they must be watched.
pub fn cluster_kinds(cluster: &RayCluster, config: &Config) -> &'static [Kind] {
    const VOLCANO: &[Kind] = &[Kind::PodGroup(PodGroupApi::Volcano)];
    const SCHEDULER_PLUGINS: &[Kind] = &[Kind::PodGroup(PodGroupApi::SchedulerPlugins)];
    const WORKLOAD_AWARE: &[Kind] = &[Kind::Workload, Kind::PodGroup(PodGroupApi::KubernetesWorkloads)];
    match config.batch_scheduler {
        Some(BatchScheduler::Volcano) if cluster_spec::creator(cluster) != Creator::RayJob => VOLCANO,
        Some(BatchScheduler::SchedulerPlugins) if is_gang(Parent::Cluster(cluster)) => SCHEDULER_PLUGINS,
        // Also for clusters that ask for no gang: they may have asked before.
        Some(BatchScheduler::KubernetesWorkloads) => WORKLOAD_AWARE,
        _ => &[],
    }
}

/// The kind and name of the object that stands for the gang of a RayJob.
pub fn job_pod_group(job: &str, config: &Config) -> Option<(Kind, String)> {
    (config.batch_scheduler == Some(BatchScheduler::Volcano))
        .then(|| (Kind::PodGroup(PodGroupApi::Volcano), volcano::pod_group_name(job)))
}

/// Whose plans read the object of this kind and name, whoever made it.
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

/// Whether the user asks for a gang: the label is there, whatever it says.
fn is_gang(parent: Parent<'_>) -> bool {
    parent.label(labels::GANG_SCHEDULING).is_some()
}
