//! Clusters in no slot are deleted after a delay; the finalizer waits for them.
//!
//! The time is written on the cluster itself, so that a restart of the operator does not start the delay again.

use super::Planner;
use super::draft::name_of;
use super::{conditions, services};
use crate::action::{Accept, Kind, Step};
use crate::cluster_spec;
use crate::conditions::SUSPENDING;
use crate::finalizer;
use crate::go::{Root, to_go_value};
use crate::labels::CLUSTER;
use crate::labels::annotation::DELETE_AFTER;
use crate::labels::finalizer::RAY_SERVICE;
use crate::reasons;
use jiff::{SignedDuration, Timestamp};
use manta_api::RayCluster;
use serde_json::json;

/// The delay, if the spec names none.
const DELAY: i32 = 60;
/// How much longer a cluster may stay because requests still reach it.
const DRAINING: SignedDuration = SignedDuration::from_secs(60);

/// Deletes the clusters that are in no slot, or all of them if the RayService is being deleted.
pub(super) fn plan(planner: &mut Planner<'_>) {
    let seen = planner.seen;
    let deleting = seen.service.metadata.deletion_timestamp.is_some();
    if !deleting && conditions::is_true(&planner.draft.status, SUSPENDING) {
        return;
    }
    let status = seen.service.status.as_ref();
    let slots = [
        status.and_then(|status| name_of(&status.active_service_status)),
        status.and_then(|status| name_of(&status.pending_service_status)),
    ];
    for cluster in &seen.clusters {
        let name = cluster_spec::name(cluster);
        let leaving = cluster.metadata.deletion_timestamp.is_some();
        if leaving || (slots.contains(&Some(name)) && !deleting) {
            continue;
        }
        if deleting {
            planner.finally(delete(planner, cluster, "the RayService is being deleted", ""));
            continue;
        }
        if !planner.config.safeguards.drain_before_deletion {
            planner.finally(delete(planner, cluster, "another cluster has taken its place", ""));
            continue;
        }
        let moment = cluster_spec::annotation(cluster, DELETE_AFTER).and_then(|text| text.parse::<Timestamp>().ok());
        match moment {
            _ if is_selected(planner, name) => keep(planner, name, moment.is_some()),
            None => schedule(planner, name),
            Some(moment) if !planner.reached_or_wake_at(moment) => {}
            Some(moment)
                if is_reached(planner, name)
                    && !planner.reached_or_wake_at(moment.saturating_add(DRAINING).unwrap_or(moment)) =>
            {
                planner.wait_for(format!("RayCluster {} to drain", seen.path(name)));
            }
            Some(_) => {
                // The upgrade that goes on meanwhile must not wait for it.
                let step = delete(planner, cluster, "another cluster has taken its place", "");
                planner.finally(step.independent());
            }
        }
    }
}

/// Deletes a cluster of the RayService. `when` ends the event, e.g. ` during suspend`.
pub(super) fn delete(planner: &Planner<'_>, cluster: &RayCluster, why: &str, when: &str) -> Step {
    let name = cluster_spec::name(cluster);
    let path = planner.seen.path(name);
    Step::delete(planner.seen.key(Kind::RayCluster, name), cluster_spec::uid(cluster), why)
        .on_success(reasons::DELETED_RAY_CLUSTER, format!("Deleted the RayCluster {path}{when}"))
        .on_failure(reasons::FAILED_TO_DELETE_RAY_CLUSTER, format!("Failed to delete the RayCluster {path}{when}: "))
}

/// Keeps a cluster that a Service still leads to. Its delay begins when no Service does any more.
fn keep(planner: &mut Planner<'_>, name: &str, is_scheduled: bool) {
    planner.wait_for(format!("the Services to lead to another cluster than {}", planner.seen.path(name)));
    if is_scheduled {
        annotate(planner, name, None, "a Service still leads to the cluster");
    }
}

/// Annotates a cluster with the time at which it is deleted.
fn schedule(planner: &mut Planner<'_>, name: &str) {
    let delay = planner.seen.service.spec.ray_cluster_deletion_delay_seconds.unwrap_or(DELAY).max(0);
    let moment = planner.now.saturating_add(SignedDuration::from_secs(delay.into())).unwrap_or(planner.now);
    annotate(planner, name, Some(moment), "the cluster is not in use any more");
}

/// Sets or removes the time at which a cluster is deleted.
fn annotate(planner: &mut Planner<'_>, name: &str, moment: Option<Timestamp>, why: &str) {
    let patch = json!({"metadata": {"annotations": {DELETE_AFTER: moment.map(|moment| moment.to_string())}}});
    let step = Step::merge(planner.seen.key(Kind::RayCluster, name), patch, why);
    planner.finally(step.accept(Accept::NotFound));
}

/// Returns whether a Service still selects a cluster, which is then in use regardless of the status.
fn is_selected(planner: &Planner<'_>, name: &str) -> bool {
    let seen = planner.seen;
    let own = [crate::names::owner_head_service(seen.name()), services::serve_name(&seen.service)];
    let services = own.iter().filter_map(|service| seen.service(service));
    services.into_iter().any(|service| service.spec.selector.get(CLUSTER) == Some(name))
}

/// Returns whether requests may still reach a cluster: a Service or the route leads there, or its Pods are endpoints.
fn is_reached(planner: &Planner<'_>, name: &str) -> bool {
    let seen = planner.seen;
    let serve = services::serve_name(&seen.service);
    let mut uids =
        seen.pods.iter().filter(|pod| pod.metadata.label(CLUSTER) == Some(name)).map(|pod| pod.metadata.uid.as_str());
    let is_endpoint = |uid: &str| {
        let slices = seen.slices.iter().filter(|slice| slice.service() == Some(serve.as_str()));
        slices.flat_map(|slice| &slice.endpoints).any(|endpoint| endpoint.uid() == Some(uid))
    };
    let own = crate::names::serve_service(name);
    let in_route = seen.http_route.as_ref().is_some_and(|route| {
        let rules = route.object["spec"]["rules"].as_array().into_iter().flatten();
        rules
            .flat_map(|rule| rule["backendRefs"].as_array().into_iter().flatten())
            .any(|backend| backend["name"] == own)
    });
    in_route || uids.any(is_endpoint)
}

/// Adds the finalizer. Returns whether it was missing.
pub(super) fn add_finalizer(planner: &mut Planner<'_>) -> bool {
    let service = &planner.seen.service;
    if finalizer::has(&service.metadata, RAY_SERVICE) {
        return false;
    }
    let stored = json!({"spec": service.spec});
    let written = to_go_value(&stored, Root::RayService);
    let key = planner.seen.key(Kind::RayService, planner.seen.name());
    let why = "its clusters must go before the RayService does";
    planner.then(finalizer::add(key, &service.metadata, RAY_SERVICE, &stored["spec"], &written["spec"], why));
    planner.wait_for("the finalizer to be stored");
    true
}

/// Removes the finalizer once no cluster is left.
pub(super) fn release(planner: &mut Planner<'_>) {
    let service = &planner.seen.service;
    if !finalizer::has(&service.metadata, RAY_SERVICE) {
        return;
    }
    if !planner.seen.clusters.is_empty() {
        planner.wait_for("its RayClusters to be deleted");
        return;
    }
    let key = planner.seen.key(Kind::RayService, planner.seen.name());
    planner.then(finalizer::remove(key, &service.metadata, RAY_SERVICE, "no cluster of the RayService is left"));
}
