//! The `ray.io/v1` API: RayCluster, RayJob, RayService and RayCronJob.
//!
//! One file per kind. The types are the source of the CRDs in `deploy/crds` (see [`crd`]), and
//! [`markers`] says how Kubernetes' own types merge inside them.
//!
//! The types read everything that the CRDs accept, and write it back unchanged: quantities written
//! as numbers, enum values of other versions, Services without a shell, and absent `spec`s, which
//! count as empty ones like in the original Go types. One exception: a server does not check that an
//! `int32` fits, so an object may hold a larger number, and neither these types nor the Go ones can
//! read it. Watch with `kube::core::DeserializeGuard`, so that such an object does not hide the others.

pub mod cluster;
pub mod crd;
pub mod cronjob;
pub mod job;
mod kind;
pub mod markers;
mod numeric_quantities;
pub mod service;
mod service_template;
mod string_enum;

pub use cluster::*;
pub use cronjob::*;
pub use job::*;
pub use service::*;
pub use service_template::ServiceTemplate;

/// The API group of all four kinds.
pub const GROUP: &str = "ray.io";
/// The version that is stored and that the operator reads and writes.
pub const VERSION: &str = "v1";
/// `apiVersion` as it stands in owner references and manifests.
pub const API_VERSION: &str = "ray.io/v1";
