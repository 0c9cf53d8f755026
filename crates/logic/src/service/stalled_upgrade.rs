//! Upgrades that make no progress are reported, and those that cannot succeed are rolled back.
//!
//! KubeRay waits forever, with two clusters and no message. Here the condition `UpgradeStalled` reports after ten
//! minutes what the upgrade waits for. A slow upgrade (nodes, images, loading models) may take as long as it needs. A
//! failing upgrade is rolled back after an hour, if there is an active cluster that serves. The annotation
//! `ray.io/upgrade-timeout` sets another limit for both, or with `0` none. An abandoned upgrade is tried again when the
//! spec changes, and every six hours, as the cause may have been outside of it (a registry, a quota).

use super::Planner;
use super::conditions;
use super::obstacle::{self, Obstacle};
use super::{endpoints, services};
use crate::action::Event;
use crate::cluster_spec;
use crate::conditions::{PROVISIONED, ROLLBACK_IN_PROGRESS, UPGRADE_IN_PROGRESS, UPGRADE_STALLED};
use crate::labels::annotation::UPGRADE_TIMEOUT;
use crate::names;
use crate::reasons;
use crate::validate::service::{UpgradeTimeout, upgrade_timeout};
use jiff::{SignedDuration, Timestamp};

/// After this time without progress an upgrade is reported as stalled.
const STALLED_AFTER: SignedDuration = SignedDuration::from_mins(10);
/// How much longer an upgrade may fail by itself before it is given up.
const FAILING: SignedDuration = SignedDuration::from_mins(50);

/// How long after a rollback the upgrade is tried again.
const RETRY_AFTER: SignedDuration = SignedDuration::from_hours(6);

/// The reason in the conditions of an upgrade that was given up.
const GIVEN_UP: &str = reasons::UPGRADE_GIVEN_UP;

/// Reports an upgrade that makes no progress, and gives up one that has run out of time.
pub(super) fn plan(planner: &mut Planner<'_>) {
    let Some(since) = last_progress(planner) else { return };
    // After a restart no dashboard has replied yet.
    let Some(obstacle) = obstacle::find(planner) else { return };
    planner.draft.status.observed_generation = planner.seen.service.metadata.generation;
    let Ok(stalled_at) = since.checked_add(STALLED_AFTER) else { return };
    let stalled = planner.reached_or_wake_at(stalled_at).then(|| stall(planner, &obstacle));
    if stalled.is_none() {
        conditions::remove(planner, UPGRADE_STALLED);
    }
    let deadline = match upgrade_timeout(planner.seen.service.metadata.annotations.as_ref()) {
        Ok(UpgradeTimeout::After(limit)) => {
            // A change of the spec restarts the timer.
            let tried = stalled.and_then(|stalled| stalled.checked_sub(STALLED_AFTER).ok());
            tried.map_or(since, |tried| tried.max(since)).checked_add(limit).ok()
        }
        Ok(UpgradeTimeout::Default) if obstacle.fails => stalled.and_then(|since| since.checked_add(FAILING).ok()),
        _ => None,
    };
    if stalled.is_some() {
        report(planner, since, &obstacle, deadline);
    }
    if deadline.is_some_and(|deadline| planner.reached_or_wake_at(deadline)) && is_serving(planner) {
        give_up(planner, since, &obstacle);
    }
}

/// Returns whether the upgrade to the current spec was abandoned and is not due again.
pub(super) fn was_given_up(planner: &mut Planner<'_>) -> bool {
    let retry_at = given_up_by(planner, UPGRADE_IN_PROGRESS).map(retry_time);
    retry_at.is_some_and(|at| !planner.reached_or_wake_at(at)) || is_giving_up(planner)
}

/// Returns whether the running rollback is from the current spec, whose upgrade must not be resumed.
pub(super) fn is_giving_up(planner: &Planner<'_>) -> bool {
    given_up_by(planner, ROLLBACK_IN_PROGRESS).is_some()
}

/// Copies the reason of a rollback that ends into the lasting condition.
pub(super) fn remember(planner: &mut Planner<'_>) {
    if let Some(condition) = conditions::get(&planner.draft.status, ROLLBACK_IN_PROGRESS).cloned()
        && is_giving_up(planner)
    {
        conditions::set(planner, UPGRADE_IN_PROGRESS, "False", GIVEN_UP, &condition.message);
    }
}

/// Returns since when a condition reports that the upgrade to the current spec was abandoned.
fn given_up_by(planner: &Planner<'_>, type_: &str) -> Option<Timestamp> {
    let generation = planner.seen.service.metadata.generation;
    conditions::get(&planner.draft.status, type_)
        .filter(|condition| condition.reason == GIVEN_UP && condition.observed_generation == generation)
        .map(|condition| condition.last_transition_time.0)
}

fn retry_time(given_up: Timestamp) -> Option<Timestamp> {
    given_up.checked_add(RETRY_AFTER).ok()
}

/// Returns when the running upgrade last made progress.
fn last_progress(planner: &Planner<'_>) -> Option<Timestamp> {
    let (Some(_), Some(pending)) = (planner.draft.active, planner.draft.pending) else { return None };
    if !planner.draft.is_upgrading || planner.draft.is_rolling_back() {
        return None;
    }
    let made = pending.metadata.creation_timestamp.as_ref()?.0;
    let provisioned = crate::conditions::find(crate::conditions::of_cluster(pending), PROVISIONED);
    let provisioned = provisioned.filter(|condition| condition.status == "True");
    let provisioned = provisioned.map(|condition| condition.last_transition_time.0);
    let slots = [&planner.draft.status.active_service_status, &planner.draft.status.pending_service_status];
    let moved = slots.into_iter().flatten().filter_map(|slot| slot.last_traffic_migrated_time.as_ref());
    let moved = moved.map(|time| time.0).filter(|_| planner.draft.is_incremental);
    provisioned.into_iter().chain(moved).chain([made]).max()
}

/// Returns since when the upgrade has been stalled for this kind of reason and with this spec.
fn stall(planner: &mut Planner<'_>, obstacle: &Obstacle) -> Timestamp {
    let generation = planner.seen.service.metadata.generation;
    let known = conditions::get(&planner.draft.status, UPGRADE_STALLED);
    let since = known
        .filter(|known| known.reason == reason(obstacle) && known.observed_generation == generation)
        .map(|known| known.last_transition_time.0);
    if since.is_none() {
        conditions::remove(planner, UPGRADE_STALLED);
    }
    since.unwrap_or(planner.now)
}

fn reason(obstacle: &Obstacle) -> &'static str {
    if obstacle.fails { "Failing" } else { "Waiting" }
}

fn report(planner: &mut Planner<'_>, since: Timestamp, obstacle: &Obstacle, deadline: Option<Timestamp>) {
    let mut message = format!("No progress since {since}: {}.", obstacle.text);
    if let Some(deadline) = deadline {
        message.push_str(&format!(" The upgrade is rolled back at {deadline}."));
    }
    conditions::set(planner, UPGRADE_STALLED, "True", reason(obstacle), &message);
    planner.event(Event::warning(UPGRADE_STALLED, "Reconcile", message));
}

fn give_up(planner: &mut Planner<'_>, since: Timestamp, obstacle: &Obstacle) {
    let message = format!(
        "The upgrade made no progress since {since} and is rolled back: {}. It is tried again when the spec changes, and \
         every {} hours. The annotation {UPGRADE_TIMEOUT} sets how long an upgrade may make no progress; 0 never rolls \
         back.",
        obstacle.text,
        RETRY_AFTER.as_hours()
    );
    planner.event(Event::warning(GIVEN_UP, "Reconcile", message.clone()));
    conditions::remove(planner, UPGRADE_STALLED);
    if planner.draft.is_incremental {
        conditions::set(planner, ROLLBACK_IN_PROGRESS, "True", GIVEN_UP, &message);
    } else {
        conditions::set(planner, UPGRADE_IN_PROGRESS, "False", GIVEN_UP, &message);
        planner.draft.drop_pending();
    }
}

/// Returns whether the active cluster answers requests.
fn is_serving(planner: &Planner<'_>) -> bool {
    let service = match planner.draft.active.filter(|_| planner.draft.is_incremental) {
        Some(active) => names::serve_service(cluster_spec::name(active)),
        None => services::serve_name(&planner.seen.service),
    };
    endpoints::of_service(planner.seen, &service) > 0
}
