//! What the rules ask of a Pod template. The Ray container is the first one.

use k8s_openapi::api::core::v1::{Container, EnvVar, PodTemplateSpec, VolumeMount};

/// The container that runs Ray.
pub(super) fn ray_container(template: &PodTemplateSpec) -> Option<&Container> {
    template.spec.as_ref()?.containers.first()
}

/// The first variable of this name in the Ray container.
pub(super) fn ray_env<'a>(template: &'a PodTemplateSpec, name: &str) -> Option<&'a EnvVar> {
    find_env(ray_container(template)?.env.as_deref(), name)
}

/// The volume mounts of the Ray container.
pub(super) fn ray_mounts(template: &PodTemplateSpec) -> &[VolumeMount] {
    ray_container(template).and_then(|container| container.volume_mounts.as_deref()).unwrap_or_default()
}

/// The first variable of this name.
pub(super) fn find_env<'a>(env: Option<&'a [EnvVar]>, name: &str) -> Option<&'a EnvVar> {
    env?.iter().find(|variable| variable.name == name)
}

/// Whether any container has this name.
pub(super) fn has_container(template: &PodTemplateSpec, name: &str) -> bool {
    template.spec.iter().flat_map(|spec| &spec.containers).any(|container| container.name == name)
}

/// Whether Kubernetes restarts containers of such a Pod.
pub(in crate::validate) fn may_restart(template: &PodTemplateSpec) -> bool {
    let policy = template.spec.as_ref().and_then(|spec| spec.restart_policy.as_deref());
    !matches!(policy, None | Some("" | "Never"))
}
