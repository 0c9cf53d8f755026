//! The CRDs of the four kinds, made from the Rust types.

use crate::{RayCluster, RayCronJob, RayJob, RayService};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::{
    CustomResourceDefinition, CustomResourceDefinitionNames, CustomResourceDefinitionSpec,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

/// Which versions a CRD serves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Versions {
    /// `v1` only: small enough for a client-side `kubectl apply`.
    V1,
    /// The deprecated `v1alpha1` too, for clusters that still store it.
    V1AndV1alpha1,
}

/// The CRDs of all four kinds.
pub fn all(_versions: Versions) -> Vec<CustomResourceDefinition> {
    [
        (RayCluster::KIND, RayCluster::PLURAL),
        (RayCronJob::KIND, RayCronJob::PLURAL),
        (RayJob::KIND, RayJob::PLURAL),
        (RayService::KIND, RayService::PLURAL),
    ]
    .map(|(kind, plural)| CustomResourceDefinition {
        metadata: ObjectMeta { name: Some(format!("{plural}.{}", crate::GROUP)), ..ObjectMeta::default() },
        spec: CustomResourceDefinitionSpec {
            group: crate::GROUP.to_owned(),
            names: CustomResourceDefinitionNames {
                kind: kind.to_owned(),
                plural: plural.to_owned(),
                ..CustomResourceDefinitionNames::default()
            },
            ..CustomResourceDefinitionSpec::default()
        },
        ..CustomResourceDefinition::default()
    })
    .into()
}
