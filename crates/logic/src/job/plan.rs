//! The decision about one RayJob: what comes before the phase, and which phase decides.

use super::dashboard::Watch;
use super::deadline::after;
use super::mode::Mode;
use super::observed::Observed;
use super::phase::{Phase, deployment, reason};
use super::status::{Draft, text, time};
use super::{deletion_rules, finalize, initializing, running, start, suspend};
use crate::action::{Event, Stage, Step, Wake};
use crate::config::Config;
use crate::labels;
use crate::validate::validate_job;
use jiff::Timestamp;
use manta_api::RayJobStatus;

/// What to do about one RayJob.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// Writes, in order.
    pub stages: Vec<Stage>,
    /// The status to write when the stages are done, if it changes.
    pub status: Option<RayJobStatus>,
    /// Events that do not depend on a write.
    pub events: Vec<Event>,
    /// Which Ray job to follow; none stops the poller.
    pub dashboard: Option<Watch>,
    /// The attempt that ended, for the metrics.
    pub execution: Option<Execution>,
    /// What is being waited for, in words.
    pub waiting: Option<String>,
    pub wake: Wake,
}

/// How long an attempt took.
#[derive(Clone, Debug, PartialEq)]
pub struct Execution {
    /// `Complete`, `Failed` or `Retrying`.
    pub job_deployment_status: String,
    /// Failures before this attempt.
    pub retry_count: i32,
    pub seconds: f64,
}

/// Decides the next step for one RayJob: same inputs, same plan.
pub fn plan(seen: &Observed, now: Timestamp, config: &Config) -> Plan {
    let mut pass = Pass::new(seen, now, config);
    decide(&mut pass);
    pass.finish()
}

fn decide(pass: &mut Pass<'_>) {
    let spec = &pass.seen.job.spec;
    if !labels::is_managed_by_self(spec.managed_by.as_deref()) {
        return;
    }
    // A mode that nobody knows must not keep an object from being deleted.
    let mode = Mode::of(spec);
    if pass.seen.job.metadata.deletion_timestamp.is_some() {
        finalize::plan(pass);
        return;
    }
    if let Err(invalid) = validate_job(&pass.seen.job, pass.config) {
        pass.refuse(invalid.reason(), invalid.text);
        return;
    }
    let mode = match mode {
        Ok(mode) => mode,
        Err(unknown) => {
            let message = format!(
                "The RayJob spec is invalid: submissionMode {unknown:?} is not one of K8sJobMode, HTTPMode, \
                 InteractiveMode and SidecarMode"
            );
            pass.refuse("InvalidRayJobSpec", message);
            return;
        }
    };
    let phase = Phase::read(&pass.seen.job, mode);
    pass.leave_invalid(&phase);
    match phase {
        Phase::New => start::plan(pass, mode),
        Phase::Initializing(attempt) => initializing::plan(pass, mode, &attempt),
        Phase::Waiting(attempt) => initializing::plan_waiting(pass, &attempt),
        Phase::Running(attempt, address) => running::plan(pass, mode, &attempt, &address),
        Phase::Suspending => suspend::plan_teardown(pass, mode, deployment::SUSPENDED),
        Phase::Retrying => suspend::plan_teardown(pass, mode, deployment::NEW),
        Phase::Suspended => suspend::plan_suspended(pass),
        Phase::Finished(finish) => deletion_rules::plan(pass, finish),
    }
}

/// A plan in the making.
pub(super) struct Pass<'a> {
    pub(super) seen: &'a Observed,
    pub(super) now: Timestamp,
    pub(super) config: &'a Config,
    pub(super) draft: Draft,
    pub(super) watch: Option<Watch>,
    stages: Vec<Stage>,
    events: Vec<Event>,
    waiting: Option<String>,
    wake: Option<Timestamp>,
    back_off: bool,
}

impl<'a> Pass<'a> {
    fn new(seen: &'a Observed, now: Timestamp, config: &'a Config) -> Self {
        Self {
            seen,
            now,
            config,
            draft: Draft::of(seen.job.status.as_ref()),
            watch: None,
            stages: Vec::new(),
            events: Vec::new(),
            waiting: None,
            wake: None,
            back_off: false,
        }
    }

    /// Adds a write that waits for those before it.
    pub(super) fn then(&mut self, step: Step) {
        self.stages.push(vec![step]);
    }

    pub(super) fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Says what is being waited for.
    pub(super) fn wait_for(&mut self, what: impl Into<String>) {
        self.waiting = Some(what.into());
    }

    /// Comes back at this time at the latest.
    pub(super) fn wake_at(&mut self, moment: Option<Timestamp>) {
        self.wake = [self.wake, moment].into_iter().flatten().min();
    }

    /// Comes back after the back-off for passes that failed.
    pub(super) fn back_off(&mut self) {
        self.back_off = true;
    }

    /// Whether a moment has come; if not, the plan wakes then.
    pub(super) fn is_past(&mut self, moment: Option<Timestamp>) -> bool {
        let past = moment.is_some_and(|moment| moment <= self.now);
        if !past {
            self.wake_at(moment);
        }
        past
    }

    /// `<namespace>/<name>` of something in the RayJob's namespace.
    pub(super) fn path(&self, name: &str) -> String {
        format!("{}/{name}", self.seen.namespace())
    }

    fn refuse(&mut self, event_reason: &'static str, message: String) {
        let note = format!("{}: {message}", self.path(self.seen.name()));
        self.event(Event::warning(event_reason, "Validate", note));
        self.draft.enter(deployment::VALIDATION_FAILED);
        self.draft.now.reason = text(reason::VALIDATION_FAILED);
        self.draft.now.message = text(message);
    }

    /// The spec is valid again: says where the job stands, and no longer what was wrong.
    fn leave_invalid(&mut self, phase: &Phase) {
        let known = match phase {
            Phase::New => deployment::NEW,
            Phase::Initializing(_) => deployment::INITIALIZING,
            Phase::Waiting(_) => deployment::WAITING,
            Phase::Running(..) => deployment::RUNNING,
            Phase::Suspending => deployment::SUSPENDING,
            Phase::Suspended => deployment::SUSPENDED,
            Phase::Retrying => deployment::RETRYING,
            Phase::Finished(finish) if finish.failed => deployment::FAILED,
            Phase::Finished(_) => deployment::COMPLETE,
        };
        if self.draft.now.job_deployment_status.as_deref().unwrap_or_default() == known {
            return;
        }
        self.draft.enter(known);
        if self.draft.now.reason.as_deref() == Some(reason::VALIDATION_FAILED) {
            self.draft.now.reason = None;
            self.draft.now.message = None;
        }
    }

    fn finish(self) -> Plan {
        let execution = self.draft.ended_attempt().map(|status| {
            let started = time(&self.draft.now.start_time).unwrap_or(self.now);
            let failed_now = i32::from(status != deployment::COMPLETE);
            Execution {
                job_deployment_status: status.to_owned(),
                retry_count: self.draft.now.failed.unwrap_or(0).saturating_sub(failed_now),
                seconds: self.now.duration_since(started).as_secs_f64(),
            }
        });
        // A wake in the past would spin: it means that something should have happened in this pass.
        let wake = self.wake.map(|moment| moment.max(after(self.now, 1).unwrap_or(self.now)));
        Plan {
            stages: self.stages,
            status: self.draft.finish(),
            events: self.events,
            dashboard: self.watch,
            execution,
            waiting: self.waiting,
            wake: match (self.back_off, wake) {
                (true, _) => Wake::BackOff,
                (false, Some(moment)) => Wake::At(moment),
                (false, None) => Wake::OnChange,
            },
        }
    }
}
