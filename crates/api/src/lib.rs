//! The `ray.io/v1` API: RayCluster, RayJob, RayService and RayCronJob.
//!
//! There is one file per kind. The types are the source of the CRDs in `deploy/crds` (see [`crd`]), and [`markers`]
//! describes how Kubernetes' own types merge inside them.
//!
//! The types deserialize everything that the CRDs accept and serialize it unchanged: quantities written as numbers, enum
//! values of other versions, Services without `metadata`, and missing `spec`s, which are empty ones as in the original Go
//! types. There is one exception. A server does not check the range of an `int32`, so an object may have a larger number,
//! and neither these types nor the Go types can decode it. Watch with `kube::core::DeserializeGuard`, so that such an
//! object does not hide the others.

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
/// The stored version, which the operator uses.
pub const VERSION: &str = "v1";
/// The `apiVersion` in owner references and manifests.
pub const API_VERSION: &str = "ray.io/v1";
