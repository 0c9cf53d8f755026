//! Ray's dashboards.
//!
//! ```text
//!   plan ──what to poll──▶ Pollers ──one light task per object──▶ Client ──▶ dashboard
//!    ▲                        │                                     directly, or through the
//!    └──── observe ◀── state, last reply ──▶ queue.wake             API server's proxy
//! ```
//!
//! No pass waits for a reply about a state: it says what to poll ([`poller`]), and reads what is known by now.
//! Dashboards that do not reply are polled less and less often, and share a few slots among themselves, so a thousand of
//! them delay no other. Requests that change something are steps of a plan ([`crate::execute`]).

pub mod client;
pub mod jobs;
pub mod packages;
pub(crate) mod poller;
pub mod serve;

pub(crate) use client::TOKEN_KEY;
pub use client::{Client, Route};
