//! Conditions: how they are set, and which follow from endpoints and slots.

use super::Planner;
use super::{initializing_timeout, stalled_upgrade};
use crate::conditions::{self as list, APPLICATIONS_FAILED, READY, UPGRADE_IN_PROGRESS, UPGRADE_STALLED};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use manta_api::RayServiceStatus;

/// Reasons of `Ready` and `UpgradeInProgress` until a service serves for the first time.
pub(super) const INITIALIZING: &str = "Initializing";
pub(super) const INITIALIZING_TIMEOUT: &str = "InitializingTimeout";

/// Returns the condition of a type.
pub(super) fn get<'a>(status: &'a RayServiceStatus, type_: &str) -> Option<&'a Condition> {
    list::find(status.conditions.as_deref().unwrap_or_default(), type_)
}

/// Returns whether the condition of a type is True.
pub(super) fn is_true(status: &RayServiceStatus, type_: &str) -> bool {
    list::is_true(status.conditions.as_deref().unwrap_or_default(), type_)
}

/// Returns the reason of a condition, if there is one.
pub(super) fn reason<'a>(status: &'a RayServiceStatus, type_: &str) -> Option<&'a str> {
    get(status, type_).map(|condition| condition.reason.as_str())
}

/// Sets a condition, for the generation that the status is about.
pub(super) fn set(planner: &mut Planner<'_>, type_: &str, value: &str, reason: &str, message: &str) {
    let status = &mut planner.draft.status;
    let generation = status.observed_generation.filter(|generation| *generation != 0);
    let conditions = status.conditions.get_or_insert_default();
    list::set(conditions, planner.now, generation, (type_, value, reason, message));
}

/// Removes a condition.
pub(super) fn remove(planner: &mut Planner<'_>, type_: &str) {
    if let Some(conditions) = &mut planner.draft.status.conditions {
        list::remove(conditions, type_);
    }
}

/// Sets the conditions that every full pass ends with.
pub(super) fn finish(planner: &mut Planner<'_>) {
    if planner.draft.status.conditions.as_ref().is_none_or(Vec::is_empty) {
        let message = "RayService is initializing";
        set(planner, READY, "False", INITIALIZING, message);
        set(planner, UPGRADE_IN_PROGRESS, "False", INITIALIZING, message);
    }
    if planner.draft.status.num_serve_endpoints.unwrap_or(0) > 0 {
        set(planner, READY, "True", "NonZeroServeEndpoints", "Number of serve endpoints is greater than 0");
    } else if is_true(&planner.draft.status, READY) {
        set(planner, READY, "False", "ZeroServeEndpoints", "Number of serve endpoints dropped to 0");
    } else {
        initializing_timeout::check(planner);
    }
    upgrade_in_progress(planner);
    applications_failed(planner);
}

/// Reports applications that Ray has given up on; those of an upgrade are the upgrade's own matter.
fn applications_failed(planner: &mut Planner<'_>) {
    let status = &planner.draft.status;
    let has_active = planner.draft.active_name().is_some();
    let slot = if has_active { &status.active_service_status } else { &status.pending_service_status };
    let all = slot.iter().flat_map(|slot| slot.application_statuses.iter().flatten());
    let failed: Vec<String> = all
        .filter(|(_, application)| application.status.as_deref() == Some("DEPLOY_FAILED"))
        .map(|(name, application)| format!("{name}: {}", shorten(application.message.as_deref().unwrap_or_default())))
        .collect();
    if failed.is_empty() {
        return remove(planner, APPLICATIONS_FAILED);
    }
    let message: String = failed.join("; ").chars().take(MAX_MESSAGE).collect();
    set(planner, APPLICATIONS_FAILED, "True", "DeployFailed", &message);
}

/// The most characters of a condition's message that the API server accepts.
const MAX_MESSAGE: usize = 32_768;

/// Leaves out the middle of a long traceback: it begins with what failed and ends with the error. The whole text is in
/// `applicationStatuses`.
fn shorten(message: &str) -> String {
    const BEGINNING: usize = 300;
    const END: usize = 700;
    let chars: Vec<char> = message.trim_end().chars().collect();
    if chars.len() <= BEGINNING + END {
        return chars.into_iter().collect();
    }
    let (beginning, end) = (&chars[..BEGINNING], &chars[chars.len() - END..]);
    beginning.iter().chain(&['…']).chain(end).collect()
}

fn upgrade_in_progress(planner: &mut Planner<'_>) {
    let names = (planner.draft.active_name().is_some(), planner.draft.has_pending_name());
    if names != (true, true) || planner.draft.is_rolling_back() {
        remove(planner, UPGRADE_STALLED);
    }
    match names {
        (true, true) => set(
            planner,
            UPGRADE_IN_PROGRESS,
            "True",
            "BothActivePendingClustersExist",
            "Both active and pending Ray clusters exist",
        ),
        (true, false) if stalled_upgrade::was_given_up(planner) => {}
        (true, false) => set(
            planner,
            UPGRADE_IN_PROGRESS,
            "False",
            "NoPendingCluster",
            "Active Ray cluster exists and no pending Ray cluster",
        ),
        (false, _) => {
            let is_starting = reason(&planner.draft.status, UPGRADE_IN_PROGRESS)
                .is_some_and(|reason| reason == INITIALIZING || reason == INITIALIZING_TIMEOUT);
            if !is_starting {
                set(
                    planner,
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
