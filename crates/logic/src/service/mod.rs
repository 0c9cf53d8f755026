//! RayService: Serve applications, the cluster that they run on, and the change from one to the next.
//!
//! ```text
//!            ┌ active slot  ── RayCluster ── Serve applications ◀── head and serve Service, or weight in the route
//! RayService ┤
//!            └ pending slot ── RayCluster ── Serve applications ──promotion──▶ becomes the active slot
//! ```
//!
//! A slot is a name in the status: first it is written, then its RayCluster is created. Clusters in no slot are
//! deleted after a delay. A poller of the operator polls Serve: see [`dashboard`].

mod applications;
mod capacity;
mod cleanup;
mod clusters;
mod conditions;
pub mod dashboard;
mod draft;
mod endpoints;
mod gateway;
mod initializing_timeout;
mod observed;
mod obstacle;
mod plan;
mod promotion;
mod rollback;
mod serve;
mod serve_config;
mod serve_labels;
mod services;
mod stalled_upgrade;
mod status;
mod suspend;
mod traffic;
mod upgrade;
mod watched;

use draft::Side;
use manta_api::RayService;

pub(crate) use conditions::CONFIG_REFUSED;
pub use observed::Observed;
pub use watched::watched_kinds;

/// A plan for a RayService.
pub type Plan = crate::plan::PlanOf<RayService>;
/// The planner for a RayService.
pub(crate) type Planner<'a> = crate::plan::Planner<'a, RayService>;

#[cfg(test)]
pub(crate) mod tests;
