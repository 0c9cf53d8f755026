//! The way to the dashboard from outside: an Ingress, or a Route on OpenShift.

use super::observed::{LookedUp, Observed};
use super::plan::Draft;
use crate::action::{Accept, Action, Body, Event, Kind, Step, create, replace};
use crate::build;
use crate::config::Config;
use crate::validate::ValidCluster;
use k8s_openapi::api::networking::v1::Ingress;
use serde::Deserialize;
use serde_json::Value;

pub(super) fn plan(seen: &Observed, valid: &ValidCluster<'_>, cfg: &Config, draft: &mut Draft) {
    if valid.spec.head_group_spec.enable_ingress != Some(true) {
        return;
    }
    if cfg.platform.openshift && !cfg.ingress_on_openshift {
        plan_route(seen, valid, draft);
    } else {
        plan_ingress(seen, valid, draft);
    }
}

fn plan_route(seen: &Observed, valid: &ValidCluster<'_>, draft: &mut Draft) {
    let route = build::route(valid);
    let name = route["metadata"]["name"].as_str().unwrap_or_default().to_owned();
    if seen.related.iter().any(|(kind, _)| *kind == Kind::Route) || seen.in_flight.is_creating(Kind::Route, &name) {
        return;
    }
    let path = seen.path(&name);
    draft.push(
        Step::new(Action::Create { key: seen.key(Kind::Route, &name), body: Body::of(&route) }, "enableIngress is set")
            .done(Event::normal("CreatedRoute", "Create", format!("Created route {path}")))
            .failed(Event::warning("FailedToCreateRoute", "Create", format!("Failed creating route {path}, ")))
            .accept(Accept::AlreadyExists),
    );
}

fn plan_ingress(seen: &Observed, valid: &ValidCluster<'_>, draft: &mut Draft) {
    let name = build::ingress_name(seen.name());
    if let Some(live) = seen.related(Kind::Ingress, &name) {
        return update_if_changed(seen, valid, &live.object, draft);
    }
    if seen.in_flight.is_creating(Kind::Ingress, &name) {
        return;
    }
    // Not among the labelled ones: it may still be there, as somebody else's or with its labels lost.
    let key = seen.key(Kind::Ingress, &name);
    match seen.looked_up.get(&key) {
        None => draft.look_up(key),
        Some(LookedUp::Failed(error)) => draft.halt(error.clone()),
        Some(LookedUp::Found(live)) => update_if_changed(seen, valid, live, draft),
        Some(LookedUp::Absent) => {
            let path = seen.path(&name);
            draft.push(
                Step::new(create(key, &build::ingress(valid)), "enableIngress is set")
                    .done(Event::normal("CreatedIngress", "Create", format!("Created ingress {path}")))
                    .failed(Event::warning(
                        "FailedToCreateIngress",
                        "Create",
                        format!("Failed creating ingress {path}, "),
                    ))
                    .accept(Accept::AlreadyExists),
            );
        }
    }
}

/// Replaces labels, annotations and spec of an Ingress that is ours; touches no other.
fn update_if_changed(seen: &Observed, valid: &ValidCluster<'_>, live: &Value, draft: &mut Draft) {
    let path = seen.path(&build::ingress_name(seen.name()));
    let live = match Ingress::deserialize(live) {
        Ok(live) => live,
        Err(error) => return draft.halt(format!("cannot read Ingress {path}: {error}")),
    };
    let controller = live.metadata.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    if controller.is_none_or(|owner| owner.uid != seen.uid()) {
        draft.events.push(Event::warning(
            "FailedToCreateIngress",
            "Create",
            format!("Ingress {path} already exists and is not owned by this RayCluster; not modifying it"),
        ));
        return;
    }
    let Some(updated) = build::ingress_update(&build::ingress(valid), &live) else { return };
    draft.push(
        Step::new(
            replace(seen.key(Kind::Ingress, &build::ingress_name(seen.name())), &updated),
            "the Ingress differs from the spec",
        )
        .done(Event::normal("UpdatedIngress", "Update", format!("Updated ingress {path}")))
        .failed(Event::warning("FailedToUpdateIngress", "Update", format!("Failed updating ingress {path}, "))),
    );
}
