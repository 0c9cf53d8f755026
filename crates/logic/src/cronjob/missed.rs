//! Which runs are due, and how missed runs are handled.
//!
//! After an outage, or a suspension, KubeRay starts one RayJob for every run that was missed, all at
//! once. Here at most one late run is started, the latest, unless the annotation
//! `ray.io/cronjob-missed-runs` sets another policy.

use super::schedule::Schedule;
use jiff::tz::TimeZone;
use jiff::{SignedDuration, Timestamp};

/// The annotation with the policy for missed runs.
pub const ANNOTATION: &str = "ray.io/cronjob-missed-runs";

/// With [`Missed::All`], at most this many runs are made up for.
const MOST: usize = 100;
/// A run that starts within this is in time.
const IN_TIME: SignedDuration = SignedDuration::from_secs(60);
/// How many runs are walked through before the search starts from the other end.
const STEPS: usize = 2000;

/// The policy for missed runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Missed {
    /// The latest is started late.
    #[default]
    Latest,
    /// Each is started, the oldest first.
    All,
    /// None is started.
    None,
}

impl Missed {
    /// Reads the annotation; unknown values mean the default.
    pub fn read(annotation: Option<&str>) -> Self {
        match annotation {
            Some("all") => Self::All,
            Some("none") => Self::None,
            _ => Self::Latest,
        }
    }
}

/// What the schedule asks for now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Due {
    /// The run to start.
    pub(super) run: Option<Timestamp>,
    /// The run up to which everything is settled, if that moves on.
    pub(super) settled: Option<Timestamp>,
    /// How many runs were skipped.
    pub(super) skipped: usize,
}

/// Returns the run that is due after `base`, if one is.
pub(super) fn due(schedule: &Schedule, base: Timestamp, now: Timestamp, zone: &TimeZone, missed: Missed) -> Due {
    let runs = recent_runs(schedule, base, now, zone);
    let Some(&latest) = runs.last() else { return Due { run: None, settled: None, skipped: 0 } };
    match missed {
        Missed::Latest => Due { run: Some(latest), settled: Some(latest), skipped: runs.len() - 1 },
        Missed::All => {
            let recent = &runs[runs.len().saturating_sub(MOST)..];
            Due { run: recent.first().copied(), settled: recent.first().copied(), skipped: runs.len() - recent.len() }
        }
        Missed::None => {
            let run = Some(latest).filter(|run| now.duration_since(*run) < IN_TIME);
            Due { run, settled: Some(latest), skipped: runs.len() - usize::from(run.is_some()) }
        }
    }
}

/// Returns the runs after `base` up to now, or the last of them if there are very many.
fn recent_runs(schedule: &Schedule, base: Timestamp, now: Timestamp, zone: &TimeZone) -> Vec<Timestamp> {
    let (runs, complete) = walk(schedule, base, now, zone);
    if complete {
        return runs;
    }
    // So many were missed that only the end matters: look back from now, further and further.
    let mut window = SignedDuration::from_secs(60);
    loop {
        let from = now.checked_sub(window).unwrap_or(base).max(base);
        let (runs, complete) = walk(schedule, from, now, zone);
        if !complete || runs.len() >= MOST || from == base {
            return runs;
        }
        window = window.saturating_mul(4);
    }
}

/// Returns the runs in a time range, and whether these are all.
fn walk(schedule: &Schedule, base: Timestamp, now: Timestamp, zone: &TimeZone) -> (Vec<Timestamp>, bool) {
    let mut runs = Vec::new();
    let mut last = base;
    while let Some(next) = schedule.next_after(last, zone).filter(|next| *next <= now && *next > last) {
        if runs.len() >= STEPS {
            return (runs, false);
        }
        runs.push(next);
        last = next;
    }
    (runs, true)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn time(text: &str) -> Timestamp {
        text.parse().unwrap()
    }

    fn check(schedule: &str, base: &str, now: &str, missed: Missed, expect: (Option<&str>, usize)) {
        let schedule = Schedule::parse(schedule).unwrap();
        let due = due(&schedule, time(base), time(now), &TimeZone::UTC, missed);
        assert_eq!((due.run, due.skipped), (expect.0.map(time), expect.1));
    }

    #[test]
    fn the_latest_missed_run_is_started() {
        let (base, now) = ("2024-01-01T00:00:00Z", "2024-01-01T01:02:30Z");
        check("*/5 * * * *", base, "2024-01-01T00:04:59Z", Missed::Latest, (None, 0));
        check("*/5 * * * *", base, "2024-01-01T00:05:00Z", Missed::Latest, (Some("2024-01-01T00:05:00Z"), 0));
        check("*/5 * * * *", base, now, Missed::Latest, (Some("2024-01-01T01:00:00Z"), 11));
        check("*/5 * * * *", base, now, Missed::All, (Some("2024-01-01T00:05:00Z"), 0));
        check("*/5 * * * *", base, now, Missed::None, (None, 12));
        check("*/5 * * * *", base, "2024-01-01T01:00:30Z", Missed::None, (Some("2024-01-01T01:00:00Z"), 11));
        check("0 0 30 2 *", base, "2034-01-01T00:00:00Z", Missed::Latest, (None, 0));
    }

    #[test]
    fn years_of_missed_runs_are_found_quickly() {
        let schedule = Schedule::parse("* * * * *").unwrap();
        let (base, now) = (time("2016-01-01T00:00:00Z"), time("2026-01-01T00:00:30Z"));
        let latest = due(&schedule, base, now, &TimeZone::UTC, Missed::Latest);
        assert_eq!(latest.run, Some(time("2026-01-01T00:00:00Z")));
        let all = due(&schedule, base, now, &TimeZone::UTC, Missed::All);
        assert_eq!(all.run, Some(time("2025-12-31T22:21:00Z")), "the last hundred");
        let schedule = Schedule::parse("@every 1s").unwrap();
        let latest = due(&schedule, base, now, &TimeZone::UTC, Missed::Latest);
        assert_eq!(latest.run, Some(now));
    }

    #[test]
    fn unknown_annotation_values_mean_the_default() {
        assert_eq!(Missed::read(Some("all")), Missed::All);
        assert_eq!(Missed::read(Some("none")), Missed::None);
        assert_eq!(Missed::read(Some("ALL")), Missed::Latest);
        assert_eq!(Missed::read(None), Missed::Latest);
    }
}
