//! The init container that holds a worker back until the head answers.

use super::command::shell;
use super::draft::{Draft, Node};
use super::resources::requirements;
use k8s_openapi::api::core::v1::Container;

/// The container's name.
pub(super) const WAIT_GCS_READY: &str = "wait-gcs-ready";

/// Appends the container, with what the user wrote for the Ray container so far.
pub(super) fn add_container(node: &Node<'_>, draft: &mut Draft) {
    if !node.config.inject_init_container {
        return;
    }
    let ray = &draft.ray;
    let container = Container {
        name: WAIT_GCS_READY.to_owned(),
        image: ray.image.clone(),
        image_pull_policy: ray.image_pull_policy.clone(),
        security_context: ray.security_context.clone(),
        command: Some(shell(node.config)),
        args: Some(vec![script(&node.fqdn, node.head_port)]),
        env: ray.env.clone(),
        volume_mounts: ray.volume_mounts.clone(),
        resources: Some(requirements("200m", "256Mi")),
        ..Container::default()
    };
    draft.spec.init_containers.get_or_insert_default().push(container);
}

/// Quiet for two minutes, then with the reason why it still waits. The blanks are KubeRay's.
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
