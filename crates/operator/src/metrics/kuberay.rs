//! Metrics about objects and the queue, read from the caches on each scrape.

use super::{CONTROLLERS, Metrics, Telemetry, controller};
use crate::lock::lock;
use crate::raw_object::RawObject;
use crate::stores::Table;
use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use manta_api::{RayClusterStatus, RayJob, RayJobStatus, RayServiceStatus};
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::labels;
use manta_logic::view::MetaView;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use std::collections::BTreeMap;
use std::fmt;

/// The end of one attempt of a RayJob.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Attempt {
    namespace: String,
    name: String,
    uid: String,
    ended_as: String,
    retry_count: i32,
}

/// Collects what the caches and the queue hold at the time of a scrape.
pub(super) struct ObjectMetrics {
    pub(super) telemetry: Telemetry,
    pub(super) with_kuberay: bool,
}

impl fmt::Debug for ObjectMetrics {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("ObjectMetrics")
    }
}

type Labels = Vec<(&'static str, String)>;

const CLUSTER_SECONDS: &str = "The time, in seconds, when a RayCluster's `RayClusterProvisioned` status transitions from false (or unset) to true";
const JOB_SECONDS: &str = "Duration from when the RayJob CR’s JobDeploymentStatus transitions from Initializing to either the Retrying state or a terminal state, such as Complete or Failed. The Retrying state indicates that the CR previously failed and that spec.backoffLimit is enabled.";
const SERVICE_READY: &str = "Describes whether the RayService is ready. Ready means users can send requests to the underlying cluster and the number of serve endpoints is greater than 0.";

impl Collector for ObjectMetrics {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), fmt::Error> {
        self.queue(&mut encoder)?;
        if self.with_kuberay {
            self.clusters(&mut encoder)?;
            self.jobs(&mut encoder)?;
            self.services(&mut encoder)?;
        }
        Ok(())
    }
}

impl ObjectMetrics {
    fn queue(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut depths = BTreeMap::from(CONTROLLERS.map(|name| (name, 0)));
        for key in self.telemetry.queue.keys() {
            *depths.entry(controller(key.kind)).or_insert(0) += 1;
        }
        let depth = |(name, depth): (&'static str, i32)| {
            let labels: Labels =
                vec![("name", name.to_owned()), ("controller", name.to_owned()), ("priority", String::new())];
            (labels, f64::from(depth))
        };
        gauge(encoder, "workqueue_depth", "Objects that are due or in a pass", depths.into_iter().map(depth))?;
        let age = self.telemetry.queue.overdue().as_secs_f64();
        let help = "How long the longest-waiting object has been due";
        gauge(encoder, "manta_queue_age_seconds", help, [(Labels::new(), age)])?;
        self.unfinished(encoder)?;
        let lags = self.lags();
        gauge(encoder, "manta_object_lag_seconds", "How long the object waited for its last pass", lags)
    }

    /// Encodes how long the running passes have taken so far: their sum and the longest.
    fn unfinished(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let mut elapsed = BTreeMap::from(CONTROLLERS.map(|name| (name, (0.0, 0.0_f64))));
        for (key, since) in lock(&self.telemetry.metrics.running_since).iter() {
            let seconds = since.elapsed().as_secs_f64();
            let (sum, longest) = elapsed.entry(controller(key.kind)).or_default();
            (*sum, *longest) = (*sum + seconds, longest.max(seconds));
        }
        let labels = |name: &str| vec![("name", name.to_owned()), ("controller", name.to_owned())];
        let sums = elapsed.iter().map(|(name, (sum, _))| (labels(name), *sum));
        gauge(encoder, "workqueue_unfinished_work_seconds", "Seconds that unfinished passes have taken so far", sums)?;
        let longest = elapsed.iter().map(|(name, (_, longest))| (labels(name), *longest));
        let help = "Seconds that the longest unfinished pass has taken so far";
        gauge(encoder, "workqueue_longest_running_processor_seconds", help, longest)
    }

    /// Returns the lags of the objects that still exist, and drops those of others.
    fn lags(&self) -> Vec<(Labels, f64)> {
        let stores = &self.telemetry.stores;
        let mut lags = lock(&self.telemetry.metrics.lags);
        lags.retain(|key, _| match key.kind {
            Kind::RayCluster => stores.clusters.get(key, &key.name).is_some(),
            Kind::RayJob => stores.jobs.get(key, &key.name).is_some(),
            Kind::RayService => stores.services.get(key, &key.name).is_some(),
            Kind::RayCronJob => stores.cron_jobs.get(key, &key.name).is_some(),
            _ => false,
        });
        let labels = |key: &ObjectKey| -> Labels {
            vec![
                ("controller", controller(key.kind).to_owned()),
                ("namespace", key.namespace.clone()),
                ("name", key.name.clone()),
            ]
        };
        lags.iter().map(|(key, lag)| (labels(key), lag.as_secs_f64())).collect()
    }

    fn clusters(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let clusters = read_all(&self.telemetry.stores.clusters, Kind::RayCluster);
        let provisioned = |cluster: &ObjectStatus<RayClusterStatus>| {
            let conditions = cluster.status.as_ref().and_then(|status| status.conditions.clone()).unwrap_or_default();
            conditions.into_iter().find(|condition| condition.type_ == "RayClusterProvisioned")
        };
        let took = |cluster: &ObjectStatus<RayClusterStatus>| {
            let since = provisioned(cluster).filter(is_true)?.last_transition_time.0;
            Some((identity(cluster), since.duration_since(cluster.metadata.creation_timestamp?).as_secs_f64()))
        };
        gauge(
            encoder,
            "kuberay_cluster_provisioned_duration_seconds",
            CLUSTER_SECONDS,
            clusters.iter().filter_map(took),
        )?;
        let info = |cluster: &ObjectStatus<RayClusterStatus>| {
            labelled_series(
                cluster,
                "owner_kind",
                cluster.metadata.label(labels::ORIGINATED_FROM_CRD).unwrap_or("None"),
            )
        };
        let help = "Metadata information about RayCluster custom resources";
        gauge(encoder, "kuberay_cluster_info", help, clusters.iter().map(info))?;
        let condition = |cluster: &ObjectStatus<RayClusterStatus>| {
            condition_series(cluster, provisioned(cluster).as_ref().is_some_and(is_true))
        };
        let help = "Indicates whether the RayCluster is provisioned";
        gauge(encoder, "kuberay_cluster_condition_provisioned", help, clusters.iter().map(condition))
    }

    fn jobs(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let jobs = read_all(&self.telemetry.stores.jobs, Kind::RayJob);
        let attempts = self.telemetry.metrics.attempts(&jobs);
        gauge(encoder, "kuberay_job_execution_duration_seconds", JOB_SECONDS, attempts)?;
        let info = |job: &ObjectStatus<RayJobStatus>| (identity(job), 1.0);
        let help = "Metadata information about RayJob custom resources";
        gauge(encoder, "kuberay_job_info", help, jobs.iter().map(info))?;
        let status = |job: &ObjectStatus<RayJobStatus>| {
            let status = job.status.as_ref().and_then(|status| status.job_deployment_status.as_deref());
            labelled_series(job, "deployment_status", status.unwrap_or_default())
        };
        let help = "The RayJob's current deployment status";
        gauge(encoder, "kuberay_job_deployment_status", help, jobs.iter().map(status))
    }

    fn services(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let services = read_all(&self.telemetry.stores.services, Kind::RayService);
        let info = |service: &ObjectStatus<RayServiceStatus>| (identity(service), 1.0);
        let help = "Metadata information about RayService custom resources";
        gauge(encoder, "kuberay_service_info", help, services.iter().map(info))?;
        let condition = |type_: &'static str| {
            move |service: &ObjectStatus<RayServiceStatus>| {
                let conditions =
                    service.status.as_ref().and_then(|status| status.conditions.as_deref()).unwrap_or_default();
                let holds = conditions.iter().any(|condition| condition.type_ == type_ && is_true(condition));
                condition_series(service, holds)
            }
        };
        gauge(encoder, "kuberay_service_condition_ready", SERVICE_READY, services.iter().map(condition("Ready")))?;
        gauge(
            encoder,
            "kuberay_service_condition_upgrade_in_progress",
            "Describes whether the RayService is performing a zero-downtime upgrade.",
            services.iter().map(condition("UpgradeInProgress")),
        )
    }
}

impl Metrics {
    /// Records the duration of an attempt, if the status that was written ends it.
    pub(crate) fn job_status_written(&self, job: &RayJob, written: &RayJobStatus, now: Timestamp) {
        let status = |of: Option<&RayJobStatus>| of.and_then(|status| status.job_deployment_status.clone());
        let ended = |status: &Option<String>| matches!(status.as_deref(), Some("Complete" | "Failed" | "Retrying"));
        let (before, after) = (status(job.status.as_ref()), status(Some(written)));
        let start = written.start_time.as_ref().or(job.status.as_ref().and_then(|status| status.start_time.as_ref()));
        let (Some(ended_as), Some(start)) = (after.clone().filter(|_| ended(&after)), start) else { return };
        if ended(&before) {
            return;
        }
        let meta = &job.metadata;
        let attempt = Attempt {
            namespace: meta.namespace.clone().unwrap_or_default(),
            name: meta.name.clone().unwrap_or_default(),
            uid: meta.uid.clone().unwrap_or_default(),
            ended_as,
            retry_count: job.status.as_ref().and_then(|status| status.failed).unwrap_or_default(),
        };
        lock(&self.job_seconds).insert(attempt, now.duration_since(start.0).as_secs_f64());
    }

    /// Returns how long the attempts of these jobs took, and drops those of other jobs.
    fn attempts(&self, jobs: &[ObjectStatus<RayJobStatus>]) -> Vec<(Labels, f64)> {
        let mut attempts = lock(&self.job_seconds);
        attempts.retain(|attempt, _| jobs.iter().any(|job| job.metadata.uid == attempt.uid));
        let labels = |attempt: &Attempt| -> Labels {
            vec![
                ("name", attempt.name.clone()),
                ("namespace", attempt.namespace.clone()),
                ("uid", attempt.uid.clone()),
                ("job_deployment_status", attempt.ended_as.clone()),
                ("retry_count", attempt.retry_count.to_string()),
            ]
        };
        attempts.iter().map(|(attempt, seconds)| (labels(attempt), *seconds)).collect()
    }
}

/// The metadata and status of an object; no metric needs the spec.
#[derive(Deserialize)]
struct ObjectStatus<S> {
    metadata: MetaView,
    #[serde(default = "Option::default")]
    status: Option<S>,
}

/// Returns every object of one of our kinds.
fn read_all<K: 'static, S: DeserializeOwned>(table: &Table<RawObject<K>>, kind: Kind) -> Vec<ObjectStatus<S>> {
    let keys = table.owners().into_iter().filter(|key| key.kind == kind);
    keys.filter_map(|key| table.get(&key, &key.name)?.read_as()).collect()
}

fn identity<S>(object: &ObjectStatus<S>) -> Labels {
    let meta = &object.metadata;
    vec![("name", meta.name.clone()), ("namespace", meta.namespace.clone()), ("uid", meta.uid.clone())]
}

fn labelled_series<S>(object: &ObjectStatus<S>, label: &'static str, value: &str) -> (Labels, f64) {
    let mut labels = identity(object);
    labels.push((label, value.to_owned()));
    (labels, 1.0)
}

fn condition_series<S>(object: &ObjectStatus<S>, holds: bool) -> (Labels, f64) {
    labelled_series(object, "condition", if holds { "true" } else { "false" })
}

fn is_true(condition: &Condition) -> bool {
    condition.status == "True"
}

fn gauge(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    series: impl IntoIterator<Item = (Labels, f64)>,
) -> fmt::Result {
    let mut family = encoder.encode_descriptor(name, help, None, MetricType::Gauge)?;
    for (labels, value) in series {
        if labels.is_empty() {
            family.encode_gauge(&value)?;
        } else {
            family.encode_family(&labels)?.encode_gauge(&value)?;
        }
    }
    Ok(())
}
