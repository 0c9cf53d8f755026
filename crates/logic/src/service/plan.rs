//! The next step for one RayService: the order of decisions.
//!
//! ```text
//! not ours ─▶ nothing      dangling clusters ─▶ go after their delay      deleting ─▶ finalizer
//! invalid ─▶ one warning   suspend ─▶ everything goes                     timed out ─▶ nothing
//! RayClusters ─▶ rollback ─▶ head labels ─▶ Serve ─▶ Gateway, route ─▶ Services ─▶ status
//! ```

use super::dashboard::Watch;
use super::observed::Observed;
use super::{
    cleanup, clusters, conditions, gateway, initializing_timeout, progress, rollback, serve, serve_labels, services,
    status, suspend, upgrade,
};
use crate::action::{Event, Kind, ObjectKey, Stage, Step, Wake};
use crate::config::Config;
use crate::hash::service_hash;
use crate::labels;
use crate::validate::service::is_incremental_upgrade;
use crate::validate::validate_service;
use jiff::{SignedDuration, Timestamp};
use manta_api::{ClusterServeStatus, RayCluster, RayServiceStatus};

/// How long after a failure it is tried again.
const TRY_AGAIN: SignedDuration = SignedDuration::from_secs(5);

/// What to do for one RayService, and when to look again.
#[derive(Clone, Debug, PartialEq)]
pub struct Plan {
    /// What to do, in order.
    pub stages: Vec<Stage>,
    /// What to tell whatever becomes of the stages.
    pub events: Vec<Event>,
    /// The status to write when the stages are done, if it changes.
    pub status: Option<RayServiceStatus>,
    /// The clusters whose Serve is followed; none stops the poller.
    pub dashboard: Option<Watch>,
    /// Objects that must be looked up before anything can be decided; the plan holds nothing else then.
    pub look_up: Vec<ObjectKey>,
    /// What is being waited for, in words.
    pub waiting: Option<String>,
    pub wake: Wake,
}

/// Decides the next step for one RayService: same inputs, same plan.
pub fn plan(seen: &Observed, now: Timestamp, config: &Config) -> Plan {
    let mut pass = Pass::new(seen, now, config);
    decide(&mut pass);
    pass.finish()
}

fn decide(pass: &mut Pass<'_>) {
    let service = &pass.seen.service;
    if !labels::is_managed_by_self(service.spec.managed_by.as_deref()) {
        return;
    }
    cleanup::plan(pass);
    if service.metadata.deletion_timestamp.is_some() {
        return cleanup::release(pass);
    }
    if cleanup::add_finalizer(pass) {
        return;
    }
    if let Err(invalid) = validate_service(service, pass.config) {
        pass.event(invalid.event(pass.seen.namespace(), pass.seen.name()));
        conditions::set(pass, conditions::READY, "False", "ValidationFailed", &invalid.text);
        return;
    }
    if suspend::plan(pass) == suspend::Then::Stop || initializing_timeout::is_over(pass) {
        return;
    }
    if upgrade::is_reverted(pass) {
        pass.drop_pending();
    }
    clusters::plan(pass);
    rollback::decide(pass);
    progress::plan(pass);
    serve_labels::plan(pass);
    let ready = serve::plan(pass);
    let route = gateway::plan(pass, ready);
    let serving = services::plan(pass, ready);
    status::finish(pass, serving.as_deref(), route);
}

/// One of the two clusters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Active,
    Pending,
}

/// A plan in the making.
pub(super) struct Pass<'a> {
    pub(super) seen: &'a Observed,
    pub(super) now: Timestamp,
    pub(super) config: &'a Config,
    /// The status in the making.
    pub(super) status: RayServiceStatus,
    /// The active RayCluster, if it is there to stay.
    pub(super) active: Option<&'a RayCluster>,
    /// The pending RayCluster, if it is there to stay.
    pub(super) pending: Option<&'a RayCluster>,
    /// The hash of the cluster that is wanted now.
    pub(super) goal: String,
    /// Whether upgrades move traffic step by step.
    pub(super) is_incremental: bool,
    /// Whether the status said, before this pass, that an upgrade is in progress.
    pub(super) is_upgrading: bool,
    pub(super) watch: Option<Watch>,
    stages: Vec<Stage>,
    last: Stage,
    events: Vec<Event>,
    look_up: Vec<ObjectKey>,
    waiting: Option<String>,
    wake: Option<Timestamp>,
}

impl<'a> Pass<'a> {
    fn new(seen: &'a Observed, now: Timestamp, config: &'a Config) -> Self {
        let status = seen.service.status.clone().unwrap_or_default();
        let cluster = |slot: &Option<ClusterServeStatus>| seen.cluster(name_of(slot)?);
        Self {
            active: cluster(&status.active_service_status),
            pending: cluster(&status.pending_service_status),
            goal: service_hash(&seen.service.spec.ray_cluster_config),
            is_incremental: is_incremental_upgrade(&seen.service.spec, config),
            is_upgrading: conditions::is_true(&status, conditions::UPGRADE_IN_PROGRESS),
            status,
            seen,
            now,
            config,
            watch: None,
            stages: Vec::new(),
            last: Vec::new(),
            events: Vec::new(),
            look_up: Vec::new(),
            waiting: None,
            wake: None,
        }
    }

    /// Adds a write that waits for those before it.
    pub(super) fn then(&mut self, step: Step) {
        self.stages.push(vec![step]);
    }

    /// Adds writes that wait for those before them, but not for each other.
    pub(super) fn then_all(&mut self, stage: Stage) {
        if !stage.is_empty() {
            self.stages.push(stage);
        }
    }

    /// Adds a write that nothing else waits for.
    pub(super) fn in_the_end(&mut self, step: Step) {
        self.last.push(step);
    }

    pub(super) fn event(&mut self, event: Event) {
        self.events.push(event);
    }

    /// Asks for an object that is not watched as a whole.
    pub(super) fn look_up(&mut self, key: ObjectKey) {
        self.look_up.push(key);
    }

    /// Says what is being waited for.
    pub(super) fn wait_for(&mut self, what: impl Into<String>) {
        self.waiting = Some(what.into());
    }

    /// Whether a moment has come; if not, the plan wakes then.
    pub(super) fn is_past(&mut self, moment: Timestamp) -> bool {
        let past = moment <= self.now;
        if !past {
            self.wake = Some(self.wake.map_or(moment, |wake| wake.min(moment)));
        }
        past
    }

    /// Comes back after a failure that no write tells of.
    pub(super) fn try_again(&mut self) {
        self.is_past(self.now.saturating_add(TRY_AGAIN).unwrap_or(self.now));
    }

    /// An object in the RayService's namespace.
    pub(super) fn key(&self, kind: Kind, name: &str) -> ObjectKey {
        ObjectKey::new(kind, self.seen.namespace(), name)
    }

    pub(super) fn active_name(&self) -> Option<&str> {
        name_of(&self.status.active_service_status)
    }

    pub(super) fn pending_name(&self) -> Option<&str> {
        name_of(&self.status.pending_service_status)
    }

    pub(super) fn has_pending_name(&self) -> bool {
        self.pending_name().is_some()
    }

    pub(super) fn cluster(&self, side: Side) -> Option<&'a RayCluster> {
        match side {
            Side::Active => self.active,
            Side::Pending => self.pending,
        }
    }

    pub(super) fn slot(&mut self, side: Side) -> &mut ClusterServeStatus {
        match side {
            Side::Active => self.status.active_service_status.get_or_insert_default(),
            Side::Pending => self.status.pending_service_status.get_or_insert_default(),
        }
    }

    /// Gives the pending cluster up; it becomes dangling.
    pub(super) fn drop_pending(&mut self) {
        self.status.pending_service_status = None;
        self.pending = None;
    }

    pub(super) fn is_rolling_back(&self) -> bool {
        conditions::is_true(&self.status, conditions::ROLLBACK_IN_PROGRESS)
    }

    /// The cluster that the head Service leads to.
    pub(super) fn served_cluster(&self) -> Option<&'a str> {
        let service = self.seen.service(&crate::names::owner_head_service(self.seen.name()))?;
        service.spec.selector.get(labels::CLUSTER)
    }

    /// Comes back soon: not everything that is waited for can be seen to change.
    fn come_back_soon(&mut self) {
        let is_settled = conditions::is_true(&self.status, conditions::READY) && !self.has_pending_name();
        let seconds = match (self.stages.is_empty() && self.last.is_empty(), is_settled) {
            (false, _) => 2,
            (true, false) if self.watch.is_some() => 5,
            (true, _) => return,
        };
        if let Ok(moment) = self.now.checked_add(SignedDuration::from_secs(seconds)) {
            self.is_past(moment);
        }
    }

    fn finish(mut self) -> Plan {
        self.come_back_soon();
        let status = status::news(&self);
        if !self.look_up.is_empty() {
            return Plan {
                stages: Vec::new(),
                events: Vec::new(),
                status: None,
                dashboard: self.watch,
                look_up: self.look_up,
                waiting: None,
                wake: Wake::OnChange,
            };
        }
        let last = std::mem::take(&mut self.last);
        self.then_all(last);
        // A wake in the past would spin.
        let earliest = self.now.saturating_add(SignedDuration::from_secs(1)).unwrap_or(self.now);
        Plan {
            stages: self.stages,
            events: self.events,
            status,
            dashboard: self.watch,
            look_up: Vec::new(),
            waiting: self.waiting,
            wake: self.wake.map_or(Wake::OnChange, |moment| Wake::At(moment.max(earliest))),
        }
    }
}

/// The cluster that a slot names.
pub(super) fn name_of(slot: &Option<ClusterServeStatus>) -> Option<&str> {
    slot.as_ref()?.ray_cluster_name.as_deref().filter(|name| !name.is_empty())
}
