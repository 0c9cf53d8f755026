//! Queries on Pod templates that several rules share.

use crate::cluster_spec::ray_container;
use k8s_openapi::api::core::v1::{EnvVar, PodTemplateSpec, VolumeMount};

/// Returns the first variable of this name in the Ray container.
pub(super) fn ray_env<'a>(template: &'a PodTemplateSpec, name: &str) -> Option<&'a EnvVar> {
    find_env(ray_container(template)?.env.as_deref(), name)
}

/// Returns the volume mounts of the Ray container.
pub(super) fn ray_mounts(template: &PodTemplateSpec) -> &[VolumeMount] {
    ray_container(template).and_then(|container| container.volume_mounts.as_deref()).unwrap_or_default()
}

/// Returns the first variable of this name.
pub(super) fn find_env<'a>(env: Option<&'a [EnvVar]>, name: &str) -> Option<&'a EnvVar> {
    env?.iter().find(|variable| variable.name == name)
}

/// Returns whether any container has this name.
pub(super) fn has_container(template: &PodTemplateSpec, name: &str) -> bool {
    template.spec.iter().flat_map(|spec| &spec.containers).any(|container| container.name == name)
}

/// Returns whether Kubernetes may restart the containers of such a Pod.
pub(in crate::validate) fn may_restart(template: &PodTemplateSpec) -> bool {
    let policy = template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    !matches!(policy, None | Some("" | "Never"))
}
