//! Plans: what to do about one object, as data, and the [`Planner`] that puts them together.
//!
//! The four kinds share one [`Plan`] and one [`Planner`]. What differs between them is in
//! [`Reconciled`]: what is observed, what the status looks like, and who decides.

use crate::action::{Event, ObjectKey, Stage, Step};
use crate::config::Config;
use jiff::{SignedDuration, Timestamp};
use serde_json::Value;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Debug;
use std::sync::Arc;

/// A custom resource that the operator reconciles.
pub trait Reconciled: Sized {
    /// The controller that its events name.
    const CONTROLLER: &'static str;
    /// Everything that a decision depends on, besides time and settings.
    type Observed;
    type Status: Clone + Debug + PartialEq;
    /// What to poll at Ray's dashboards.
    type Poll: Clone + Debug + PartialEq;
    /// Intermediate results of a plan, from which its status is computed.
    type Draft<'a>;

    /// Returns the draft that a plan starts from.
    fn draft<'a>(seen: &'a Self::Observed, config: &'a Config) -> Self::Draft<'a>;

    /// Decides what to do.
    fn decide(planner: &mut Planner<'_, Self>);

    /// Returns what the plan does about the status, once everything is decided.
    fn propose(planner: &mut Planner<'_, Self>) -> StatusPlan<Self::Status>;

    /// Returns whether decisions depend on a status that was just written, so that another pass must follow.
    fn follows_from(_seen: &Self::Observed, _written: &Self::Status) -> bool {
        true
    }

    /// Returns a status that was planned at one time, and whose writes were done at another.
    fn after_writes(status: Self::Status, _planned: Timestamp, _executed: Timestamp) -> Self::Status {
        status
    }

    /// Returns the status after the writes, for plans that ask to [compute](StatusPlan::Compute) it.
    fn compute_status(
        _seen: &Self::Observed,
        _plan: &PlanOf<Self>,
        _outcome: &Outcome,
        _now: Timestamp,
        _config: &Config,
    ) -> Option<Self::Status> {
        None
    }
}

/// The plan for one kind.
pub type PlanOf<K> = Plan<<K as Reconciled>::Status, <K as Reconciled>::Poll>;

/// What to do about one object, and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan<S, P = Infallible> {
    /// Objects that have to be looked up before anything can be decided; the plan holds nothing else then.
    pub lookups: Vec<ObjectKey>,
    /// Writes, in order.
    pub stages: Vec<Stage>,
    /// Events that do not depend on a write.
    pub events: Vec<Event>,
    pub status: StatusPlan<S>,
    /// What to poll at Ray's dashboards; nothing stops the poller.
    pub poll: Option<P>,
    /// Why the pass cannot succeed even if all stages do, by controller.
    pub halts: Vec<Halt>,
    /// What the object is waiting for, in words.
    pub waiting_for: Option<String>,
    pub wake: Wake,
}

/// What a plan does about the status.
#[derive(Clone, Debug, PartialEq)]
pub enum StatusPlan<S> {
    /// Leaves it as it is.
    Keep,
    /// Writes this one, if all stages succeed.
    Write(S),
    /// Computes it after the stages, from their failures too.
    Compute,
}

/// What ends a pass early.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Halt {
    pub controller: &'static str,
    pub error: String,
}

/// When the object must be looked at again, if nothing happens before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wake {
    /// Only when something changes.
    OnChange,
    /// At this time at the latest.
    At(Timestamp),
    /// When the status that was written shows: the next decision depends on it.
    OnceShown,
    /// After the back-off for failed passes.
    BackOff,
    /// After the back-off for writes that were refused.
    Refused,
}

impl Wake {
    /// Returns the earlier of the two; anything but a time comes first.
    pub fn or_at(self, other: Option<Timestamp>) -> Self {
        match (self, other) {
            (Self::At(one), Some(two)) => Self::At(one.min(two)),
            (Self::OnChange, Some(at)) => Self::At(at),
            (wake, _) => wake,
        }
    }
}

/// The outcome of a plan's stages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// The first failure of each controller; its later stages were skipped.
    pub failures: Vec<Failure>,
    /// An independent step failed.
    pub unfinished: bool,
    /// The object changed meanwhile, so the rest of the plan was skipped.
    pub superseded: bool,
}

impl Outcome {
    /// Returns the failure of a controller's stages.
    pub fn failure_of(&self, controller: &str) -> Option<&Failure> {
        self.failures.iter().find(|failure| failure.controller == controller)
    }
}

/// A write that failed.
#[derive(Clone, Debug, PartialEq)]
pub struct Failure {
    pub controller: &'static str,
    /// [`Step::failure_reason`] of the write.
    pub reason: Option<&'static str>,
    /// The API server's message.
    pub error: String,
}

/// Objects that were looked up, by key.
pub type LookUps = BTreeMap<ObjectKey, LookedUp>;

/// The result of looking up one object.
#[derive(Clone, Debug, PartialEq)]
pub enum LookedUp {
    Absent,
    Found(Arc<Value>),
    /// The API server refused or failed; the text is its message.
    Failed(String),
}

/// Puts a plan together.
pub struct Planner<'a, K: Reconciled> {
    pub seen: &'a K::Observed,
    pub now: Timestamp,
    pub config: &'a Config,
    pub draft: K::Draft<'a>,
    pub poll: Option<K::Poll>,
    found: &'a LookUps,
    controller: &'static str,
    stages: Vec<Stage>,
    open: Vec<Step>,
    last: Vec<Step>,
    events: Vec<Event>,
    lookups: Vec<ObjectKey>,
    halts: Vec<Halt>,
    waiting_for: Option<String>,
    wake: Option<Timestamp>,
    back_off: bool,
}

/// Decides what to do about an object: same inputs, same plan.
pub fn plan<K: Reconciled>(seen: &K::Observed, found: &LookUps, now: Timestamp, config: &Config) -> PlanOf<K> {
    let mut planner = Planner::<K> {
        seen,
        now,
        config,
        draft: K::draft(seen, config),
        poll: None,
        found,
        controller: K::CONTROLLER,
        stages: Vec::new(),
        open: Vec::new(),
        last: Vec::new(),
        events: Vec::new(),
        lookups: Vec::new(),
        halts: Vec::new(),
        waiting_for: None,
        wake: None,
        back_off: false,
    };
    K::decide(&mut planner);
    planner.finish()
}

impl<'a, K: Reconciled> Planner<'a, K> {
    /// Plans as another controller, whose failures and halts do not stop this one.
    pub fn act_as(&mut self, controller: &'static str, decide: impl FnOnce(&mut Self)) {
        self.end_stage();
        let before = std::mem::replace(&mut self.controller, controller);
        decide(self);
        self.end_stage();
        self.controller = before;
    }

    /// Adds a write beside those of the open stage.
    pub fn push(&mut self, step: Step) {
        self.open.push(step);
    }

    /// Closes the open stage; later writes wait for it.
    pub fn end_stage(&mut self) {
        let steps = std::mem::take(&mut self.open);
        if !steps.is_empty() {
            self.stages.push(Stage::new(self.controller, steps));
        }
    }

    /// Adds a write that waits for those before it.
    pub fn then(&mut self, step: Step) {
        self.then_all(vec![step]);
    }

    /// Adds writes that wait for those before them, but not for each other.
    pub fn then_all(&mut self, steps: Vec<Step>) {
        self.end_stage();
        self.open = steps;
        self.end_stage();
    }

    /// Adds a write to the last stage, which nothing else waits for.
    pub fn finally(&mut self, step: Step) {
        self.last.push(step);
    }

    /// Publishes an event regardless of the writes.
    pub fn event(&mut self, mut event: Event) {
        event.controller = self.controller;
        self.events.push(event);
    }

    /// Ends the pass of this controller early; it is repeated after a back-off.
    pub fn halt(&mut self, error: impl Into<String>) {
        self.halts.push(Halt { controller: self.controller, error: error.into() });
    }

    /// Returns whether this controller has ended its pass early.
    pub fn is_halted(&self) -> bool {
        self.halts.iter().any(|halt| halt.controller == self.controller)
    }

    /// Requests the look-up of an object that is not watched.
    pub fn look_up(&mut self, key: ObjectKey) {
        self.lookups.push(key);
    }

    /// Returns the result of looking up this object, if there is one.
    pub fn found(&self, key: &ObjectKey) -> Option<&'a LookedUp> {
        self.found.get(key)
    }

    /// Records what the object is waiting for.
    pub fn wait_for(&mut self, what: impl Into<String>) {
        self.waiting_for = Some(what.into());
    }

    /// Requests a pass at this time at the latest; an unrepresentable time is ignored.
    pub fn wake_at(&mut self, moment: impl Into<Option<Timestamp>>) {
        self.wake = [self.wake, moment.into()].into_iter().flatten().min();
    }

    /// Returns whether a time is reached; if not, requests a pass at that time.
    pub fn reached_or_wake_at(&mut self, moment: impl Into<Option<Timestamp>>) -> bool {
        let moment = moment.into();
        let reached = moment.is_some_and(|moment| moment <= self.now);
        if !reached {
            self.wake_at(moment);
        }
        reached
    }

    /// Requests a pass some seconds from now at the latest.
    pub fn wake_after(&mut self, seconds: i64) {
        self.wake_at(self.now.checked_add(SignedDuration::from_secs(seconds)).ok());
    }

    /// Requests a pass after the back-off for failed passes.
    pub fn back_off(&mut self) {
        self.back_off = true;
    }

    /// Returns whether nothing is to be written so far.
    pub fn has_no_writes(&self) -> bool {
        self.stages.is_empty() && self.open.is_empty() && self.last.is_empty()
    }

    fn finish(mut self) -> PlanOf<K> {
        let status = K::propose(&mut self);
        if !self.lookups.is_empty() {
            return Plan {
                lookups: self.lookups,
                stages: Vec::new(),
                events: Vec::new(),
                status: StatusPlan::Keep,
                poll: self.poll,
                halts: Vec::new(),
                waiting_for: None,
                wake: Wake::OnChange,
            };
        }
        let last = std::mem::take(&mut self.last);
        self.then_all(last);
        // A wake in the past would spin: it means that something should have happened in this pass.
        let earliest = self.now.saturating_add(SignedDuration::from_secs(1)).unwrap_or(self.now);
        let wake = match self.wake {
            _ if self.back_off || !self.halts.is_empty() => Wake::BackOff,
            Some(moment) => Wake::At(moment.max(earliest)),
            None => Wake::OnChange,
        };
        Plan {
            lookups: Vec::new(),
            stages: self.stages,
            events: self.events,
            status,
            poll: self.poll,
            halts: self.halts,
            waiting_for: self.waiting_for,
            wake,
        }
    }
}
