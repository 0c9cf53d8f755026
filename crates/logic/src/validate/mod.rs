//! The rules that a spec must keep beyond its schema. One file or folder per kind.
//!
//! What has passed becomes a type that builders and plans can trust.

pub mod cluster;
pub mod cronjob;
#[cfg(test)]
pub(crate) mod fixtures;
pub mod job;
pub mod kubernetes_names;
pub mod service;

pub use cluster::{ValidCluster, cluster_problems, cluster_spec_problems, validate_cluster_spec};
pub use cronjob::ValidCronJob;
pub use job::{ValidJob, validate_job_spec};
pub use service::ValidService;
