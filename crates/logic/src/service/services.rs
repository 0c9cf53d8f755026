//! Head and serve Service of a RayService: which cluster they lead to.
//!
//! They move when the other cluster can take over: its applications run, and as many of its proxies answer as do
//! now. KubeRay looks at the applications only, and requests that come before the proxies are up are lost.

use super::endpoints;
use super::plan::Pass;
use super::serve::Ready;
use crate::action::{Accept, Action, Body, Event, Kind, Step, create};
use crate::build::{self, cluster_facts as facts};
use crate::cluster::LookedUp;
use crate::labels::CLUSTER;
use crate::names;
use jiff::SignedDuration;
use k8s_openapi::api::core::v1::Service;
use manta_api::{RayCluster, RayService};
use serde_json::{Value, json};

/// How long applications that run wait for the last of their proxies.
const LAST_PROXIES: SignedDuration = SignedDuration::from_secs(30);

/// The name of the serve Service.
pub(super) fn serve_name(service: &RayService) -> String {
    let given = service.spec.serve_service.as_ref().and_then(|service| service.metadata.name.clone());
    let own = || names::serve_service(service.metadata.name.as_deref().unwrap_or_default());
    given.filter(|name| !name.is_empty()).unwrap_or_else(own)
}

/// Leads the Services to where they should lead; answers the cluster that they lead to after this pass, none if that
/// is not certain.
pub(super) fn plan(pass: &mut Pass<'_>, ready: Ready) -> Option<String> {
    let cluster = destination(pass, ready)?;
    let service = &pass.seen.service;
    let head = build::owner_head_service(facts::Creator::RayService, &service.metadata, cluster, pass.config);
    let mut wanted = vec![(names::owner_head_service(pass.seen.name()), head)];
    if !pass.is_incremental {
        let name = serve_name(service);
        match build::service_serve_service(service, cluster) {
            Ok(serve) => wanted.push((name, serve)),
            Err(error) => {
                refuse(pass, &name, &error.to_string());
                return None;
            }
        }
    } else if build::upgrade_serve_service(service, cluster).is_err() {
        return None;
    }
    let name = facts::name(cluster);
    let mut stage = Vec::new();
    for (at, object) in wanted {
        match lead(pass, name, &at, &object) {
            Lead::There => {}
            Lead::By(step) => stage.push(*step),
            Lead::Unknown => return None,
        }
    }
    pass.then_all(stage);
    Some(name.to_owned())
}

/// How a Service comes to lead to a cluster.
enum Lead {
    /// It does.
    There,
    By(Box<Step>),
    /// What it is now is not known, so nothing may rely on it.
    Unknown,
}

/// The cluster that requests should reach, once one of them can take them.
fn destination<'a>(pass: &mut Pass<'a>, ready: Ready) -> Option<&'a RayCluster> {
    if !ready.active && !ready.pending {
        return None;
    }
    let in_steps = pass.is_incremental && pass.is_upgrading && pass.active.is_some();
    match pass.pending.filter(|_| ready.pending && !in_steps) {
        Some(pending) if pass.active.is_none() || pass.served_cluster() == Some(facts::name(pending)) => Some(pending),
        Some(pending) if can_take_over(pass, pending, &serve_name(&pass.seen.service)) => Some(pending),
        _ => pass.active,
    }
}

/// Whether a cluster can take requests from a Service without leaving one unanswered.
pub(super) fn can_take_over(pass: &mut Pass<'_>, pending: &RayCluster, from: &str) -> bool {
    let seen = pass.seen;
    let name = facts::name(pending);
    let now = endpoints::of_service(seen, from);
    let needed = now.min(endpoints::expected(seen, pending));
    let there = endpoints::of_cluster(seen, name);
    if there >= needed {
        return true;
    }
    pass.wait_for(format!("{needed} Serve proxies of RayCluster {}: {there} answer", seen.path(name)));
    // Not every node needs a proxy: after a while those that answer must do.
    let running = seen.known(name).and_then(|known| known.running_since);
    let enough = running.and_then(|since| since.checked_add(LAST_PROXIES).ok());
    enough.is_some_and(|enough| pass.is_past(enough)) && there > 0
}

/// What makes a Service lead to a cluster.
fn lead(pass: &mut Pass<'_>, cluster: &str, name: &str, wanted: &Service) -> Lead {
    let path = pass.seen.path(name);
    let key = pass.key(Kind::Service, name);
    let Some(live) = pass.seen.service(name) else {
        let step = Step::new(create(key, wanted), "requests need a way to the cluster")
            .done(Event::normal("CreatedService", "Create", format!("Created the service {path}")))
            .failed(Event::warning(
                "FailedToCreateService",
                "Create",
                format!("Failed to create the service {path}, "),
            ));
        return Lead::By(Box::new(step));
    };
    if live.spec.selector.get(CLUSTER) == Some(cluster) {
        return Lead::There;
    }
    let found = match pass.seen.looked_up.get(&key) {
        None => {
            pass.look_up(key);
            return Lead::Unknown;
        }
        Some(LookedUp::Found(found)) => found,
        // The news of its end is on its way, and wakes the RayService.
        Some(LookedUp::Absent) => return Lead::Unknown,
        Some(LookedUp::Failed(error)) => {
            let note = format!("Failed to update the service {path}, {error}");
            pass.event(Event::warning("FailedToUpdateService", "Update", note));
            pass.try_again();
            return Lead::Unknown;
        }
    };
    let mut body = (**found).clone();
    let mut spec = json!(wanted.spec);
    for kept in ["clusterIP", "clusterIPs"] {
        match &body["spec"][kept] {
            Value::Null => {}
            address => spec[kept] = address.clone(),
        }
    }
    body["spec"] = spec;
    let step = Step::new(Action::Replace { key, body: Body::of(&body) }, "another cluster takes over")
        .done(Event::normal("UpdatedService", "Update", format!("Updated the service {path}")))
        .failed(Event::warning("FailedToUpdateService", "Update", format!("Failed to update the service {path}, ")))
        .accept(Accept::Nothing);
    Lead::By(Box::new(step))
}

/// Says that a Service cannot be made.
pub(super) fn refuse(pass: &mut Pass<'_>, name: &str, error: &str) {
    let note = format!("Failed to create the service {}, {error}", pass.seen.path(name));
    pass.event(Event::warning("FailedToCreateService", "Create", note));
}
