//! Simulates the whole system in one process, from one seed.
//!
//! ```text
//! seed ─▶ script ─▶ world: API server ◀─ network, with faults ─▶ operator
//!                     ▲  ▲  ▲                    │
//!                 users nodes checker           Ray
//! ```
//!
//! One thread, paused time, one source of randomness: the same seed gives the same transcript, byte for byte. The checker
//! looks at every state that the API server shows; when the faults are over, everything must become as the specs ask.

pub mod chaos;
pub mod checker;
mod kubelet;
mod network;
mod operators;
mod ray;
mod rng;
pub mod script;
pub mod shrink;
mod transcript;
mod users;
pub mod world;
