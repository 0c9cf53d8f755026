//! RayCronJob: RayJobs on a schedule.
//!
//! [`plan`] finds the run that is due ([`schedule`], [`missed`]) and makes a RayJob for it.

pub mod missed;
mod observed;
mod plan;
pub mod schedule;

pub use observed::Observed;
pub use plan::{Plan, plan, settle};
