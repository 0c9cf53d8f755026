//! The longest that a service may take until it serves, from the annotation `ray.io/initializing-timeout`.
//!
//! A service that takes longer deletes its clusters and does nothing until it is suspended and resumed, or
//! recreated.

use super::conditions::{self, INITIALIZING, INITIALIZING_TIMEOUT};
use super::{Planner, Side};
use crate::action::Event;
use crate::conditions::READY;
use crate::go::duration;
use crate::reasons;
use crate::validate::service::initializing_timeout;

/// Returns whether the time has run out in an earlier pass, after which only the clean-up continues.
pub(super) fn is_over(planner: &Planner<'_>) -> bool {
    conditions::reason(&planner.draft.status, READY) == Some(INITIALIZING_TIMEOUT)
        && !conditions::is_true(&planner.draft.status, READY)
}

/// Gives up a service that has been initializing for too long.
pub(super) fn check(planner: &mut Planner<'_>) {
    let annotations = planner.seen.service.metadata.annotations.as_ref();
    let Some(limit) = initializing_timeout(annotations).ok().flatten() else { return };
    let Some(ready) = conditions::get(&planner.draft.status, READY).filter(|ready| ready.reason == INITIALIZING) else {
        return;
    };
    let since = ready.last_transition_time.0;
    let Ok(deadline) = since.checked_add(limit) else { return };
    if !planner.reached_or_wake_at(deadline) {
        return;
    }
    let (limit, spent) = (duration::print(limit), duration::print(planner.now.duration_since(since)));
    for side in [Side::Active, Side::Pending] {
        planner.draft.slot(side).ray_cluster_name = None;
    }
    let message = format!(
        "RayService failed to become ready within the configured timeout of {limit}. Time spent initializing: {spent}"
    );
    conditions::set(planner, READY, "False", INITIALIZING_TIMEOUT, &message);
    planner.event(Event::warning(
        reasons::RAY_SERVICE_INITIALIZING_TIMEOUT,
        "Reconcile",
        format!("RayService initializing timeout exceeded after {spent} (configured timeout: {limit})"),
    ));
    // These clusters are no longer polled.
    planner.poll = None;
}
