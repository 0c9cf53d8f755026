//! When a cron job was due, and when it is due next.

use super::Page;
use super::failure::{Failure, Json};
use super::question::parse;
use axum::body::Bytes;
use axum::extract::State;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use manta_logic::cronjob::schedule::Schedule;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;

/// The most runs that are returned.
const MAX_RUNS: usize = 500;

#[derive(Deserialize)]
struct Question {
    schedule: String,
    #[serde(rename = "timeZone")]
    time_zone: Option<String>,
    /// The run up to which everything is settled, or the creation of the cron job.
    base: Timestamp,
    from: Timestamp,
    until: Timestamp,
}

/// Returns the runs of a schedule within a time range, and the time zone that it is in.
pub(super) async fn runs(State(page): State<Arc<Page>>, body: Bytes) -> Result<Json<Value>, Failure> {
    let question: Question = parse(&body)?;
    // A schedule that names no zone is in the operator's. One in this process has this zone, and images run in UTC.
    let local = if page.operator.is_some() { TimeZone::system() } else { TimeZone::UTC };
    let zone = match &question.time_zone {
        Some(name) => TimeZone::get(name).map_err(|error| Failure::bad_request(error.to_string()))?,
        None => local,
    };
    let runs = runs_between(&question, &zone).map_err(Failure::bad_request)?;
    Ok(Json(json!({"runs": runs, "zone": zone.iana_name()})))
}

fn runs_between(question: &Question, zone: &TimeZone) -> Result<Vec<Timestamp>, String> {
    let schedule = Schedule::parse(&question.schedule)?;
    let mut runs = Vec::new();
    let mut last = start(question, &schedule, zone);
    while runs.len() < MAX_RUNS
        && let Some(next) = schedule.next_after(last, zone).filter(|next| *next <= question.until && *next > last)
    {
        runs.push(next);
        last = next;
    }
    Ok(runs)
}

/// Returns the time after which the runs in the range are looked for.
///
/// `@every 2h` counts from the run before, so the runs in the range are whole periods away from the settled one.
fn start(question: &Question, schedule: &Schedule, zone: &TimeZone) -> Timestamp {
    let Question { base, from, .. } = *question;
    let next = schedule.next_after(base, zone).filter(|_| question.schedule.starts_with("@every"));
    let Some(next) = next else { return from };
    let period = next.as_second() - base.as_second();
    // At least a second, and the run at this time itself is before the range.
    let periods = (from.as_second() - base.as_second()).div_euclid(period.max(1));
    Timestamp::from_second(base.as_second() + periods * period).unwrap_or(from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_the_operator() {
        let check = |schedule: &str, zone: &str, expect: Result<&[&str], &str>| {
            let question = Question {
                schedule: schedule.to_owned(),
                time_zone: None,
                base: "2026-01-02T12:34:56Z".parse().unwrap(),
                from: "2026-01-01T00:00:00Z".parse().unwrap(),
                until: "2026-01-03T00:00:00Z".parse().unwrap(),
            };
            let runs = runs_between(&question, &TimeZone::get(zone).unwrap())
                .map(|runs| runs.iter().map(ToString::to_string).collect::<Vec<_>>());
            let expect = expect.map(|runs| runs.iter().map(|run| (*run).to_owned()).collect::<Vec<_>>());
            assert_eq!(runs, expect.map_err(str::to_owned), "{schedule}");
        };
        check("0 12 * * *", "UTC", Ok(&["2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z"]));
        check("0 12 * * *", "Asia/Tokyo", Ok(&["2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z"]));
        // Counted from the run that is settled, in both directions.
        check("@every 15h", "UTC", Ok(&["2026-01-01T06:34:56Z", "2026-01-01T21:34:56Z", "2026-01-02T12:34:56Z"]));
        check("", "UTC", Err("empty spec string"));
    }
}
