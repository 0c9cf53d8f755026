//! Shared memory and the log directory.

use super::autoscaler::AUTOSCALER;
use super::builder::PodBuilder;
use super::context::{NodeType, PodContext};
use crate::cluster_spec;
use crate::names::reserved::COLLECTOR;
use k8s_openapi::api::core::v1::{Container, EmptyDirVolumeSource, PodSpec, Volume, VolumeMount};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;

/// Adds the volumes that Ray shares with its sidecars.
pub(super) fn add_to_pod(context: &PodContext<'_>, builder: &mut PodBuilder) {
    if !builder.params.contains_key("plasma-directory") {
        let shared_memory =
            EmptyDirVolumeSource { medium: Some("Memory".to_owned()), size_limit: memory_of(&builder.ray).cloned() };
        add_empty_dir(&mut builder.spec, &mut builder.ray, "shared-mem", "/dev/shm", shared_memory);
    }
    if context.node_type == NodeType::Head && cluster_spec::is_autoscaling(&context.cluster.spec) {
        share_logs(builder, AUTOSCALER);
    }
    // By its name, as in KubeRay: a collector that the user has added reads the same logs.
    if builder.sidecars.iter().any(|sidecar| sidecar.name == COLLECTOR) {
        share_logs(builder, COLLECTOR);
    }
}

/// Mounts an emptyDir at a path unless another volume is mounted there.
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

/// Returns whether the Pod has a volume of this name.
pub(super) fn has_volume(spec: &PodSpec, name: &str) -> bool {
    spec.volumes.iter().flatten().any(|volume| volume.name == name)
}

/// Mounts Ray's log directory into a sidecar.
fn share_logs(builder: &mut PodBuilder, sidecar: &str) {
    const NAME: &str = "ray-logs";
    const PATH: &str = "/tmp/ray";
    let PodBuilder { spec, ray, sidecars, .. } = builder;
    add_empty_dir(spec, ray, NAME, PATH, EmptyDirVolumeSource::default());
    if let Some(sidecar) = sidecars.iter_mut().find(|container| container.name == sidecar) {
        add_empty_dir(spec, sidecar, NAME, PATH, EmptyDirVolumeSource::default());
    }
}

/// Returns the container's memory limit, or its request if it has no limit.
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
        let (mut spec, mut container) = (PodSpec::default(), Container::default());
        for name in ["first", "first", "second"] {
            add_empty_dir(&mut spec, &mut container, name, "/path", EmptyDirVolumeSource::default());
        }
        assert_eq!(mounts(&container), ["/path"]);
        assert_eq!(spec.volumes.unwrap().len(), 1);
    }

    #[test]
    fn shared_memory_has_the_size_of_the_memory_limit() {
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
