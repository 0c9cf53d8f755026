//! The operator: watches, observes, plans, acts. A library, so that local mode runs it in process.
//!
//! ```text
//! API server ──watch──▶ stores ─observe▶ Observed ─plan▶ Plan ──act──▶ API server
//!                         │                (pure)          │ (the only writer)
//!                         └────wake────▶ queue             └─settle─▶ status, events
//! ```

pub mod act;
pub mod args;
pub mod clock;
pub mod controllers;
pub mod dashboard;
pub mod events;
mod in_flight;
mod kept;
pub mod leader;
mod look_up;
pub mod metrics;
mod observe;
pub mod platform;
mod probes;
pub mod process;
pub mod queue;
mod room;
pub mod run;
mod status_writer;
pub mod stores;
mod token;
mod watches;
mod webhooks;
mod wire;

pub use run::{Operator, Settings, run};
