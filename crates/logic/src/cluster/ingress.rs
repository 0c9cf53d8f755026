//! The way to the dashboard from outside: an Ingress, or a Route on OpenShift.

use super::Planner;
use super::auth::LOOK_AGAIN;
use crate::action::{Accept, Event, Kind, Step};
use crate::build;
use crate::config::Config;
use crate::plan::LookedUp;
use crate::reasons;
use crate::validate::ValidCluster;
use k8s_openapi::api::networking::v1::Ingress;
use serde::Deserialize;
use serde_json::Value;

pub(super) fn plan(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    if valid.spec.head_group_spec.enable_ingress != Some(true) {
        return;
    }
    match kind(planner.config) {
        Kind::Route => plan_route(planner, valid),
        _ => plan_ingress(planner, valid),
    }
}

/// Returns the kind that leads to the dashboard on this platform.
pub(super) fn kind(config: &Config) -> Kind {
    if config.platform.openshift && !config.ingress_on_openshift { Kind::Route } else { Kind::Ingress }
}

fn plan_route(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    let seen = planner.seen;
    let route = build::route(valid);
    let name = route["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if seen.related.iter().any(|(kind, _)| *kind == Kind::Route) || seen.in_flight.is_creating(Kind::Route, &name) {
        return;
    }
    let path = seen.path(&name);
    planner.push(
        Step::create(seen.key(Kind::Route, &name), &route, "enableIngress is set")
            .on_success(reasons::CREATED_ROUTE, format!("Created route {path}"))
            .on_failure(reasons::FAILED_TO_CREATE_ROUTE, format!("Failed creating route {path}, "))
            .accept(Accept::AlreadyExists),
    );
}

fn plan_ingress(planner: &mut Planner<'_>, valid: &ValidCluster<'_>) {
    let seen = planner.seen;
    let name = build::ingress_name(seen.name());
    if let Some(live) = seen.related(Kind::Ingress, &name) {
        return update_if_changed(planner, valid, &live.object);
    }
    if seen.in_flight.is_creating(Kind::Ingress, &name) {
        return;
    }
    // It may exist without the label, as a foreign object or with its labels removed.
    let key = seen.key(Kind::Ingress, &name);
    match planner.found(&key) {
        None => planner.look_up(key),
        Some(LookedUp::Failed(error)) => planner.halt(error),
        Some(LookedUp::Found(live)) => update_if_changed(planner, valid, live),
        Some(LookedUp::Absent) => {
            let path = seen.path(&name);
            planner.push(
                Step::create(key, &build::ingress(valid), "enableIngress is set")
                    .on_success(reasons::CREATED_INGRESS, format!("Created ingress {path}"))
                    .on_failure(reasons::FAILED_TO_CREATE_INGRESS, format!("Failed creating ingress {path}, "))
                    .accept(Accept::AlreadyExists),
            );
        }
    }
}

/// Replaces labels, annotations and spec of an Ingress that is ours; touches no other.
fn update_if_changed(planner: &mut Planner<'_>, valid: &ValidCluster<'_>, live: &Value) {
    let seen = planner.seen;
    let path = seen.path(&build::ingress_name(seen.name()));
    let live = match Ingress::deserialize(live) {
        Ok(live) => live,
        Err(error) => return planner.halt(format!("cannot read Ingress {path}: {error}")),
    };
    let controller = live.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    if controller.is_none_or(|owner| owner.uid != seen.uid()) {
        planner.event(Event::warning(
            reasons::FAILED_TO_CREATE_INGRESS,
            "Create",
            format!("Ingress {path} already exists and is not owned by this RayCluster; not modifying it"),
        ));
        planner.wake_after(LOOK_AGAIN);
        return;
    }
    let Some(updated) = build::ingress_update(&build::ingress(valid), &live) else { return };
    let key = seen.key(Kind::Ingress, &build::ingress_name(seen.name()));
    planner.push(
        Step::replace(key, &updated, "the Ingress differs from the spec")
            .on_success(reasons::UPDATED_INGRESS, format!("Updated ingress {path}"))
            .on_failure(reasons::FAILED_TO_UPDATE_INGRESS, format!("Failed updating ingress {path}, ")),
    );
}
