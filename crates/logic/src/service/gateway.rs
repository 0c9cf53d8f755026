//! The way of requests during gradual upgrades: a Service per cluster, one Gateway, one HTTPRoute with weights.

use super::capacity::{Direction, Share};
use super::plan::{Pass, Side};
use super::serve::Ready;
use super::services;
use super::traffic::{Traffic, Weights, weights};
use crate::action::{Accept, Action, Body, Event, Kind, Step, create};
use crate::build::gateway::{self as objects, Backend};
use crate::build::{cluster_facts as facts, upgrade_serve_service};
use crate::names;
use crate::view::WholeView;
use jiff::SignedDuration;
use manta_api::{ClusterUpgradeOptions, RayCluster};
use serde_json::Value;

/// The shares of the traffic in the route after this pass.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Routed {
    pub(super) active: i32,
    /// The share of the pending cluster, if it is in the route.
    pub(super) pending: Option<i32>,
}

/// Makes and keeps the objects; answers what the route says, if there is one.
pub(super) fn plan(pass: &mut Pass<'_>, ready: Ready) -> Option<Routed> {
    if !pass.is_incremental {
        return None;
    }
    let clusters: Vec<&RayCluster> = [pass.active, pass.pending].into_iter().flatten().collect();
    for cluster in clusters {
        serve_service(pass, cluster);
    }
    if !pass.seen.gateway_api {
        let path = pass.seen.path(&objects::gateway_name(pass.seen.name()));
        pass.event(Event::warning(
            "FailedToCreateGateway",
            "Create",
            format!(
                "Failed to create Gateway for RayService {path}: the API server does not serve \
                 gateway.networking.k8s.io/v1; install the Gateway API"
            ),
        ));
        return None;
    }
    gateway(pass);
    let active = pass.active?;
    let routed = share_out(pass, ready)?;
    let backend = |cluster, weight| Backend { cluster, weight };
    let pending = pass.pending.zip(routed.pending).map(|(cluster, weight)| backend(cluster, weight));
    let route = objects::http_route(&pass.seen.service, backend(active, routed.active), pending);
    http_route(pass, route);
    Some(routed)
}

/// How the upgrade is to go.
pub(super) fn options<'a>(pass: &Pass<'a>) -> Option<&'a ClusterUpgradeOptions> {
    pass.seen.service.spec.upgrade_strategy.as_ref()?.cluster_upgrade_options.as_ref()
}

/// Whether Gateway and route are ready to shift traffic.
pub(super) fn is_open(pass: &Pass<'_>) -> bool {
    let gateway = objects::gateway_name(pass.seen.name());
    pass.seen.gateway.as_ref().is_some_and(|gateway| is_gateway_ready(&gateway.object))
        && pass
            .seen
            .http_route
            .as_ref()
            .is_some_and(|route| is_route_ready(&route.object, &gateway, pass.seen.namespace()))
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

/// The Service of one cluster, which goes with the cluster.
fn serve_service(pass: &mut Pass<'_>, cluster: &RayCluster) {
    let name = names::serve_service(facts::name(cluster));
    if pass.seen.service(&name).is_some() {
        return;
    }
    match upgrade_serve_service(&pass.seen.service, cluster) {
        Ok(service) => {
            let action = create(pass.key(Kind::Service, &name), &service);
            pass.then(Step::new(action, "traffic is shared among clusters").accept(Accept::AlreadyExists));
        }
        Err(error) => services::refuse(pass, &name, &error.to_string()),
    }
}

fn gateway(pass: &mut Pass<'_>) {
    let name = objects::gateway_name(pass.seen.name());
    let Ok(wanted) = objects::gateway(&pass.seen.service) else { return };
    let path = pass.seen.path(&name);
    let step = match pass.seen.gateway.as_deref() {
        None => Step::new(
            Action::Create { key: pass.key(Kind::Gateway, &name), body: Body::of(&wanted) },
            "gradual upgrades need a Gateway",
        )
        .done(Event::normal("CreatedGateway", "Create", format!("Created Gateway for RayService {path}")))
        .failed(Event::warning(
            "FailedToCreateGateway",
            "Create",
            format!("Failed to create Gateway for RayService {path}: "),
        ))
        .accept(Accept::AlreadyExists),
        Some(live) if objects::same_gateway_spec(&live.object["spec"], &wanted["spec"]) => return,
        Some(live) => Step::new(
            Action::Replace { key: pass.key(Kind::Gateway, &name), body: with_spec(live, &wanted) },
            "the Gateway is not as it should be",
        )
        .done(Event::normal("UpdatedGateway", "Update", format!("Updated the Gateway {path}")))
        .failed(Event::warning(
            "FailedToUpdateGateway",
            "Update",
            format!("Failed to update the Gateway {path}: "),
        )),
    };
    pass.then(step);
}

fn http_route(pass: &mut Pass<'_>, wanted: Value) {
    let name = objects::http_route_name(pass.seen.name());
    let path = pass.seen.path(&name);
    let step = match pass.seen.http_route.as_deref() {
        None => Step::new(
            Action::Create { key: pass.key(Kind::HttpRoute, &name), body: Body::of(&wanted) },
            "requests need a way to the active cluster",
        )
        .done(Event::normal("CreatedHTTPRoute", "Create", format!("Created HTTPRoute for RayService {path}")))
        .failed(Event::warning(
            "FailedToCreateHTTPRoute",
            "Create",
            format!("Failed to create the HTTPRoute for RayService {path}: "),
        ))
        .accept(Accept::AlreadyExists),
        Some(live) if objects::same_http_route_spec(&live.object["spec"], &wanted["spec"]) => return,
        Some(live) => Step::new(
            Action::Replace { key: pass.key(Kind::HttpRoute, &name), body: with_spec(live, &wanted) },
            "the shares of the traffic change",
        )
        .done(Event::normal("UpdatedHTTPRoute", "Update", format!("Updated the HTTPRoute {path}")))
        .failed(Event::warning(
            "FailedToUpdateHTTPRoute",
            "Update",
            format!("Failed to update the HTTPRoute {path}: "),
        )),
    };
    pass.then(step);
}

fn with_spec(live: &WholeView, wanted: &Value) -> Body {
    let mut body = live.object.clone();
    body["spec"] = wanted["spec"].clone();
    Body::of(&body)
}

/// The shares of the traffic from now on.
fn share_out(pass: &mut Pass<'_>, ready: Ready) -> Option<Routed> {
    let Some(pending) = pass.pending else { return Some(Routed { active: 100, pending: None }) };
    let options = options(pass)?;
    let from = names::serve_service(pass.active_name().unwrap_or_default());
    let serves = ready.pending && services::can_take_over(pass, pending, &from);
    let back = pass.is_rolling_back();
    let last = pass.slot(if back { Side::Active } else { Side::Pending }).last_traffic_migrated_time.clone();
    let mut active = Share::of(pass.slot(Side::Active), 100);
    active.traffic = pass.slot(Side::Active).traffic_routed_percent.unwrap_or(100);
    let traffic = Traffic {
        active,
        pending: Share::of(pass.slot(Side::Pending), 0),
        direction: if back { Direction::Back } else { Direction::Forwards },
        last: last.map(|time| time.0),
        step: options.step_size_percent.unwrap_or(0),
        interval: SignedDuration::from_secs(options.interval_seconds.unwrap_or(0).into()),
        pending_serves: serves,
    };
    let (Weights { active, pending }, next) = weights(traffic, pass.now);
    if let Some(next) = next {
        pass.is_past(next);
    }
    Some(Routed { active, pending: Some(pending) })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn conditions(types: &[&str]) -> Value {
        types.iter().map(|type_| json!({"type": type_, "status": "True"})).collect()
    }

    #[test]
    fn edge_58_ready_gateways_and_routes() {
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
