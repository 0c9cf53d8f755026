//! The label `ray.io/serve` of head Pods, which decides whether they receive requests.
//!
//! Workers join and leave by readiness; the head also runs things that are ready without Serve, so that the health of
//! its proxy decides.

use super::dashboard::Proxy;
use super::{Planner, Side};
use crate::action::{Accept, Kind, Step};
use crate::cluster_spec;
use crate::labels::SERVE;
use crate::reasons;
use manta_api::RayCluster;
use serde_json::json;

/// Labels the head Pods of both clusters.
pub(super) fn plan(planner: &mut Planner<'_>) {
    let mut steps = Vec::new();
    for cluster in [Side::Active, Side::Pending].into_iter().filter_map(|side| planner.draft.cluster(side)) {
        steps.extend(label(planner, cluster_spec::name(cluster)));
    }
    planner.then_all(steps);
}

/// Returns the proxy to ask, if its health matters.
pub(super) fn proxy(planner: &Planner<'_>, cluster: &RayCluster) -> Option<Proxy> {
    let head = planner.seen.head_of(cluster_spec::name(cluster)).filter(|_| !is_excluded(planner))?;
    let container = cluster_spec::ray_container(&cluster.spec.head_group_spec.template);
    let port = container.and_then(|container| cluster_spec::container_port(container, "serve"));
    let proxy = Proxy {
        namespace: head.metadata.namespace.to_string(),
        pod: head.metadata.name.to_string(),
        uid: head.metadata.uid.to_string(),
        ip: head.status.pod_ip.to_string(),
        port: port.unwrap_or(cluster_spec::DEFAULT_SERVE_PORT),
    };
    Some(proxy).filter(|proxy| !proxy.ip.is_empty())
}

fn is_excluded(planner: &Planner<'_>) -> bool {
    planner.seen.service.spec.exclude_head_pod_from_serve_svc == Some(true)
}

fn label(planner: &Planner<'_>, cluster: &str) -> Option<Step> {
    let head = planner.seen.head_of(cluster)?;
    let healthy = planner.seen.serve_of(cluster).and_then(|known| known.proxy.as_ref());
    let serves = match healthy {
        _ if is_excluded(planner) => false,
        Some((uid, healthy)) if *uid == head.metadata.uid => *healthy,
        // This proxy has not been polled yet, or was out of reach.
        _ => return None,
    };
    let value = if serves { "true" } else { "false" };
    if head.metadata.label(SERVE) == Some(value) {
        return None;
    }
    let path = planner.seen.path(&head.metadata.name);
    let patch = json!({"metadata": {"labels": {SERVE: value}, "uid": head.metadata.uid}});
    let label = format!("the serve label to \"{value}\" for the Head Pod {path}");
    let key = planner.seen.key(Kind::Pod, &head.metadata.name);
    let step = Step::merge(key, patch, format!("whether the head serves is now {value}"))
        .on_success(reasons::UPDATED_HEAD_POD_SERVE_LABEL, format!("Updated {label}"))
        .on_failure(reasons::FAILED_TO_UPDATE_HEAD_POD_SERVE_LABEL, format!("Failed to update {label}: "))
        .accept(Accept::NotFound);
    Some(step)
}
