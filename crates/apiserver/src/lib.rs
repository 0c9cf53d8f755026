//! A Kubernetes API server in process, for one machine; it knows nothing of Ray.

pub mod clock;
pub mod node;
pub mod patch;
pub mod schema;
pub mod store;
