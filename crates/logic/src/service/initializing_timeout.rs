//! The longest that a service may take until it serves, from the annotation `ray.io/initializing-timeout`.
//!
//! A service that took longer gives its clusters back and stays where it is until it is suspended and resumed, or
//! made anew.

use super::conditions::{self, INITIALIZING, INITIALIZING_TIMEOUT, READY};
use super::plan::{Pass, Side};
use crate::action::Event;
use crate::go::duration;
use crate::validate::service::initializing_timeout;

/// Whether the time has run out in an earlier pass: then only the clean-up goes on.
pub(super) fn is_over(pass: &Pass<'_>) -> bool {
    conditions::reason(&pass.status, READY) == Some(INITIALIZING_TIMEOUT) && !conditions::is_true(&pass.status, READY)
}

/// Gives up a service that has been initializing for too long.
pub(super) fn check(pass: &mut Pass<'_>) {
    let annotations = pass.seen.service.metadata.annotations.as_ref();
    let Some(limit) = initializing_timeout(annotations).ok().flatten() else { return };
    let Some(ready) = conditions::get(&pass.status, READY).filter(|ready| ready.reason == INITIALIZING) else {
        return;
    };
    let since = ready.last_transition_time.0;
    let Ok(deadline) = since.checked_add(limit) else { return };
    if !pass.is_past(deadline) {
        return;
    }
    let (limit, spent) = (duration::print(limit), duration::print(pass.now.duration_since(since)));
    for side in [Side::Active, Side::Pending] {
        pass.slot(side).ray_cluster_name = None;
    }
    let message = format!(
        "RayService failed to become ready within the configured timeout of {limit}. Time spent initializing: {spent}"
    );
    conditions::set(pass, READY, "False", INITIALIZING_TIMEOUT, &message);
    pass.event(Event::warning(
        "RayServiceInitializingTimeout",
        "Reconcile",
        format!("RayService initializing timeout exceeded after {spent} (configured timeout: {limit})"),
    ));
    // Nothing of these clusters is of interest any more.
    pass.watch = None;
}
