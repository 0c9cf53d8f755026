//! Rules of encryption between Pods: what the operator sets, users must not.

use super::ensure;
use super::pod::{find_env, ray_container, ray_mounts};
use crate::config::Config;
use crate::go::quote::quote;
use k8s_openapi::api::core::v1::{EnvVar, PodTemplateSpec, VolumeMount};
use manta_api::RayClusterSpec;

const VOLUME: &str = "ray-tls";
const PATH: &str = "/etc/ray/tls";
const ENV: [&str; 4] = ["RAY_USE_TLS", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"];

/// Whether the cluster's Pods speak TLS with each other.
pub fn is_tls_enabled(spec: &RayClusterSpec, config: &Config) -> bool {
    config.gates.ray_cluster_mtls && spec.tls_options.as_ref().is_some_and(|options| options.enabled == Some(true))
}

pub(super) fn check(spec: &RayClusterSpec, config: &Config) -> Result<(), String> {
    ensure(spec.tls_options.is_none() || config.gates.ray_cluster_mtls, || {
        "spec.tlsOptions requires the RayClusterMTLS feature gate to be enabled".to_owned()
    })?;
    if !is_tls_enabled(spec, config) {
        return Ok(());
    }
    check_pod(&spec.head_group_spec.template, "head Pod")?;
    for group in spec.worker_group_specs.iter().flatten() {
        check_pod(&group.template, &format!("worker group {}", quote(&group.group_name)))?;
    }
    let Some(autoscaler) = &spec.autoscaler_options else { return Ok(()) };
    check_env(autoscaler.env.as_deref(), "autoscalerOptions.env", " for the autoscaler")?;
    check_mounts(autoscaler.volume_mounts.as_deref().unwrap_or_default(), "autoscalerOptions.volumeMounts")
}

fn check_pod(template: &PodTemplateSpec, place: &str) -> Result<(), String> {
    check_env(ray_container(template).and_then(|container| container.env.as_deref()), place, "")?;
    check_mounts(ray_mounts(template), place)
}

fn check_env(env: Option<&[EnvVar]>, place: &str, whose: &str) -> Result<(), String> {
    let taken = ENV.into_iter().find(|name| find_env(env, name).is_some());
    taken.map_or(Ok(()), |name| {
        Err(format!(
            "cannot set {name} environment variable in {place} when tlsOptions is set - the operator manages TLS \
             configuration{whose} automatically"
        ))
    })
}

fn check_mounts(mounts: &[VolumeMount], place: &str) -> Result<(), String> {
    const MANAGED: &str = "when tlsOptions is set - the operator manages TLS configuration automatically";
    mounts.iter().try_for_each(|mount| {
        ensure(mount.name != VOLUME, || format!("cannot use volume mount named \"{VOLUME}\" in {place} {MANAGED}"))?;
        ensure(mount.mount_path != PATH, || format!("cannot use volume mount at path \"{PATH}\" in {place} {MANAGED}"))
    })
}
