//! The rules that a spec must keep beyond its schema. One file or folder per kind.
//!
//! What has passed becomes a type that builders can trust.

pub mod cluster;
#[cfg(test)]
mod fixtures;
pub mod kubernetes_names;

pub use cluster::{ValidCluster, validate_cluster_spec};
