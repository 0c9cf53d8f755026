//! Test infrastructure: a real control plane, a fake kubelet, a fake Ray dashboard, a real browser.
//!
//! For tests and benchmarks only. It does not depend on Ray's Kubernetes types, so that every crate can use it.

pub mod audit;
mod browser;
mod cache;
mod conformance;
mod control_plane;
mod dashboard;
mod eventually;
mod go;
mod helm;
mod kubelet;
mod neighbours;
mod permissions;
mod python;
mod recording;
mod supervised;
mod tally;

pub use browser::{Browser, Tab};
pub use cache::cache_folder;
pub use conformance::ConformanceSuite;
pub use control_plane::{
    ControlPlane, LEDGER_VARIABLE, Options, SERVER_VARIABLE, SHARED_VARIABLE, User, cert_manager_chart, count_tests,
    find_kubectl, gateway_crds,
};
pub use dashboard::{Asked, FakeDashboard, Mode as DashboardMode};
pub use eventually::{eventually, within};
pub use helm::{helm, helm_command};
pub use kubelet::{Kubelet, Play};
pub use neighbours::Neighbour;
pub use permissions::{permission, permissions};
pub use python::python_with;
pub use recording::{Restore, restore};
pub use supervised::Supervised;
pub use tally::Tally;
