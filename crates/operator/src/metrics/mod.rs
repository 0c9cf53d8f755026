//! The operator's metrics, under the names that KubeRay's dashboards query.
//!
//! Counters are updated here as things happen. Metrics about objects are read from the caches on each scrape
//! ([`kuberay`]), so that they disappear together with the objects.

pub mod client;
mod excerpt;
mod kuberay;
mod process;
pub(crate) mod protected;
mod webhook;

pub(crate) use excerpt::Excerpt;

use crate::lock::lock;
use crate::queue::{Queue, Requeue};
use crate::stores::Stores;
use manta_logic::action::{Kind, ObjectKey};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::time::Instant;

/// The media type of [`Telemetry::scrape`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The caches, the queue and the counters that a scrape reads.
#[derive(Clone, Default)]
pub struct Telemetry {
    pub stores: Arc<Stores>,
    pub queue: Arc<Queue>,
    pub metrics: Arc<Metrics>,
}

/// The counters, gauges and histograms.
pub struct Metrics {
    requests: Family<RequestLabels, Counter>,
    request_seconds: Family<VerbLabels, Histogram, fn() -> Histogram>,
    passes: Family<PassLabels, Counter>,
    pass_errors: Family<ControllerLabels, Counter>,
    pass_panics: Family<ControllerLabels, Counter>,
    pass_seconds: Family<ControllerLabels, Histogram, fn() -> Histogram>,
    active_passes: Family<ControllerLabels, Gauge>,
    adds: Family<QueueLabels, Counter>,
    retries: Family<QueueLabels, Counter>,
    queue_seconds: Family<QueueLabels, Histogram, fn() -> Histogram>,
    work_seconds: Family<QueueLabels, Histogram, fn() -> Histogram>,
    /// When each running pass started.
    running_since: Mutex<HashMap<ObjectKey, Instant>>,
    request_bytes: Family<VerbLabels, Histogram, fn() -> Histogram>,
    response_bytes: Family<VerbLabels, Histogram, fn() -> Histogram>,
    webhook: webhook::WebhookMetrics,
    dashboard_requests: Family<DashboardLabels, Counter>,
    leader: Gauge,
    /// How long each object waited for its last pass.
    lags: Mutex<HashMap<ObjectKey, Duration>>,
    /// How long the attempts of RayJobs took.
    job_seconds: Mutex<BTreeMap<kuberay::Attempt, f64>>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct RequestLabels {
    code: String,
    method: String,
    host: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct VerbLabels {
    verb: String,
    host: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ControllerLabels {
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PassLabels {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueueLabels {
    name: &'static str,
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct DashboardLabels {
    result: String,
}

impl Default for Metrics {
    fn default() -> Self {
        let metrics = Self {
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(latency_histogram),
            passes: Family::default(),
            pass_errors: Family::default(),
            pass_panics: Family::default(),
            pass_seconds: Family::new_with_constructor(pass_histogram),
            active_passes: Family::default(),
            adds: Family::default(),
            retries: Family::default(),
            queue_seconds: Family::new_with_constructor(queue_histogram),
            work_seconds: Family::new_with_constructor(queue_histogram),
            running_since: Mutex::default(),
            request_bytes: Family::new_with_constructor(size_histogram),
            response_bytes: Family::new_with_constructor(size_histogram),
            webhook: webhook::WebhookMetrics::default(),
            dashboard_requests: Family::default(),
            leader: Gauge::default(),
            lags: Mutex::default(),
            job_seconds: Mutex::default(),
        };
        metrics.start_at_zero();
        metrics
    }
}

fn latency_histogram() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0])
}

fn pass_histogram() -> Histogram {
    Histogram::new([
        0.005, 0.01, 0.025, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.45, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0, 1.25, 1.5,
        1.75, 2.0, 2.5, 3.0, 3.5, 4.0, 4.5, 5.0, 6.0, 7.0, 8.0, 9.0, 10.0, 15.0, 20.0, 25.0, 30.0, 40.0, 50.0, 60.0,
    ])
}

fn size_histogram() -> Histogram {
    Histogram::new([64, 256, 512, 1024, 4096, 16_384, 65_536, 262_144, 1_048_576, 4_194_304, 16_777_216].map(f64::from))
}

fn queue_histogram() -> Histogram {
    Histogram::new((-8..4).map(|exponent| 10f64.powi(exponent)))
}

impl Metrics {
    /// Creates every series at zero, because a rate needs a first value.
    fn start_at_zero(&self) {
        for controller in CONTROLLERS {
            for result in ["success", "error", "requeue", "requeue_after"] {
                drop(self.passes.get_or_create(&PassLabels { controller, result }));
            }
            for family in [&self.pass_errors, &self.pass_panics] {
                drop(family.get_or_create(&ControllerLabels { controller }));
            }
            drop(self.active_passes.get_or_create(&ControllerLabels { controller }));
            for family in [&self.adds, &self.retries] {
                drop(family.get_or_create(&QueueLabels { name: controller, controller }));
            }
        }
    }

    /// Records a request to the API server that got a response or failed.
    pub(crate) fn observe_request(&self, method: &http::Method, host: &str, code: &str, took: Duration) {
        let (method, host) = (method.as_str().to_owned(), host.to_owned());
        self.request_seconds
            .get_or_create(&VerbLabels { verb: method.clone(), host: host.clone() })
            .observe(took.as_secs_f64());
        self.requests.get_or_create(&RequestLabels { code: code.to_owned(), method, host }).inc();
    }

    /// Records the sizes of a request and its response, where they are known.
    pub(crate) fn observe_sizes(&self, method: &http::Method, host: &str, sent: Option<u64>, received: Option<u64>) {
        let verb = VerbLabels { verb: method.as_str().to_owned(), host: host.to_owned() };
        for (bytes, family) in [(sent, &self.request_bytes), (received, &self.response_bytes)] {
            if let Some(bytes) = bytes {
                family.get_or_create(&verb).observe(u32::try_from(bytes).unwrap_or(u32::MAX).into());
            }
        }
    }

    /// Records that a pass started after its object waited in the queue.
    pub(crate) fn pass_started(&self, key: &ObjectKey, waited: Duration) {
        let controller = controller(key.kind);
        let queue = QueueLabels { name: controller, controller };
        self.queue_seconds.get_or_create(&queue).observe(waited.as_secs_f64());
        self.adds.get_or_create(&queue).inc();
        lock(&self.running_since).insert(key.clone(), Instant::now());
        self.active_passes.get_or_create(&ControllerLabels { controller }).inc();
        lock(&self.lags).insert(key.clone(), waited);
    }

    pub(crate) fn pass_ended(&self, key: &ObjectKey, requeue: &Requeue, took: Duration) {
        let controller = controller(key.kind);
        let result = match requeue {
            Requeue::OnChange => "success",
            Requeue::After(..) | Requeue::OnceShown => "requeue_after",
            Requeue::BackOff | Requeue::Refused => "error",
        };
        self.passes.get_or_create(&PassLabels { controller, result }).inc();
        let queue = QueueLabels { name: controller, controller };
        if requeue.is_failure() {
            self.pass_errors.get_or_create(&ControllerLabels { controller }).inc();
            self.retries.get_or_create(&queue).inc();
        }
        lock(&self.running_since).remove(key);
        self.work_seconds.get_or_create(&queue).observe(took.as_secs_f64());
        self.pass_seconds.get_or_create(&ControllerLabels { controller }).observe(took.as_secs_f64());
        self.active_passes.get_or_create(&ControllerLabels { controller }).dec();
    }

    /// Records a pass that panicked.
    pub(crate) fn pass_panicked(&self, key: &ObjectKey) {
        self.pass_panics.get_or_create(&ControllerLabels { controller: controller(key.kind) }).inc();
    }

    /// Records a request to a dashboard by the status of its response, if there was one.
    pub(crate) fn observe_dashboard_request(&self, status: Option<u16>) {
        let result = status.map_or_else(|| "none".to_owned(), |status| status.to_string());
        self.dashboard_requests.get_or_create(&DashboardLabels { result }).inc();
    }

    pub(crate) fn set_leader(&self, is_leader: bool) {
        self.leader.set(is_leader.into());
    }

    fn register(self: &Arc<Self>, registry: &mut Registry) {
        registry.register(
            "rest_client_requests",
            "Number of HTTP requests, partitioned by status code, method, and host",
            self.requests.clone(),
        );
        registry.register(
            "rest_client_request_duration_seconds",
            "Request latency in seconds. Broken down by verb, and host",
            self.request_seconds.clone(),
        );
        registry.register(
            "controller_runtime_reconcile",
            "Total number of reconciliations per controller",
            self.passes.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_errors",
            "Total number of reconciliation errors per controller",
            self.pass_errors.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_panics",
            "Total number of reconciliation panics per controller",
            self.pass_panics.clone(),
        );
        registry.register(
            "controller_runtime_reconcile_time_seconds",
            "Length of time per reconciliation per controller",
            self.pass_seconds.clone(),
        );
        registry.register(
            "controller_runtime_active_workers",
            "Number of running passes per controller",
            self.active_passes.clone(),
        );
        registry.register(
            "rest_client_request_size_bytes",
            "Request size in bytes. Broken down by verb and host",
            self.request_bytes.clone(),
        );
        registry.register(
            "rest_client_response_size_bytes",
            "Response size in bytes. Broken down by verb and host",
            self.response_bytes.clone(),
        );
        registry.register("workqueue_adds", "Objects taken from the queue for a pass", self.adds.clone());
        registry.register("workqueue_retries", "Objects that are due again after an error", self.retries.clone());
        registry.register(
            "workqueue_work_duration_seconds",
            "How long in seconds the pass of an object takes",
            self.work_seconds.clone(),
        );
        self.webhook.register(registry);
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long in seconds an object waits for its pass",
            self.queue_seconds.clone(),
        );
        registry.register(
            "manta_dashboard_requests",
            "Requests to Ray dashboards by response status, or none",
            self.dashboard_requests.clone(),
        );
        let leader: Family<LeaseLabels, Gauge> = Family::default();
        leader.get_or_create(&LeaseLabels { name: crate::leader::LEASE }).set(self.leader.get());
        registry.register(
            "leader_election_master_status",
            "Whether this operator is the leader: 0 standby, 1 leader",
            leader,
        );
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LeaseLabels {
    name: &'static str,
}

impl Telemetry {
    /// Returns all metrics as text, those of KubeRay only on request.
    pub fn scrape(&self, with_kuberay: bool) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::default();
        self.metrics.register(&mut registry);
        registry.register_collector(Box::new(kuberay::ObjectMetrics { telemetry: self.clone(), with_kuberay }));
        process::register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

/// The names of all controllers.
const CONTROLLERS: [&str; 4] = ["raycluster", "rayjob", "rayservice", "raycronjob"];

/// Returns the name of a kind's controller, as in labels.
fn controller(kind: Kind) -> &'static str {
    match kind {
        Kind::RayCluster => "raycluster",
        Kind::RayJob => "rayjob",
        Kind::RayService => "rayservice",
        Kind::RayCronJob => "raycronjob",
        _ => "other",
    }
}

#[cfg(test)]
mod tests;
