//! Runs the Pods of one node as local processes; knows nothing of Ray.
//!
//! ```text
//!   watch ─▶ agent ─▶ one worker per pod ─▶ pod::next (pure) ─▶ start, stop, status
//!                 └─▶ scheduler, Service table ─▶ proxy, resolver
//! ```
//!
//! [`runtime::enter_namespaces`] must be called first, while the process has one thread.

pub mod agent;
mod archives;
pub mod cache_lock;
pub mod downward_api;
pub mod env;
pub mod environments;
pub mod exec;
pub mod gpus;
pub mod guards;
pub mod images;
mod installations;
pub mod logs;
pub mod mounts;
mod names;
pub mod network;
mod node;
pub mod pod;
pub mod probes;
pub mod runtime;
pub mod scheduler;
pub mod security_context;
pub mod shared_host;
mod stores;
mod sysctls;
pub mod tokens;
pub mod volumes;
mod worker;

pub use worker::ContainerUsage;

pub use agent::{Agent, AgentError, Config, ProgressFn, RequestError, clean_leftovers};
