//! Restarts an operator beside the RayClusters that were created.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, bail};

use super::Scenario;
use super::measured::{Measured, Unit};
use super::trial::Trial;
use crate::operator::is_work;

/// How long a process that uses no CPU counts as done.
const QUIET: Duration = Duration::from_secs(2);
/// One clock tick is background noise, such as a timer or a keep-alive.
const NOISE_SECONDS: f64 = 0.015;

/// Starts a new process, and measures until it has looked at everything: until it uses no more CPU.
pub(super) fn measure(trial: &mut Trial<'_>, size: usize) -> Result<Measured> {
    let mut measured = trial.measured(Scenario::Restart, size);
    trial.stop_operator()?;
    let start = trial.start_operator()?;
    let (mut last, mut last_active) = (trial.cpu_seconds()?, Instant::now());
    while last_active.elapsed() < QUIET {
        std::thread::sleep(Duration::from_millis(20));
        let now = trial.cpu_seconds()?;
        if now - last > NOISE_SECONDS {
            (last, last_active) = (now, Instant::now());
        }
        if start.elapsed() > trial.settings.limit() {
            bail!("{} was not at rest {} s after its restart", trial.name, start.elapsed().as_secs());
        }
    }
    let end = trial.usage()?.context("the operator is gone")?;
    measured.add("restart until all is looked at", (last_active - start).as_secs_f64(), Unit::Seconds);
    measured.add("CPU of the restart", end.cpu_seconds, Unit::Seconds);
    measured.add("memory after the restart", end.rss_bytes as f64, Unit::Bytes);
    measured.add("memory after the restart, private", end.private_bytes as f64, Unit::Bytes);
    measured.add("memory peak of the restart", end.peak_bytes as f64, Unit::Bytes);
    let requests = trial.requests()?;
    let writes = requests.iter().filter(|request| request.is_write() && is_work(request)).count();
    measured.add("writes of the restart", writes as f64, Unit::Count);
    measured.add_requests(requests);
    Ok(measured)
}
