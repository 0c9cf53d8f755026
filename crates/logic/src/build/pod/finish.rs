//! The steps that head and workers share, after their own.

use super::draft::{Draft, Node, Role};
use super::{command, env, probes, volumes};

/// Adds what every Ray Pod gets.
pub(super) fn finish(node: &Node<'_>, draft: &mut Draft) {
    let sidecars = match node.role {
        Role::Head => &node.config.head_sidecars,
        Role::Worker => &node.config.worker_sidecars,
    };
    draft.add_operator_defaults(node.config, sidecars);
    draft.add_serve_label(node);
    volumes::add_to_pod(node, draft);
    let ray_start = command::ray_start(node.role, &draft.params);
    command::set(node, draft, &ray_start);
    env::add_to_init_containers(node, draft);
    env::add_to_ray_container(node, draft, &ray_start);
    probes::add(node, draft);
}
