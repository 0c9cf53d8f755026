//! Processes, namespaces and mounts: the only part that needs `unsafe`.
//!
//! ```text
//!  outer ─────────── in the host's own namespaces; opens host ports, runs installers
//!    └─ init ─────── PID 1 of the node's namespaces, one thread: forks containers, reaps everything
//!         ├─ main ── tokio: API server, agent, operator
//!         └─ containers, each with its own mount and PID namespace
//! ```
//!
//! Forking is safe only in a process with one thread, so `main` asks `init` over a socket
//! instead of forking itself. If `outer` dies the kernel kills `init`, and with `init` its whole
//! PID namespace; nothing has to be cleaned up by hand. Where there can be no namespaces, containers
//! are supervised process trees instead; see `process_tree.rs`.

// Every unsafe block here is a system call that the safe wrappers do not offer, with its reason.
#![allow(unsafe_code)]

pub mod beneath;
pub mod cgroup;
pub mod confinement;
mod container;
mod fork;
mod fork_server;
pub mod isolation;
pub mod lock;
pub mod memory;
mod message;
mod process_tree;
pub mod rootfs;
mod seccomp;
mod spawner;
pub mod user_namespace;

pub use container::{CommandJob, ContainerJob, ExecJob};
pub use fork_server::Status;
pub use isolation::{IsolatedProcess, Isolation, enter_namespaces};
pub use spawner::{Process, SpawnError, Spawner, Stdio};
