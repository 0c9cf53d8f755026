//! Conditions: how they are set, and which follow from endpoints and slots.

use super::initializing_timeout;
use super::plan::Pass;
use super::progress;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use manta_api::RayServiceStatus;

pub(super) const READY: &str = "Ready";
pub(super) const UPGRADE_IN_PROGRESS: &str = "UpgradeInProgress";
pub(super) const ROLLBACK_IN_PROGRESS: &str = "RollbackInProgress";
/// Ours alone, and there only while an upgrade stands still.
pub(super) const UPGRADE_STALLED: &str = "UpgradeStalled";
pub(super) const SUSPENDING: &str = "Suspending";
pub(super) const SUSPENDED: &str = "Suspended";

pub(super) const INITIALIZING: &str = "Initializing";
pub(super) const INITIALIZING_TIMEOUT: &str = "InitializingTimeout";

/// The condition of a type.
pub(super) fn get<'a>(status: &'a RayServiceStatus, type_: &str) -> Option<&'a Condition> {
    status.conditions.iter().flatten().find(|condition| condition.type_ == type_)
}

pub(super) fn is_true(status: &RayServiceStatus, type_: &str) -> bool {
    get(status, type_).is_some_and(|condition| condition.status == "True")
}

/// The reason of a condition, if there is one.
pub(super) fn reason<'a>(status: &'a RayServiceStatus, type_: &str) -> Option<&'a str> {
    get(status, type_).map(|condition| condition.reason.as_str())
}

/// Sets a condition; its time moves only with its status.
pub(super) fn set(pass: &mut Pass<'_>, type_: &str, value: &str, reason: &str, message: &str) {
    let observed_generation = pass.status.observed_generation.filter(|generation| *generation != 0);
    let list = pass.status.conditions.get_or_insert_default();
    let place = list.iter().position(|condition| condition.type_ == type_);
    let known = place.map(|place| &list[place]).filter(|condition| condition.status == value);
    let condition = Condition {
        last_transition_time: known.map_or(Time(pass.now), |condition| condition.last_transition_time.clone()),
        message: message.to_owned(),
        observed_generation,
        reason: reason.to_owned(),
        status: value.to_owned(),
        type_: type_.to_owned(),
    };
    match place {
        Some(place) => list[place] = condition,
        None => list.push(condition),
    }
}

pub(super) fn remove(pass: &mut Pass<'_>, type_: &str) {
    if let Some(list) = &mut pass.status.conditions {
        list.retain(|condition| condition.type_ != type_);
    }
}

/// The conditions that every full pass ends with.
pub(super) fn work_out(pass: &mut Pass<'_>) {
    if pass.status.conditions.as_ref().is_none_or(Vec::is_empty) {
        let message = "RayService is initializing";
        set(pass, READY, "False", INITIALIZING, message);
        set(pass, UPGRADE_IN_PROGRESS, "False", INITIALIZING, message);
    }
    if pass.status.num_serve_endpoints.unwrap_or(0) > 0 {
        set(pass, READY, "True", "NonZeroServeEndpoints", "Number of serve endpoints is greater than 0");
    } else if is_true(&pass.status, READY) {
        set(pass, READY, "False", "ZeroServeEndpoints", "Number of serve endpoints dropped to 0");
    } else {
        initializing_timeout::check(pass);
    }
    upgrade_in_progress(pass);
}

fn upgrade_in_progress(pass: &mut Pass<'_>) {
    let names = (pass.active_name().is_some(), pass.has_pending_name());
    if names != (true, true) || pass.is_rolling_back() {
        remove(pass, UPGRADE_STALLED);
    }
    match names {
        (true, true) => set(
            pass,
            UPGRADE_IN_PROGRESS,
            "True",
            "BothActivePendingClustersExist",
            "Both active and pending Ray clusters exist",
        ),
        (true, false) if progress::was_given_up(pass) => {}
        (true, false) => set(
            pass,
            UPGRADE_IN_PROGRESS,
            "False",
            "NoPendingCluster",
            "Active Ray cluster exists and no pending Ray cluster",
        ),
        (false, _) => {
            let is_starting = reason(&pass.status, UPGRADE_IN_PROGRESS)
                .is_some_and(|reason| reason == INITIALIZING || reason == INITIALIZING_TIMEOUT);
            if !is_starting {
                set(
                    pass,
                    UPGRADE_IN_PROGRESS,
                    "Unknown",
                    "NoActiveCluster",
                    "No active Ray cluster exists, and the RayService is not initializing. Please open a GitHub issue \
                     in the KubeRay repository.",
                );
            }
        }
    }
}
