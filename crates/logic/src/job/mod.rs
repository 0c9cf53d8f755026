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
//! behaviour: [`start`], [`initializing`], [`running`], [`suspend`], [`deletion_rules`], [`finalize`].
//! The dashboard is asked by a poller; a plan only says what to ask ([`dashboard`]).

mod cluster;
pub mod dashboard;
mod deadline;
mod deletion_rules;
mod finalize;
mod head_service;
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
pub mod submit;
mod submitter_state;
mod suspend;
#[cfg(test)]
pub(crate) mod tests;

pub use mode::Mode;
pub use observed::Observed;
pub use plan::{Execution, Plan, plan};
pub use status::settle;
