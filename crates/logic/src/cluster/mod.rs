//! What to do next for a RayCluster.
//!
//! [`plan`] has the order of decisions, every other file one behaviour. [`status`] works the status out after
//! the writes. [`watched`] lists the kinds that must be watched for a cluster.

mod auth;
mod conditions;
pub mod counts;
mod deletion;
mod earlier;
mod existing;
mod gang;
mod head;
mod ingress;
mod mtls;
mod multihost;
mod network_policy;
mod observed;
mod orphans;
mod plan;
mod pods;
mod pods_blocked;
mod rbac;
mod replace;
mod services;
mod status;
mod storage;
mod suspend;
mod upgrade;
mod watched;
mod workers;

#[cfg(test)]
pub(crate) mod tests;

use manta_api::RayCluster;

pub use observed::{InFlight, Observed};
pub(crate) use status::fill_go_zeroes;
pub use watched::watched_kinds;

/// A plan for a RayCluster.
pub type Plan = crate::plan::PlanOf<RayCluster>;
/// The planner for a RayCluster.
pub(crate) type Planner<'a> = crate::plan::Planner<'a, RayCluster>;
