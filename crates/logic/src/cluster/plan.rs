//! The next step for one RayCluster: the order of decisions.
//!
//! ```text
//! not ours ─▶ nothing        deleting ─▶ deletion        invalid ─▶ one warning
//! finalizer ─▶ prerequisites (RBAC, ingress, secret, services, claim) ─▶ Pods
//! ```
//! Everything before the Pods is made first; what cannot be made ends the pass there.

use super::observed::Observed;
use super::{auth, deletion, ingress, pods, rbac, services, storage};
use crate::action::{Event, ObjectKey, Stage, Step, Wake};
use crate::config::Config;
use crate::labels::is_managed_by_self;
use crate::validate::ValidCluster;
use jiff::Timestamp;

/// What to do for one RayCluster, and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What to do, in order.
    pub stages: Vec<Stage>,
    /// What to tell whatever becomes of the stages.
    pub events: Vec<Event>,
    /// Why the pass cannot succeed even if all stages do.
    pub halt: Option<Halt>,
    /// Objects that must be looked up before anything can be decided; the plan holds nothing else then.
    pub look_up: Vec<ObjectKey>,
    /// Whether the status is worked out after this pass.
    pub status: StatusUpdate,
    pub wake: Wake,
}

/// What ends a pass early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halt {
    /// How it shows in the `ReplicaFailure` condition, if at all.
    pub reason: Option<&'static str>,
    pub error: String,
}

/// Whether a pass ends with a look at the status.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusUpdate {
    Keep,
    Compute,
}

/// Decides the next step for one RayCluster: same inputs, same plan.
pub fn plan(seen: &Observed, now: Timestamp, cfg: &Config) -> Plan {
    if !is_ours(seen) {
        return Draft::default().keep_status();
    }
    // Before validation, unlike in KubeRay: an invalid spec must not keep a cluster from going.
    if seen.cluster.metadata.deletion_timestamp.is_some() {
        return deletion::plan(seen, now, cfg).keep_status();
    }
    let valid = match ValidCluster::check(&seen.cluster, cfg) {
        Ok(valid) => valid,
        Err(invalid) => {
            let mut draft = Draft::default();
            draft.events.push(invalid.event(seen.namespace(), seen.name()));
            return draft.keep_status();
        }
    };
    let mut draft = Draft::default();
    draft.events.extend(valid.restart_policy_warning());
    if let Err(invalid) = valid.check_status() {
        draft.events.push(invalid.event(seen.namespace(), seen.name()));
        draft.halt = Some(Halt { reason: None, error: invalid.to_string() });
        return draft.keep_status();
    }
    if let Some(add) = deletion::add_finalizer(seen, cfg) {
        draft.stages.push(vec![add]);
        return draft.keep_status();
    }
    for decide in [rbac::plan, ingress::plan, auth::plan, services::plan, storage::plan] {
        decide(seen, &valid, cfg, &mut draft);
        if draft.halt.is_some() {
            return draft.finish();
        }
    }
    draft.end_stage();
    pods::plan(seen, &valid, now, cfg, &mut draft);
    draft.finish()
}

/// Whether this operator is the one to act: `managedBy` absent or our name.
pub fn is_ours(seen: &Observed) -> bool {
    is_managed_by_self(seen.cluster.spec.managed_by.as_deref())
}

/// A plan in the making.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) stages: Vec<Stage>,
    stage: Stage,
    pub(super) events: Vec<Event>,
    pub(super) halt: Option<Halt>,
    look_up: Vec<ObjectKey>,
    wake: Option<Timestamp>,
}

impl Draft {
    /// Adds an action to the current stage.
    pub(super) fn push(&mut self, step: Step) {
        self.stage.push(step);
    }

    /// Closes the current stage: what follows waits for it.
    pub(super) fn end_stage(&mut self) {
        if !self.stage.is_empty() {
            self.stages.push(std::mem::take(&mut self.stage));
        }
    }

    /// Ends the pass: nothing more is decided.
    pub(super) fn halt(&mut self, error: impl Into<String>) {
        self.halt = Some(Halt { reason: None, error: error.into() });
    }

    /// Asks for an object that is not watched.
    pub(super) fn look_up(&mut self, key: ObjectKey) {
        self.look_up.push(key);
    }

    /// Asks to be woken at this time at the latest.
    pub(super) fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }

    /// The plan, with a look at the status in the end.
    pub(super) fn finish(self) -> Plan {
        self.into_plan(StatusUpdate::Compute)
    }

    /// The plan, with the status left as it is.
    pub(super) fn keep_status(self) -> Plan {
        self.into_plan(StatusUpdate::Keep)
    }

    fn into_plan(mut self, status: StatusUpdate) -> Plan {
        self.end_stage();
        if !self.look_up.is_empty() {
            return Plan {
                stages: Vec::new(),
                events: Vec::new(),
                halt: None,
                look_up: self.look_up,
                status: StatusUpdate::Keep,
                wake: Wake::OnChange,
            };
        }
        let wake = match (&self.halt, self.wake) {
            (Some(_), _) => Wake::BackOff,
            (None, Some(at)) => Wake::At(at),
            (None, None) => Wake::OnChange,
        };
        Plan { stages: self.stages, events: self.events, halt: self.halt, look_up: Vec::new(), status, wake }
    }
}
