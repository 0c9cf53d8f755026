//! The next step for one RayService: the order of decisions.
//!
//! ```text
//! not ours ─▶ nothing      left of an earlier one ─▶ deleted, last
//!                          unused clusters ─▶ deleted after their delay   deleting ─▶ finalizer
//! invalid ─▶ one warning   suspend ─▶ everything goes                     timed out ─▶ nothing
//! RayClusters ─▶ rollback ─▶ head labels ─▶ Serve ─▶ Gateway, route ─▶ Services ─▶ status
//! ```

use super::dashboard::ServePoll;
use super::draft::{Draft, name_of};
use super::observed::Observed;
use super::{
    Planner, cleanup, clusters, conditions, gateway, initializing_timeout, rollback, serve, serve_labels, services,
    stalled_upgrade, status, suspend, upgrade,
};
use crate::action::Kind;
use crate::conditions::READY;
use crate::config::Config;
use crate::labels::is_managed_by_self;
use crate::leftovers;
use crate::plan::{Reconciled, StatusPlan};
use crate::validate::validate_service;
use jiff::Timestamp;
use manta_api::{RayService, RayServiceStatus};

impl Reconciled for RayService {
    const CONTROLLER: &'static str = "rayservice-controller";
    type Observed = Observed;
    type Status = RayServiceStatus;
    type Poll = ServePoll;
    type Draft<'a> = Draft<'a>;

    fn draft<'a>(seen: &'a Observed, config: &'a Config) -> Draft<'a> {
        Draft::of(seen, config)
    }

    fn decide(planner: &mut Planner<'_>) {
        if is_managed_by_self(planner.seen.service.spec.managed_by.as_deref()) {
            decide(planner);
        }
    }

    fn propose(planner: &mut Planner<'_>) -> StatusPlan<RayServiceStatus> {
        look_again_soon(planner);
        status::changed(planner).map_or(StatusPlan::Keep, StatusPlan::Write)
    }

    fn after_writes(status: RayServiceStatus, planned: Timestamp, executed: Timestamp) -> RayServiceStatus {
        status::with_traffic_moved(status, planned, executed)
    }
}

fn decide(planner: &mut Planner<'_>) {
    let service = &planner.seen.service;
    delete_leftovers(planner);
    cleanup::plan(planner);
    if service.metadata.deletion_timestamp.is_some() {
        return cleanup::release(planner);
    }
    if cleanup::add_finalizer(planner) {
        return;
    }
    if let Err(invalid) = validate_service(service, planner.config) {
        planner.event(invalid.event(planner.seen.namespace(), planner.seen.name()));
        conditions::set(planner, READY, "False", "ValidationFailed", &invalid.text);
        return conditions::forget_outdated_refusal(planner);
    }
    if !suspend::plan(planner) || initializing_timeout::is_over(planner) {
        return conditions::forget_outdated_refusal(planner);
    }
    if upgrade::is_reverted(planner) {
        planner.draft.drop_pending();
    }
    clusters::plan(planner);
    gateway::recover_step(planner);
    rollback::decide(planner);
    stalled_upgrade::plan(planner);
    serve_labels::plan(planner);
    let ready = serve::plan(planner);
    let route = gateway::plan(planner, ready);
    let serving = services::plan(planner, ready);
    status::finish(planner, serving.as_deref(), route);
}

/// Deletes what is left of an earlier RayService of this name. Its clusters are in no slot, and are
/// [cleaned up](cleanup) like others. What leads to a cluster that serves stays, so that no request is lost.
fn delete_leftovers(planner: &mut Planner<'_>) {
    let seen = planner.seen;
    let active = seen.service.status.as_ref().and_then(|status| name_of(&status.active_service_status));
    if active.is_some() && seen.service.metadata.deletion_timestamp.is_none() {
        return;
    }
    let services = seen.services.iter().map(|service| (Kind::Service, &service.metadata));
    let gateway = seen.gateway.iter().map(|gateway| (Kind::Gateway, &gateway.metadata));
    let route = seen.http_route.iter().map(|route| (Kind::HttpRoute, &route.metadata));
    let uid = seen.service.metadata.uid.as_deref().unwrap_or_default();
    let all = services.chain(gateway).chain(route);
    leftovers::plan(planner, &seen.key(Kind::RayService, seen.name()), uid, all);
}

/// Asks for a pass soon where no watch shows what is waited for.
fn look_again_soon(planner: &mut Planner<'_>) {
    let is_settled = conditions::is_true(&planner.draft.status, READY) && !planner.draft.has_pending_name();
    if planner.has_no_writes() && !is_settled && planner.poll.is_some() {
        planner.wake_after(5);
    }
}
