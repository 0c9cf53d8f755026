//! What the operator measures, under the names that KubeRay's dashboards ask for.
//!
//! Counts are kept here as they happen; everything about objects is read from the caches on each
//! scrape ([`kuberay`]), so that it vanishes with them.

pub mod client;
mod kuberay;
mod process;

use crate::queue::{Next, Queue};
use crate::stores::{Stores, lock};
use manta_logic::action::{Kind, Target};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::collections::{BTreeMap, HashMap};
use std::sync::{Arc, Mutex};
use std::time::Duration;

/// The media type of [`Telemetry::scrape`].
pub const MEDIA_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The caches, the queue and the counts: what telling about the operator takes.
#[derive(Clone, Default)]
pub struct Telemetry {
    pub stores: Arc<Stores>,
    pub queue: Arc<Queue>,
    pub metrics: Arc<Metrics>,
}

/// The counts.
pub struct Metrics {
    requests: Family<Request, Counter>,
    request_seconds: Family<Verb, Histogram, fn() -> Histogram>,
    passes: Family<PassEnd, Counter>,
    pass_errors: Family<Controller, Counter>,
    pass_seconds: Family<Controller, Histogram, fn() -> Histogram>,
    passes_under_way: Family<Controller, Gauge>,
    waited_seconds: Family<QueueOf, Histogram, fn() -> Histogram>,
    dashboard_requests: Family<Answer, Counter>,
    leader: Gauge,
    /// How long each object waited for its last pass.
    lags: Mutex<HashMap<Target, Duration>>,
    /// How long RayJobs ran, by the attempt and how it ended.
    job_seconds: Mutex<BTreeMap<kuberay::Attempt, f64>>,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Request {
    code: String,
    method: String,
    host: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Verb {
    verb: String,
    host: String,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Controller {
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PassEnd {
    controller: &'static str,
    result: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct QueueOf {
    name: &'static str,
    controller: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answer {
    result: String,
}

impl Default for Metrics {
    fn default() -> Self {
        Self {
            requests: Family::default(),
            request_seconds: Family::new_with_constructor(of_requests),
            passes: Family::default(),
            pass_errors: Family::default(),
            pass_seconds: Family::new_with_constructor(of_passes),
            passes_under_way: Family::default(),
            waited_seconds: Family::new_with_constructor(of_waits),
            dashboard_requests: Family::default(),
            leader: Gauge::default(),
            lags: Mutex::default(),
            job_seconds: Mutex::default(),
        }
    }
}

fn of_requests() -> Histogram {
    Histogram::new([0.005, 0.025, 0.1, 0.25, 0.5, 1.0, 2.0, 4.0, 8.0, 15.0, 30.0, 60.0])
}

fn of_passes() -> Histogram {
    Histogram::new([0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0])
}

fn of_waits() -> Histogram {
    Histogram::new((-8..4).map(|exponent| 10f64.powi(exponent)))
}

impl Metrics {
    /// A request to the API server was answered, or failed.
    pub(crate) fn request(&self, method: &http::Method, host: &str, code: &str, took: Duration) {
        let (method, host) = (method.as_str().to_owned(), host.to_owned());
        self.request_seconds
            .get_or_create(&Verb { verb: method.clone(), host: host.clone() })
            .observe(took.as_secs_f64());
        self.requests.get_or_create(&Request { code: code.to_owned(), method, host }).inc();
    }

    /// An object is given out for a pass after having waited.
    pub(crate) fn pass_begins(&self, target: &Target, waited: Duration) {
        let controller = controller(target.kind);
        self.waited_seconds.get_or_create(&QueueOf { name: controller, controller }).observe(waited.as_secs_f64());
        self.passes_under_way.get_or_create(&Controller { controller }).inc();
        lock(&self.lags).insert(target.clone(), waited);
    }

    pub(crate) fn pass_ends(&self, target: &Target, next: Next, took: Duration) {
        let controller = controller(target.kind);
        let result = match next {
            Next::Rest => "success",
            Next::After(_) => "requeue_after",
            Next::BackOff => "error",
        };
        self.passes.get_or_create(&PassEnd { controller, result }).inc();
        if next == Next::BackOff {
            self.pass_errors.get_or_create(&Controller { controller }).inc();
        }
        self.pass_seconds.get_or_create(&Controller { controller }).observe(took.as_secs_f64());
        self.passes_under_way.get_or_create(&Controller { controller }).dec();
    }

    /// A dashboard was asked: the status of its answer, or that there was none.
    pub(crate) fn dashboard(&self, status: Option<u16>) {
        let result = status.map_or_else(|| "none".to_owned(), |status| status.to_string());
        self.dashboard_requests.get_or_create(&Answer { result }).inc();
    }

    pub(crate) fn leads(&self, leads: bool) {
        self.leader.set(leads.into());
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
            "controller_runtime_reconcile_time_seconds",
            "Length of time per reconciliation per controller",
            self.pass_seconds.clone(),
        );
        registry.register(
            "controller_runtime_active_workers",
            "Number of passes under way per controller",
            self.passes_under_way.clone(),
        );
        registry.register(
            "workqueue_queue_duration_seconds",
            "How long in seconds an object waits for its pass",
            self.waited_seconds.clone(),
        );
        registry.register(
            "manta_dashboard_requests",
            "Requests to Ray dashboards, by the status of the answer or none",
            self.dashboard_requests.clone(),
        );
        let leader: Family<LeaseName, Gauge> = Family::default();
        leader.get_or_create(&LeaseName { name: crate::leader::LEASE }).set(self.leader.get());
        registry.register(
            "leader_election_master_status",
            "Whether this operator leads: 0 it waits, 1 it leads",
            leader,
        );
    }
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct LeaseName {
    name: &'static str,
}

impl Telemetry {
    /// All metrics as text; those of KubeRay only where asked for.
    pub fn scrape(&self, with_kuberay: bool) -> Result<String, std::fmt::Error> {
        let mut registry = Registry::default();
        self.metrics.register(&mut registry);
        registry.register_collector(Box::new(kuberay::Objects { telemetry: self.clone(), with_kuberay }));
        process::register(&mut registry);
        let mut text = String::new();
        prometheus_client::encoding::text::encode(&mut text, &registry)?;
        Ok(text)
    }
}

/// What a kind's controller is called in labels.
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
