//! The init container of a worker that waits for the GCS.

use super::builder::PodBuilder;
use super::command::shell;
use super::context::PodContext;
use super::resources::requirements;
use k8s_openapi::api::core::v1::Container;

/// The container's name.
pub(super) const WAIT_GCS_READY: &str = "wait-gcs-ready";

/// Appends the container, with the environment and mounts of the Ray container.
pub(super) fn add_container(context: &PodContext<'_>, builder: &mut PodBuilder) {
    if !context.config.inject_init_container {
        return;
    }
    let ray = &builder.ray;
    let container = Container {
        name: WAIT_GCS_READY.to_owned(),
        image: ray.image.clone(),
        image_pull_policy: ray.image_pull_policy.clone(),
        security_context: ray.security_context.clone(),
        command: Some(shell(context.config)),
        args: Some(vec![script(&context.fqdn, context.head_port)]),
        env: ray.env.clone(),
        volume_mounts: ray.volume_mounts.clone(),
        resources: Some(requirements("200m", "256Mi")),
        ..Container::default()
    };
    builder.spec.init_containers.get_or_insert_default().push(container);
}

/// Returns the script, which prints the errors of the health check after two minutes. The whitespace is KubeRay's.
fn script(host: &str, port: &str) -> String {
    format!(
        "
\t\t\t\t\tSECONDS=0
\t\t\t\t\twhile true; do
\t\t\t\t\t\tif (( SECONDS <= 120 )); then
\t\t\t\t\t\t\tif ray health-check --address {host}:{port} > /dev/null 2>&1; then
\t\t\t\t\t\t\t\techo \"GCS is ready.\"
\t\t\t\t\t\t\t\tbreak
\t\t\t\t\t\t\tfi
\t\t\t\t\t\t\techo \"$SECONDS seconds elapsed: Waiting for GCS to be ready.\"
\t\t\t\t\t\telse
\t\t\t\t\t\t\tif ray health-check --address {host}:{port}; then
\t\t\t\t\t\t\t\techo \"GCS is ready. Any error messages above can be safely ignored.\"
\t\t\t\t\t\t\t\tbreak
\t\t\t\t\t\t\tfi
\t\t\t\t\t\t\techo \"$SECONDS seconds elapsed: Still waiting for GCS to be ready. For troubleshooting, \
         refer to the FAQ at https://docs.ray.io/en/master/cluster/kubernetes/troubleshooting.html.\"
\t\t\t\t\t\tfi
\t\t\t\t\t\tsleep 5
\t\t\t\t\tdone
\t\t\t\t"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::build::testing::{arg, cluster, container, env_names, head, mounts, worker};
    use crate::config::Config;
    use serde_json::json;

    #[test]
    fn wait_gcs_is_the_last_init_container_of_a_worker() {
        for policy in ["Always", "IfNotPresent", "Never"] {
            let ray = json!({
                "imagePullPolicy": policy,
                "securityContext": {"runAsUser": 7},
                "env": [{"name": "A", "value": "b"}],
                "volumeMounts": [{"name": "mine", "mountPath": "/mine"}],
            });
            let cluster = cluster(json!({"both": ray, "workerPod": {"initContainers": [{"name": "mine"}]}}));
            let pod = worker(&cluster, &Config::default());
            let init = pod.spec.as_ref().unwrap().init_containers.as_ref().unwrap();
            assert_eq!(init.iter().map(|it| it.name.as_str()).collect::<Vec<_>>(), ["mine", WAIT_GCS_READY]);
            let made = container(&pod, WAIT_GCS_READY);
            assert_eq!(made.image_pull_policy.as_deref(), Some(policy));
            assert_eq!(json!(made.security_context), json!({"runAsUser": 7}));
            assert_eq!(env_names(made), ["A", "FQ_RAY_IP", "RAY_IP"]);
            assert_eq!(mounts(made), ["/mine"]);
            assert!(head(&cluster, &Config::default()).spec.unwrap().init_containers.is_none());
        }
    }

    #[test]
    fn the_script_uses_the_port_of_the_head() {
        let cluster = cluster(json!({"head": {"rayStartParams": {"port": "1234"}}}));
        let pod = worker(&cluster, &Config::default());
        let script = arg(container(&pod, WAIT_GCS_READY));
        let asks = "ray health-check --address test-cluster-head-svc.test-ns.svc.cluster.local:1234";
        assert_eq!(script.matches(asks).count(), 2);
    }

    #[test]
    fn wait_gcs_can_be_disabled() {
        let config = Config { inject_init_container: false, ..Config::default() };
        assert!(worker(&cluster(json!({})), &config).spec.unwrap().init_containers.is_none());
    }
}
