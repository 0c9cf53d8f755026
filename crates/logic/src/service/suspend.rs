//! Suspend: everything that the RayService made goes, and comes back when it is resumed.
//!
//! ```text
//! none ──suspend──▶ Suspending ──all deleted──▶ Suspended ──resume──▶ none
//! ```
//! Once begun, suspending ends in `Suspended`, even if the spec changes meanwhile.

use super::Planner;
use super::cleanup;
use super::conditions::{self, INITIALIZING};
use crate::action::{Kind, Step};
use crate::build::gateway::{gateway_name, http_route_name};
use crate::conditions::{
    APPLICATIONS_FAILED, READY, ROLLBACK_IN_PROGRESS, SUSPENDED, SUSPENDING, UPGRADE_IN_PROGRESS, UPGRADE_STALLED,
};
use crate::labels::{ORIGINATED_FROM_CR_NAME, ORIGINATED_FROM_CRD};
use crate::reasons;
use crate::view::MetaView;

/// Takes the next step of suspending or resuming. Returns whether the pass continues.
pub(super) fn plan(planner: &mut Planner<'_>) -> bool {
    let wanted = planner.seen.service.spec.suspend == Some(true);
    let suspending = conditions::is_true(&planner.draft.status, SUSPENDING);
    let suspended = conditions::is_true(&planner.draft.status, SUSPENDED);
    match (suspending, suspended, wanted) {
        (true, _, _) => tear_down(planner),
        (false, true, true) => {}
        (false, true, false) => {
            resume(planner);
            return true;
        }
        (false, false, true) => begin(planner),
        (false, false, false) => return true,
    }
    false
}

fn begin(planner: &mut Planner<'_>) {
    planner.draft.status.observed_generation = planner.seen.service.metadata.generation;
    conditions::set(
        planner,
        SUSPENDING,
        "True",
        "SuspendRequested",
        "Spec.Suspend is true; will delete all Kubernetes resources owned by this RayService.",
    );
    rest(planner, "SuspendInProgress", "RayService is suspending.");
    planner.draft.status.active_service_status = None;
    planner.draft.status.pending_service_status = None;
    planner.draft.status.num_serve_endpoints = None;
    planner.draft.status.service_status = None;
}

fn tear_down(planner: &mut Planner<'_>) {
    let mut is_empty = true;
    let seen = planner.seen;
    let mut steps = Vec::new();
    for cluster in &seen.clusters {
        is_empty = false;
        if cluster.metadata.deletion_timestamp.is_none() {
            steps.push(cleanup::delete(planner, cluster, "the RayService is being suspended", " during suspend"));
        }
    }
    for service in &seen.services {
        let meta = &service.metadata;
        let ours = meta.label(ORIGINATED_FROM_CR_NAME) == Some(seen.name())
            && meta.label(ORIGINATED_FROM_CRD) == Some("RayService");
        if ours {
            is_empty = false;
            steps.extend(delete(planner, Kind::Service, meta));
        }
    }
    if planner.draft.is_incremental {
        let gateway = (Kind::Gateway, &seen.gateway, gateway_name(seen.name()));
        let route = (Kind::HttpRoute, &seen.http_route, http_route_name(seen.name()));
        for (kind, object, name) in [gateway, route] {
            if let Some(object) = object.as_ref().filter(|object| object.metadata.name == name) {
                is_empty = false;
                steps.extend(delete(planner, kind, &object.metadata));
            }
        }
    }
    planner.then_all(steps);
    if !is_empty {
        let message = "Waiting for all Kubernetes resources owned by this RayService to be deleted.";
        conditions::set(planner, SUSPENDING, "True", "SuspendInProgress", message);
        return;
    }
    const DONE: &str = "All owned resources have been deleted.";
    conditions::set(planner, SUSPENDING, "False", "SuspendComplete", DONE);
    conditions::set(planner, SUSPENDED, "True", "SuspendComplete", DONE);
    rest(planner, "SuspendComplete", "RayService is suspended.");
}

fn resume(planner: &mut Planner<'_>) {
    planner.draft.status.observed_generation = planner.seen.service.metadata.generation;
    conditions::set(planner, SUSPENDED, "False", "RayServiceResumed", "Spec.Suspend is false; RayService has resumed.");
    for type_ in [READY, UPGRADE_IN_PROGRESS] {
        // Replaced, so that the initializing timeout starts now.
        conditions::remove(planner, type_);
        let message = "RayService is initializing after resuming from suspend.";
        conditions::set(planner, type_, "False", INITIALIZING, message);
    }
}

fn rest(planner: &mut Planner<'_>, reason: &str, ready: &str) {
    conditions::set(planner, READY, "False", reason, ready);
    conditions::set(planner, UPGRADE_IN_PROGRESS, "False", reason, "No upgrade in progress.");
    conditions::set(planner, ROLLBACK_IN_PROGRESS, "False", reason, "No rollback in progress.");
    for type_ in [UPGRADE_STALLED, APPLICATIONS_FAILED] {
        conditions::remove(planner, type_);
    }
}

fn delete(planner: &Planner<'_>, kind: Kind, meta: &MetaView) -> Option<Step> {
    if meta.deletion_timestamp.is_some() {
        return None;
    }
    let (word, done, failed) = match kind {
        Kind::Gateway => ("Gateway", reasons::DELETED_GATEWAY, reasons::FAILED_TO_DELETE_GATEWAY),
        Kind::HttpRoute => ("HTTPRoute", reasons::DELETED_HTTP_ROUTE, reasons::FAILED_TO_DELETE_HTTP_ROUTE),
        _ => ("Service", reasons::DELETED_SERVICE, reasons::FAILED_TO_DELETE_SERVICE),
    };
    let path = planner.seen.path(&meta.name);
    let step = Step::delete(planner.seen.key(kind, &meta.name), &meta.uid, "the RayService is being suspended")
        .on_success(done, format!("Deleted the {word} {path} during suspend"))
        .on_failure(failed, format!("Failed to delete the {word} {path} during suspend: "));
    Some(step)
}
