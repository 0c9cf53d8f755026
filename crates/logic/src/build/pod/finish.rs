//! The last steps, which head and workers share.

use super::builder::PodBuilder;
use super::context::{NodeType, PodContext};
use super::{command, env, probes, volumes};

/// Adds the parts that every Ray Pod has.
pub(super) fn finish(context: &PodContext<'_>, builder: &mut PodBuilder) {
    let sidecars = match context.node_type {
        NodeType::Head => &context.config.head_sidecars,
        NodeType::Worker => &context.config.worker_sidecars,
    };
    builder.add_operator_defaults(context.config, sidecars);
    builder.add_serve_label(context);
    volumes::add_to_pod(context, builder);
    let ray_start = command::ray_start(context.node_type, &builder.params);
    command::set(context, builder, &ray_start);
    env::add_to_init_containers(context, builder);
    env::add_to_ray_container(context, builder, &ray_start);
    probes::add(context, builder);
}
