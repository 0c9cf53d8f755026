//! The label `ray.io/serve` of head Pods, which says whether requests may come to them.
//!
//! Workers join and leave by readiness; the head also runs things that are ready without Serve, so that the health of
//! its proxy decides.

use super::dashboard::Proxy;
use super::plan::{Pass, Side};
use crate::action::{Accept, Action, Event, Kind, Step};
use crate::build::cluster_facts as facts;
use crate::labels::SERVE;
use manta_api::RayCluster;
use serde_json::json;

/// Labels the head Pods of both clusters.
pub(super) fn plan(pass: &mut Pass<'_>) {
    let mut stage = Vec::new();
    for cluster in [Side::Active, Side::Pending].into_iter().filter_map(|side| pass.cluster(side)) {
        stage.extend(label(pass, facts::name(cluster)));
    }
    pass.then_all(stage);
}

/// The proxy to ask, if its health matters.
pub(super) fn proxy(pass: &Pass<'_>, cluster: &RayCluster) -> Option<Proxy> {
    let head = pass.seen.head_of(facts::name(cluster)).filter(|_| !is_excluded(pass))?;
    let container = facts::ray_container(&cluster.spec.head_group_spec.template);
    let port = container.and_then(|container| facts::container_port(container, "serve"));
    let proxy = Proxy {
        namespace: head.metadata.namespace.clone(),
        pod: head.metadata.name.clone(),
        uid: head.metadata.uid.clone(),
        ip: head.status.pod_ip.clone(),
        port: port.unwrap_or(facts::DEFAULT_SERVE_PORT),
    };
    Some(proxy).filter(|proxy| !proxy.ip.is_empty())
}

fn is_excluded(pass: &Pass<'_>) -> bool {
    pass.seen.service.spec.exclude_head_pod_from_serve_svc == Some(true)
}

fn label(pass: &Pass<'_>, cluster: &str) -> Option<Step> {
    let head = pass.seen.head_of(cluster)?;
    let healthy = pass.seen.known(cluster).and_then(|known| known.proxy.as_ref());
    let serves = match healthy {
        _ if is_excluded(pass) => false,
        Some((uid, healthy)) if *uid == head.metadata.uid => *healthy,
        // Nobody has asked this one yet.
        _ => return None,
    };
    let value = if serves { "true" } else { "false" };
    if head.metadata.label(SERVE) == Some(value) {
        return None;
    }
    let path = pass.seen.path(&head.metadata.name);
    let patch = json!({"metadata": {"labels": {SERVE: value}, "uid": head.metadata.uid}});
    let action = Action::Merge { key: pass.key(Kind::Pod, &head.metadata.name), patch: Box::new(patch) };
    let note = format!("Updated the serve label to \"{value}\" for the Head Pod {path}");
    let failure = format!("Failed to update the serve label to \"{value}\" for the Head Pod {path}: ");
    let step = Step::new(action, format!("whether the head serves is now {value}"))
        .done(Event::normal("UpdatedHeadPodServeLabel", "Update", note))
        .failed(Event::warning("FailedToUpdateHeadPodServeLabel", "Update", failure))
        .accept(Accept::NotFound);
    Some(step)
}
