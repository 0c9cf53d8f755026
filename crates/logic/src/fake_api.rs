//! A fake API server for tests: objects in a map, and a driver that runs whole passes against it.

use crate::action::{Accept, Action, Event, Kind, ObjectKey, Stage, Step, merge};
use crate::config::Config;
use crate::dashboard::RayRequest;
use crate::pass::{Need, Pass, StatusWrite, StepResult};
use crate::plan::{LookUps, LookedUp, PlanOf, Reconciled, Wake};
use jiff::Timestamp;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Returns the error with which the API server rejects a write, if it does.
type Refusal = Box<dyn Fn(&Step) -> Option<String>>;

pub(crate) struct FakeApi {
    pub(crate) objects: BTreeMap<ObjectKey, Value>,
    /// All events so far.
    pub(crate) events: Vec<Event>,
    pub(crate) refuse: Refusal,
    /// Whether reading single objects is refused.
    pub(crate) unreadable: bool,
    /// The kinds that stay terminating once they are deleted, as Pods do on a slow node.
    pub(crate) slow_deletion: Vec<Kind>,
    /// Writes so far.
    pub(crate) writes: usize,
    /// Every creation and deletion, as `kind name`.
    pub(crate) created: Vec<String>,
    pub(crate) deleted: Vec<String>,
    version: u64,
}

impl Default for FakeApi {
    fn default() -> Self {
        Self {
            objects: BTreeMap::new(),
            events: Vec::new(),
            refuse: Box::new(|_| None),
            unreadable: false,
            slow_deletion: Vec::new(),
            writes: 0,
            created: Vec::new(),
            deleted: Vec::new(),
            version: 100,
        }
    }
}

/// The results of a pass.
pub(crate) struct Ran<K: Reconciled> {
    pub(crate) plan: PlanOf<K>,
    /// The status that was written.
    pub(crate) status: Option<K::Status>,
    pub(crate) wake: Wake,
}

impl FakeApi {
    /// Runs one pass over an object; `ray` stands for Ray.
    pub(crate) fn run<K: Reconciled>(
        &mut self,
        seen: &K::Observed,
        now: Timestamp,
        config: &Config,
        mut ray: impl FnMut(&ObjectKey, &RayRequest) -> Result<(), String>,
    ) -> Ran<K> {
        let mut pass = Pass::<K>::begin(seen, LookUps::new(), now, config);
        let mut written = None;
        let wake = loop {
            match pass.advance() {
                Need::LookUp(keys) => {
                    let found = keys.iter().map(|key| self.look_up(key)).collect();
                    pass.looked_up(found);
                }
                Need::Poll(_) => {}
                Need::Publish(events) => self.events.extend(events),
                Need::Execute(stage) => {
                    let results = self.execute(stage, now, &mut ray);
                    pass.executed(results, now);
                }
                Need::WriteStatus(status) => {
                    written = Some(status.clone());
                    pass.wrote_status(StatusWrite::Done);
                }
                Need::Done(wake) => break wake,
            }
        };
        if let Wake::At(at) = wake {
            assert!(at > now, "a wake-up in the past");
        }
        Ran { plan: pass.plan().clone(), status: written, wake }
    }

    fn look_up(&self, key: &ObjectKey) -> LookedUp {
        match self.objects.get(key) {
            _ if self.unreadable => LookedUp::Failed("forbidden".to_owned()),
            None => LookedUp::Absent,
            Some(found) => LookedUp::Found(Arc::new(found.clone())),
        }
    }

    fn execute(
        &mut self,
        stage: &Stage,
        now: Timestamp,
        ray: &mut impl FnMut(&ObjectKey, &RayRequest) -> Result<(), String>,
    ) -> Vec<StepResult> {
        let execute = |step: &Step| match (&step.action, (self.refuse)(step)) {
            (_, Some(error)) => StepResult::Failed(error),
            (Action::Ray { key, request, .. }, None) => match ray(key, request) {
                Ok(()) => StepResult::Done,
                Err(error) => StepResult::Failed(error),
            },
            (_, None) => self.write(step, now),
        };
        stage.into_iter().map(execute).collect()
    }

    fn write(&mut self, step: &Step, now: Timestamp) -> StepResult {
        self.writes += 1;
        let key = step.action.key();
        let word = format!("{} {}", key.kind.resource().kind, key.name);
        match &step.action {
            Action::Create { body, .. } => {
                if self.objects.contains_key(key) {
                    assert_eq!(step.accept, Accept::AlreadyExists, "{key:?} exists");
                    return StepResult::Unchanged;
                }
                self.created.push(word);
                self.create(key, body.value(), now);
            }
            Action::Replace { body, .. } => {
                assert!(self.objects.contains_key(key), "{key:?} is absent");
                self.check_version(key, &body.value());
                self.update(key, body.value());
            }
            Action::Merge { patch, .. } => {
                let Some(mut object) = self.objects.get(key).cloned() else {
                    assert_eq!(step.accept, Accept::NotFound, "{key:?} is absent");
                    return StepResult::Unchanged;
                };
                self.check_version(key, patch);
                merge(&mut object, patch);
                self.update(key, object);
            }
            Action::Delete { uid, force, .. } => {
                let Some(mut object) = self.objects.get(key).cloned() else {
                    assert_eq!(step.accept, Accept::NotFound, "{key:?} is absent");
                    return StepResult::Unchanged;
                };
                assert_eq!(object["metadata"]["uid"], json!(uid), "the wrong {key:?}");
                self.deleted.push(word);
                object["metadata"]["deletionTimestamp"] = json!(now.to_string());
                if self.slow_deletion.contains(&key.kind) && !force {
                    self.objects.insert(key.clone(), object);
                } else {
                    self.store(key, object);
                }
            }
            Action::Ray { .. } => unreachable!("for Ray"),
        }
        StepResult::Done
    }

    /// Stores a new object as the API server does.
    pub(crate) fn create(&mut self, key: &ObjectKey, mut object: Value, now: Timestamp) {
        self.version += 1;
        object["metadata"]["uid"] = json!(format!("uid-{}", self.version));
        object["metadata"]["creationTimestamp"] = json!(now.to_string());
        if key.kind == Kind::Service && object["spec"]["clusterIP"].is_null() {
            object["spec"]["clusterIP"] = json!(format!("10.0.0.{}", self.version));
        }
        self.store(key, object);
    }

    /// Stores a written object; a changed spec of an object with a generation increments it.
    fn update(&mut self, key: &ObjectKey, mut object: Value) {
        let stored = &self.objects[key];
        if let Some(generation) = stored["metadata"]["generation"].as_i64().filter(|_| object["spec"] != stored["spec"])
        {
            object["metadata"]["generation"] = json!(generation + 1);
        }
        self.store(key, object);
    }

    /// Stores an object in a new version; removes one that is terminating without finalizers.
    pub(crate) fn store(&mut self, key: &ObjectKey, mut object: Value) {
        self.version += 1;
        let metadata = &mut object["metadata"];
        metadata["resourceVersion"] = json!(self.version.to_string());
        let held = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        if metadata.get("deletionTimestamp").is_some_and(|time| !time.is_null()) && !held {
            self.objects.remove(key);
        } else {
            self.objects.insert(key.clone(), object);
        }
    }

    /// Returns the latest resource version.
    pub(crate) fn version(&self) -> u64 {
        self.version
    }

    /// Asserts that a write with a resource version matches the stored one.
    fn check_version(&self, key: &ObjectKey, written: &Value) {
        let seen = &written["metadata"]["resourceVersion"];
        let stored = &self.objects[key]["metadata"]["resourceVersion"];
        assert!(seen.is_null() || seen == stored, "{key:?} is at {stored}, not at {seen}");
    }

    /// Returns the objects of a kind.
    pub(crate) fn all(&self, kind: Kind) -> Vec<Value> {
        self.objects.iter().filter(|(key, _)| key.kind == kind).map(|(_, object)| object.clone()).collect()
    }

    /// Returns the names of the objects of a kind.
    pub(crate) fn names(&self, kind: Kind) -> Vec<String> {
        self.objects.keys().filter(|key| key.kind == kind).map(|key| key.name.clone()).collect()
    }

    /// Returns the notes of the events with this reason.
    pub(crate) fn notes(&self, reason: &str) -> Vec<&str> {
        self.events.iter().filter(|event| event.reason == reason).map(|event| event.note.as_str()).collect()
    }
}

/// Reads an object.
pub(crate) fn view<V: DeserializeOwned>(object: Value) -> V {
    serde_json::from_value(object).unwrap()
}
