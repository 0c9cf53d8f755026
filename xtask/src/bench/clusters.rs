//! Creates RayClusters of one head and three workers, until all are ready.

use anyhow::{Context, Result};

use super::Scenario;
use super::load::create_until_ready;
use super::measured::{Measured, Unit};
use super::trial::{Trial, from};
use crate::operator::is_work;

/// The prefix of their names.
pub(super) const PREFIX: &str = "bench";
/// The workers of each.
pub(super) const WORKERS: usize = 3;

/// Creates the RayClusters and measures until the operator has settled.
pub(super) fn measure(trial: &mut Trial<'_>, size: usize) -> Result<Measured> {
    let mut measured = trial.measured(Scenario::Clusters, size);
    trial.settle()?;
    let (idle, before) = (trial.usage()?, trial.requests()?.len());
    let peak = trial.follow_peak()?;
    let created = {
        let client = &trial.client;
        trial.block_on(create_until_ready(client, PREFIX, 0..size, WORKERS, trial.settings.limit()))?
    };
    trial.settle()?;
    measured.add("all created after", created.created_in.as_secs_f64(), Unit::Seconds);
    measured.add("all ready after", created.ready_in.as_secs_f64(), Unit::Seconds);
    measured.add_percentiles("created to ready", created.ready_after, Unit::Seconds);
    if let Some(idle) = idle {
        let busy = trial.usage()?.context("the operator is gone")?;
        let seconds = busy.cpu_seconds - idle.cpu_seconds;
        measured.add("operator CPU", seconds, Unit::Seconds);
        measured.add("operator CPU per RayCluster", seconds * 1e3 / size as f64, Unit::Milliseconds);
        measured.add("memory idle", idle.rss_bytes as f64, Unit::Bytes);
        measured.add("memory idle, private", idle.private_bytes as f64, Unit::Bytes);
        measured.add("memory peak", busy.peak_bytes as f64, Unit::Bytes);
        if let Some(peak) = peak {
            measured.add("memory peak, private", peak.end() as f64, Unit::Bytes);
        }
        measured.add("memory once ready", busy.rss_bytes as f64, Unit::Bytes);
        measured.add("memory once ready, private", busy.private_bytes as f64, Unit::Bytes);
    }
    let requests = from(trial.requests()?, before);
    let writes = requests.iter().filter(|request| request.is_write() && is_work(request)).count();
    measured.add("writes per RayCluster", writes as f64 / size as f64, Unit::Count);
    measured.add_requests(requests);
    Ok(measured)
}
