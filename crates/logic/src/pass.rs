//! One pass over one object: what happens between a wake-up and the last write.
//!
//! ```text
//! observed ─▶ plan ─▶ look up ─┐ ─▶ poll ─▶ events ─▶ stage, stage, … ─▶ events ─▶ status ─▶ wake
//!               ▲──────────────┘
//! ```
//!
//! A [`Pass`] is a pure state machine. It returns what it needs next; its driver does that and
//! reports the result. The operator drives it against an API server, tests against a map.

use crate::action::{Event, ObjectKey, Stage};
use crate::config::Config;
use crate::plan::{Failure, LookUps, LookedUp, Outcome, PlanOf, Reconciled, StatusPlan, Wake, plan};
use jiff::{SignedDuration, Timestamp};

/// How often a plan may ask for more objects. More than that is a bug of the planner.
const LOOK_UP_ROUNDS: usize = 4;
/// The delay before the next pass after writes that no watch shows.
const AFTER_WRITES: SignedDuration = SignedDuration::from_secs(2);
/// The delay before an independent step that failed is tried again.
const AFTER_FAILURE: SignedDuration = SignedDuration::from_secs(10);

/// What a pass needs next.
#[derive(Debug)]
pub enum Need<'p, K: Reconciled> {
    /// Look these objects up and report with [`Pass::looked_up`].
    LookUp(&'p [ObjectKey]),
    /// Poll this at Ray's dashboards from now on, or nothing.
    Poll(Option<&'p K::Poll>),
    /// Publish these events.
    Publish(Vec<Event>),
    /// Carry the steps of this stage out, side by side, and report with [`Pass::executed`].
    Execute(&'p Stage),
    /// Replace the status and report with [`Pass::wrote_status`].
    WriteStatus(&'p K::Status),
    /// Nothing: the pass is over.
    Done(Wake),
}

/// The result of one step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StepResult {
    Done,
    /// The object was already as it should be.
    Unchanged,
    /// The error's text.
    Failed(String),
    /// Not tried, because another step of the stage failed before.
    Skipped,
    /// Not tried, because the object has changed since it was observed.
    Superseded,
}

/// The result of a status write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StatusWrite {
    Done,
    /// The object had this status already.
    Unchanged,
    /// Another client changed or removed the object.
    Conflict,
    Failed,
}

/// One pass over one object.
pub struct Pass<'a, K: Reconciled> {
    seen: &'a K::Observed,
    now: Timestamp,
    /// When the last stage so far was carried out.
    executed: Timestamp,
    config: &'a Config,
    found: LookUps,
    rounds: usize,
    plan: PlanOf<K>,
    state: State,
    /// The stage that is carried out next.
    stage: usize,
    outcome: Outcome,
    /// Events of the steps so far.
    events: Vec<Event>,
    status: Option<K::Status>,
    status_write: Option<StatusWrite>,
}

#[derive(Clone, Copy, Debug)]
enum State {
    LookingUp,
    Planned,
    Polling,
    Executing,
    Reporting,
    Settling,
    Done,
}

impl<'a, K: Reconciled> Pass<'a, K> {
    /// Begins a pass with what was seen and what is known of unwatched objects.
    pub fn begin(seen: &'a K::Observed, found: LookUps, now: Timestamp, config: &'a Config) -> Self {
        Self {
            plan: plan::<K>(seen, &found, now, config),
            seen,
            now,
            executed: now,
            config,
            found,
            rounds: 0,
            state: State::LookingUp,
            stage: 0,
            outcome: Outcome::default(),
            events: Vec::new(),
            status: None,
            status_write: None,
        }
    }

    /// Returns the plan that is carried out.
    pub fn plan(&self) -> &PlanOf<K> {
        &self.plan
    }

    /// Advances to the next need and returns it.
    pub fn advance(&mut self) -> Need<'_, K> {
        loop {
            match self.state {
                State::LookingUp if self.plan.lookups.is_empty() => self.state = State::Planned,
                State::LookingUp if self.rounds == LOOK_UP_ROUNDS => self.state = State::Done,
                State::LookingUp => return Need::LookUp(&self.plan.lookups),
                State::Planned => {
                    self.state = State::Polling;
                    return Need::Poll(self.plan.poll.as_ref());
                }
                State::Polling => {
                    self.state = State::Executing;
                    if !self.plan.events.is_empty() {
                        return Need::Publish(self.plan.events.clone());
                    }
                }
                State::Executing => match self.next_stage() {
                    Some(stage) => return Need::Execute(&self.plan.stages[stage]),
                    None => self.state = State::Reporting,
                },
                State::Reporting => {
                    self.state = State::Settling;
                    self.status = self.settle();
                    if !self.events.is_empty() {
                        return Need::Publish(std::mem::take(&mut self.events));
                    }
                }
                State::Settling => {
                    self.state = State::Done;
                    if self.status.is_some() {
                        return self.status.as_ref().map_or(Need::Done(Wake::BackOff), Need::WriteStatus);
                    }
                }
                State::Done => return Need::Done(self.wake()),
            }
        }
    }

    /// Records the results of the look-ups, in the order of their keys, and plans again.
    pub fn looked_up(&mut self, found: Vec<LookedUp>) {
        self.found.extend(std::mem::take(&mut self.plan.lookups).into_iter().zip(found));
        self.rounds += 1;
        self.plan = plan::<K>(self.seen, &self.found, self.now, self.config);
    }

    /// Records the results of the steps of the stage, in their order, and that they came now.
    pub fn executed(&mut self, results: Vec<StepResult>, now: Timestamp) {
        self.executed = now;
        let stage = &self.plan.stages[self.stage];
        for (step, result) in stage.into_iter().zip(results) {
            match result {
                StepResult::Done => self.events.extend(step.done.clone()),
                StepResult::Unchanged | StepResult::Skipped => {}
                StepResult::Superseded => self.outcome.superseded = true,
                StepResult::Failed(error) => {
                    if let Some(mut event) = step.failed.clone() {
                        event.note.push_str(&error);
                        self.events.push(event);
                    }
                    if step.is_independent {
                        self.outcome.unfinished = true;
                        continue;
                    }
                    // A request that Ray rejects is part of the next observation and does not end the pass.
                    if !step.action.is_ray() && self.outcome.failure_of(stage.controller).is_none() {
                        let (controller, reason) = (stage.controller, step.failure_reason);
                        self.outcome.failures.push(Failure { controller, reason, error });
                    }
                }
            }
        }
        self.stage += 1;
    }

    /// Records the result of the status write.
    pub fn wrote_status(&mut self, result: StatusWrite) {
        self.status_write = Some(result);
    }

    /// Returns the next stage of a controller that has not failed; none once the object has changed.
    fn next_stage(&mut self) -> Option<usize> {
        if self.outcome.superseded {
            return None;
        }
        let goes_on = |stage: &Stage| self.outcome.failure_of(stage.controller).is_none();
        self.stage += self.plan.stages.get(self.stage..)?.iter().position(goes_on)?;
        Some(self.stage)
    }

    /// Returns the status to write after the stages, if it changes. A pass that failed claims nothing that did not
    /// happen.
    fn settle(&self) -> Option<K::Status> {
        match &self.plan.status {
            StatusPlan::Keep => None,
            _ if self.outcome.superseded => None,
            StatusPlan::Write(_) if !self.outcome.failures.is_empty() => None,
            StatusPlan::Write(status) => Some(K::after_writes(status.clone(), self.now, self.executed)),
            StatusPlan::Compute => K::compute_status(self.seen, &self.plan, &self.outcome, self.now, self.config),
        }
    }

    fn wake(&self) -> Wake {
        let gave_up = !self.plan.lookups.is_empty();
        let planned = self.plan.wake;
        match self.status_write {
            _ if !self.outcome.failures.is_empty() => Wake::Refused,
            Some(StatusWrite::Failed) => Wake::BackOff,
            _ if gave_up => Wake::BackOff,
            _ if self.outcome.superseded => Wake::At(self.now),
            // Nothing else wakes an object whose status alone has changed.
            Some(StatusWrite::Conflict) if planned != Wake::BackOff => Wake::OnceShown,
            Some(StatusWrite::Done) if planned != Wake::BackOff && self.follows_from_status() => Wake::OnceShown,
            _ => {
                let wait = if self.outcome.unfinished { AFTER_FAILURE } else { AFTER_WRITES };
                let after_writes = self.now.checked_add(wait).ok();
                planned.or_at(after_writes.filter(|_| !self.plan.stages.is_empty()))
            }
        }
    }

    fn follows_from_status(&self) -> bool {
        self.status.as_ref().is_some_and(|status| K::follows_from(self.seen, status))
    }
}

#[cfg(test)]
mod tests;
