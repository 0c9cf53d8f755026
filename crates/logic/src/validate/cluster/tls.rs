//! Rules for TLS between Pods: users must not set what the operator sets.

use super::ensure;
use super::pod::{find_env, ray_mounts};
use crate::cluster_spec::{is_tls_enabled, ray_container, worker_groups};
use crate::config::FeatureGates;
use crate::go::quote::quote;
use crate::names::reserved::{TLS_ENV, TLS_PATH, TLS_VOLUME};
use k8s_openapi::api::core::v1::{EnvVar, PodTemplateSpec, VolumeMount};
use manta_api::RayClusterSpec;

pub(super) fn check(spec: &RayClusterSpec, gates: &FeatureGates) -> Result<(), String> {
    ensure(spec.tls_options.is_none() || gates.ray_cluster_mtls, || {
        "spec.tlsOptions requires the RayClusterMTLS feature gate to be enabled".to_owned()
    })?;
    if !is_tls_enabled(spec, gates) {
        return Ok(());
    }
    check_pod(&spec.head_group_spec.template, "head Pod")?;
    for group in worker_groups(spec) {
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
    let taken = TLS_ENV.into_iter().map(|(name, _)| name).find(|name| find_env(env, name).is_some());
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
        ensure(mount.name != TLS_VOLUME, || {
            format!("cannot use volume mount named \"{TLS_VOLUME}\" in {place} {MANAGED}")
        })?;
        ensure(mount.mount_path != TLS_PATH, || {
            format!("cannot use volume mount at path \"{TLS_PATH}\" in {place} {MANAGED}")
        })
    })
}
