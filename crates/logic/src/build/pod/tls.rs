//! TLS between Pods: the certificate, its settings, and the wait until the certificate contains the IP address of the Pod.

use super::builder::PodBuilder;
use super::context::{NodeType, PodContext};
use super::resources::requirements;
use super::wait_gcs::WAIT_GCS_READY;
use super::{env, volumes};
use crate::cluster_spec;
use crate::names::reserved::{TLS_ENV, TLS_PATH, TLS_VOLUME};
use k8s_openapi::api::core::v1::{Container, SecretVolumeSource, Volume, VolumeMount};

/// The init container's name.
pub(in crate::build) const WAIT_FOR_IP_SAN: &str = "wait-for-tls-ip-san";
/// Prefixes of the names of the Secrets that hold the certificates.
pub(in crate::build) const HEAD_SECRET_PREFIX: &str = "ray-head-secret-";
pub(in crate::build) const WORKER_SECRET_PREFIX: &str = "ray-worker-secret-";

/// Mounts the certificate into the Pod if TLS is enabled.
pub(super) fn configure_pod(context: &PodContext<'_>, builder: &mut PodBuilder) {
    if !cluster_spec::is_tls_enabled(&context.cluster.spec, &context.config.gates) {
        return;
    }
    if !volumes::has_volume(&builder.spec, TLS_VOLUME) {
        let prefix = match context.node_type {
            NodeType::Head => HEAD_SECRET_PREFIX,
            NodeType::Worker => WORKER_SECRET_PREFIX,
        };
        let secret_name = Some(format!("{prefix}{}", context.cluster_name()));
        builder.spec.volumes.get_or_insert_default().push(Volume {
            name: TLS_VOLUME.to_owned(),
            secret: Some(SecretVolumeSource { secret_name, ..SecretVolumeSource::default() }),
            ..Volume::default()
        });
    }
    configure_container(context, &mut builder.ray);
    for container in builder.init_containers().iter_mut().filter(|container| container.name == WAIT_GCS_READY) {
        configure_container(context, container);
    }
    if !builder.init_containers().iter().any(|container| container.name == WAIT_FOR_IP_SAN) {
        let waiting = wait_for_ip_san(&builder.ray);
        builder.spec.init_containers.get_or_insert_default().insert(0, waiting);
    }
}

/// Makes the Ray process in a container use the certificate if TLS is enabled.
pub(super) fn configure_container(context: &PodContext<'_>, container: &mut Container) {
    if !cluster_spec::is_tls_enabled(&context.cluster.spec, &context.config.gates) {
        return;
    }
    for (name, value) in TLS_ENV {
        env::push_if_absent(container, env::literal(name, value));
    }
    let mounts = container.volume_mounts.get_or_insert_default();
    if !mounts.iter().any(|mount| mount.name == TLS_VOLUME || mount.mount_path == TLS_PATH) {
        mounts.push(mount());
    }
}

/// Returns the init container that waits until the certificate contains the address of the Pod.
///
/// The address is added only after the Pod has got it, but Ray reads the certificate once.
fn wait_for_ip_san(ray: &Container) -> Container {
    Container {
        name: WAIT_FOR_IP_SAN.to_owned(),
        image: ray.image.clone(),
        image_pull_policy: ray.image_pull_policy.clone(),
        security_context: ray.security_context.clone(),
        command: Some(vec!["sh".to_owned(), "-c".to_owned()]),
        args: Some(vec![WAIT_SCRIPT.to_owned()]),
        env: Some(vec![env::from_field("POD_IP", "status.podIP")]),
        volume_mounts: Some(vec![mount()]),
        resources: Some(requirements("50m", "64Mi")),
        ..Container::default()
    }
}

fn mount() -> VolumeMount {
    VolumeMount {
        name: TLS_VOLUME.to_owned(),
        mount_path: TLS_PATH.to_owned(),
        read_only: Some(true),
        ..VolumeMount::default()
    }
}

const WAIT_SCRIPT: &str = r#"CERT="/etc/ray/tls/tls.crt"
if [ -z "${POD_IP}" ]; then
  POD_IP=$(hostname -i 2>/dev/null | awk '{print $1}')
fi
if ! command -v openssl >/dev/null 2>&1; then
  echo "openssl not found; cannot verify IP SAN" >&2
  exit 1
fi
echo "Waiting for TLS cert to include IP SAN for ${POD_IP}..."
while true; do
  if openssl x509 -in "${CERT}" -noout -text 2>/dev/null | grep -qE "IP Address:${POD_IP}([^0-9.]|$)"; then
    echo "TLS cert now includes IP SAN for ${POD_IP}"
    exit 0
  fi
  echo "IP SAN for ${POD_IP} not yet in cert, retrying in 5s..."
  sleep 5
done"#;

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{arg, cluster, container, env, env_names, head, ray, volumes, worker};
    use crate::config::{Config, FeatureGates};
    use serde_json::{Value, json};

    const NAMES: [&str; 4] = ["RAY_USE_TLS", "RAY_TLS_SERVER_CERT", "RAY_TLS_SERVER_KEY", "RAY_TLS_CA_CERT"];

    fn tls_cluster() -> manta_api::RayCluster {
        cluster(json!({"spec": {"tlsOptions": {"enabled": true}, "enableInTreeAutoscaling": true}}))
    }

    fn check_container(container: &Container) {
        let values = NAMES.map(|name| env(container, name).unwrap());
        assert_eq!(values, ["1", "/etc/ray/tls/tls.crt", "/etc/ray/tls/tls.key", "/etc/ray/tls/ca.crt"]);
        let mounts = container.volume_mounts.as_ref().unwrap();
        let mounts: Vec<Value> =
            mounts.iter().filter(|mount| mount.name == TLS_VOLUME).map(|mount| json!(mount)).collect();
        assert_eq!(mounts, [json!({"name": "ray-tls", "mountPath": "/etc/ray/tls", "readOnly": true})]);
    }

    #[test]
    fn tls_pods_get_their_certificate() {
        let cluster = tls_cluster();
        let (head, worker) = (head(&cluster, &Config::default()), worker(&cluster, &Config::default()));
        for container in [ray(&head), container(&head, "autoscaler"), ray(&worker), container(&worker, WAIT_GCS_READY)]
        {
            check_container(container);
        }
        for (pod, secret) in [(&head, "ray-head-secret-test-cluster"), (&worker, "ray-worker-secret-test-cluster")] {
            assert_eq!(volumes(pod)[0], "ray-tls");
            let spec = pod.spec.as_ref().unwrap();
            let volume = &spec.volumes.as_ref().unwrap()[0];
            assert_eq!(volume.secret.as_ref().unwrap().secret_name.as_deref(), Some(secret));
            let first = &spec.init_containers.as_ref().unwrap()[0];
            assert_eq!(first.name, WAIT_FOR_IP_SAN);
            assert_eq!(env_names(first), ["POD_IP", "FQ_RAY_IP", "RAY_IP"]);
            assert_eq!(env(first, "POD_IP"), Some("status.podIP"));
            assert_eq!(json!(first.command), json!(["sh", "-c"]));
            assert!(arg(first).starts_with("CERT=") && arg(first).ends_with("done"));
            assert_eq!(json!(first.volume_mounts), json!([mount()]));
            assert_eq!(json!(first.resources), json!(requirements("50m", "64Mi")));
        }
    }

    #[test]
    fn a_container_gets_four_variables_in_order() {
        let cluster = tls_cluster();
        let config = Config::default();
        let mut container = Container::default();
        configure_container(&PodContext::new(&cluster, &config, NodeType::Worker), &mut container);
        assert_eq!(env_names(&container), NAMES);
    }

    #[test]
    fn tls_needs_both_the_feature_gate_and_the_option() {
        let off = Config { gates: FeatureGates::KUBERAY, ..Config::default() };
        for (given, config) in [
            (json!(null), Config::default()),
            (json!({}), Config::default()),
            (json!({"enabled": false}), Config::default()),
            (json!({"enabled": true}), off),
        ] {
            let cluster = cluster(json!({"spec": {"tlsOptions": given}}));
            let pod = head(&cluster, &config);
            assert_eq!(env(ray(&pod), "RAY_USE_TLS"), None);
            assert_eq!(volumes(&pod), ["shared-mem"]);
            assert!(pod.spec.unwrap().init_containers.is_none());
        }
    }
}
