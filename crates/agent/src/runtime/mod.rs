//! Processes, namespaces and mounts: the only part that needs `unsafe`.
//!
//! ```text
//!  outer ─────────── in the machine's own namespaces; opens host ports, runs installers
//!    └─ init ─────── PID 1 of the world, one thread: forks containers, reaps everything
//!         ├─ main ── tokio: API server, agent, operator
//!         └─ containers, each with its own mount and PID namespace
//! ```
//!
//! Forking is safe only in a process with one thread, so `main` asks `init` over a socket
//! instead of forking itself. If `outer` dies the kernel kills `init`, and with `init` its whole
//! PID namespace; nothing has to be cleaned up by hand. Where there can be no namespaces, containers
//! are families of processes instead; see `family.rs`.

// Every unsafe block here is a system call that the safe wrappers do not offer, with its reason.
#![allow(unsafe_code)]

pub mod cgroup;
mod container;
mod family;
mod fork;
pub mod lock;
pub mod memory;
pub mod rootfs;
mod server;
mod spawner;
mod wire;
pub mod world;

pub use container::{CommandJob, ContainerJob, ExecJob};
pub use server::Status;
pub use spawner::{Process, SpawnError, Spawner, Stdio};
pub use world::{Isolation, World, enter_world};
