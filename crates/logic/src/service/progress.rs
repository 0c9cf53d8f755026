//! Upgrades that make no progress: after a while they say so, and in the end they are rolled back.
//!
//! KubeRay waits for ever, with two clusters. Here an upgrade has an hour, or what `ray.io/initializing-timeout`
//! says, since its cluster was made or its traffic last moved. The revision that was given up is remembered in
//! the condition, and not tried again until the spec changes. While the active cluster serves nobody there is nothing
//! to go back to, and the upgrade goes on.

use super::conditions::{self, ROLLBACK_IN_PROGRESS, UPGRADE_IN_PROGRESS};
use super::plan::Pass;
use super::{endpoints, initializing_timeout, services};
use crate::action::Event;
use crate::build::cluster_facts as facts;
use crate::go::duration;
use crate::names;
use jiff::{SignedDuration, Timestamp};

/// After this time without progress the upgrade says so.
const QUIET: SignedDuration = SignedDuration::from_mins(10);
/// After this time it is given up.
const LONGEST: SignedDuration = SignedDuration::from_hours(1);

/// The reason in the conditions.
const TIMED_OUT: &str = "UpgradeTimedOut";

/// Gives up an upgrade that has run out of time.
pub(super) fn plan(pass: &mut Pass<'_>) {
    let Some(since) = waiting_since(pass) else { return };
    let limit = initializing_timeout::limit(pass).unwrap_or(LONGEST);
    let Ok(deadline) = since.checked_add(limit) else { return };
    if !pass.is_past(deadline) {
        if let Ok(quiet) = since.checked_add(QUIET) {
            pass.is_past(quiet);
        }
        return;
    }
    if !is_serving(pass) {
        return;
    }
    let message = format!(
        "The upgrade to {} made no progress for {} and is given up: {}. Change the spec to try again.",
        pass.goal,
        duration::print(limit),
        obstacle(pass)
    );
    pass.event(Event::warning(TIMED_OUT, "Reconcile", message.clone()));
    if pass.is_incremental {
        conditions::set(pass, ROLLBACK_IN_PROGRESS, "True", TIMED_OUT, &message);
    } else {
        conditions::set(pass, UPGRADE_IN_PROGRESS, "False", TIMED_OUT, &message);
        pass.drop_pending();
    }
}

/// Whether the revision that is wanted now was given up before.
pub(super) fn was_given_up(pass: &Pass<'_>) -> bool {
    given_up_by(pass, UPGRADE_IN_PROGRESS) || is_giving_up(pass)
}

/// Whether the rollback that runs is that of the wanted revision, which must not be resumed.
pub(super) fn is_giving_up(pass: &Pass<'_>) -> bool {
    given_up_by(pass, ROLLBACK_IN_PROGRESS)
}

/// Carries the memory of a rollback that ends into the condition that stays.
pub(super) fn remember(pass: &mut Pass<'_>) {
    if let Some(condition) = conditions::get(&pass.status, ROLLBACK_IN_PROGRESS).cloned()
        && is_giving_up(pass)
    {
        conditions::set(pass, UPGRADE_IN_PROGRESS, "False", TIMED_OUT, &condition.message);
    }
}

fn given_up_by(pass: &Pass<'_>, type_: &str) -> bool {
    let condition = conditions::get(&pass.status, type_).filter(|condition| condition.reason == TIMED_OUT);
    condition.is_some_and(|condition| condition.message.contains(&pass.goal))
}

/// What the condition says while both clusters exist.
pub(super) fn message(pass: &mut Pass<'_>) -> String {
    let both = "Both active and pending Ray clusters exist".to_owned();
    let Some(since) = waiting_since(pass).filter(|since| since.checked_add(QUIET).is_ok_and(|quiet| quiet <= pass.now))
    else {
        return both;
    };
    let said = format!("{both}. No progress since {since}: {}", obstacle(pass));
    pass.event(Event::warning("UpgradeStalled", "Reconcile", said.clone()));
    said
}

/// Since when the upgrade has been waiting for its next step, if one runs.
fn waiting_since(pass: &Pass<'_>) -> Option<Timestamp> {
    let (Some(_), Some(pending)) = (pass.active, pass.pending) else { return None };
    if !pass.is_upgrading || pass.is_rolling_back() {
        return None;
    }
    let made = pending.metadata.creation_timestamp.as_ref()?.0;
    let slots = [&pass.status.active_service_status, &pass.status.pending_service_status];
    let moved = slots.into_iter().flatten().filter_map(|slot| slot.last_traffic_migrated_time.as_ref());
    let moved = moved.map(|time| time.0).filter(|_| pass.is_incremental).max();
    Some(moved.map_or(made, |moved| moved.max(made)))
}

/// Whether the active cluster answers requests.
fn is_serving(pass: &Pass<'_>) -> bool {
    let service = match pass.active.filter(|_| pass.is_incremental) {
        Some(active) => names::serve_service(facts::name(active)),
        None => services::serve_name(&pass.seen.service),
    };
    endpoints::of_service(pass.seen, &service) > 0
}

/// What the upgrade is waiting for.
fn obstacle(pass: &Pass<'_>) -> String {
    let Some(pending) = pass.pending else { return "the pending RayCluster is missing".to_owned() };
    let name = facts::name(pending);
    if !super::serve::is_head_ready(pass, pending) {
        return format!("the head of RayCluster {name} is not ready");
    }
    let known = pass.seen.known(name);
    if let Some(error) = known.and_then(|known| known.put.as_ref()?.result.as_ref().err()) {
        return format!("the Serve configuration is refused by RayCluster {name}: {error}");
    }
    match known.and_then(|known| known.details()) {
        None => format!("the dashboard of RayCluster {name} does not answer"),
        Some(details) if !details.is_running() => {
            let waiting = details.applications.iter().filter(|(_, app)| app.status != "RUNNING");
            let waiting: Vec<String> = waiting.map(|(app, details)| format!("{app} is {}", details.status)).collect();
            match waiting.is_empty() {
                true => format!("RayCluster {name} has no Serve application"),
                false => format!("Serve application {}", waiting.join(", ")),
            }
        }
        Some(_) if pass.is_incremental && !super::gateway::is_open(pass) => {
            "the Gateway or the HTTPRoute is not ready".to_owned()
        }
        Some(_) if endpoints::of_cluster(pass.seen, name) == 0 => {
            format!("no Serve proxy of RayCluster {name} answers")
        }
        Some(_) => "the steps of the upgrade do not advance; see clusterUpgradeOptions".to_owned(),
    }
}
