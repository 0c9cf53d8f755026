//! The rules that a spec must keep beyond its schema. One file per kind.
//!
//! What has passed becomes a type that builders can trust.

pub mod cluster;

pub use cluster::ValidCluster;
