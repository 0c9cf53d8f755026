//! Builders of Kubernetes objects; they cannot fail for a valid spec.

mod auth_secret;
pub mod gateway;
mod ingress;
pub mod mtls;
mod network_policy;
pub mod owner;
mod pod;
mod pvc;
pub mod rbac;
mod redis_cleanup;
mod route;
mod service;
pub mod submit_command;
pub mod submitter;

pub use auth_secret::auth_secret;
pub use ingress::{ingress, ingress_name, ingress_update};
pub use network_policy::{network_policies, network_policy_update};
pub use pod::{HeadIdentity, WorkerIdentity, add_token_auth, head_pod, is_gpu, worker_pod};
pub use pvc::{claim_drift, gcs_storage_claim, outlives_cluster};
pub use redis_cleanup::{redis_cleanup_job, redis_cleanup_job_name};
pub use route::route;
pub use service::{
    MissingServePort, cluster_serve_service, head_service, headless_service, is_serving_port, needs_headless_service,
    owner_head_service, service_serve_service, upgrade_serve_service,
};

#[cfg(test)]
mod goldens;
#[cfg(test)]
mod parity_tests;
#[cfg(test)]
pub(crate) mod testing;
#[cfg(test)]
mod worked_examples;
