//! Simulates the whole system in one process, from one seed.
//!
//! ```text
//! seed ─▶ script ─▶ world: API server ◀─ network, with faults ─▶ operator
//!                     ▲  ▲  ▲                    │
//!           users nodes others checker            Ray
//! ```
//!
//! The others are those that share the cluster: a batch scheduler, Kueue, cert-manager and a gateway.
//!
//! One thread, paused time, one source of randomness: the same seed gives the same transcript, byte for byte. The checker
//! looks at every state that the API server shows; when the faults are over, everything must become as the specs ask.

mod api;
mod cert_manager;
pub mod chaos;
pub mod checker;
mod crds;
mod foreign;
mod gateway;
mod kubelet;
mod kueue;
mod lease;
mod network;
mod object;
mod operators;
mod panics;
mod ray;
mod review;
mod rng;
pub mod safeguards;
mod scheduler;
pub mod script;
pub mod shrink;
mod specs;
mod takeover;
mod transcript;
mod users;
pub mod world;
