//! Measures an operator that has nothing to do, after the RayClusters were created.

use anyhow::{Context, Result};

use super::Scenario;
use super::measured::{Measured, Unit};
use super::trial::{Trial, from};
use crate::operator::is_work;

/// Waits and measures what that took.
pub(super) fn measure(trial: &mut Trial<'_>, size: usize) -> Result<Measured> {
    let mut measured = trial.measured(Scenario::Rest, size);
    let before = trial.requests()?.len();
    let start = trial.usage()?.context("the operator is gone")?;
    std::thread::sleep(trial.settings.rest());
    let end = trial.usage()?.context("the operator is gone")?;
    let seconds = trial.settings.rest().as_secs_f64();
    measured.add("seconds at rest", seconds, Unit::Seconds);
    measured.add("CPU at rest", end.cpu_seconds - start.cpu_seconds, Unit::Seconds);
    measured.add("memory at rest", end.rss_bytes as f64, Unit::Bytes);
    measured.add("memory at rest, private", end.private_bytes as f64, Unit::Bytes);
    let requests = from(trial.requests()?, before);
    measured.add("requests at rest", requests.iter().filter(|request| is_work(request)).count() as f64, Unit::Count);
    measured.add_requests(requests);
    Ok(measured)
}
