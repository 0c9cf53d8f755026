//! RayService: Serve applications, the cluster that they run on, and the change from one to the next.
//!
//! ```text
//!            ┌ active slot  ── RayCluster ── Serve applications ◀── head and serve Service, or weight in the route
//! RayService ┤
//!            └ pending slot ── RayCluster ── Serve applications ──promotion──▶ becomes the active slot
//! ```
//!
//! A slot is a name in the status: first it is written, then its RayCluster is made. What is in no slot goes
//! after a delay. Nobody waits for Ray in here: see [`dashboard`].

mod applications;
mod capacity;
mod cleanup;
mod clusters;
mod conditions;
pub mod dashboard;
mod endpoints;
mod gateway;
mod initializing_timeout;
mod observed;
mod obstacle;
mod plan;
mod progress;
mod rollback;
mod serve;
mod serve_config;
mod serve_labels;
mod services;
mod status;
mod suspend;
mod traffic;
mod upgrade;

pub use observed::Observed;
pub use plan::{Plan, plan};
pub use status::settle;

#[cfg(test)]
mod tests;
