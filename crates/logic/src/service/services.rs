//! Head and serve Service of a RayService: which cluster they lead to.
//!
//! They move when the other cluster can take over: its applications run, and as many of its proxies answer as do
//! now. KubeRay looks at the applications only, and requests that come before the proxies are up are lost.

use super::Planner;
use super::endpoints;
use super::serve::Ready;
use crate::action::{Event, Kind, Step};
use crate::build;
use crate::cluster_spec;
use crate::labels::CLUSTER;
use crate::names;
use crate::plan::LookedUp;
use crate::reasons;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Service;
use manta_api::{RayCluster, RayService};
use serde_json::{Value, json};

/// How long applications that run wait for the last of their proxies.
const LAST_PROXIES: SignedDuration = SignedDuration::from_secs(30);

/// Returns the name of the serve Service.
pub(super) fn serve_name(service: &RayService) -> String {
    let given = service.spec.serve_service.as_ref().and_then(|service| service.metadata.name.clone());
    let own = || names::serve_service(service.metadata.name.as_deref().unwrap_or_default());
    given.filter(|name| !name.is_empty()).unwrap_or_else(own)
}

/// Points the Services at the cluster that should serve. Returns the cluster that they lead to after this pass, none
/// if that is not certain.
pub(super) fn plan(planner: &mut Planner<'_>, ready: Ready) -> Option<String> {
    let cluster = destination(planner, ready)?;
    let service = &planner.seen.service;
    let head = build::owner_head_service(cluster_spec::Creator::RayService, &service.metadata, cluster, planner.config);
    let mut wanted = vec![(names::owner_head_service(planner.seen.name()), head)];
    let serve = serve_name(service);
    // One that was made before upgrades became incremental goes on leading to the cluster that serves.
    if !planner.draft.is_incremental || planner.seen.service(&serve).is_some() {
        match build::service_serve_service(service, cluster) {
            Ok(object) => wanted.push((serve, object)),
            Err(error) => {
                report_unbuildable(planner, &serve, &error.to_string());
                return None;
            }
        }
    } else if build::upgrade_serve_service(service, cluster).is_err() {
        return None;
    }
    let name = cluster_spec::name(cluster);
    let mut steps = Vec::new();
    for (service, object) in wanted {
        match point_at(planner, name, &service, &object) {
            Selection::Current => {}
            Selection::Change(step) => steps.push(*step),
            Selection::Unknown => return None,
        }
    }
    planner.then_all(steps);
    Some(name.to_owned())
}

/// Whether a Service selects the Pods of a cluster.
enum Selection {
    Current,
    /// After this step.
    Change(Box<Step>),
    /// Its selector is unknown, so nothing may rely on it.
    Unknown,
}

/// Returns the cluster that requests should reach, once one of them can take them.
fn destination<'a>(planner: &mut Planner<'a>, ready: Ready) -> Option<&'a RayCluster> {
    if !ready.active && !ready.pending {
        return None;
    }
    let in_steps = planner.draft.is_incremental && planner.draft.is_upgrading && planner.draft.active.is_some();
    match planner.draft.pending.filter(|_| ready.pending && !in_steps) {
        Some(pending)
            if planner.draft.active.is_none() || planner.seen.served_cluster() == Some(cluster_spec::name(pending)) =>
        {
            Some(pending)
        }
        Some(pending) if can_take_over(planner, pending, &serve_name(&planner.seen.service)) => Some(pending),
        _ => planner.draft.active,
    }
}

/// Returns whether a cluster can take requests from a Service without leaving one unanswered.
pub(super) fn can_take_over(planner: &mut Planner<'_>, pending: &RayCluster, from: &str) -> bool {
    let seen = planner.seen;
    let name = cluster_spec::name(pending);
    let now = endpoints::of_service(seen, from);
    let needed = now.min(endpoints::expected(seen, pending));
    let there = endpoints::of_cluster(seen, name);
    if there >= needed {
        return true;
    }
    planner.wait_for(format!("{needed} Serve proxies of RayCluster {}: {there} answer", seen.path(name)));
    // Not every node needs a proxy: after a while the healthy ones suffice.
    let running = seen.serve_of(name).and_then(|known| known.running_since);
    let enough = running.and_then(|since| since.checked_add(LAST_PROXIES).ok());
    enough.is_some_and(|enough| planner.reached_or_wake_at(enough)) && there > 0
}

/// Points a Service at a cluster.
fn point_at(planner: &mut Planner<'_>, cluster: &str, name: &str, wanted: &Service) -> Selection {
    let path = planner.seen.path(name);
    let key = planner.seen.key(Kind::Service, name);
    let Some(live) = planner.seen.service(name) else {
        let step = Step::create(key, wanted, "requests need a way to the cluster")
            .on_success(reasons::CREATED_SERVICE, format!("Created the service {path}"))
            .on_failure(reasons::FAILED_TO_CREATE_SERVICE, format!("Failed to create the service {path}, "));
        return Selection::Change(Box::new(step));
    };
    if live.spec.selector.get(CLUSTER) == Some(cluster) {
        return Selection::Current;
    }
    let found = match planner.found(&key) {
        None => {
            planner.look_up(key);
            return Selection::Unknown;
        }
        Some(LookedUp::Found(found)) => found,
        // The watch is about to show its deletion, which wakes the RayService.
        Some(LookedUp::Absent) => return Selection::Unknown,
        Some(LookedUp::Failed(error)) => {
            let note = format!("Failed to update the service {path}, {error}");
            planner.event(Event::warning(reasons::FAILED_TO_UPDATE_SERVICE, "Update", note));
            planner.wake_after(5);
            return Selection::Unknown;
        }
    };
    let mut body = (**found).clone();
    let mut spec = json!(wanted.spec);
    for address in ["clusterIP", "clusterIPs"] {
        match &body["spec"][address] {
            Value::Null => {}
            value => spec[address] = value.clone(),
        }
    }
    body["spec"] = spec;
    let step = Step::replace(key, &body, "another cluster takes over")
        .on_success(reasons::UPDATED_SERVICE, format!("Updated the service {path}"))
        .on_failure(reasons::FAILED_TO_UPDATE_SERVICE, format!("Failed to update the service {path}, "));
    Selection::Change(Box::new(step))
}

/// Reports that a Service cannot be built.
pub(super) fn report_unbuildable(planner: &mut Planner<'_>, name: &str, error: &str) {
    let note = format!("Failed to create the service {}, {error}", planner.seen.path(name));
    planner.event(Event::warning(reasons::FAILED_TO_CREATE_SERVICE, "Create", note));
}
