//! Figures from metrics: how busy the operator is, and what the applications of a service answer.

use serde::Serialize;
use std::collections::BTreeMap;

type ByName = BTreeMap<String, f64>;
type Labels<'a> = Vec<(&'a str, &'a str)>;

/// How busy the operator is.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Figures {
    /// By controller: objects that wait or run, running passes, passes so far, failed ones.
    depth: ByName,
    running: ByName,
    passes: ByName,
    errors: ByName,
    /// Requests to the API server by status code, and those that were refused.
    requests: ByName,
    refused: ByName,
    /// For how many seconds the oldest object has waited.
    oldest: f64,
    /// The longest that any object waited for its last pass.
    lag: Option<f64>,
}

impl Figures {
    /// Reads metrics in the text format; what is not understood is skipped.
    pub(super) fn read(text: &str) -> Self {
        let mut figures = Self::default();
        for (name, labels, value) in text.lines().filter_map(sample) {
            let label = |wanted: &str| labels.iter().find(|(name, _)| *name == wanted).map(|(_, value)| *value);
            let target = match name {
                "workqueue_depth" => (&mut figures.depth, label("controller").or(label("name"))),
                "controller_runtime_active_workers" => (&mut figures.running, label("controller")),
                "controller_runtime_reconcile_total" => (&mut figures.passes, label("controller")),
                "controller_runtime_reconcile_errors_total" => (&mut figures.errors, label("controller")),
                "rest_client_requests_total" => {
                    let code = label("code").unwrap_or_default();
                    if code.starts_with(['4', '5']) {
                        *figures.refused.entry(code.to_owned()).or_default() += value;
                    }
                    (&mut figures.requests, Some(code))
                }
                "manta_queue_age_seconds" => {
                    figures.oldest = value;
                    continue;
                }
                "manta_object_lag_seconds" => {
                    figures.lag = Some(figures.lag.map_or(value, |lag| lag.max(value)));
                    continue;
                }
                _ => continue,
            };
            if let (values, Some(key)) = target {
                *values.entry(key.to_owned()).or_default() += value;
            }
        }
        figures
    }
}

/// Requests that Serve has answered so far, by application.
#[derive(Debug, Default, PartialEq, Serialize)]
pub(super) struct Requests {
    all: ByName,
    failed: ByName,
}

impl Requests {
    /// Reads the metrics of a node.
    pub(super) fn read(text: &str) -> Self {
        // Ray exports every counter twice, the second time under its old name.
        let counter = |name: &str| {
            let total = by_application(text, &format!("{name}_total"));
            if total.is_empty() { by_application(text, name) } else { total }
        };
        Self { all: counter("ray_serve_num_http_requests"), failed: counter("ray_serve_num_http_error_requests") }
    }

    pub(super) fn plus(mut self, other: Self) -> Self {
        for (sum, part) in [(&mut self.all, other.all), (&mut self.failed, other.failed)] {
            for (name, value) in part {
                *sum.entry(name).or_default() += value;
            }
        }
        self
    }
}

fn by_application(text: &str, metric: &str) -> ByName {
    let mut values = ByName::new();
    for (_, labels, value) in text.lines().filter_map(sample).filter(|(name, ..)| *name == metric) {
        let application = labels.iter().find(|(name, _)| *name == "application").map_or("", |(_, value)| value);
        *values.entry(application.to_owned()).or_default() += value;
    }
    values
}

/// Splits a line such as `name{a="b"} 1`.
fn sample(line: &str) -> Option<(&str, Labels<'_>, f64)> {
    if line.starts_with('#') {
        return None;
    }
    let (name, rest) = line.split_at(line.find(['{', ' '])?);
    let (labels, value) = match rest.strip_prefix('{') {
        Some(rest) => rest.rsplit_once("} ")?,
        None => ("", rest.trim()),
    };
    let labels = labels.split("\",").filter_map(|label| label.split_once("=\""));
    let labels = labels.map(|(name, value)| (name, value.trim_end_matches('"'))).collect();
    Some((name, labels, value.split(' ').next()?.parse().ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requests_are_counted_once_per_application() {
        let text = "ray_serve_num_http_requests{application=\"a\",route=\"/\"} 5\n\
            ray_serve_num_http_requests_total{application=\"a\",route=\"/\"} 5\n\
            ray_serve_num_http_requests_total{application=\"a\",route=\"/x\"} 2\n\
            ray_serve_num_http_error_requests{application=\"a\",error_code=\"500\"} 1\n";
        let total = Requests::read(text).plus(Requests::read(text));
        let of = |value: f64| ByName::from([("a".to_owned(), value)]);
        assert_eq!(total, Requests { all: of(14.0), failed: of(2.0) });
    }

    #[test]
    fn figures_are_read_from_metrics() {
        let text = "# HELP x\n\
            workqueue_depth{name=\"rayjob\",controller=\"rayjob\"} 3\n\
            controller_runtime_reconcile_total{controller=\"rayjob\",result=\"success\"} 5\n\
            controller_runtime_reconcile_total{controller=\"rayjob\",result=\"error\"} 2\n\
            rest_client_requests_total{code=\"200\",method=\"GET\",host=\"h\"} 10\n\
            rest_client_requests_total{code=\"409\",method=\"PUT\",host=\"h\"} 1\n\
            manta_queue_age_seconds 1.5\n\
            manta_object_lag_seconds{name=\"a\"} 0.2\n\
            manta_object_lag_seconds{name=\"b\"} 0.7\n\
            nonsense\n# EOF\n";
        let of =
            |pairs: &[(&str, f64)]| pairs.iter().map(|(key, value)| ((*key).to_owned(), *value)).collect::<ByName>();
        let expect = Figures {
            depth: of(&[("rayjob", 3.0)]),
            passes: of(&[("rayjob", 7.0)]),
            requests: of(&[("200", 10.0), ("409", 1.0)]),
            refused: of(&[("409", 1.0)]),
            oldest: 1.5,
            lag: Some(0.7),
            ..Figures::default()
        };
        assert_eq!(Figures::read(text), expect);
    }
}
