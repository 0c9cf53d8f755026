//! Objects that may exist before the cluster needs them, with or without its label.
//!
//! Watches show what carries the label or is owned by the cluster. Anything else of the same name is looked up before it
//! would be created.

use super::Planner;
use crate::action::Kind;
use crate::plan::LookedUp;
use crate::view::WholeView;
use serde::Deserialize;
use std::sync::Arc;

/// What is known about an object that the cluster needs.
pub(super) enum Existing {
    Found(Arc<WholeView>),
    Absent,
    /// It is being created or looked up; the next plan knows.
    Unknown,
}

/// Returns what is known about an object. One that cannot be looked up counts as absent: creating it shows the error.
pub(super) fn find(planner: &mut Planner<'_>, kind: Kind, name: &str) -> Existing {
    let seen = planner.seen;
    if let Some(live) = seen.related(kind, name) {
        return Existing::Found(Arc::clone(live));
    }
    if seen.in_flight.is_creating(kind, name) {
        return Existing::Unknown;
    }
    let key = seen.key(kind, name);
    match planner.found(&key) {
        None => {
            planner.look_up(key);
            Existing::Unknown
        }
        Some(LookedUp::Found(object)) => match WholeView::deserialize(&**object) {
            Ok(live) => Existing::Found(Arc::new(live)),
            Err(_) => Existing::Absent,
        },
        Some(LookedUp::Absent | LookedUp::Failed(_)) => Existing::Absent,
    }
}
