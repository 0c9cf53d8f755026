//! Everything that the decision about one RayCronJob depends on, besides time and settings.

use crate::observed_names::observed_names;
use crate::view::MetaView;
use jiff::tz::TimeZone;
use manta_api::RayCronJob;

/// A RayCronJob, and the zone that schedules without one are read in.
#[derive(Clone, Debug, PartialEq)]
pub struct Observed {
    pub cron_job: RayCronJob,
    /// The RayJobs that it, or an earlier one of its name, has made.
    pub jobs: Vec<MetaView>,
    /// The operator's own time zone.
    pub local_zone: TimeZone,
}

observed_names!(cron_job);
