//! Services of the head, of multi-host workers and of Ray Serve.

mod head;
mod headless;
mod serve;

pub use head::{head_service, owner_head_service};
pub use headless::{headless_service, needs_headless_service};
pub use serve::{
    MissingServePort, cluster_serve_service, is_serving_port, service_serve_service, upgrade_serve_service,
};
