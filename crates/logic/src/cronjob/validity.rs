//! Whether a RayCronJob may be acted upon.

use crate::config::FeatureGates;
use manta_api::RayCronJob;

pub(super) fn check(_cron_job: &RayCronJob, _gates: &FeatureGates) -> Result<(), String> {
    Ok(())
}
