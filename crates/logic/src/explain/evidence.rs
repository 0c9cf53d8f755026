//! What is known about an object that has to be explained.
//!
//! These are the parts of Kubernetes objects that rules and timelines read, in the form in which the API server sends
//! them. No type has room for an environment value, a token or a template of a Pod, so that evidence can be kept and shown
//! to anybody who may read the object.

use super::Cause;
use crate::job::dashboard::JobInfo;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use manta_api::{RayClusterStatus, RayCronJobStatus, RayJobStatus, RayServiceStatus};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

/// Everything that was found out about one object.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Evidence {
    pub subject: Subject,
    /// When it was gathered.
    pub at: Timestamp,
    /// Whether the object had been deleted by then.
    pub is_deleted: bool,
    /// The RayClusters that belong to the subject: itself, or those that its status names.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub clusters: Vec<Cluster>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<Job>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub service: Option<Service>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cron_job: Option<CronJob>,
    /// The Pods of the clusters and of the submitter.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub pods: Vec<Pod>,
    /// The batch/v1 Jobs of a RayJob's submitter and of clean-ups.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub batch_jobs: Vec<BatchJob>,
    /// Kueue's Workloads of the subject.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub workloads: Vec<Workload>,
    /// Events about the subject and all of these objects, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<Event>,
    /// The last lines that containers and the driver printed.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub logs: Vec<Log>,
    pub ray: Ray,
    /// Pods that failed and were replaced, the oldest first.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub replaced: Vec<Replaced>,
    /// What could not be read.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub unreadable: Vec<Unreadable>,
}

/// The object that is explained.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Subject {
    /// `RayCluster`, `RayJob`, `RayService` or `RayCronJob`.
    pub kind: String,
    pub namespace: String,
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

impl std::fmt::Display for Subject {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{} {}", self.kind, self.name)
    }
}

/// The part of `metadata` that is read.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Meta {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<i64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub creation_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deletion_timestamp: Option<Timestamp>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub finalizers: Vec<String>,
    /// Only those of Ray and Kueue.
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "known_labels")]
    pub labels: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub owner_references: Vec<Owner>,
    /// Who wrote the object, and when.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub managed_fields: Vec<Writer>,
}

impl Meta {
    pub(super) fn label(&self, key: &str) -> &str {
        self.labels.get(key).map(String::as_str).unwrap_or_default()
    }
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Owner {
    pub kind: String,
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
}

/// An entry of `managedFields`, without the fields.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Writer {
    pub manager: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub subresource: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Cluster {
    pub metadata: Meta,
    pub spec: ClusterSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<RayClusterStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ClusterSpec {
    #[serde(deserialize_with = "null_is_default")]
    pub suspend: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    #[serde(deserialize_with = "null_is_default")]
    pub enable_in_tree_autoscaling: bool,
    #[serde(skip_serializing_if = "Vec::is_empty", deserialize_with = "null_is_default")]
    pub worker_group_specs: Vec<Group>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Group {
    pub group_name: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub replicas: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub max_replicas: Option<i32>,
    #[serde(deserialize_with = "null_is_default")]
    pub suspend: bool,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Job {
    pub metadata: Meta,
    pub spec: JobSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<RayJobStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct JobSpec {
    #[serde(deserialize_with = "null_is_default")]
    pub suspend: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub submission_mode: Option<String>,
    #[serde(skip_serializing_if = "BTreeMap::is_empty", deserialize_with = "null_is_default")]
    pub cluster_selector: BTreeMap<String, String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub backoff_limit: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub active_deadline_seconds: Option<i32>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub pre_running_deadline_seconds: Option<i32>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Service {
    pub metadata: Meta,
    pub spec: ServiceSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<RayServiceStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ServiceSpec {
    #[serde(deserialize_with = "null_is_default")]
    pub suspend: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub managed_by: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct CronJob {
    pub metadata: Meta,
    pub spec: CronJobSpec,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub status: Option<RayCronJobStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct CronJobSpec {
    pub schedule: String,
    #[serde(deserialize_with = "null_is_default")]
    pub suspend: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub time_zone: Option<String>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Pod {
    pub metadata: Meta,
    pub spec: PodSpec,
    pub status: PodStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodSpec {
    #[serde(skip_serializing_if = "String::is_empty")]
    pub node_name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub scheduler_name: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub containers: Vec<Container>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Container {
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    pub resources: Resources,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Resources {
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    pub limits: BTreeMap<String, Value>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodStatus {
    pub phase: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PodCondition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub init_container_statuses: Vec<ContainerStatus>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub container_statuses: Vec<ContainerStatus>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct PodCondition {
    #[serde(rename = "type")]
    pub type_: String,
    pub status: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_transition_time: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct ContainerStatus {
    pub name: String,
    pub ready: bool,
    pub restart_count: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub image: String,
    pub state: ContainerState,
    pub last_state: ContainerState,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct ContainerState {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub waiting: Option<Waiting>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub running: Option<Running>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub terminated: Option<Terminated>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Waiting {
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Running {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Terminated {
    pub exit_code: i32,
    pub signal: i32,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub reason: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub started_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub finished_at: Option<Timestamp>,
}

/// A batch/v1 Job.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchJob {
    pub metadata: Meta,
    pub status: BatchJobStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct BatchJobStatus {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PodCondition>,
}

/// A Workload of Kueue.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct Workload {
    pub metadata: Meta,
    pub spec: WorkloadSpec,
    pub status: WorkloadStatus,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadSpec {
    pub queue_name: String,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct WorkloadStatus {
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub conditions: Vec<PodCondition>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub admission_checks: Vec<AdmissionCheck>,
}

#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default)]
pub struct AdmissionCheck {
    pub name: String,
    pub state: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub message: String,
}

/// An event, of either API.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Event {
    /// The object that it is about.
    pub kind: String,
    pub name: String,
    #[serde(skip_serializing_if = "String::is_empty")]
    pub uid: String,
    pub is_warning: bool,
    pub reason: String,
    pub message: String,
    pub count: i32,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub first: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last: Option<Timestamp>,
}

impl Event {
    /// Reads a core/v1 Event as the API server sends it.
    pub fn of(object: &Value) -> Self {
        let text = |path: &str| object.pointer(path).and_then(Value::as_str).unwrap_or_default().to_owned();
        let time = |path: &str| text(path).parse::<Timestamp>().ok();
        let number = |path: &str| object.pointer(path).and_then(Value::as_i64).and_then(|it| i32::try_from(it).ok());
        let first = time("/firstTimestamp").or_else(|| time("/eventTime"));
        let last = time("/series/lastObservedTime").or_else(|| time("/lastTimestamp"));
        Self {
            kind: text("/involvedObject/kind"),
            name: text("/involvedObject/name"),
            uid: text("/involvedObject/uid"),
            is_warning: text("/type") == "Warning",
            reason: text("/reason"),
            message: text("/message").trim_end().to_owned(),
            count: number("/series/count").or_else(|| number("/count")).unwrap_or(1),
            first,
            last: last.or(first).or_else(|| time("/metadata/creationTimestamp")),
        }
    }
}

/// The last lines of one log.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Log {
    pub source: LogSource,
    /// The Pod; empty for a driver.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub pod: String,
    /// The container, or the id of the job.
    pub name: String,
    /// Whether it is that of the run before the present one.
    pub is_previous: bool,
    pub lines: Vec<String>,
}

/// Who printed a log.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum LogSource {
    /// The driver of a job.
    Driver,
    Head,
    Worker,
    Submitter,
    #[default]
    Other,
}

/// What Ray itself says.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Ray {
    #[serde(skip_serializing_if = "Option::is_none")]
    pub job: Option<JobInfo>,
    /// The autoscaler's report, as `ray status` prints it.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub autoscaler: String,
}

/// A Pod that failed and was replaced.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase", default)]
pub struct Replaced {
    /// When the operator was about to replace it.
    pub at: Timestamp,
    pub is_head: bool,
    /// Why it had failed.
    pub cause: Cause,
}

/// A source that could not be read.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Unreadable {
    /// Such as `list pods`.
    pub what: String,
    pub why: String,
}

fn null_is_default<'de, D: Deserializer<'de>, T: Default + Deserialize<'de>>(input: D) -> Result<T, D::Error> {
    Ok(Option::<T>::deserialize(input)?.unwrap_or_default())
}

fn known_labels<'de, D: Deserializer<'de>>(input: D) -> Result<BTreeMap<String, String>, D::Error> {
    let all = Option::<BTreeMap<String, String>>::deserialize(input)?.unwrap_or_default();
    let is_known = |key: &String| key.starts_with("ray.io/") || key.starts_with("kueue.x-k8s.io/");
    Ok(all.into_iter().filter(|(key, _)| is_known(key)).collect())
}

impl Evidence {
    /// Returns the subject's own metadata, if it was found.
    pub fn meta(&self) -> Option<&Meta> {
        match self.subject.kind.as_str() {
            "RayCluster" => self.clusters.first().map(|cluster| &cluster.metadata),
            "RayJob" => self.job.as_ref().map(|job| &job.metadata),
            "RayService" => self.service.as_ref().map(|service| &service.metadata),
            _ => self.cron_job.as_ref().map(|cron_job| &cron_job.metadata),
        }
    }

    /// Returns whether a head or a worker exists.
    pub fn has_ray_pods(&self) -> bool {
        self.pods.iter().any(|pod| pod.is_head() || pod.is_worker())
    }

    /// Returns why a source was not read to its end.
    pub fn unread(&self, what: &str) -> Option<&Unreadable> {
        self.unreadable.iter().find(|unreadable| unreadable.what == what)
    }

    pub(super) fn job_status(&self) -> Option<&RayJobStatus> {
        self.job.as_ref()?.status.as_ref()
    }

    pub(super) fn service_status(&self) -> Option<&RayServiceStatus> {
        self.service.as_ref()?.status.as_ref()
    }

    /// Returns the log of a container, that of the run that has ended first.
    pub(super) fn log_of(&self, pod: &str, container: &str) -> Option<&Log> {
        let of = |is_previous: bool| {
            let is_it = |log: &&Log| log.pod == pod && log.name == container && log.is_previous == is_previous;
            self.logs.iter().find(is_it).filter(|log| !log.lines.is_empty())
        };
        of(true).or_else(|| of(false))
    }

    pub(super) fn driver_log(&self) -> Option<&Log> {
        self.logs.iter().find(|log| log.source == LogSource::Driver && !log.lines.is_empty())
    }
}

impl Pod {
    pub(crate) fn is_head(&self) -> bool {
        self.metadata.label("ray.io/node-type") == "head"
    }

    pub(crate) fn is_worker(&self) -> bool {
        self.metadata.label("ray.io/node-type") == "worker"
    }

    pub(super) fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    pub(super) fn condition(&self, type_: &str) -> Option<&PodCondition> {
        self.status.conditions.iter().find(|condition| condition.type_ == type_)
    }

    pub(super) fn is_ready(&self) -> bool {
        self.status.phase == "Running" && self.condition("Ready").is_some_and(|ready| ready.status == "True")
    }

    /// Returns the containers, the init containers first, and whether each is one.
    pub(super) fn all_containers(&self) -> impl Iterator<Item = (&ContainerStatus, bool)> {
        let init = self.status.init_container_statuses.iter().map(|status| (status, true));
        init.chain(self.status.container_statuses.iter().map(|status| (status, false)))
    }

    /// Returns what a sentence calls it.
    pub(super) fn words(&self) -> String {
        let name = &self.metadata.name;
        match (self.is_head(), self.is_worker(), self.metadata.label("ray.io/group")) {
            (true, ..) => format!("head Pod {name}"),
            (_, true, "") => format!("worker Pod {name}"),
            (_, true, group) => format!("worker Pod {name} of group {group}"),
            _ => format!("Pod {name}"),
        }
    }
}

/// Returns the condition of a type.
pub(super) fn condition<'a>(conditions: Option<&'a Vec<Condition>>, type_: &str) -> Option<&'a Condition> {
    conditions?.iter().find(|condition| condition.type_ == type_)
}
