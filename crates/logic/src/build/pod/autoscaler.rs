//! The autoscaler beside the head.

use super::command::shell;
use super::draft::{Draft, Node};
use super::resources::requirements;
use super::{auth, env, tls};
use crate::build::cluster_facts as facts;
use crate::build::rbac;
use crate::labels;
use k8s_openapi::api::core::v1::Container;
use manta_api::AutoscalerOptions;

/// The container's name.
pub(super) const AUTOSCALER: &str = "autoscaler";

const COMMAND: &str =
    "ray kuberay-autoscaler --cluster-name $(RAY_CLUSTER_NAME) --cluster-namespace $(RAY_CLUSTER_NAMESPACE)";

/// Adds the autoscaler, and has Ray leave scaling to it.
pub(super) fn add_to_head(node: &Node<'_>, draft: &mut Draft) {
    let spec = &node.cluster.spec;
    if !facts::is_autoscaling(spec) {
        return;
    }
    draft.params.insert("no-monitor".to_owned(), "true".to_owned());
    draft.spec.service_account_name = Some(rbac::service_account_name(node.cluster));
    let mut container = container(node, draft);
    auth::configure_container(node.cluster, &mut container);
    tls::configure_container(node, &mut container);
    if let Some(options) = &spec.autoscaler_options {
        apply_options(options, &mut container);
    }
    draft.sidecars.push(container);
    if facts::is_autoscaler_v2(spec) {
        env::push(&mut draft.ray, [env::literal("RAY_enable_autoscaler_v2", "true")]);
        // The second generation replaces Pods itself and must not find restarted ones.
        draft.spec.restart_policy = Some("Never".to_owned());
    } else if facts::is_autoscaler_v1(spec) {
        env::push(&mut draft.ray, [env::literal("RAY_enable_autoscaler_v2", "false")]);
    }
}

fn container(node: &Node<'_>, draft: &Draft) -> Container {
    Container {
        name: AUTOSCALER.to_owned(),
        image: draft.ray.image.clone(),
        image_pull_policy: Some("IfNotPresent".to_owned()),
        command: Some(shell(node.config)),
        args: Some(vec![COMMAND.to_owned()]),
        env: Some(vec![
            env::from_label("RAY_CLUSTER_NAME", labels::CLUSTER),
            env::from_field("RAY_CLUSTER_NAMESPACE", "metadata.namespace"),
            env::from_field("RAY_HEAD_POD_NAME", "metadata.name"),
            env::literal("KUBERAY_CRD_VER", "v1"),
            env::literal("KUBERAY_GEN_AUTOSCALER_START_CMD", COMMAND),
        ]),
        resources: Some(requirements("500m", "512Mi")),
        ..Container::default()
    }
}

/// Lists are appended, everything else replaces what is there.
fn apply_options(options: &AutoscalerOptions, container: &mut Container) {
    replace(&mut container.resources, options.resources.as_ref());
    replace(&mut container.image, options.image.as_ref());
    replace(&mut container.image_pull_policy, options.image_pull_policy.as_ref());
    replace(&mut container.security_context, options.security_context.as_ref());
    replace(&mut container.command, options.command.as_ref().filter(|words| !words.is_empty()));
    replace(&mut container.args, options.args.as_ref().filter(|words| !words.is_empty()));
    append(&mut container.env, options.env.as_deref());
    append(&mut container.env_from, options.env_from.as_deref());
    append(&mut container.volume_mounts, options.volume_mounts.as_deref());
}

fn replace<T: Clone>(field: &mut Option<T>, given: Option<&T>) {
    if let Some(value) = given {
        *field = Some(value.clone());
    }
}

fn append<T: Clone>(list: &mut Option<Vec<T>>, more: Option<&[T]>) {
    match more {
        Some(more) if !more.is_empty() => list.get_or_insert_default().extend_from_slice(more),
        _ => {}
    }
}
