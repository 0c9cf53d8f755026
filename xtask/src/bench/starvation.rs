//! Measures how much longer small RayClusters take while a big one scales up.

use anyhow::Result;

use super::clusters::WORKERS;
use super::load::create_until_ready;
use super::measured::{Measured, Unit};
use super::percentile::percentile;
use super::trial::{Trial, from};
use super::{Scenario, scale};

/// How many small RayClusters are created.
const SMALL: usize = 100;

/// Creates small RayClusters alone, then again while another one scales to this many workers.
pub(super) fn measure(trial: &mut Trial<'_>, size: usize) -> Result<Measured> {
    let mut measured = trial.measured(Scenario::Starvation, size);
    let limit = trial.settings.limit();
    trial.settle()?;
    let begun = trial.requests()?.len();
    let small =
        |prefix: &'static str| create_until_ready(&trial.client, prefix, 0..trial.settings.few(SMALL), WORKERS, limit);
    let (alone, beside) = trial.block_on(async {
        scale::create(trial, limit).await?;
        // The first ones of a process pay for its warming up.
        small("warm").await?;
        let alone = small("alone").await?;
        scale::scale(trial, 0, size).await?;
        let grown = scale::wait_for_workers(trial, size, limit);
        let (beside, ()) = futures::future::try_join(small("beside"), grown).await?;
        Ok((alone.ready_after, beside.ready_after))
    })?;
    let ratio = percentile(&beside, 0.99).zip(percentile(&alone, 0.99)).map(|(beside, alone)| beside / alone);
    measured.add_percentiles("created to ready alone", alone, Unit::Seconds);
    measured.add_percentiles("created to ready beside a scale-up", beside, Unit::Seconds);
    measured.add("beside against alone, p99", ratio.unwrap_or_default(), Unit::Ratio);
    trial.settle()?;
    measured.add_requests(from(trial.requests()?, begun));
    Ok(measured)
}
