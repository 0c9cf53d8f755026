//! Prints an explanation for people.

use jiff::Timestamp;
use manta_logic::explain::{Entry, Explanation, Log, LogSource};
use std::fmt::Write as _;

/// How much is printed; `-o json` has everything.
const MAX_ENTRIES: usize = 40;
const MAX_LOG_LINES: usize = 20;
const MAX_DETAIL_LINES: usize = 40;

/// Formats an explanation: the cause first, then what led to it.
pub(crate) fn text(explanation: &Explanation, recorded: Option<Timestamp>) -> String {
    let mut out = String::new();
    let cause = &explanation.cause;
    let _ = writeln!(out, "{}", cause.summary);
    if !cause.advice.is_empty() {
        let _ = writeln!(out, "What to do: {}", cause.advice);
    }
    if let Some(at) = recorded {
        let _ = writeln!(out, "It no longer exists; this is the operator's record of {}.", clock(at));
    }
    if !explanation.state.is_empty() {
        let _ = writeln!(out, "\nStatus: {}", explanation.state);
    }
    timeline(&mut out, &explanation.timeline);
    let details: Vec<&str> = cause.details.lines().collect();
    if details.len() > 1 {
        section(&mut out, "Message:", details.into_iter(), MAX_DETAIL_LINES);
    }
    for log in &explanation.logs {
        section(
            &mut out,
            &format!("Last lines of {}:", log_name(log)),
            log.lines.iter().map(String::as_str),
            MAX_LOG_LINES,
        );
    }
    if !explanation.unreadable.is_empty() {
        out.push_str("\nCould not be read, so the cause may lie there:\n");
        for source in &explanation.unreadable {
            let _ = writeln!(out, "  {}: {}", source.what, source.why.lines().next().unwrap_or_default());
        }
    }
    out
}

fn timeline(out: &mut String, entries: &[Entry]) {
    if entries.is_empty() {
        return;
    }
    let shown = &entries[entries.len().saturating_sub(MAX_ENTRIES)..];
    let width = shown.iter().map(|entry| entry.object.chars().count()).max().unwrap_or(0).min(50);
    out.push_str("\nTimeline:\n");
    if shown.len() < entries.len() {
        let _ = writeln!(out, "  ({} earlier entries: -o json)", entries.len() - shown.len());
    }
    for entry in shown {
        let mark = if entry.is_warning { "!" } else { " " };
        let _ = writeln!(out, "{mark} {}  {:<width$}  {}", clock(entry.at), entry.object, entry.text);
    }
}

/// Writes the last lines of a text under a heading.
fn section<'a>(out: &mut String, heading: &str, lines: impl Iterator<Item = &'a str>, max: usize) {
    let lines: Vec<&str> = lines.collect();
    let _ = writeln!(out, "\n{heading}");
    for line in &lines[lines.len().saturating_sub(max)..] {
        let _ = writeln!(out, "{}", format!("  {line}").trim_end());
    }
}

fn clock(at: Timestamp) -> String {
    at.strftime("%Y-%m-%d %H:%M:%SZ").to_string()
}

/// Returns what a heading calls a log.
pub(crate) fn log_name(log: &Log) -> String {
    let run = if log.is_previous { " before it restarted" } else { "" };
    match log.source {
        LogSource::Driver => format!("the driver {}", log.name),
        _ => format!("container {} of Pod {}{run}", log.name, log.pod),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manta_logic::explain::{Evidence, explain};
    use serde_json::json;

    #[test]
    fn the_cause_comes_first() {
        let evidence: Evidence = serde_json::from_value(json!({
            "subject": {"kind": "RayCluster", "namespace": "ns", "name": "a"}, "at": "2026-01-01T01:00:00Z",
            "clusters": [{"metadata": {"name": "a", "creationTimestamp": "2026-01-01T00:59:00Z"}, "status": {}}],
            "pods": [{
                "metadata": {"name": "h", "labels": {"ray.io/node-type": "head"}},
                "status": {"phase": "Running", "containerStatuses": [{"name": "ray", "state": {"terminated": {
                    "exitCode": 1, "reason": "Error", "finishedAt": "2026-01-01T00:59:30Z"}}}]},
            }],
            "logs": [{"source": "head", "pod": "h", "name": "ray", "lines": ["first", "No such option: --x"]}],
            "unreadable": [{"what": "list events", "why": "events is forbidden\nmore"}],
        }))
        .unwrap();
        let expect = "\
The container ray of the head Pod h ended with exit code 1: No such option: --x.
What to do: Remove the option from rayStartParams; this version of Ray does not have it.

Status: not ready, 0/0 workers ready

Timeline:
  2026-01-01 00:59:00Z  RayCluster a  created
! 2026-01-01 00:59:30Z  Pod h         container ray: Error, exit code 1

Last lines of container ray of Pod h:
  first
  No such option: --x

Could not be read, so the cause may lie there:
  list events: events is forbidden
";
        assert_eq!(text(&explain(&evidence), None), expect);
        let recorded = text(&explain(&evidence), Some("2026-01-01T01:00:00Z".parse().unwrap()));
        assert!(recorded.contains("the operator's record of 2026-01-01 01:00:00Z."), "{recorded}");
    }
}
