//! Conditions: how they are set, and which follow from endpoints and slots.

use super::Planner;
use super::serve::Acceptance;
use super::{Side, initializing_timeout, serve, stalled_upgrade};
use crate::conditions::{self as list, APPLICATIONS_FAILED, READY, UPGRADE_IN_PROGRESS, UPGRADE_STALLED};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use manta_api::RayServiceStatus;

/// Reasons of `Ready` and `UpgradeInProgress` until a service serves for the first time.
pub(super) const INITIALIZING: &str = "Initializing";
pub(super) const INITIALIZING_TIMEOUT: &str = "InitializingTimeout";

/// The reason of `ApplicationsFailed` while Ray does not accept the configuration.
/// The reason of [`APPLICATIONS_FAILED`] while Ray refuses the Serve configuration.
pub(crate) const CONFIG_REFUSED: &str = "ConfigRefused";

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

/// Reports a configuration that Ray refuses while an older one serves, and applications that it has given up on; those
/// of an upgrade are the upgrade's own matter.
fn applications_failed(planner: &mut Planner<'_>) {
    let status = &planner.draft.status;
    let is_active = planner.draft.active_name().is_some();
    let slot = if is_active { &status.active_service_status } else { &status.pending_service_status };
    let all = slot.iter().flat_map(|slot| slot.application_statuses.iter().flatten());
    let failed: Vec<String> = all
        .filter(|(_, application)| application.status.as_deref() == Some("DEPLOY_FAILED"))
        .map(|(name, application)| format!("{name}: {}", shorten(application.message.as_deref().unwrap_or_default())))
        .collect();
    // Before anything serves, the conditions say so, and an event why.
    let refused = match is_active.then(|| serve::acceptance(planner, Side::Active)) {
        Some(Acceptance::Refused(why)) => Some(format!("Ray refuses serveConfigV2: {}", shorten(&why))),
        // After a restart, or while Ray does not reply, what was known last still holds for the same text.
        Some(Acceptance::Unknown) if is_refusal_current(planner) => return,
        Some(Acceptance::Unknown | Acceptance::Accepted) | None => None,
    };
    let reason = if refused.is_some() { CONFIG_REFUSED } else { "DeployFailed" };
    let all: Vec<String> = refused.into_iter().chain(failed).collect();
    if all.is_empty() {
        return remove(planner, APPLICATIONS_FAILED);
    }
    let message: String = all.join("; ").chars().take(MAX_MESSAGE).collect();
    set(planner, APPLICATIONS_FAILED, "True", reason, &message);
}

/// Drops a report that Ray refuses the configuration if the spec has changed since, as then it may be about another text.
pub(super) fn forget_outdated_refusal(planner: &mut Planner<'_>) {
    if reason(&planner.draft.status, APPLICATIONS_FAILED) == Some(CONFIG_REFUSED) && !is_refusal_current(planner) {
        remove(planner, APPLICATIONS_FAILED);
    }
}

/// Returns whether it is reported that Ray refuses the configuration, and the spec is still the same.
fn is_refusal_current(planner: &Planner<'_>) -> bool {
    let generation = planner.seen.service.metadata.generation;
    get(&planner.draft.status, APPLICATIONS_FAILED)
        .is_some_and(|known| known.reason == CONFIG_REFUSED && known.observed_generation == generation)
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
