//! Suspend: everything that the RayService made goes, and comes back when it is resumed.
//!
//! ```text
//! none ──suspend──▶ Suspending ──all gone──▶ Suspended ──resume──▶ none
//! ```
//! Once begun, suspending ends in `Suspended`, whatever the spec says meanwhile.

use super::cleanup;
use super::conditions::{
    self, INITIALIZING, READY, ROLLBACK_IN_PROGRESS, SUSPENDED, SUSPENDING, UPGRADE_IN_PROGRESS, UPGRADE_STALLED,
};
use super::plan::Pass;
use crate::action::{Accept, Action, Event, Kind, Step};
use crate::build::gateway::{gateway_name, http_route_name};
use crate::labels::{ORIGINATED_FROM_CR_NAME, ORIGINATED_FROM_CRD};
use crate::view::MetaView;

/// Whether the pass goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Then {
    GoOn,
    Stop,
}

/// The next step of suspending or resuming.
pub(super) fn plan(pass: &mut Pass<'_>) -> Then {
    let wanted = pass.seen.service.spec.suspend == Some(true);
    let suspending = conditions::is_true(&pass.status, SUSPENDING);
    let suspended = conditions::is_true(&pass.status, SUSPENDED);
    match (suspending, suspended, wanted) {
        (true, _, _) => tear_down(pass),
        (false, true, true) => {}
        (false, true, false) => {
            resume(pass);
            return Then::GoOn;
        }
        (false, false, true) => begin(pass),
        (false, false, false) => return Then::GoOn,
    }
    Then::Stop
}

fn begin(pass: &mut Pass<'_>) {
    pass.status.observed_generation = pass.seen.service.metadata.generation;
    conditions::set(
        pass,
        SUSPENDING,
        "True",
        "SuspendRequested",
        "Spec.Suspend is true; will delete all Kubernetes resources owned by this RayService.",
    );
    rest(pass, "SuspendInProgress", "RayService is suspending.");
    pass.status.active_service_status = None;
    pass.status.pending_service_status = None;
    pass.status.num_serve_endpoints = None;
    pass.status.service_status = None;
}

fn tear_down(pass: &mut Pass<'_>) {
    let mut is_empty = true;
    let seen = pass.seen;
    let mut stage = Vec::new();
    for cluster in &seen.clusters {
        is_empty = false;
        if cluster.metadata.deletion_timestamp.is_none() {
            stage.push(cleanup::delete(pass, cluster, "the RayService is being suspended", " during suspend"));
        }
    }
    for service in &seen.services {
        let meta = &service.metadata;
        let ours = meta.label(ORIGINATED_FROM_CR_NAME) == Some(seen.name())
            && meta.label(ORIGINATED_FROM_CRD) == Some("RayService");
        if ours {
            is_empty = false;
            stage.extend(delete(pass, Kind::Service, meta));
        }
    }
    if pass.is_incremental {
        let gateway = (Kind::Gateway, &seen.gateway, gateway_name(seen.name()));
        let route = (Kind::HttpRoute, &seen.http_route, http_route_name(seen.name()));
        for (kind, object, name) in [gateway, route] {
            if let Some(object) = object.as_ref().filter(|object| object.metadata.name == name) {
                is_empty = false;
                stage.extend(delete(pass, kind, &object.metadata));
            }
        }
    }
    pass.then_all(stage);
    if !is_empty {
        let message = "Waiting for all Kubernetes resources owned by this RayService to be deleted.";
        conditions::set(pass, SUSPENDING, "True", "SuspendInProgress", message);
        return;
    }
    const DONE: &str = "All owned resources have been deleted.";
    conditions::set(pass, SUSPENDING, "False", "SuspendComplete", DONE);
    conditions::set(pass, SUSPENDED, "True", "SuspendComplete", DONE);
    rest(pass, "SuspendComplete", "RayService is suspended.");
}

fn resume(pass: &mut Pass<'_>) {
    pass.status.observed_generation = pass.seen.service.metadata.generation;
    conditions::set(pass, SUSPENDED, "False", "RayServiceResumed", "Spec.Suspend is false; RayService has resumed.");
    for type_ in [READY, UPGRADE_IN_PROGRESS] {
        // Anew, so that the time to become ready begins now.
        conditions::remove(pass, type_);
        let message = "RayService is initializing after resuming from suspend.";
        conditions::set(pass, type_, "False", INITIALIZING, message);
    }
}

fn rest(pass: &mut Pass<'_>, reason: &str, ready: &str) {
    conditions::set(pass, READY, "False", reason, ready);
    conditions::set(pass, UPGRADE_IN_PROGRESS, "False", reason, "No upgrade in progress.");
    conditions::set(pass, ROLLBACK_IN_PROGRESS, "False", reason, "No rollback in progress.");
    conditions::remove(pass, UPGRADE_STALLED);
}

fn delete(pass: &Pass<'_>, kind: Kind, meta: &MetaView) -> Option<Step> {
    if meta.deletion_timestamp.is_some() {
        return None;
    }
    let (word, done, failed) = match kind {
        Kind::Gateway => ("Gateway", "DeletedGateway", "FailedToDeleteGateway"),
        Kind::HttpRoute => ("HTTPRoute", "DeletedHTTPRoute", "FailedToDeleteHTTPRoute"),
        _ => ("Service", "DeletedService", "FailedToDeleteService"),
    };
    let path = pass.seen.path(&meta.name);
    let action = Action::Delete { key: pass.key(kind, &meta.name), uid: meta.uid.clone(), force: false };
    let step = Step::new(action, "the RayService is being suspended")
        .done(Event::normal(done, "Delete", format!("Deleted the {word} {path} during suspend")))
        .failed(Event::warning(failed, "Delete", format!("Failed to delete the {word} {path} during suspend: ")))
        .accept(Accept::NotFound);
    Some(step)
}
