//! When a cron job was due, and when it is due next.

use super::failure::{Failure, Json};
use super::question::parse;
use axum::body::Bytes;
use jiff::Timestamp;
use jiff::tz::TimeZone;
use manta_logic::cronjob::schedule::Schedule;
use serde::Deserialize;
use serde_json::{Value, json};

/// The most runs that are returned.
const MAX_RUNS: usize = 500;

#[derive(Deserialize)]
struct Question {
    schedule: String,
    #[serde(rename = "timeZone")]
    time_zone: Option<String>,
    from: Timestamp,
    until: Timestamp,
}

/// Returns the runs of a schedule within a time range.
pub(super) async fn runs(body: Bytes) -> Result<Json<Value>, Failure> {
    let question: Question = parse(&body)?;
    runs_between(&question).map(|runs| Json(json!({"runs": runs}))).map_err(Failure::bad_request)
}

fn runs_between(question: &Question) -> Result<Vec<Timestamp>, String> {
    let schedule = Schedule::parse(&question.schedule)?;
    let zone = match &question.time_zone {
        Some(name) => TimeZone::get(name).map_err(|error| error.to_string())?,
        None => TimeZone::UTC,
    };
    let mut runs = Vec::new();
    let mut last = question.from;
    while runs.len() < MAX_RUNS
        && let Some(next) = schedule.next_after(last, &zone).filter(|next| *next <= question.until && *next > last)
    {
        runs.push(next);
        last = next;
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn runs_are_those_of_the_operator() {
        let check = |schedule: &str, zone: Option<&str>, expect: Result<&[&str], &str>| {
            let question = Question {
                schedule: schedule.to_owned(),
                time_zone: zone.map(str::to_owned),
                from: "2026-01-01T00:00:00Z".parse().unwrap(),
                until: "2026-01-03T00:00:00Z".parse().unwrap(),
            };
            let runs = runs_between(&question).map(|runs| runs.iter().map(ToString::to_string).collect::<Vec<_>>());
            let expect = expect.map(|runs| runs.iter().map(|run| (*run).to_owned()).collect::<Vec<_>>());
            assert_eq!(runs, expect.map_err(str::to_owned), "{schedule}");
        };
        check("0 12 * * *", None, Ok(&["2026-01-01T12:00:00Z", "2026-01-02T12:00:00Z"]));
        check("0 12 * * *", Some("Asia/Tokyo"), Ok(&["2026-01-01T03:00:00Z", "2026-01-02T03:00:00Z"]));
        check("", None, Err("empty spec string"));
    }
}
