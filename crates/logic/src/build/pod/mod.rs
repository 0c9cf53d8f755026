//! Head and worker Pods.
//!
//! ```text
//! template ─▶ PodBuilder ─▶ head or worker steps ─▶ sidecars, default metadata ─▶ common steps ─▶ Pod
//! ```
//!
//! [`head`] and [`worker`] list their steps in KubeRay's order, which determines the order of environment variables and
//! containers. Each other file is one concern of both.

mod auth;
mod autoscaler;
mod builder;
mod collector;
mod command;
mod context;
mod env;
mod finish;
mod gcs_ft;
mod head;
mod params;
mod probes;
mod resources;
mod tls;
mod volumes;
mod wait_gcs;
mod worker;

pub(super) use auth::TOKEN_KEY;
pub use auth::add_token_auth;
pub(super) use command::shell;
pub(super) use env::{has as has_env, literal as env_literal};
pub(super) use head::head_pod_of_job;
pub use head::{HeadIdentity, head_pod};
pub use resources::is_gpu;
pub(super) use resources::{requests_and_limits, requirements};
pub(super) use tls::{HEAD_SECRET_PREFIX, WAIT_FOR_IP_SAN, WORKER_SECRET_PREFIX};
pub use worker::{WorkerIdentity, worker_pod};
