//! Rules for GCS fault tolerance by annotation or by options, with Redis or with embedded storage.

use super::ensure;
use super::pod::{ray_env, ray_mounts};
use crate::cluster_spec::{head_param, is_gcs_storage_embedded, is_true};
use crate::config::FeatureGates;
use crate::labels::annotation::{EXTERNAL_STORAGE_NAMESPACE, FT_ENABLED};
use crate::names::reserved::{GCS_STORAGE_PATH, GCS_STORAGE_VOLUME};
use manta_api::{GcsFaultToleranceOptions, GcsStorage, RayClusterSpec};
use std::collections::BTreeMap;

pub(super) fn check(
    spec: &RayClusterSpec,
    annotations: Option<&BTreeMap<String, String>>,
    gates: &FeatureGates,
) -> Result<(), String> {
    let annotation = |key: &str| annotations.and_then(|all| all.get(key)).map_or("", String::as_str);
    let has_env = |name: &str| ray_env(&spec.head_group_spec.template, name).is_some();
    let options = spec.gcs_fault_tolerance_options.as_ref();

    ensure(annotation(FT_ENABLED).is_empty() || options.is_none(), || {
        "ray.io/ft-enabled annotation and GcsFaultToleranceOptions are both set. Please use only \
         GcsFaultToleranceOptions to configure GCS fault tolerance"
            .to_owned()
    })?;
    let enabled = options.is_some() || is_true(Some(annotation(FT_ENABLED)));
    ensure(enabled || !has_env("RAY_REDIS_ADDRESS"), || {
        "RAY_REDIS_ADDRESS is set which implicitly enables GCS fault tolerance, but GcsFaultToleranceOptions is not \
         set. Please set GcsFaultToleranceOptions to enable GCS fault tolerance"
            .to_owned()
    })?;
    if let Some(options) = options {
        check_single_source(spec, annotation(EXTERNAL_STORAGE_NAMESPACE))?;
        check_backend(spec, options, gates)?;
    }
    ensure(!has_head_param(spec, "redis-username") && !has_env("REDIS_USERNAME"), || {
        "cannot set redis username in rayStartParams or environment variables - use \
         GcsFaultToleranceOptions.RedisUsername instead"
            .to_owned()
    })
}

/// Checks that nothing else sets what the options set.
fn check_single_source(spec: &RayClusterSpec, external_namespace: &str) -> Result<(), String> {
    let has_env = |name: &str| ray_env(&spec.head_group_spec.template, name).is_some();
    let refuse = |set: bool, what: &str, field: &str| {
        ensure(!set, || {
            format!(
                "cannot set {what} when GcsFaultToleranceOptions is enabled - use GcsFaultToleranceOptions.{field} \
                 instead"
            )
        })
    };
    refuse(has_head_param(spec, "redis-password"), "`redis-password` in rayStartParams", "RedisPassword")?;
    refuse(has_env("REDIS_PASSWORD"), "`REDIS_PASSWORD` env var in head Pod", "RedisPassword")?;
    refuse(has_env("RAY_REDIS_ADDRESS"), "`RAY_REDIS_ADDRESS` env var in head Pod", "RedisAddress")?;
    let annotation = format!("`{EXTERNAL_STORAGE_NAMESPACE}` annotation");
    refuse(!external_namespace.is_empty(), &annotation, "ExternalStorageNamespace")
}

fn check_backend(
    spec: &RayClusterSpec,
    options: &GcsFaultToleranceOptions,
    gates: &FeatureGates,
) -> Result<(), String> {
    if !is_gcs_storage_embedded(spec) {
        return ensure(options.storage.is_none(), || {
            "cannot set GcsFaultToleranceOptions.Storage when backend is 'redis' - it only applies to the 'rocksdb' \
             backend"
                .to_owned()
        });
    }
    ensure(gates.gcs_fault_tolerance_embedded_storage, || {
        "the embedded RocksDB GCS fault tolerance backend (GcsFaultToleranceOptions.Backend: 'rocksdb') requires the \
         GCSFaultToleranceEmbeddedStorage feature gate to be enabled"
            .to_owned()
    })?;
    let has_text = |text: &Option<String>| text.as_ref().is_some_and(|text| !text.is_empty());
    let redis_fields = [
        (has_text(&options.redis_address), "RedisAddress"),
        (options.redis_username.is_some(), "RedisUsername"),
        (options.redis_password.is_some(), "RedisPassword"),
        (has_text(&options.external_storage_namespace), "ExternalStorageNamespace"),
    ];
    if let Some((_, field)) = redis_fields.iter().find(|(set, _)| *set) {
        return Err(format!("cannot set GcsFaultToleranceOptions.{field} when backend is 'rocksdb'"));
    }
    ensure(!options.storage.as_ref().is_some_and(mixes_claim_and_template), || {
        "GcsFaultToleranceOptions.Storage.ClaimName is mutually exclusive with size, storageClassName, and accessModes"
            .to_owned()
    })?;
    check_reserved_names(spec)
}

/// Returns whether both an existing claim and the properties of a new one are set.
fn mixes_claim_and_template(storage: &GcsStorage) -> bool {
    let has_claim = storage.claim_name.as_ref().is_some_and(|name| !name.is_empty());
    let has_modes = storage.access_modes.as_ref().is_some_and(|modes| !modes.is_empty());
    // An empty class is a choice too: no dynamic provisioning.
    has_claim && (storage.size.is_some() || storage.storage_class_name.is_some() || has_modes)
}

/// Checks that the user does not set the variables, the mount and the volume of the embedded storage.
fn check_reserved_names(spec: &RayClusterSpec) -> Result<(), String> {
    let template = &spec.head_group_spec.template;
    let has_env = |name: &str| ray_env(template, name).is_some();
    ensure(!has_env("RAY_gcs_storage") && !has_env("RAY_gcs_storage_path"), || {
        "cannot set `RAY_gcs_storage` or `RAY_gcs_storage_path` env var in head Pod when the embedded GCS FT backend \
         is used - these are managed by KubeRay"
            .to_owned()
    })?;
    let managed = ray_mounts(template).iter().any(|m| m.name == GCS_STORAGE_VOLUME || m.mount_path == GCS_STORAGE_PATH);
    ensure(!managed, || {
        format!(
            "cannot set a volume mount named \"{GCS_STORAGE_VOLUME}\" or mounted at {GCS_STORAGE_PATH} in the head container \
             when the embedded GCS FT backend is used - it is managed by KubeRay"
        )
    })?;
    let mut volumes = template.spec.iter().flat_map(|spec| spec.volumes.iter().flatten());
    ensure(!volumes.any(|volume| volume.name == GCS_STORAGE_VOLUME), || {
        format!(
            "cannot set a volume named \"{GCS_STORAGE_VOLUME}\" in the head Pod when the embedded GCS FT backend is used - \
             it is managed by KubeRay"
        )
    })
}

fn has_head_param(spec: &RayClusterSpec, name: &str) -> bool {
    head_param(spec, name).is_some_and(|value| !value.is_empty())
}
