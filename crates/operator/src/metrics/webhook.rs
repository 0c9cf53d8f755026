//! Counts of the admission webhook and of its certificate.

use super::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

pub(super) struct Webhook {
    seconds: Family<Path, Histogram, fn() -> Histogram>,
    requests: Family<Answered, Counter>,
    in_flight: Family<Path, Gauge>,
    certificates: Counter,
    bad_certificates: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Path {
    webhook: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct Answered {
    webhook: &'static str,
    code: u16,
}

impl Default for Webhook {
    fn default() -> Self {
        Self {
            seconds: Family::new_with_constructor(super::of_passes),
            requests: Family::default(),
            in_flight: Family::default(),
            certificates: Counter::default(),
            bad_certificates: Counter::default(),
        }
    }
}

impl Webhook {
    pub(super) fn register(&self, registry: &mut Registry) {
        registry.register(
            "controller_runtime_webhook_latency_seconds",
            "Histogram of the latency of processing admission requests",
            self.seconds.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests",
            "Total number of admission requests by HTTP status code",
            self.requests.clone(),
        );
        registry.register(
            "controller_runtime_webhook_requests_in_flight",
            "Current number of admission requests being served",
            self.in_flight.clone(),
        );
        registry.register(
            "certwatcher_read_certificate",
            "Total number of certificate reads",
            self.certificates.clone(),
        );
        registry.register(
            "certwatcher_read_certificate_errors",
            "Total number of certificate read errors",
            self.bad_certificates.clone(),
        );
    }
}

impl Metrics {
    /// The API server asks about an object.
    pub(crate) fn webhook_begins(&self, webhook: &'static str) {
        self.webhook.in_flight.get_or_create(&Path { webhook }).inc();
    }

    pub(crate) fn webhook_ends(&self, webhook: &'static str, code: u16, took: Duration) {
        self.webhook.in_flight.get_or_create(&Path { webhook }).dec();
        self.webhook.seconds.get_or_create(&Path { webhook }).observe(took.as_secs_f64());
        self.webhook.requests.get_or_create(&Answered { webhook, code }).inc();
    }

    /// The webhook's certificate was read, for good or ill.
    pub(crate) fn certificate_read(&self, good: bool) {
        self.webhook.certificates.inc();
        if !good {
            self.webhook.bad_certificates.inc();
        }
    }
}
