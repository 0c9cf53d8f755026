//! Upgrades that make no progress: they say so, and those that cannot come through are rolled back.
//!
//! KubeRay waits for ever, with two clusters, and says nothing. Here the condition `UpgradeStalled` says after ten
//! minutes what the upgrade waits for. What is only slow (nodes, images, models that load) is waited for as long as it
//! takes. What fails by itself is rolled back after an hour, if there is an active cluster that serves. The annotation
//! `ray.io/upgrade-timeout` sets another limit, for both, or with `0` none. What was given up is not tried again until
//! the spec changes.

use super::conditions::{self, ROLLBACK_IN_PROGRESS, UPGRADE_IN_PROGRESS, UPGRADE_STALLED};
use super::obstacle::{self, Obstacle};
use super::plan::Pass;
use super::{endpoints, services};
use crate::action::Event;
use crate::build::cluster_facts as facts;
use crate::names;
use crate::validate::service::{UpgradeTimeout, upgrade_timeout};
use jiff::{SignedDuration, Timestamp};

/// After this time without progress the upgrade says so.
const QUIET: SignedDuration = SignedDuration::from_mins(10);
/// How much longer an upgrade may fail by itself before it is given up.
const FAILING: SignedDuration = SignedDuration::from_mins(50);

/// The reason in the conditions of an upgrade that was given up.
const GIVEN_UP: &str = "UpgradeGivenUp";

/// Tells of an upgrade that stands still, and gives up one that has run out of time.
pub(super) fn plan(pass: &mut Pass<'_>) {
    let Some(since) = last_progress(pass) else { return };
    // After a restart nothing has been heard yet.
    let Some(obstacle) = obstacle::find(pass) else { return };
    pass.status.observed_generation = pass.seen.service.metadata.generation;
    let Ok(quiet) = since.checked_add(QUIET) else { return };
    let stalled = pass.is_past(quiet).then(|| stall(pass, &obstacle));
    if stalled.is_none() {
        conditions::remove(pass, UPGRADE_STALLED);
    }
    let deadline = match upgrade_timeout(pass.seen.service.metadata.annotations.as_ref()) {
        Ok(UpgradeTimeout::After(limit)) => {
            // A change of the spec begins the time anew.
            let tried = stalled.and_then(|stalled| stalled.checked_sub(QUIET).ok());
            tried.map_or(since, |tried| tried.max(since)).checked_add(limit).ok()
        }
        Ok(UpgradeTimeout::Default) if obstacle.fails => stalled.and_then(|since| since.checked_add(FAILING).ok()),
        _ => None,
    };
    if stalled.is_some() {
        tell(pass, since, &obstacle, deadline);
    }
    if deadline.is_some_and(|deadline| pass.is_past(deadline)) && is_serving(pass) {
        give_up(pass, since, &obstacle);
    }
}

/// Whether what is wanted now was given up before.
pub(super) fn was_given_up(pass: &Pass<'_>) -> bool {
    given_up_by(pass, UPGRADE_IN_PROGRESS) || is_giving_up(pass)
}

/// Whether the rollback that runs is that of what is wanted now, which must not be resumed.
pub(super) fn is_giving_up(pass: &Pass<'_>) -> bool {
    given_up_by(pass, ROLLBACK_IN_PROGRESS)
}

/// Carries the memory of a rollback that ends into the condition that stays.
pub(super) fn remember(pass: &mut Pass<'_>) {
    if let Some(condition) = conditions::get(&pass.status, ROLLBACK_IN_PROGRESS).cloned()
        && is_giving_up(pass)
    {
        conditions::set(pass, UPGRADE_IN_PROGRESS, "False", GIVEN_UP, &condition.message);
    }
}

fn given_up_by(pass: &Pass<'_>, type_: &str) -> bool {
    let condition = conditions::get(&pass.status, type_).filter(|condition| condition.reason == GIVEN_UP);
    condition.is_some_and(|condition| condition.observed_generation == pass.seen.service.metadata.generation)
}

/// When the upgrade came further for the last time, if one runs.
fn last_progress(pass: &Pass<'_>) -> Option<Timestamp> {
    let (Some(_), Some(pending)) = (pass.active, pass.pending) else { return None };
    if !pass.is_upgrading || pass.is_rolling_back() {
        return None;
    }
    let made = pending.metadata.creation_timestamp.as_ref()?.0;
    let conditions = pending.status.iter().flat_map(|status| status.conditions.iter().flatten());
    let provisioned = conditions
        .filter(|condition| condition.type_ == "RayClusterProvisioned" && condition.status == "True")
        .map(|condition| condition.last_transition_time.0);
    let slots = [&pass.status.active_service_status, &pass.status.pending_service_status];
    let moved = slots.into_iter().flatten().filter_map(|slot| slot.last_traffic_migrated_time.as_ref());
    let moved = moved.map(|time| time.0).filter(|_| pass.is_incremental);
    provisioned.chain(moved).chain([made]).max()
}

/// Since when the upgrade has been standing still for this kind of reason, and with this spec.
fn stall(pass: &mut Pass<'_>, obstacle: &Obstacle) -> Timestamp {
    let generation = pass.seen.service.metadata.generation;
    let known = conditions::get(&pass.status, UPGRADE_STALLED);
    let since = known
        .filter(|known| known.reason == reason(obstacle) && known.observed_generation == generation)
        .map(|known| known.last_transition_time.0);
    if since.is_none() {
        conditions::remove(pass, UPGRADE_STALLED);
    }
    since.unwrap_or(pass.now)
}

fn reason(obstacle: &Obstacle) -> &'static str {
    if obstacle.fails { "Failing" } else { "Waiting" }
}

fn tell(pass: &mut Pass<'_>, since: Timestamp, obstacle: &Obstacle, deadline: Option<Timestamp>) {
    let mut message = format!("No progress since {since}: {}.", obstacle.text);
    if let Some(deadline) = deadline {
        message.push_str(&format!(" The upgrade is rolled back at {deadline}."));
    }
    conditions::set(pass, UPGRADE_STALLED, "True", reason(obstacle), &message);
    pass.event(Event::warning(UPGRADE_STALLED, "Reconcile", message));
}

fn give_up(pass: &mut Pass<'_>, since: Timestamp, obstacle: &Obstacle) {
    let message = format!(
        "The upgrade made no progress since {since} and is rolled back: {}. Change the spec to try again.",
        obstacle.text
    );
    pass.event(Event::warning(GIVEN_UP, "Reconcile", message.clone()));
    conditions::remove(pass, UPGRADE_STALLED);
    if pass.is_incremental {
        conditions::set(pass, ROLLBACK_IN_PROGRESS, "True", GIVEN_UP, &message);
    } else {
        conditions::set(pass, UPGRADE_IN_PROGRESS, "False", GIVEN_UP, &message);
        pass.drop_pending();
    }
}

/// Whether the active cluster answers requests.
fn is_serving(pass: &Pass<'_>) -> bool {
    let service = match pass.active.filter(|_| pass.is_incremental) {
        Some(active) => names::serve_service(facts::name(active)),
        None => services::serve_name(&pass.seen.service),
    };
    endpoints::of_service(pass.seen, &service) > 0
}
