//! Token authentication: how Pods know the token.

use super::draft::{Draft, Node};
use super::wait_gcs::WAIT_GCS_READY;
use super::{env, volumes};
use crate::build::cluster_facts as facts;
use k8s_openapi::api::core::v1::{
    Container, EnvVar, EnvVarSource, PodSpec, ProjectedVolumeSource, SecretKeySelector, ServiceAccountTokenProjection,
    Volume, VolumeMount, VolumeProjection,
};
use manta_api::RayCluster;

/// The key of the token in its Secret.
pub(in crate::build) const TOKEN_KEY: &str = "auth_token";

const TOKEN_VOLUME: &str = "ray-token";
const TOKEN_DIRECTORY: &str = "/var/run/secrets/ray.io/serviceaccount";

/// Gives the first container of a Pod that talks to a cluster (a job's submitter) its token.
pub fn add_token_auth(cluster: &RayCluster, pod: &mut PodSpec) {
    if let Some(container) = pod.containers.first_mut() {
        configure_container(cluster, container);
        add_volume(cluster, pod);
    }
}

/// Gives the Ray container and the one that waits for the head their token.
pub(super) fn configure_pod(node: &Node<'_>, draft: &mut Draft) {
    configure_container(node.cluster, &mut draft.ray);
    for container in draft.init_containers().iter_mut().filter(|container| container.name == WAIT_GCS_READY) {
        configure_container(node.cluster, container);
    }
    add_volume(node.cluster, &mut draft.spec);
}

/// Gives a container its token, if the cluster asks for one.
pub(super) fn configure_container(cluster: &RayCluster, container: &mut Container) {
    if !facts::is_token_auth(&cluster.spec) {
        return;
    }
    env::push_if_absent(container, env::literal("RAY_AUTH_MODE", "token"));
    if !facts::is_k8s_token_auth(&cluster.spec) {
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
    let name = facts::auth_secret_name(cluster);
    let secret_key_ref = Some(SecretKeySelector { name, key: TOKEN_KEY.to_owned(), optional: None });
    let value_from = Some(EnvVarSource { secret_key_ref, ..EnvVarSource::default() });
    EnvVar { name: "RAY_AUTH_TOKEN".to_owned(), value: None, value_from }
}

fn add_volume(cluster: &RayCluster, pod: &mut PodSpec) {
    let uses_volume = facts::is_token_auth(&cluster.spec) && facts::is_k8s_token_auth(&cluster.spec);
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
