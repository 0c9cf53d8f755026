//! Everything that the decision about one RayCronJob depends on, besides time and settings.

use jiff::tz::TimeZone;
use manta_api::RayCronJob;

/// A RayCronJob, and the zone that schedules without one are read in.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub cron_job: RayCronJob,
    /// The operator's own time zone.
    pub local_zone: TimeZone,
}

impl Observed {
    pub(super) fn name(&self) -> &str {
        self.cron_job.metadata.name.as_deref().unwrap_or_default()
    }

    pub(super) fn namespace(&self) -> &str {
        self.cron_job.metadata.namespace.as_deref().unwrap_or_default()
    }
}
