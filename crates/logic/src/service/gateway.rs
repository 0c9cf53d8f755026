//! The routing of requests during incremental upgrades: a Service per cluster, one Gateway, one HTTPRoute with weights.

use super::capacity::{Direction, Share};
use super::serve::Ready;
use super::services;
use super::traffic::{Traffic, Weights, weights};
use super::{Planner, Side};
use crate::action::{Accept, Event, Kind, Step};
use crate::build::gateway::{self as objects, Backend};
use crate::build::upgrade_serve_service;
use crate::cluster_spec;
use crate::names;
use crate::reasons;
use crate::view::WholeView;
use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manta_api::{ClusterUpgradeOptions, RayCluster};
use serde_json::Value;

/// The shares of the traffic in the route after this pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Routed {
    pub(super) active: i32,
    /// The share of the pending cluster, if it is in the route.
    pub(super) pending: Option<i32>,
}

/// Creates and updates the objects. Returns the weights in the route, if there is one.
pub(super) fn plan(planner: &mut Planner<'_>, ready: Ready) -> Option<Routed> {
    if !planner.draft.is_incremental {
        return None;
    }
    let clusters: Vec<&RayCluster> = [planner.draft.active, planner.draft.pending].into_iter().flatten().collect();
    for cluster in clusters {
        serve_service(planner, cluster);
    }
    if !planner.seen.gateway_api {
        let path = planner.seen.path(&objects::gateway_name(planner.seen.name()));
        planner.event(Event::warning(
            reasons::FAILED_TO_CREATE_GATEWAY,
            "Create",
            format!(
                "Failed to create Gateway for RayService {path}: the API server does not serve \
                 gateway.networking.k8s.io/v1; install the Gateway API"
            ),
        ));
        return None;
    }
    gateway(planner);
    let active = planner.draft.active?;
    let routed = share_out(planner, ready)?;
    let backend = |cluster, weight| Backend { cluster, weight };
    let pending = planner.draft.pending.zip(routed.pending).map(|(cluster, weight)| backend(cluster, weight));
    let route = objects::http_route(&planner.seen.service, backend(active, routed.active), pending);
    http_route(planner, route);
    Some(routed)
}

/// Returns the options of the upgrade.
pub(super) fn options<'a>(planner: &Planner<'a>) -> Option<&'a ClusterUpgradeOptions> {
    planner.seen.service.spec.upgrade_strategy.as_ref()?.cluster_upgrade_options.as_ref()
}

/// Returns whether Gateway and route are ready to shift traffic.
pub(super) fn is_open(planner: &Planner<'_>) -> bool {
    let gateway = objects::gateway_name(planner.seen.name());
    planner.seen.gateway.as_ref().is_some_and(|gateway| is_gateway_ready(&gateway.object))
        && planner
            .seen
            .http_route
            .as_ref()
            .is_some_and(|route| is_route_ready(&route.object, &gateway, planner.seen.namespace()))
}

fn is_gateway_ready(gateway: &Value) -> bool {
    let conditions = &gateway["status"]["conditions"];
    is_true(conditions, "Accepted") && is_true(conditions, "Programmed")
}

fn is_route_ready(route: &Value, gateway: &str, namespace: &str) -> bool {
    let parents = route["status"]["parents"].as_array().into_iter().flatten();
    parents.into_iter().any(|parent| {
        let of = &parent["parentRef"];
        let conditions = &parent["conditions"];
        of["name"] == gateway
            && of["namespace"].as_str().is_none_or(|of| of == namespace)
            && is_true(conditions, "Accepted")
            && is_true(conditions, "ResolvedRefs")
    })
}

fn is_true(conditions: &Value, type_: &str) -> bool {
    let mut conditions = conditions.as_array().into_iter().flatten();
    conditions.any(|condition| condition["type"] == type_ && condition["status"] == "True")
}

/// Creates the Service of one cluster, which is deleted with the cluster.
fn serve_service(planner: &mut Planner<'_>, cluster: &RayCluster) {
    let name = names::serve_service(cluster_spec::name(cluster));
    if planner.seen.service(&name).is_some() {
        return;
    }
    match upgrade_serve_service(&planner.seen.service, cluster) {
        Ok(service) => {
            let key = planner.seen.key(Kind::Service, &name);
            planner.then(Step::create(key, &service, "traffic is shared among clusters").accept(Accept::AlreadyExists));
        }
        Err(error) => services::report_unbuildable(planner, &name, &error.to_string()),
    }
}

fn gateway(planner: &mut Planner<'_>) {
    let name = objects::gateway_name(planner.seen.name());
    let Ok(wanted) = objects::gateway(&planner.seen.service) else { return };
    let path = planner.seen.path(&name);
    let key = planner.seen.key(Kind::Gateway, &name);
    let step = match planner.seen.gateway.as_deref() {
        None => Step::create(key, &wanted, "incremental upgrades need a Gateway")
            .on_success(reasons::CREATED_GATEWAY, format!("Created Gateway for RayService {path}"))
            .on_failure(reasons::FAILED_TO_CREATE_GATEWAY, format!("Failed to create Gateway for RayService {path}: "))
            .accept(Accept::AlreadyExists),
        Some(live) if objects::same_gateway_spec(&live.object["spec"], &wanted["spec"]) => return,
        Some(live) => Step::replace(key, &with_spec(live, &wanted), "the Gateway differs from the spec")
            .on_success(reasons::UPDATED_GATEWAY, format!("Updated the Gateway {path}"))
            .on_failure(reasons::FAILED_TO_UPDATE_GATEWAY, format!("Failed to update the Gateway {path}: ")),
    };
    planner.then(step);
}

fn http_route(planner: &mut Planner<'_>, wanted: Value) {
    let name = objects::http_route_name(planner.seen.name());
    let path = planner.seen.path(&name);
    let key = planner.seen.key(Kind::HttpRoute, &name);
    let step = match planner.seen.http_route.as_deref() {
        None => Step::create(key, &wanted, "requests need a way to the active cluster")
            .on_success(reasons::CREATED_HTTP_ROUTE, format!("Created HTTPRoute for RayService {path}"))
            .on_failure(
                reasons::FAILED_TO_CREATE_HTTP_ROUTE,
                format!("Failed to create the HTTPRoute for RayService {path}: "),
            )
            .accept(Accept::AlreadyExists),
        Some(live) if objects::same_http_route_spec(&live.object["spec"], &wanted["spec"]) => return,
        Some(live) => Step::replace(key, &with_spec(live, &wanted), "the shares of the traffic change")
            .on_success(reasons::UPDATED_HTTP_ROUTE, format!("Updated the HTTPRoute {path}"))
            .on_failure(reasons::FAILED_TO_UPDATE_HTTP_ROUTE, format!("Failed to update the HTTPRoute {path}: ")),
    };
    planner.then(step);
}

fn with_spec(live: &WholeView, wanted: &Value) -> Value {
    let mut body = live.object.clone();
    body["spec"] = wanted["spec"].clone();
    body
}

/// Returns the shares of the traffic from now on.
fn share_out(planner: &mut Planner<'_>, ready: Ready) -> Option<Routed> {
    let Some(pending) = planner.draft.pending else { return Some(Routed { active: 100, pending: None }) };
    let options = options(planner)?;
    let from = names::serve_service(planner.draft.active_name().unwrap_or_default());
    let back = planner.draft.is_rolling_back();
    // Serve may have less capacity than the status says: a capacity is recorded after it has been submitted.
    let serves = if back { ready.active } else { ready.pending && services::can_take_over(planner, pending, &from) };
    // A request that broke off may still take the capacity away that Serve has accepted, and a dashboard that is behind says
    // nothing about the capacity that was submitted.
    let gaining = if back { planner.draft.active } else { Some(pending) };
    let known = gaining.and_then(|cluster| planner.seen.serve_of(cluster_spec::name(cluster)));
    let is_certain = known.is_none_or(|known| known.confirm_at().is_none() && !known.shows_another_capacity());
    let last = planner.draft.slot(if back { Side::Active } else { Side::Pending }).last_traffic_migrated_time.clone();
    let mut active = Share::of(planner.draft.slot(Side::Active), 100);
    active.traffic = planner.draft.slot(Side::Active).traffic_routed_percent.unwrap_or(100);
    let traffic = Traffic {
        active,
        pending: Share::of(planner.draft.slot(Side::Pending), 0),
        direction: if back { Direction::Back } else { Direction::Forwards },
        last: last.map(|time| time.0),
        step: options.step_size_percent.unwrap_or(0),
        interval: SignedDuration::from_secs(options.interval_seconds.unwrap_or(0).into()),
        gaining_serves: serves && is_certain,
    };
    let (Weights { active, pending }, next) = weights(traffic, planner.now);
    planner.wake_at(next);
    Some(Routed { active, pending: Some(pending) })
}

/// Copies a step of the traffic from the route to the status, if the status was not written after it. A cluster that gets
/// requests must not look as if it got none. Other weights were not set by an operator, and do not stay.
pub(super) fn recover_step(planner: &mut Planner<'_>) {
    let Some(live) = routed_weights(planner).filter(|_| planner.draft.is_incremental && planner.draft.is_upgrading)
    else {
        return;
    };
    let step = options(planner).and_then(|options| options.step_size_percent).unwrap_or(0);
    let recorded = planner.draft.slot(Side::Pending).traffic_routed_percent.unwrap_or(0);
    let moved = live.pending.abs_diff(recorded);
    if moved == 0 || moved > step.unsigned_abs() || live.active.saturating_add(live.pending) != 100 {
        return;
    }
    for (side, share, capacity) in [(Side::Active, live.active, 100), (Side::Pending, live.pending, 0)] {
        let slot = planner.draft.slot(side);
        slot.traffic_routed_percent = Some(share);
        slot.last_traffic_migrated_time = Some(Time(planner.now));
        // Traffic moves only to capacity that is there, which the same status would have recorded.
        slot.target_capacity = Some(slot.target_capacity.unwrap_or(capacity).max(share));
    }
}

/// Returns the weights of both clusters in the route.
fn routed_weights(planner: &Planner<'_>) -> Option<Weights> {
    let (active, pending) = (planner.draft.active?, planner.draft.pending?);
    let route = &planner.seen.http_route.as_ref()?.object;
    let weight = |cluster: &RayCluster| {
        let name = names::serve_service(cluster_spec::name(cluster));
        let mut backends = route["spec"]["rules"][0]["backendRefs"].as_array()?.iter();
        let weight = backends.find(|backend| backend["name"] == name.as_str())?["weight"].as_i64()?;
        i32::try_from(weight).ok()
    };
    Some(Weights { active: weight(active)?, pending: weight(pending)? })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn conditions(types: &[&str]) -> Value {
        types.iter().map(|type_| json!({"type": type_, "status": "True"})).collect()
    }

    #[test]
    fn gateways_and_routes_are_ready_by_their_conditions() {
        let gateway = |types: &[&str]| is_gateway_ready(&json!({"status": {"conditions": conditions(types)}}));
        assert!(gateway(&["Accepted", "Programmed"]));
        assert!(!gateway(&["Accepted"]) && !gateway(&["Programmed"]) && !gateway(&[]));
        let route = |name: &str, namespace: Value, types: &[&str]| {
            let parent = json!({"parentRef": {"name": name, "namespace": namespace}, "conditions": conditions(types)});
            is_route_ready(&json!({"status": {"parents": [parent]}}), "g", "ns")
        };
        let both = ["Accepted", "ResolvedRefs"];
        assert!(route("g", Value::Null, &both) && route("g", json!("ns"), &both));
        assert!(!route("other", Value::Null, &both) && !route("g", json!("other"), &both));
        assert!(!route("g", Value::Null, &["Accepted"]));
    }
}
