//! Runs the Pods of one node as local processes; knows nothing of Ray.

pub mod env;
pub mod facts;
pub mod images;
pub mod network;
pub mod pod;
pub mod quantity;
pub mod runtime;
pub mod scheduler;
pub mod volumes;
