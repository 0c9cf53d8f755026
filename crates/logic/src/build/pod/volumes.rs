//! Shared memory and the log directory.

use super::autoscaler::AUTOSCALER;
use super::draft::{Draft, Node, Role};
use crate::cluster_spec;
use crate::names::reserved::COLLECTOR;
use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, PodSpec, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Adds the volumes that Ray and its companions share.
pub(super) fn add_to_pod(node: &Node<'_>, draft: &mut Draft) {
    if !draft.params.contains_key("plasma-directory") {
        let shared_memory =
            EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit: memory_of(&draft.ray).cloned() };
        add_empty_dir(&mut draft.spec, &mut draft.ray, "shared-mem", "/dev/shm", shared_memory);
    }
    if node.role == Role::Head && cluster_spec::is_autoscaling(&node.cluster.spec) {
        share_logs(draft, AUTOSCALER);
    }
    if cluster_spec::collector(&node.cluster.spec, &node.config.gates).is_some() {
        share_logs(draft, COLLECTOR);
    }
}

/// Mounts an emptyDir at a path, unless something is mounted there.
fn add_empty_dir(spec: &mut PodSpec, container: &mut Container, name: &str, path: &str, source: EmptyDirVolumeSource) {
    if container.volume_mounts.iter().flatten().any(|mount| mount.mount_path == path) {
        return;
    }
    if !has_volume(spec, name) {
        let volume = Volume { name: name.to_owned(), empty_dir: Some(source), ..Volume::default() };
        spec.volumes.get_or_insert_default().push(volume);
    }
    let mount = VolumeMount { name: name.to_owned(), mount_path: path.to_owned(), ..VolumeMount::default() };
    container.volume_mounts.get_or_insert_default().push(mount);
}

/// Whether the Pod has a volume of this name.
pub(super) fn has_volume(spec: &PodSpec, name: &str) -> bool {
    spec.volumes.iter().flatten().any(|volume| volume.name == name)
}

/// Lets a sidecar see Ray's log directory.
fn share_logs(draft: &mut Draft, sidecar: &str) {
    const NAME: &str = "ray-logs";
    const PATH: &str = "/tmp/ray";
    let Draft { spec, ray, sidecars, .. } = draft;
    add_empty_dir(spec, ray, NAME, PATH, EmptyDirVolumeSource::default());
    if let Some(sidecar) = sidecars.iter_mut().find(|container| container.name == sidecar) {
        add_empty_dir(spec, sidecar, NAME, PATH, EmptyDirVolumeSource::default());
    }
}

/// The container's memory limit, else its request.
fn memory_of(container: &Container) -> Option<&Quantity> {
    let resources = container.resources.as_ref()?;
    let limit = resources.limits.as_ref().and_then(|limits| limits.get("memory"));
    limit.or_else(|| resources.requests.as_ref()?.get("memory"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{cluster, container, head, mounts, ray, volumes, worker};
    use crate::config::Config;
    use serde_json::json;

    #[test]
    fn a_path_is_mounted_once() {
        // 2
        let (mut spec, mut container) = (PodSpec::default(), Container::default());
        for name in ["first", "first", "second"] {
            add_empty_dir(&mut spec, &mut container, name, "/path", EmptyDirVolumeSource::default());
        }
        assert_eq!(mounts(&container), ["/path"]);
        assert_eq!(spec.volumes.unwrap().len(), 1);
    }

    #[test]
    fn shared_memory_is_as_large_as_memory() {
        for (resources, size) in [
            (json!({"limits": {"memory": "2Gi"}, "requests": {"memory": "1Gi"}}), json!("2Gi")),
            (json!({"requests": {"memory": "1Gi"}}), json!("1Gi")),
            (json!({}), json!(null)),
        ] {
            let pod = worker(&cluster(json!({"workerRay": {"resources": resources}})), &Config::default());
            assert_eq!(mounts(ray(&pod)), ["/dev/shm"]);
            let volume = &pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0];
            let made = json!(volume.empty_dir);
            assert_eq!((&made["medium"], &made["sizeLimit"]), (&json!("Memory"), &size));
        }
    }

    #[test]
    fn a_plasma_directory_needs_no_shared_memory() {
        // 27
        for directory in ["/dev/shm", "/dev/shm/", "/tmp/ray/plasma"] {
            let given = json!({"head": {"rayStartParams": {"plasma-directory": directory}}});
            let pod = head(&cluster(given), &Config::default());
            assert_eq!((volumes(&pod), mounts(ray(&pod))), (vec![], vec![]));
        }
    }

    #[test]
    fn a_users_log_volume_is_not_shared() {
        let pod = head(
            &cluster(json!({
                "spec": {"enableInTreeAutoscaling": true},
                "ray": {"volumeMounts": [{"name": "mine", "mountPath": "/tmp/ray"}]},
                "pod": {"volumes": [{"name": "mine", "emptyDir": {}}]},
            })),
            &Config::default(),
        );
        assert_eq!(volumes(&pod), ["mine", "shared-mem", "ray-logs"]);
        assert_eq!(mounts(ray(&pod)), ["/tmp/ray", "/dev/shm"]);
        assert_eq!(mounts(container(&pod, AUTOSCALER)), ["/tmp/ray"]);
    }
}
