//! RayCronJob: RayJobs on a schedule.
//!
//! [`plan`] finds the run that is due ([`schedule`], [`missed`]) and creates a RayJob for it.

pub mod missed;
mod observed;
mod plan;
pub mod schedule;

pub use observed::Observed;

/// A plan for a RayCronJob.
pub type Plan = crate::plan::PlanOf<manta_api::RayCronJob>;
/// The planner for a RayCronJob.
pub(crate) type Planner<'a> = crate::plan::Planner<'a, manta_api::RayCronJob>;
