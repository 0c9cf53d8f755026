//! The markdown tables of a run.

use std::collections::{BTreeMap, BTreeSet};

use super::measured::{FLOOR, Measured, Requests, Unit};
use super::percentile::percentile;

/// Returns a table for every scenario and size, with a column for every operator; rounds become their median.
pub(super) fn tables(all: &[Measured]) -> String {
    let mut groups: Vec<(String, Vec<&Measured>)> = Vec::new();
    for measured in all {
        let Measured { scenario, size, server, .. } = measured;
        let title = format!("{scenario}, size {size}, on {server}");
        match groups.iter_mut().find(|(known, _)| *known == title) {
            Some((_, group)) => group.push(measured),
            None => groups.push((title, vec![measured])),
        }
    }
    groups.iter().map(|(title, group)| format!("\n### {title}\n\n{}", table(group))).collect()
}

fn table(group: &[&Measured]) -> String {
    let columns = in_order(group.iter().map(|measured| measured.operator.as_str()));
    let mut text = format!("| what | {} |\n| --- |{}\n", columns.join(" | "), " --- |".repeat(columns.len()));
    let mut row = |what: &str, cells: Vec<String>| {
        text += &format!("| {what} | {} |\n", cells.join(" | "));
    };
    let units: BTreeMap<&str, Unit> =
        group.iter().flat_map(|measured| &measured.figures).map(|figure| (figure.what.as_str(), figure.unit)).collect();
    for what in in_order(group.iter().flat_map(|measured| &measured.figures).map(|figure| figure.what.as_str())) {
        let values: Vec<Option<f64>> = columns.iter().map(|operator| median(group, operator, what)).collect();
        let unit = units[what];
        row(what, values.iter().map(|value| value.map_or(String::new(), |value| unit.show(value))).collect());
        let floor = columns.iter().position(|operator| *operator == FLOOR).and_then(|index| values[index]);
        let is_compared = columns.len() > 1 && matches!(unit, Unit::Seconds | Unit::Milliseconds);
        if let Some(floor) = floor.filter(|floor| is_compared && *floor > 0.0) {
            let ratios =
                values.iter().map(|value| value.map_or(String::new(), |value| format!("{:.2} ×", value / floor)));
            row("· against the floor", ratios.collect());
        }
    }
    let requests: BTreeSet<&str> =
        group.iter().flat_map(|measured| measured.requests.keys()).map(String::as_str).collect();
    for what in requests {
        let cell = |operator: &&str| {
            let rounds: Vec<Option<&Requests>> = group
                .iter()
                .filter(|round| round.operator == **operator)
                .map(|round| round.requests.get(what))
                .collect();
            let median = |value: fn(&Requests) -> Option<f64>| {
                percentile(&rounds.iter().filter_map(|round| value((*round)?)).collect::<Vec<_>>(), 0.5)
            };
            // A round without such a request counts as one with none.
            let counts: Vec<f64> = rounds.iter().map(|round| round.map_or(0.0, |found| found.count as f64)).collect();
            let count = percentile(&counts, 0.5).filter(|_| rounds.iter().any(Option::is_some))?;
            let rejected: usize = rounds.iter().flatten().map(|found| found.rejected).sum();
            let rejected = if rejected > 0 { format!(", {rejected} rejected in all") } else { String::new() };
            let latencies = median(|found| found.p50_ms).zip(median(|found| found.p99_ms));
            let latencies = latencies.map(|(p50, p99)| format!(" ({p50:.1} ms, {p99:.1} ms)")).unwrap_or_default();
            Some(format!("{count:.0}{rejected}{latencies}"))
        };
        row(what, columns.iter().map(|operator| cell(operator).unwrap_or_default()).collect());
    }
    text
}

/// Returns each text once, in the order of first appearance.
fn in_order<'a>(texts: impl Iterator<Item = &'a str>) -> Vec<&'a str> {
    let mut seen = BTreeSet::new();
    texts.filter(|text| seen.insert(*text)).collect()
}

fn median(group: &[&Measured], operator: &str, what: &str) -> Option<f64> {
    let rounds = group.iter().filter(|measured| measured.operator == operator);
    percentile(&rounds.filter_map(|measured| measured.value(what)).collect::<Vec<_>>(), 0.5)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::bench::Scenario;

    fn measured(operator: &str, round: usize, seconds: f64) -> Measured {
        let mut measured = Measured::new(Scenario::Clusters, 100, "kube-apiserver", operator, round);
        measured.add("all ready after", seconds, Unit::Seconds);
        if operator != FLOOR {
            measured.add("memory idle", 10e6, Unit::Bytes);
            let count = 400 + 10 * round;
            let pods = Requests { count, rejected: round / 2, p50_ms: Some(seconds), p99_ms: Some(9.5) };
            measured.requests.insert("create pods".to_owned(), pods);
        }
        measured
    }

    #[test]
    fn operators_stand_side_by_side() {
        let all =
            [measured("ours", 0, 4.0), measured(FLOOR, 0, 2.0), measured("ours", 1, 3.0), measured("ours", 2, 9.0)];
        assert_eq!(
            tables(&all),
            "\n### clusters, size 100, on kube-apiserver\n\n\
             | what | ours | floor |\n\
             | --- | --- | --- |\n\
             | all ready after | 4.00 s | 2.00 s |\n\
             | · against the floor | 2.00 × | 1.00 × |\n\
             | memory idle | 10.0 MB |  |\n\
             | create pods | 410, 1 rejected in all (4.0 ms, 9.5 ms) |  |\n"
        );
    }
}
