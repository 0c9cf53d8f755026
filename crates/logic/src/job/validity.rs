//! Whether a RayJob may be acted upon.

use crate::config::FeatureGates;
use manta_api::RayJob;

/// Why not, and the event that says so.
pub(super) struct Invalid {
    pub(super) event_reason: &'static str,
    pub(super) message: String,
}

pub(super) fn check(_job: &RayJob, _gates: &FeatureGates) -> Result<(), Invalid> {
    Ok(())
}
