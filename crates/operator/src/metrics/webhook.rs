//! Metrics of the admission webhook and its certificate.

use super::Metrics;
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::registry::Registry;
use std::time::Duration;

pub(super) struct WebhookMetrics {
    seconds: Family<PathLabels, Histogram, fn() -> Histogram>,
    requests: Family<ResponseLabels, Counter>,
    in_flight: Family<PathLabels, Gauge>,
    certificate_reads: Counter,
    certificate_errors: Counter,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct PathLabels {
    webhook: &'static str,
}

#[derive(Clone, Debug, Hash, PartialEq, Eq, EncodeLabelSet)]
struct ResponseLabels {
    webhook: &'static str,
    code: u16,
}

impl Default for WebhookMetrics {
    fn default() -> Self {
        Self {
            seconds: Family::new_with_constructor(super::pass_histogram),
            requests: Family::default(),
            in_flight: Family::default(),
            certificate_reads: Counter::default(),
            certificate_errors: Counter::default(),
        }
    }
}

impl WebhookMetrics {
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
            self.certificate_reads.clone(),
        );
        registry.register(
            "certwatcher_read_certificate_errors",
            "Total number of certificate read errors",
            self.certificate_errors.clone(),
        );
    }
}

impl Metrics {
    /// Records an admission request that is being served.
    pub(crate) fn webhook_started(&self, webhook: &'static str) {
        self.webhook.in_flight.get_or_create(&PathLabels { webhook }).inc();
    }

    pub(crate) fn webhook_ended(&self, webhook: &'static str, code: u16, took: Duration) {
        self.webhook.in_flight.get_or_create(&PathLabels { webhook }).dec();
        self.webhook.seconds.get_or_create(&PathLabels { webhook }).observe(took.as_secs_f64());
        self.webhook.requests.get_or_create(&ResponseLabels { webhook, code }).inc();
    }

    /// Records an attempt to read the webhook's certificate.
    pub(crate) fn certificate_read(&self, succeeded: bool) {
        self.webhook.certificate_reads.inc();
        if !succeeded {
            self.webhook.certificate_errors.inc();
        }
    }
}
