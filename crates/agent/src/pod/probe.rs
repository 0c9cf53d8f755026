//! The schedule and thresholds of a probe.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Container, Probe};

#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ProbeKind {
    Startup,
    Readiness,
    Liveness,
}

impl ProbeKind {
    pub const ALL: [Self; 3] = [Self::Startup, Self::Readiness, Self::Liveness];

    pub fn of(self, container: &Container) -> Option<&Probe> {
        match self {
            Self::Startup => container.startup_probe.as_ref(),
            Self::Readiness => container.readiness_probe.as_ref(),
            Self::Liveness => container.liveness_probe.as_ref(),
        }
    }

    pub fn title(self) -> &'static str {
        match self {
            Self::Startup => "Startup",
            Self::Readiness => "Readiness",
            Self::Liveness => "Liveness",
        }
    }
}

/// The state of one probe during one run of a container.
#[derive(Debug, Clone)]
pub struct Counter {
    pub kind: ProbeKind,
    period: SignedDuration,
    timeout: SignedDuration,
    success_threshold: i32,
    failure_threshold: i32,
    /// Ask every second until the first success.
    eager: bool,
    /// The end of the initial delay. Failures before it, when only an eager probe asks, say nothing.
    failures_count_from: Timestamp,
    next: Timestamp,
    streak: i32,
    last: Option<bool>,
    verdict: Option<bool>,
}

/// Delays up to this one are guesses at how long a start takes. A longer one says that a program must not be used yet.
const LONGEST_SKIPPED_DELAY: SignedDuration = SignedDuration::from_secs(10);

impl Counter {
    /// `eager`: readiness is asked from the start, ahead of its initial delay and period.
    pub fn new(kind: ProbeKind, probe: &Probe, started: Timestamp, eager: bool) -> Self {
        let or = |value: Option<i32>, default: i32| value.filter(|v| *v > 0).unwrap_or(default);
        let seconds = |value: i32| SignedDuration::from_secs(i64::from(value));
        let delay = seconds(or(probe.initial_delay_seconds, 0));
        let eager = eager && kind == ProbeKind::Readiness && delay <= LONGEST_SKIPPED_DELAY;
        let delayed = started.checked_add(delay).unwrap_or(Timestamp::MAX);
        Self {
            kind,
            period: seconds(or(probe.period_seconds, 10)),
            timeout: seconds(or(probe.timeout_seconds, 1)),
            success_threshold: or(probe.success_threshold, 1),
            failure_threshold: or(probe.failure_threshold, 3),
            eager,
            failures_count_from: delayed,
            next: if eager { started } else { delayed },
            streak: 0,
            last: None,
            verdict: None,
        }
    }

    pub fn timeout(&self) -> SignedDuration {
        self.timeout
    }

    /// When to ask next.
    pub fn due(&self) -> Timestamp {
        self.next
    }

    /// Counts one answer; returns the verdict if this answer settled or changed it.
    pub fn record(&mut self, ok: bool, now: Timestamp) -> Option<bool> {
        let counts = ok || self.verdict.is_some() || now >= self.failures_count_from;
        let settled = counts && self.count(ok);
        let hurry = self.eager && self.verdict != Some(true);
        let period = if hurry { self.period.min(SignedDuration::from_secs(1)) } else { self.period };
        self.next = now.checked_add(period).unwrap_or(Timestamp::MAX);
        settled.then_some(ok)
    }

    /// Counts one answer in a row; returns whether it settled or changed the verdict.
    fn count(&mut self, ok: bool) -> bool {
        self.streak = if self.last == Some(ok) { self.streak.saturating_add(1) } else { 1 };
        self.last = Some(ok);
        let needed = if ok { self.success_threshold } else { self.failure_threshold };
        let settled = self.streak >= needed && self.verdict != Some(ok);
        if settled {
            self.verdict = Some(ok);
        }
        settled
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Answers in, verdicts out: `+` and `-` for answers, `.` where nothing changed.
    fn check(probe: serde_json::Value, answers: &str, expect: &str) {
        let probe: Probe = serde_json::from_value(probe).unwrap();
        let now = Timestamp::from_second(1_700_000_000).unwrap();
        let mut counter = Counter::new(ProbeKind::Liveness, &probe, now, false);
        let got: String = answers
            .chars()
            .map(|c| match counter.record(c == '+', now) {
                Some(true) => '+',
                Some(false) => '-',
                None => '.',
            })
            .collect();
        assert_eq!(got, expect);
    }

    #[test]
    fn thresholds_count_answers_in_a_row() {
        check(serde_json::json!({}), "--+---+", "..+..-+");
        check(serde_json::json!({"failureThreshold": 1, "successThreshold": 2}), "+-++-", ".-.+-");
    }

    #[test]
    fn readiness_can_be_asked_ahead_of_its_delay() {
        let probe: Probe =
            serde_json::from_value(serde_json::json!({"initialDelaySeconds": 10, "periodSeconds": 5})).unwrap();
        let start = Timestamp::from_second(1_700_000_000).unwrap();
        let due = |kind, eager, answer: Option<bool>| {
            let mut counter = Counter::new(kind, &probe, start, eager);
            if let Some(ok) = answer {
                counter.record(ok, start);
            }
            counter.due().duration_since(start).as_secs()
        };
        assert_eq!(due(ProbeKind::Readiness, false, None), 10);
        assert_eq!(due(ProbeKind::Readiness, true, None), 0);
        assert_eq!(due(ProbeKind::Readiness, true, Some(false)), 1);
        assert_eq!(due(ProbeKind::Readiness, true, Some(true)), 5);
        assert_eq!(due(ProbeKind::Liveness, true, None), 10, "liveness keeps its patience");
        let patient: Probe = serde_json::from_value(serde_json::json!({"initialDelaySeconds": 15})).unwrap();
        let counter = Counter::new(ProbeKind::Readiness, &patient, start, true);
        assert_eq!(counter.due().duration_since(start).as_secs(), 15, "a long delay is kept");
    }

    #[test]
    fn failures_ahead_of_the_initial_delay_do_not_count() {
        let probe: Probe = serde_json::from_value(serde_json::json!({"initialDelaySeconds": 10})).unwrap();
        let at = |second: i64| Timestamp::from_second(1_700_000_000 + second).unwrap();
        let mut counter = Counter::new(ProbeKind::Readiness, &probe, at(0), true);
        let early: Vec<_> = (0..10).map(|second| counter.record(false, at(second))).collect();
        assert_eq!(early, [None; 10]);
        let late: Vec<_> = (10..13).map(|second| counter.record(false, at(second))).collect();
        assert_eq!(late, [None, None, Some(false)]);
    }
}
