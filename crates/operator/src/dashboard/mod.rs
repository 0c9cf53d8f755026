//! Ray's dashboards, asked outside of every pass.
//!
//! ```text
//!   plan ──what to follow──▶ Pollers ──one light task per object──▶ Client ──▶ dashboard
//!    ▲                          │                                     direct, or through the
//!    └──── observe ◀── what is known, since when ──▶ queue.wake       API server's proxy
//! ```
//!
//! A pass never waits for a dashboard: it says what it wants to know ([`poller`]), and reads what is known
//! by now. Dashboards that do not answer are asked less and less often, and share a few slots among
//! themselves, so a thousand of them delay nobody else.

pub mod client;
pub mod jobs;
pub(crate) mod poller;
pub mod serve;

pub use client::{Client, Route};
