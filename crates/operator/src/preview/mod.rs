//! Previews what the operator would do, without writing anything.
//!
//! ```text
//! lists, manifests ──▶ World ─observe▶ Observed ─pass▶ writes ─┐
//!                        ▲─────────────────────────────────────┘
//! ```
//!
//! The same observations and the same [`Pass`] as the operator's run against objects in memory. Writes take effect
//! there, and passes follow until there is nothing left to do before a Pod, Ray or a user does something. Ray is not
//! asked, so what would follow from its replies is not shown.

mod cluster;
mod world;

pub use cluster::{Cluster, PreviewError};

use crate::clock::LocalZone;
use crate::dashboard::poller::Pollers;
use crate::dashboard::{self, Route};
use crate::in_flight::InFlightWrites;
use crate::observe::{Observation, Observe, Sources};
use cluster::{Listed, key_of};
use jiff::Timestamp;
use kube::Resource;
use manta_api::{RayCluster, RayCronJob, RayJob, RayService};
use manta_logic::action::{Action, Event, EventKind, Kind, ObjectKey, Stage};
use manta_logic::config::Config;
use manta_logic::explain::Unreadable;
use manta_logic::job::dashboard::JobPoll;
use manta_logic::pass::{Need, Pass, StatusWrite, StepResult};
use manta_logic::plan::{LookUps, LookedUp};
use manta_logic::service::dashboard::ServePoll;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use world::World;

/// How many rounds of passes are made. Creating a RayService and all that belongs to it takes four.
const ROUNDS: usize = 16;

/// The objects whose passes are previewed, with the Ray objects that they control.
pub enum Scope {
    All,
    Objects(Vec<ObjectKey>),
}

/// What the operator would do, in order.
#[derive(Debug, Default)]
pub struct Preview {
    pub changes: Vec<Change>,
    /// What it would report, and why nothing more can be said about an object.
    pub remarks: Vec<Remark>,
    /// What could not be looked up, so that the changes are not all there are.
    pub unreadable: Vec<Unreadable>,
    /// Pods that would go with a RayCluster that is deleted.
    pub collected_pods: Vec<Value>,
    /// How many Ray objects were looked at.
    pub objects: usize,
}

/// One write.
#[derive(Clone, Debug)]
pub struct Change {
    /// The object whose pass makes it.
    pub owner: ObjectKey,
    pub action: Action,
    pub why: String,
    pub before: Option<Value>,
    pub after: Option<Value>,
}

/// Something to know about an object.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Remark {
    pub object: ObjectKey,
    pub kind: RemarkKind,
    pub text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum RemarkKind {
    /// What the operator cannot do for an object, and why.
    Warning,
    /// What the object waits for.
    Waiting,
}

/// Previews the passes over the objects in scope, once the manifests are applied.
pub async fn preview(
    cluster: &Cluster,
    config: &Config,
    scope: Scope,
    manifests: Vec<Value>,
    now: Timestamp,
) -> Result<Preview, PreviewError> {
    let mut run = Run::new(cluster, config, now);
    run.load(manifests).await?;
    let roots = match scope {
        Scope::All => run.world.ray_objects().into_iter().collect(),
        Scope::Objects(keys) => keys.into_iter().collect(),
    };
    run.rounds(roots).await?;
    Ok(run.preview)
}

/// Returns the object that a manifest describes, if it is one of Ray's.
pub fn ray_object(manifest: &Value, default_namespace: &str) -> Option<ObjectKey> {
    key_of(manifest, default_namespace).filter(|key| key.kind.is_ray())
}

/// A preview that is being made.
struct Run<'a> {
    cluster: &'a Cluster,
    config: &'a Config,
    now: Timestamp,
    world: World,
    preview: Preview,
    /// The objects that were looked up.
    found: LookUps,
    unserved: BTreeSet<Kind>,
    jobs: Pollers<JobPoll>,
    serve: Pollers<ServePoll>,
    in_flight: InFlightWrites,
    /// Changes with every pass, as the operator's random numbers do.
    seed: u64,
    /// The last remarks about each object.
    remarks: BTreeMap<ObjectKey, Vec<Remark>>,
}

impl<'a> Run<'a> {
    fn new(cluster: &'a Cluster, config: &'a Config, now: Timestamp) -> Self {
        // Nobody is polled: these hold the empty state of every object.
        let dashboards = dashboard::Client::new(cluster.client(), Route::Direct);
        let (queue, tasks, stop) = (Arc::default(), TaskTracker::new(), CancellationToken::new());
        Self {
            cluster,
            config,
            now,
            world: World::default(),
            preview: Preview::default(),
            found: LookUps::new(),
            unserved: BTreeSet::new(),
            jobs: Pollers::new(dashboards.clone(), Arc::clone(&queue), tasks.clone(), stop.clone()),
            serve: Pollers::new(dashboards, queue, tasks, stop),
            in_flight: InFlightWrites::default(),
            seed: 0,
            remarks: BTreeMap::new(),
        }
    }

    /// Loads what the operator always watches, and applies the manifests.
    async fn load(&mut self, manifests: Vec<Value>) -> Result<(), PreviewError> {
        let always = [Kind::RayCluster, Kind::RayJob, Kind::RayService, Kind::RayCronJob];
        for kind in always.into_iter().chain([Kind::Pod, Kind::Service, Kind::Job]) {
            // Without the CRDs there are no Ray objects but those of the manifests.
            if self.cluster.list(kind, &mut self.world).await? == Listed::Unserved {
                self.world.set_listed(kind);
            }
        }
        for manifest in manifests {
            if let Some(key) = key_of(&manifest, "default") {
                self.world.apply(&key, manifest, self.now);
            }
        }
        Ok(())
    }

    async fn rounds(&mut self, mut scope: BTreeSet<ObjectKey>) -> Result<(), PreviewError> {
        for _ in 0..ROUNDS {
            self.extend(&mut scope);
            self.preview.objects = scope.len();
            let mut changed = false;
            for key in &scope {
                changed |= match key.kind {
                    Kind::RayCluster => self.pass::<RayCluster>(key).await?,
                    Kind::RayJob => self.pass::<RayJob>(key).await?,
                    Kind::RayService => self.pass::<RayService>(key).await?,
                    Kind::RayCronJob if self.config.gates.ray_cron_job => self.pass::<RayCronJob>(key).await?,
                    _ => false,
                };
            }
            if !changed {
                break;
            }
        }
        self.preview.remarks = std::mem::take(&mut self.remarks).into_values().flatten().collect();
        Ok(())
    }

    /// Adds the Ray objects that objects in scope control.
    fn extend(&self, scope: &mut BTreeSet<ObjectKey>) {
        // A RayCronJob controls RayJobs, which control RayClusters.
        for _ in 0..2 {
            for key in self.world.ray_objects() {
                let owners = self.world.get(&key).and_then(|object| object["metadata"]["ownerReferences"].as_array());
                let is_controlled = owners.into_iter().flatten().any(|owner| {
                    let kind = owner["kind"].as_str().and_then(Kind::of_ray);
                    let name = owner["name"].as_str().unwrap_or_default();
                    kind.is_some_and(|kind| scope.contains(&ObjectKey::new(kind, &key.namespace, name)))
                });
                if is_controlled {
                    scope.insert(key);
                }
            }
        }
    }

    /// Makes one pass over an object. Returns whether it changes anything.
    async fn pass<K>(&mut self, key: &ObjectKey) -> Result<bool, PreviewError>
    where
        K: Observe<Status: Serialize> + Resource<DynamicType = ()>,
    {
        let seen = loop {
            let sources = Sources {
                stores: &self.world.stores,
                in_flight: &self.in_flight,
                jobs: &self.jobs,
                serve: &self.serve,
                config: self.config,
                now: self.now,
                local_zone: &LocalZone::System,
                seed: self.seed,
            };
            let (missing, seen) = match K::observe(&sources, key) {
                Observation::Gone | Observation::InFlight => return Ok(false),
                Observation::Unreadable => {
                    self.remark(key, RemarkKind::Warning, "it cannot be read; the operator leaves it alone");
                    return Ok(false);
                }
                Observation::NotSynced(kinds) => (kinds, None),
                Observation::Ready { seen, not_synced } => (not_synced, Some(seen)),
            };
            let (unserved, missing): (Vec<Kind>, Vec<Kind>) =
                missing.into_iter().partition(|kind| self.unserved.contains(kind));
            match (seen, missing.is_empty()) {
                (Some(seen), true) => break seen,
                (None, true) => {
                    let kinds: Vec<&str> = unserved.iter().map(|kind| kind.resource().kind).collect();
                    let text = format!("waits for the API server to serve {}", kinds.join(", "));
                    self.remark(key, RemarkKind::Waiting, &text);
                    return Ok(false);
                }
                (_, false) => self.list(&missing).await?,
            }
        };
        self.seed = self.seed.wrapping_add(1);
        self.drive::<K>(key, &seen).await
    }

    async fn list(&mut self, kinds: &[Kind]) -> Result<(), PreviewError> {
        for kind in kinds {
            if self.cluster.list(*kind, &mut self.world).await? == Listed::Unserved {
                self.unserved.insert(*kind);
            }
        }
        Ok(())
    }

    async fn drive<K>(&mut self, key: &ObjectKey, seen: &K::Observed) -> Result<bool, PreviewError>
    where
        K: Observe<Status: Serialize> + Resource<DynamicType = ()>,
    {
        self.remarks.remove(key);
        let mut changed = false;
        let mut pass = Pass::<K>::begin(seen, LookUps::new(), self.now, self.config);
        loop {
            match pass.advance() {
                Need::LookUp(keys) => {
                    let keys = keys.to_vec();
                    let mut found = Vec::with_capacity(keys.len());
                    for wanted in &keys {
                        found.push(self.look_up(key, wanted).await);
                    }
                    pass.looked_up(found);
                }
                Need::Poll(_) => {}
                Need::Publish(events) => self.report(key, &events),
                Need::Execute(stage) => {
                    let results = self.execute(key, stage);
                    changed |= results.contains(&StepResult::Done);
                    pass.executed(results, self.now);
                }
                Need::WriteStatus(status) => {
                    let status = serde_json::to_value(status).unwrap_or_default();
                    let wrote = self.world.set_status(key, status);
                    changed |= wrote;
                    pass.wrote_status(if wrote { StatusWrite::Done } else { StatusWrite::Unchanged });
                }
                Need::Done(_) => break,
            }
        }
        let plan = pass.plan();
        // What could not be looked up is reported by itself.
        for halt in &plan.halts {
            if !self.preview.unreadable.iter().any(|source| source.why == halt.error) {
                self.remark(key, RemarkKind::Warning, &halt.error);
            }
        }
        if let Some(what) = &plan.waiting_for {
            self.remark(key, RemarkKind::Waiting, what);
        }
        Ok(changed)
    }

    async fn look_up(&mut self, key: &ObjectKey, wanted: &ObjectKey) -> LookedUp {
        if let Some(object) = self.world.get(wanted) {
            return LookedUp::Found(Arc::new(object.clone()));
        }
        if self.world.is_deleted(wanted) {
            return LookedUp::Absent;
        }
        if !self.found.contains_key(wanted) {
            let found = self.cluster.look_up(wanted).await;
            self.found.insert(wanted.clone(), found);
        }
        let found = self.found[wanted].clone();
        match &found {
            // From now on writes take effect on it.
            LookedUp::Found(object) => self.world.put(wanted, (**object).clone()),
            LookedUp::Failed(why) => {
                let what = format!("get {}", wanted.kind.resource().plural);
                self.remark(key, RemarkKind::Warning, &format!("cannot {what} {}: {why}", wanted.name));
                if !self.preview.unreadable.iter().any(|known| known.what == what && known.why == *why) {
                    self.preview.unreadable.push(Unreadable { what, why: why.clone() });
                }
            }
            LookedUp::Absent => {}
        }
        found
    }

    fn execute(&mut self, owner: &ObjectKey, stage: &Stage) -> Vec<StepResult> {
        let mut results = Vec::new();
        for step in stage {
            let is_repeated =
                step.action.is_ray() && self.preview.changes.iter().any(|made| made.action == step.action);
            // The operator tries to create what it cannot look up; whether it exists is not known here.
            let is_unknown = matches!(self.found.get(step.action.key()), Some(LookedUp::Failed(_)));
            if is_repeated || is_unknown {
                results.push(StepResult::Skipped);
                continue;
            }
            let effect = self.world.write(step, self.now);
            if effect.result == StepResult::Done {
                self.preview.changes.push(Change {
                    owner: owner.clone(),
                    action: step.action.clone(),
                    why: step.why.clone(),
                    before: effect.before,
                    after: effect.after,
                });
                let pods = effect.collected.into_iter().filter(|(key, _)| key.kind == Kind::Pod);
                self.preview.collected_pods.extend(pods.map(|(_, pod)| pod));
            }
            results.push(effect.result);
        }
        results
    }

    fn report(&mut self, key: &ObjectKey, events: &[Event]) {
        for event in events.iter().filter(|event| event.kind == EventKind::Warning) {
            self.remark(key, RemarkKind::Warning, &format!("{}: {}", event.reason, event.note));
        }
    }

    fn remark(&mut self, key: &ObjectKey, kind: RemarkKind, text: &str) {
        let remark = Remark { object: key.clone(), kind, text: text.to_owned() };
        let remarks = self.remarks.entry(key.clone()).or_default();
        if !remarks.contains(&remark) {
            remarks.push(remark);
        }
    }
}

#[cfg(test)]
mod tests;
