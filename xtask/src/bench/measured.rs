//! What a trial measured, as data.

use std::collections::BTreeMap;

use manta_testkit::audit::Request;
use serde::{Deserialize, Serialize};

use super::Scenario;
use super::percentile::percentile;
use crate::operator::is_work;

/// The column of the bare client.
pub(super) const FLOOR: &str = "floor";

/// How a value is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Unit {
    Seconds,
    Milliseconds,
    Bytes,
    Count,
    Ratio,
}

impl Unit {
    /// Formats a value for people.
    pub(super) fn show(self, value: f64) -> String {
        match self {
            Self::Seconds => format!("{value:.2} s"),
            Self::Milliseconds => format!("{value:.1} ms"),
            Self::Bytes => format!("{:.1} MB", value / 1e6),
            Self::Count if value.fract() == 0.0 => format!("{value:.0}"),
            Self::Count | Self::Ratio => format!("{value:.2}"),
        }
    }
}

/// One measured value.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Figure {
    pub(super) what: String,
    pub(super) value: f64,
    pub(super) unit: Unit,
}

/// The requests of one verb and resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Requests {
    pub(super) count: usize,
    pub(super) rejected: usize,
    /// How long the server took, where it logs that.
    pub(super) p50_ms: Option<f64>,
    pub(super) p99_ms: Option<f64>,
}

/// Everything that one operator, or the bare client, did in one scenario at one size.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(super) struct Measured {
    pub(super) scenario: Scenario,
    pub(super) size: usize,
    pub(super) server: String,
    pub(super) operator: String,
    pub(super) round: usize,
    pub(super) figures: Vec<Figure>,
    pub(super) requests: BTreeMap<String, Requests>,
    /// Single values behind the percentiles, in the unit of the figure.
    pub(super) samples: BTreeMap<String, Vec<f64>>,
}

impl Measured {
    pub(super) fn new(scenario: Scenario, size: usize, server: &str, operator: &str, round: usize) -> Self {
        Self {
            scenario,
            size,
            server: server.to_owned(),
            operator: operator.to_owned(),
            round,
            figures: Vec::new(),
            requests: BTreeMap::new(),
            samples: BTreeMap::new(),
        }
    }

    /// Adds a value.
    pub(super) fn add(&mut self, what: &str, value: f64, unit: Unit) {
        self.figures.push(Figure { what: what.to_owned(), value, unit });
    }

    /// Adds the median and the 99th percentile of samples, and keeps the samples.
    pub(super) fn add_percentiles(&mut self, what: &str, samples: Vec<f64>, unit: Unit) {
        for (share, name) in [(0.5, "p50"), (0.99, "p99")] {
            if let Some(value) = percentile(&samples, share) {
                self.add(&format!("{what}, {name}"), value, unit);
            }
        }
        self.samples.insert(what.to_owned(), samples);
    }

    /// Adds requests by verb and resource.
    pub(super) fn add_requests<'a>(&mut self, requests: impl IntoIterator<Item = &'a Request>) {
        let mut groups: BTreeMap<String, Vec<&Request>> = BTreeMap::new();
        for request in requests.into_iter().filter(|request| is_work(request)) {
            let target = Some(request.target()).filter(|target| !target.is_empty());
            let target = target.unwrap_or_else(|| "other paths".to_owned());
            groups.entry(format!("{} {target}", request.verb)).or_default().push(request);
        }
        self.requests.extend(groups.into_iter().map(|(what, group)| (what, summarize(&group))));
    }

    /// Returns a value.
    pub(super) fn value(&self, what: &str) -> Option<f64> {
        self.figures.iter().find(|figure| figure.what == what).map(|figure| figure.value)
    }
}

fn summarize(group: &[&Request]) -> Requests {
    let latencies: Vec<f64> = group.iter().filter_map(|request| Some(request.latency()?.as_secs_f64() * 1e3)).collect();
    Requests {
        count: group.len(),
        rejected: group.iter().filter(|request| !request.succeeded()).count(),
        p50_ms: percentile(&latencies, 0.5),
        p99_ms: percentile(&latencies, 0.99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn values_are_written_in_their_unit() {
        for (unit, value, expect) in [
            (Unit::Seconds, 1.234, "1.23 s"),
            (Unit::Milliseconds, 0.25, "0.2 ms"),
            (Unit::Bytes, 12_340_000.0, "12.3 MB"),
            (Unit::Count, 4.0, "4"),
            (Unit::Count, 10.17, "10.17"),
            (Unit::Ratio, 1.0, "1.00"),
        ] {
            assert_eq!(unit.show(value), expect);
        }
    }

    #[test]
    fn requests_are_grouped_by_verb_and_resource() {
        let request = |resource: &str, code: u16, millis: u32| -> Request {
            serde_json::from_value(json!({
                "verb": "create", "stage": "ResponseComplete",
                "objectRef": {"resource": resource}, "responseStatus": {"code": code},
                "requestReceivedTimestamp": "2026-01-01T00:00:00Z",
                "stageTimestamp": format!("2026-01-01T00:00:00.{millis:03}Z"),
            }))
            .unwrap()
        };
        let mut measured = Measured::new(Scenario::Clusters, 1, "real", "ours", 0);
        measured.add_requests(&[
            request("pods", 201, 2),
            request("pods", 409, 9),
            request("leases", 200, 1),
            request("services", 201, 3),
        ]);
        let pods = Requests { count: 2, rejected: 1, p50_ms: Some(2.0), p99_ms: Some(9.0) };
        let services = Requests { count: 1, rejected: 0, p50_ms: Some(3.0), p99_ms: Some(3.0) };
        let expect = [("create pods".to_owned(), pods), ("create services".to_owned(), services)];
        assert_eq!(measured.requests, expect.into());
    }
}
