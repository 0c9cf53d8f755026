//! Fault tolerance of the global control store: where the head keeps its state.

use super::draft::{Draft, Node};
use super::env;
use crate::build::cluster_facts as facts;
use crate::labels::annotation;
use k8s_openapi::api::core::v1::{EnvVar, PersistentVolumeClaimVolumeSource, Volume, VolumeMount};
use manta_api::RedisCredential;

const STORAGE_VOLUME: &str = "gcs-storage";
const STORAGE_PATH: &str = "/data/gcs";

/// Tells the head where its state goes.
pub(super) fn configure_head(node: &Node<'_>, draft: &mut Draft) {
    let enabled = facts::is_gcs_ft_enabled(node.cluster);
    draft.annotate(annotation::FT_ENABLED, enabled.to_string());
    if !enabled {
        return;
    }
    if facts::is_gcs_storage_embedded(&node.cluster.spec) {
        use_embedded_storage(node, draft);
    } else {
        use_redis(node, draft);
    }
}

/// Gives a worker time to find a head that comes back.
pub(super) fn configure_worker(node: &Node<'_>, draft: &mut Draft) {
    if facts::is_gcs_ft_enabled(node.cluster) {
        env::push_if_absent(&mut draft.ray, env::literal("RAY_gcs_rpc_server_reconnect_timeout_s", "600"));
    }
}

fn use_redis(node: &Node<'_>, draft: &mut Draft) {
    let namespace = storage_namespace(node);
    draft.annotate(annotation::EXTERNAL_STORAGE_NAMESPACE, namespace);
    env::push_if_absent(&mut draft.ray, env::literal("RAY_external_storage_namespace", namespace));
    let Some(options) = &node.cluster.spec.gcs_fault_tolerance_options else {
        // Annotation mode: the password stands among the parameters, the address in the user's env.
        if let Some(password) = draft.params.get("redis-password") {
            env::push_if_absent(&mut draft.ray, env::literal("REDIS_PASSWORD", password.as_str()));
        }
        return;
    };
    let address = options.redis_address.as_deref().unwrap_or_default();
    env::push(&mut draft.ray, [env::literal("RAY_REDIS_ADDRESS", address)]);
    add_credential(draft, "redis-username", "REDIS_USERNAME", options.redis_username.as_ref());
    add_credential(draft, "redis-password", "REDIS_PASSWORD", options.redis_password.as_ref());
}

/// The user's namespace in Redis, else the UID, which no other cluster has.
fn storage_namespace<'a>(node: &Node<'a>) -> &'a str {
    let options = node.cluster.spec.gcs_fault_tolerance_options.as_ref();
    options
        .and_then(|options| options.external_storage_namespace.as_deref())
        .filter(|namespace| !namespace.is_empty())
        .or_else(|| facts::annotation(node.cluster, annotation::EXTERNAL_STORAGE_NAMESPACE))
        .unwrap_or_else(|| facts::uid(node.cluster))
}

/// Passes a credential by environment; the container's shell expands it on the command line.
fn add_credential(draft: &mut Draft, param: &str, variable: &str, credential: Option<&RedisCredential>) {
    let Some(credential) = credential else { return };
    draft.params.insert(param.to_owned(), format!("${variable}"));
    let value_from = credential.value_from.clone();
    let value = credential.value.clone().filter(|value| !value.is_empty());
    env::push(&mut draft.ray, [EnvVar { name: variable.to_owned(), value, value_from }]);
}

fn use_embedded_storage(node: &Node<'_>, draft: &mut Draft) {
    env::push_if_absent(&mut draft.ray, env::literal("RAY_gcs_storage", "rocksdb"));
    env::push_if_absent(&mut draft.ray, env::literal("RAY_gcs_storage_path", STORAGE_PATH));
    let sub_path = facts::gcs_storage(&node.cluster.spec).and_then(|storage| storage.sub_path.clone());
    draft.ray.volume_mounts.get_or_insert_default().push(VolumeMount {
        name: STORAGE_VOLUME.to_owned(),
        mount_path: STORAGE_PATH.to_owned(),
        sub_path: sub_path.filter(|path| !path.is_empty()),
        ..VolumeMount::default()
    });
    let claim_name = facts::gcs_claim_name(node.cluster);
    draft.spec.volumes.get_or_insert_default().push(Volume {
        name: STORAGE_VOLUME.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name, read_only: None }),
        ..Volume::default()
    });
}
