//! Runs the Pods of one node as local processes; knows nothing of Ray.
//!
//! ```text
//!   watch ─▶ agent ─▶ one worker per pod ─▶ pod::next (pure) ─▶ start, stop, status
//!                 └─▶ scheduler, Service table ─▶ proxy, resolver
//! ```
//!
//! [`runtime::enter_world`] must be called first, while the process has one thread.

pub mod agent;
pub mod env;
pub mod environments;
pub mod exec;
pub mod facts;
pub mod images;
pub mod logs;
pub mod network;
mod node;
pub mod one_network;
pub mod pod;
pub mod probes;
pub mod runtime;
pub mod scheduler;
mod stores;
pub mod volumes;
mod worker;

pub use agent::{Agent, AgentError, Config, RequestError, clean_leftovers};
