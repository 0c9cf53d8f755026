//! What to do next for a RayCluster.
//!
//! [`plan`] decides, the operator acts, [`settle`] works out the status. One file per behaviour;
//! [`network_policy`] and [`mtls`] are plans of their own, because they also serve clusters whose
//! spec is invalid.

mod auth;
mod conditions;
pub mod counts;
mod deletion;
mod gang;
mod head;
mod ingress;
pub mod mtls;
mod multihost;
pub mod network_policy;
mod not_running;
mod observed;
mod plan;
mod pods;
mod rbac;
mod replace;
mod services;
mod status;
mod storage;
mod suspend;
mod upgrade;
mod workers;

#[cfg(test)]
mod tests;

pub use observed::{InFlight, LookedUp, Observed};
pub use plan::{Halt, Plan, StatusUpdate, is_ours, plan};
pub use status::{needs_write, settle};
