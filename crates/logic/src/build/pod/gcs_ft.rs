//! Fault tolerance of the GCS: where the head stores its state.

use super::builder::PodBuilder;
use super::context::PodContext;
use super::env;
use crate::cluster_spec;
use crate::labels::annotation;
use crate::names::reserved::{GCS_STORAGE_PATH, GCS_STORAGE_VOLUME};
use k8s_openapi::api::core::v1::{EnvVar, PersistentVolumeClaimVolumeSource, Volume, VolumeMount};
use manta_api::RedisCredential;

/// Configures where the head stores its state.
pub(super) fn configure_head(context: &PodContext<'_>, builder: &mut PodBuilder) {
    let enabled = cluster_spec::is_gcs_ft_enabled(context.cluster);
    builder.annotate(annotation::FT_ENABLED, enabled.to_string());
    if !enabled {
        return;
    }
    if cluster_spec::is_gcs_storage_embedded(&context.cluster.spec) {
        use_embedded_storage(context, builder);
    } else {
        use_redis(context, builder);
    }
}

/// Makes a worker wait longer for a head that restarts.
pub(super) fn configure_worker(context: &PodContext<'_>, builder: &mut PodBuilder) {
    if cluster_spec::is_gcs_ft_enabled(context.cluster) {
        env::push_if_absent(&mut builder.ray, env::literal("RAY_gcs_rpc_server_reconnect_timeout_s", "600"));
    }
}

fn use_redis(context: &PodContext<'_>, builder: &mut PodBuilder) {
    let namespace = cluster_spec::external_storage_namespace(context.cluster);
    builder.annotate(annotation::EXTERNAL_STORAGE_NAMESPACE, namespace);
    env::push_if_absent(&mut builder.ray, env::literal("RAY_external_storage_namespace", namespace));
    let Some(options) = &context.cluster.spec.gcs_fault_tolerance_options else {
        // With the annotation the password is a parameter and the address a variable of the user.
        if let Some(password) = builder.params.get("redis-password") {
            env::push_if_absent(&mut builder.ray, env::literal("REDIS_PASSWORD", password.as_str()));
        }
        return;
    };
    let address = options.redis_address.as_deref().unwrap_or_default();
    env::push(&mut builder.ray, [env::literal("RAY_REDIS_ADDRESS", address)]);
    add_credential(builder, "redis-username", "REDIS_USERNAME", options.redis_username.as_ref());
    add_credential(builder, "redis-password", "REDIS_PASSWORD", options.redis_password.as_ref());
}

/// Passes a credential as a variable that the shell expands on the command line.
fn add_credential(builder: &mut PodBuilder, param: &str, variable: &str, credential: Option<&RedisCredential>) {
    let Some(credential) = credential else { return };
    builder.params.insert(param.to_owned(), format!("${variable}"));
    let value_from = credential.value_from.clone();
    let value = credential.value.clone().filter(|value| !value.is_empty());
    env::push(&mut builder.ray, [EnvVar { name: variable.to_owned(), value, value_from }]);
}

fn use_embedded_storage(context: &PodContext<'_>, builder: &mut PodBuilder) {
    env::push_if_absent(&mut builder.ray, env::literal("RAY_gcs_storage", "rocksdb"));
    env::push_if_absent(&mut builder.ray, env::literal("RAY_gcs_storage_path", GCS_STORAGE_PATH));
    let sub_path = cluster_spec::gcs_storage(&context.cluster.spec).and_then(|storage| storage.sub_path.clone());
    builder.ray.volume_mounts.get_or_insert_default().push(VolumeMount {
        name: GCS_STORAGE_VOLUME.to_owned(),
        mount_path: GCS_STORAGE_PATH.to_owned(),
        sub_path: sub_path.filter(|path| !path.is_empty()),
        ..VolumeMount::default()
    });
    let claim_name = cluster_spec::gcs_claim_name(context.cluster);
    builder.spec.volumes.get_or_insert_default().push(Volume {
        name: GCS_STORAGE_VOLUME.to_owned(),
        persistent_volume_claim: Some(PersistentVolumeClaimVolumeSource { claim_name, read_only: None }),
        ..Volume::default()
    });
}

#[cfg(test)]
mod tests {
    use crate::build::testing::{annotation, cluster, env, env_names, head, ray, volumes, worker};
    use crate::config::Config;
    use crate::labels::annotation::{EXTERNAL_STORAGE_NAMESPACE, FT_ENABLED};
    use serde_json::{Value, json};

    const RECONNECT: &str = "RAY_gcs_rpc_server_reconnect_timeout_s";
    const NAMESPACE: &str = "RAY_external_storage_namespace";

    /// Checks annotations of the head, and environment variables where the key has no slash.
    fn check(given: Value, expect: &[(&str, Option<&str>)]) {
        let pod = head(&cluster(given.clone()), &Config::default());
        for (key, value) in expect {
            let found = if key.contains('/') { annotation(&pod, key) } else { env(ray(&pod), key) };
            assert_eq!(found, *value, "{key} of {given}");
        }
    }

    fn annotated(annotations: Value) -> Value {
        json!({"metadata": {"annotations": annotations}})
    }

    #[test]
    fn annotations_enable_redis() {
        check(annotated(json!({FT_ENABLED: "true"})), &[(FT_ENABLED, Some("true")), (RECONNECT, None)]);
        check(
            annotated(json!({FT_ENABLED: "TRUE"})),
            &[(EXTERNAL_STORAGE_NAMESPACE, Some("test-uid")), (NAMESPACE, Some("test-uid"))],
        );
        check(
            annotated(json!({FT_ENABLED: "true", EXTERNAL_STORAGE_NAMESPACE: "test-ns"})),
            &[(EXTERNAL_STORAGE_NAMESPACE, Some("test-ns")), (NAMESPACE, Some("test-ns"))],
        );
        check(annotated(json!({FT_ENABLED: "false"})), &[(FT_ENABLED, Some("false")), (NAMESPACE, None)]);
        check(json!({}), &[(FT_ENABLED, Some("false")), (EXTERNAL_STORAGE_NAMESPACE, None)]);
    }

    #[test]
    fn a_user_set_namespace_variable_does_not_change_the_annotation() {
        let mut given = annotated(json!({FT_ENABLED: "true"}));
        given["ray"] = json!({"env": [{"name": NAMESPACE, "value": "mine"}]});
        check(given, &[(NAMESPACE, Some("mine")), (EXTERNAL_STORAGE_NAMESPACE, Some("test-uid"))]);
    }

    #[test]
    fn with_the_annotation_the_password_is_a_parameter() {
        let mut given = annotated(json!({FT_ENABLED: "true"}));
        given["head"] = json!({"rayStartParams": {"redis-password": "test-password"}});
        check(given.clone(), &[("REDIS_PASSWORD", Some("test-password")), ("RAY_REDIS_ADDRESS", None)]);
        given["ray"] = json!({"env": [{"name": "REDIS_PASSWORD", "value": "kept"}]});
        check(given.clone(), &[("REDIS_PASSWORD", Some("kept"))]);
        given["head"] = json!({"rayStartParams": {"redis-username": "someone"}});
        check(given, &[("REDIS_USERNAME", None)]);
    }

    #[test]
    fn workers_only_get_a_longer_reconnect_timeout() {
        let plain = worker(&cluster(json!({})), &Config::default());
        let options = json!({"spec": {"gcsFaultToleranceOptions": {"redisAddress": "redis:6379"}}});
        for given in [annotated(json!({FT_ENABLED: "true"})), options] {
            let pod = worker(&cluster(given), &Config::default());
            assert_eq!(env(ray(&pod), RECONNECT), Some("600"));
            let mut names = env_names(ray(&pod));
            names.retain(|name| *name != RECONNECT);
            assert_eq!(names, env_names(ray(&plain)));
            assert_eq!(pod.metadata.annotations, plain.metadata.annotations);
        }
    }

    #[test]
    fn options_set_address_and_credentials() {
        let with = |options: Value| json!({"spec": {"gcsFaultToleranceOptions": options}});
        check(with(json!({"redisAddress": "redis:6379"})), &[("RAY_REDIS_ADDRESS", Some("redis:6379"))]);
        check(with(json!({})), &[("RAY_REDIS_ADDRESS", Some("")), (FT_ENABLED, Some("true"))]);
        let secret = |name: &str| json!({"valueFrom": {"secretKeyRef": {"name": name, "key": "key"}}});
        check(
            with(json!({"redisUsername": secret("user"), "redisPassword": {"value": "word"}})),
            &[("REDIS_USERNAME", Some("user")), ("REDIS_PASSWORD", Some("word"))],
        );
        check(
            with(json!({"redisUsername": {"value": "someone"}, "redisPassword": secret("password")})),
            &[("REDIS_USERNAME", Some("someone")), ("REDIS_PASSWORD", Some("password"))],
        );
        check(
            with(json!({"externalStorageNamespace": "mine"})),
            &[(EXTERNAL_STORAGE_NAMESPACE, Some("mine")), (NAMESPACE, Some("mine"))],
        );
        let both = with(json!({"redisUsername": secret("user"), "redisPassword": secret("password")}));
        let pod = head(&cluster(both), &Config::default());
        let start = env(ray(&pod), "KUBERAY_GEN_RAY_START_CMD").unwrap();
        assert!(start.ends_with(" --redis-password=$REDIS_PASSWORD  --redis-username=$REDIS_USERNAME "), "{start}");
    }

    #[test]
    fn embedded_storage_is_a_volume() {
        for (storage, claim, sub_path) in [
            (json!(null), "test-cluster-gcs-pvc", None),
            (json!({"claimName": "my-pvc"}), "my-pvc", None),
            (json!({"subPath": "clusters/foo"}), "test-cluster-gcs-pvc", Some("clusters/foo")),
        ] {
            let options = json!({"backend": "rocksdb", "storage": storage});
            let pod = head(&cluster(json!({"spec": {"gcsFaultToleranceOptions": options}})), &Config::default());
            assert_eq!(volumes(&pod), ["gcs-storage", "shared-mem"]);
            let volume = &pod.spec.as_ref().unwrap().volumes.as_ref().unwrap()[0];
            assert_eq!(volume.persistent_volume_claim.as_ref().unwrap().claim_name, claim);
            let mounts = ray(&pod).volume_mounts.as_ref().unwrap();
            let mount: Vec<_> = mounts.iter().filter(|mount| mount.name == "gcs-storage").collect();
            assert_eq!(mount.len(), 1);
            assert_eq!((mount[0].mount_path.as_str(), mount[0].sub_path.as_deref()), ("/data/gcs", sub_path));
            assert_eq!(env(ray(&pod), "RAY_gcs_storage"), Some("rocksdb"));
            assert_eq!(env(ray(&pod), "RAY_gcs_storage_path"), Some("/data/gcs"));
            assert_eq!(annotation(&pod, FT_ENABLED), Some("true"));
            for redis in ["RAY_REDIS_ADDRESS", "REDIS_USERNAME", "REDIS_PASSWORD", NAMESPACE] {
                assert_eq!(env(ray(&pod), redis), None);
            }
            assert_eq!(annotation(&pod, EXTERNAL_STORAGE_NAMESPACE), None);
        }
    }
}
