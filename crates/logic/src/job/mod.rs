//! RayJob: a Ray job from its submission to its end, on a cluster of its own or on one that exists.
//!
//! ```text
//!   New ─▶ Initializing ─▶ Running ─▶ Complete | Failed        every arrow is one status write;
//!    ▲         │  └▶ Waiting ┘  │            │                 names are written before anything
//!    │         ▼                ▼            ▼ (tries left)    with that name is made
//!   Suspended ◀─── Suspending        Retrying ─▶ New
//! ```
//!
//! [`plan`] reads the phase from the status ([`phase`]) and hands over to one file per phase or
//! behaviour: [`start`], [`initializing`], [`running`], [`suspend`], [`deletion_rules`], [`deletion`].
//! A poller of the operator polls the dashboard; a plan names what to poll ([`dashboard`]).

mod cluster;
pub mod dashboard;
mod deadline;
mod deletion;
mod deletion_rules;
mod head_service;
pub mod http_submission;
mod initializing;
mod mode;
mod observed;
pub mod phase;
mod plan;
mod retry;
mod running;
pub mod runtime_env;
mod start;
mod status;
mod submitter;
mod suspend;
#[cfg(test)]
pub(crate) mod tests;

pub use mode::Mode;
pub use observed::Observed;

/// A plan for a RayJob.
pub type Plan = crate::plan::PlanOf<manta_api::RayJob>;
/// The planner for a RayJob.
pub(crate) type Planner<'a> = crate::plan::Planner<'a, manta_api::RayJob>;
