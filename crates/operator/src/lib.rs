//! The operator: watches, observes, plans, executes. A library, so that local mode runs it in process, and a
//! small program for clusters.
//!
//! ```text
//! API server ──watch──▶ stores ─observe▶ Observed ─plan▶ Plan ──execute──▶ API server, Ray
//! Ray dashboard ─poll─▶   │   (memory)            (pure)  │
//!                         └────wake────▶ queue            └──▶ status, events
//! ```

mod api_request;
pub mod args;
pub mod clock;
pub mod command;
mod concurrency_limit;
pub mod connect;
mod context;
mod controllers;
pub mod dashboard;
pub mod events;
pub mod evidence;
mod execute;
mod existence_cache;
mod in_flight;
pub mod leader;
mod lock;
mod log;
pub mod metrics;
mod observe;
mod owners;
pub mod platform;
mod post_mortem;
pub mod preview;
mod probes;
pub mod process;
pub mod queue;
pub mod random;
mod raw_object;
pub mod record_files;
pub mod records;
pub mod run;
mod shrinking_map;
pub mod signals;
mod status_writer;
pub mod stores;
mod watched_object;
mod watches;
mod webhooks;
mod write_budget;

pub use run::{Settings, run, run_with_telemetry};
