//! The operator: watches, observes, plans, executes. A library, so that local mode runs it in process.
//!
//! ```text
//! API server ──watch──▶ stores ─observe▶ Observed ─plan▶ Plan ──execute──▶ API server, Ray
//! Ray dashboard ─poll─▶   │   (memory)            (pure)  │
//!                         └────wake────▶ queue            └──▶ status, events
//! ```

mod api_request;
pub mod args;
pub mod clock;
mod concurrency_limit;
mod context;
mod controllers;
pub mod dashboard;
pub mod events;
mod execute;
mod existence_cache;
mod in_flight;
pub mod leader;
mod lock;
pub mod metrics;
mod observe;
mod owners;
pub mod platform;
mod probes;
pub mod process;
pub mod queue;
pub mod random;
mod raw_object;
pub mod run;
mod status_writer;
pub mod stores;
mod watched_object;
mod watches;
mod webhooks;

pub use run::{Settings, run};
