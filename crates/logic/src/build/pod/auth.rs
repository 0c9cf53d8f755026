//! Token authentication in Pods.

use super::builder::PodBuilder;
use super::context::PodContext;
use super::wait_gcs::WAIT_GCS_READY;
use super::{env, volumes};
use crate::cluster_spec;
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, PodSpec, ProjectedVolumeSource, SecretKeySelector, ServiceAccountTokenProjection,
    Volume, VolumeMount, VolumeProjection,
};
use manta_api::RayCluster;

/// The key of the token in its Secret.
pub(in crate::build) const TOKEN_KEY: &str = "auth_token";

const TOKEN_VOLUME: &str = "ray-token";
const TOKEN_DIRECTORY: &str = "/var/run/secrets/ray.io/serviceaccount";

/// Configures token authentication for the first container of a client Pod, such as a job's submitter.
pub fn add_token_auth(cluster: &RayCluster, pod: &mut PodSpec) {
    if let Some(container) = pod.containers.first_mut() {
        configure_container(cluster, container);
        add_volume(cluster, pod);
    }
}

/// Configures token authentication for the Ray container and the one that waits for the GCS.
pub(super) fn configure_pod(context: &PodContext<'_>, builder: &mut PodBuilder) {
    configure_container(context.cluster, &mut builder.ray);
    for container in builder.init_containers().iter_mut().filter(|container| container.name == WAIT_GCS_READY) {
        configure_container(context.cluster, container);
    }
    add_volume(context.cluster, &mut builder.spec);
}

/// Configures token authentication for a container if the cluster uses it.
pub(super) fn configure_container(cluster: &RayCluster, container: &mut Container) {
    if !cluster_spec::is_token_auth(&cluster.spec) {
        return;
    }
    env::push_if_absent(container, env::literal("RAY_AUTH_MODE", "token"));
    if !cluster_spec::is_k8s_token_auth(&cluster.spec) {
        if !env::has(container, "RAY_AUTH_TOKEN") {
            env::push(container, [token_from_secret(cluster)]);
        }
        return;
    }
    env::push_if_absent(container, env::literal("RAY_ENABLE_K8S_TOKEN_AUTH", "true"));
    let mounts = container.volume_mounts.get_or_insert_default();
    if !mounts.iter().any(|mount| mount.name == TOKEN_VOLUME) {
        mounts.push(VolumeMount {
            name: TOKEN_VOLUME.to_owned(),
            mount_path: TOKEN_DIRECTORY.to_owned(),
            read_only: Some(true),
            ..VolumeMount::default()
        });
    }
}

fn token_from_secret(cluster: &RayCluster) -> EnvVar {
    let name = cluster_spec::auth_secret_name(cluster);
    let secret_key_ref = Some(SecretKeySelector { name, key: TOKEN_KEY.to_owned(), optional: None });
    let value_from = Some(EnvVarSource { secret_key_ref, ..EnvVarSource::default() });
    EnvVar { name: "RAY_AUTH_TOKEN".to_owned(), value: None, value_from }
}

fn add_volume(cluster: &RayCluster, pod: &mut PodSpec) {
    let uses_volume = cluster_spec::is_token_auth(&cluster.spec) && cluster_spec::is_k8s_token_auth(&cluster.spec);
    if !uses_volume || volumes::has_volume(pod, TOKEN_VOLUME) {
        return;
    }
    let token = ServiceAccountTokenProjection { path: "token".to_owned(), ..ServiceAccountTokenProjection::default() };
    let source = VolumeProjection { service_account_token: Some(token), ..VolumeProjection::default() };
    pod.volumes.get_or_insert_default().push(Volume {
        name: TOKEN_VOLUME.to_owned(),
        projected: Some(ProjectedVolumeSource { sources: Some(vec![source]), default_mode: None }),
        ..Volume::default()
    });
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{cluster, container, env, env_names, head, mounts, ray, volumes, worker};
    use crate::config::Config;
    use serde_json::{Value, json};

    fn with(options: Value) -> RayCluster {
        cluster(json!({"spec": {"authOptions": options, "enableInTreeAutoscaling": true}}))
    }

    #[test]
    fn tokens_come_from_a_secret() {
        let options = json!({"mode": "token", "secretName": "mine"});
        for (cluster, secret) in [(with(json!({"mode": "token"})), "test-cluster"), (with(options), "mine")] {
            let (head, worker) = (head(&cluster, &Config::default()), worker(&cluster, &Config::default()));
            let autoscaler = container(&head, "autoscaler");
            for container in [ray(&head), autoscaler, ray(&worker), container(&worker, WAIT_GCS_READY)] {
                assert_eq!(env(container, "RAY_AUTH_MODE"), Some("token"));
                assert_eq!(env(container, "RAY_AUTH_TOKEN"), Some(secret));
                assert_eq!(env(container, "RAY_ENABLE_K8S_TOKEN_AUTH"), None);
            }
            assert_eq!(volumes(&worker), ["shared-mem"]);
        }
    }

    #[test]
    fn tokens_can_be_those_of_service_accounts() {
        let cluster = with(json!({"mode": "token", "enableK8sTokenAuth": true}));
        let (head, worker) = (head(&cluster, &Config::default()), worker(&cluster, &Config::default()));
        let autoscaler = container(&head, "autoscaler");
        for container in [ray(&head), autoscaler, ray(&worker), container(&worker, WAIT_GCS_READY)] {
            assert_eq!(env(container, "RAY_AUTH_MODE"), Some("token"));
            assert_eq!(env(container, "RAY_ENABLE_K8S_TOKEN_AUTH"), Some("true"));
            assert_eq!(env(container, "RAY_AUTH_TOKEN"), None);
            let mount = &container.volume_mounts.as_ref().unwrap()[0];
            let expect = json!({"name": TOKEN_VOLUME, "mountPath": TOKEN_DIRECTORY, "readOnly": true});
            assert_eq!(json!(mount), expect);
        }
        for pod in [&head, &worker] {
            let volume = &pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0];
            let sources = json!([{"serviceAccountToken": {"path": "token"}}]);
            assert_eq!(json!(volume), json!({"name": TOKEN_VOLUME, "projected": {"sources": sources}}));
        }
        for enabled in [json!(false), json!(null)] {
            let pod = crate::build::testing::head(
                &with(json!({"mode": "token", "enableK8sTokenAuth": enabled})),
                &Config::default(),
            );
            assert_eq!(env(ray(&pod), "RAY_ENABLE_K8S_TOKEN_AUTH"), None);
        }
    }

    #[test]
    fn without_the_mode_nothing_is_added() {
        for options in [json!(null), json!({}), json!({"mode": "disabled"}), json!({"enableK8sTokenAuth": true})] {
            let pod = head(&with(options), &Config::default());
            assert_eq!(env(ray(&pod), "RAY_AUTH_MODE"), None);
            assert_eq!(mounts(ray(&pod)), ["/dev/shm", "/tmp/ray"]);
        }
    }

    #[test]
    fn a_submitter_gets_the_token_once() {
        let cluster = with(json!({"mode": "token"}));
        let mut pod = PodSpec { containers: vec![Container::default()], ..PodSpec::default() };
        add_token_auth(&cluster, &mut pod);
        add_token_auth(&cluster, &mut pod);
        assert_eq!(env_names(&pod.containers[0]), ["RAY_AUTH_MODE", "RAY_AUTH_TOKEN"]);
        add_token_auth(&cluster, &mut PodSpec::default());
    }
}
