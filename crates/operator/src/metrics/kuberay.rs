//! Metrics about objects and the queue, read from the caches on each scrape.

use super::{CONTROLLERS, Metrics, Telemetry, controller};
use crate::lock::lock;
use crate::raw_object::RawObject;
use crate::stores::Table;
use crate::watched_object::View;
use jiff::Timestamp;
use manta_api::{RayCluster, RayJob, RayJobStatus, RayService};
use manta_logic::action::{Kind, ObjectKey};
use prometheus_client::collector::Collector;
use prometheus_client::encoding::DescriptorEncoder;
use prometheus_client::metrics::MetricType;
use std::collections::{BTreeMap, HashSet};
use std::fmt;
use std::sync::Arc;

/// Objects that are parsed for a scrape before other work goes on: less than a millisecond's.
const PARSED_AT_ONCE: usize = 64;

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
        let clusters = all(&self.telemetry.stores.clusters, Kind::RayCluster);
        let provisioned = |cluster: &RawObject<RayCluster>| cluster.excerpt()?.since("RayClusterProvisioned");
        let took = |cluster: &Arc<RawObject<RayCluster>>| {
            let since = provisioned(cluster)?;
            Some((identity(cluster), since.duration_since(cluster.excerpt()?.created?).as_secs_f64()))
        };
        gauge(
            encoder,
            "kuberay_cluster_provisioned_duration_seconds",
            CLUSTER_SECONDS,
            clusters.iter().filter_map(took),
        )?;
        let info = |cluster: &Arc<RawObject<RayCluster>>| {
            let owner_kind = cluster.excerpt().and_then(|excerpt| excerpt.originated_from.as_deref());
            labelled_series(cluster, "owner_kind", owner_kind.unwrap_or("None"))
        };
        let help = "Metadata information about RayCluster custom resources";
        gauge(encoder, "kuberay_cluster_info", help, clusters.iter().map(info))?;
        let condition =
            |cluster: &Arc<RawObject<RayCluster>>| condition_series(cluster, provisioned(cluster).is_some());
        let help = "Indicates whether the RayCluster is provisioned";
        gauge(encoder, "kuberay_cluster_condition_provisioned", help, clusters.iter().map(condition))
    }

    fn jobs(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let jobs = all(&self.telemetry.stores.jobs, Kind::RayJob);
        let attempts = self.telemetry.metrics.attempts(&jobs.iter().map(|job| job.uid()).collect());
        gauge(encoder, "kuberay_job_execution_duration_seconds", JOB_SECONDS, attempts)?;
        let info = |job: &Arc<RawObject<RayJob>>| (identity(job), 1.0);
        let help = "Metadata information about RayJob custom resources";
        gauge(encoder, "kuberay_job_info", help, jobs.iter().map(info))?;
        let status = |job: &Arc<RawObject<RayJob>>| {
            let status = job.excerpt().and_then(|excerpt| excerpt.deployment_status.as_deref());
            labelled_series(job, "deployment_status", status.unwrap_or_default())
        };
        let help = "The RayJob's current deployment status";
        gauge(encoder, "kuberay_job_deployment_status", help, jobs.iter().map(status))
    }

    fn services(&self, encoder: &mut DescriptorEncoder<'_>) -> fmt::Result {
        let services = all(&self.telemetry.stores.services, Kind::RayService);
        let info = |service: &Arc<RawObject<RayService>>| (identity(service), 1.0);
        let help = "Metadata information about RayService custom resources";
        gauge(encoder, "kuberay_service_info", help, services.iter().map(info))?;
        let condition = |type_: &'static str| {
            move |service: &Arc<RawObject<RayService>>| {
                condition_series(service, service.excerpt().is_some_and(|excerpt| excerpt.since(type_).is_some()))
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

impl Telemetry {
    /// Parses what the metrics of objects show, wherever an object is new. Lets other work go on in between: the operator
    /// has one thread.
    pub(crate) async fn parse_ahead(&self) {
        parse_all(&self.stores.clusters, Kind::RayCluster).await;
        parse_all(&self.stores.jobs, Kind::RayJob).await;
        parse_all(&self.stores.services, Kind::RayService).await;
    }
}

async fn parse_all<K: 'static>(table: &Table<RawObject<K>>, kind: Kind) {
    for some in all(table, kind).chunks(PARSED_AT_ONCE) {
        for object in some {
            object.excerpt();
        }
        tokio::task::yield_now().await;
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

    /// Returns how long the attempts of the jobs with these UIDs took, and drops those of other jobs.
    fn attempts(&self, jobs: &HashSet<&str>) -> Vec<(Labels, f64)> {
        let mut attempts = lock(&self.job_seconds);
        attempts.retain(|attempt, _| jobs.contains(attempt.uid.as_str()));
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

/// Returns every object of one of our kinds.
fn all<K: 'static>(table: &Table<RawObject<K>>, kind: Kind) -> Vec<Arc<RawObject<K>>> {
    let keys = table.owners().into_iter().filter(|key| key.kind == kind);
    keys.filter_map(|key| table.get(&key, &key.name)).collect()
}

fn identity<K: 'static>(object: &RawObject<K>) -> Labels {
    let (namespace, name) = object.key();
    vec![("name", name.to_owned()), ("namespace", namespace.to_owned()), ("uid", object.uid().to_owned())]
}

fn labelled_series<K: 'static>(object: &RawObject<K>, label: &'static str, value: &str) -> (Labels, f64) {
    let mut labels = identity(object);
    labels.push((label, value.to_owned()));
    (labels, 1.0)
}

fn condition_series<K: 'static>(object: &RawObject<K>, holds: bool) -> (Labels, f64) {
    labelled_series(object, "condition", if holds { "true" } else { "false" })
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
