//! One RayCluster and its objects, in memory: plans are carried out at once and seen at once.

use crate::action::{Accept, Action, Event, Failure, Kind, ObjectKey, Outcome, Step, merge};
use crate::cluster::{InFlight, LookedUp, Observed, Plan, StatusUpdate, needs_write, plan, settle};
use crate::config::Config;
use crate::labels;
use crate::view::{JobView, PodView, ServiceView, WholeView};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use manta_api::RayCluster;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Answers what the API server says to a write, if that is no.
type Refusal = Box<dyn Fn(&Step) -> Option<String>>;

pub(super) struct World {
    pub(super) cluster: RayCluster,
    pub(super) objects: BTreeMap<ObjectKey, Value>,
    pub(super) events: Vec<Event>,
    pub(super) status_writes: usize,
    pub(super) now: Timestamp,
    pub(super) config: Config,
    pub(super) in_flight: InFlight,
    pub(super) refuse: Refusal,
    /// Whether deleted Pods stay until [`World::end_pods`], as on a node that is slow.
    pub(super) slow_deletion: bool,
    counter: u64,
}

/// A cluster with one group of `replicas` workers.
pub(super) fn cluster(replicas: i32) -> World {
    World::new(json!({
        "rayVersion": "2.53.0",
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [container("ray-head")]}}},
        "workerGroupSpecs": [group("small", replicas)],
    }))
}

/// A worker group as the API server stores it.
pub(super) fn group(name: &str, replicas: i32) -> Value {
    json!({
        "groupName": name, "replicas": replicas, "minReplicas": 0, "maxReplicas": 10, "numOfHosts": 1, "priority": 0,
        "rayStartParams": {}, "template": {"spec": {"containers": [container("ray-worker")]}},
    })
}

pub(super) fn container(name: &str) -> Value {
    json!({
        "name": name, "image": "rayproject/ray:2.53.0",
        "resources": {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}},
    })
}

impl World {
    pub(super) fn new(spec: Value) -> Self {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut cluster: RayCluster = serde_json::from_value(json!({
            "metadata": {"name": "demo", "namespace": "ns", "uid": "u-1", "generation": 1},
            "spec": spec,
        }))
        .unwrap();
        cluster.metadata.creation_timestamp = Some(Time(now));
        Self {
            cluster,
            objects: BTreeMap::new(),
            events: Vec::new(),
            status_writes: 0,
            now,
            config: Config::default(),
            in_flight: InFlight::default(),
            refuse: Box::new(|_| None),
            slow_deletion: false,
            counter: 0,
        }
    }

    /// Changes the spec, as a user would.
    pub(super) fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        let mut spec = serde_json::to_value(&self.cluster.spec).unwrap();
        change(&mut spec);
        self.cluster.spec = serde_json::from_value(spec).unwrap();
        *self.cluster.metadata.generation.get_or_insert_default() += 1;
    }

    pub(super) fn annotate(&mut self, key: &str, value: &str) {
        self.cluster.metadata.annotations.get_or_insert_default().insert(key.into(), value.into());
    }

    pub(super) fn delete_cluster(&mut self) {
        self.cluster.metadata.deletion_timestamp = Some(Time(self.now));
    }

    pub(super) fn finalizers(&self) -> Vec<String> {
        self.cluster.metadata.finalizers.clone().unwrap_or_default()
    }

    pub(super) fn observed(&self, looked_up: BTreeMap<ObjectKey, LookedUp>) -> Observed {
        let labelled = |object: &Value| object["metadata"]["labels"][labels::CLUSTER] == "demo";
        let mut seen = Observed {
            cluster: Arc::new(self.cluster.clone()),
            pods: Vec::new(),
            services: Vec::new(),
            cleanup_jobs: Vec::new(),
            related: Vec::new(),
            looked_up,
            in_flight: self.in_flight.clone(),
            seed: self.counter,
        };
        for (key, object) in &self.objects {
            let object = object.clone();
            match key.kind {
                Kind::Pod if labelled(&object) => seen.pods.push(Arc::new(view::<PodView>(object))),
                Kind::Service => seen.services.push(Arc::new(view::<ServiceView>(object))),
                Kind::Job => seen.cleanup_jobs.push(Arc::new(view::<JobView>(object))),
                Kind::Pod | Kind::Secret => {}
                // As the operator does: those of batch schedulers are found by their name.
                kind @ (Kind::PodGroup(_) | Kind::Workload) => {
                    seen.related.push((kind, Arc::new(view::<WholeView>(object))));
                }
                kind if labelled(&object) => seen.related.push((kind, Arc::new(view::<WholeView>(object)))),
                _ => {}
            }
        }
        seen
    }

    /// One pass: look, plan, carry out, write the status.
    pub(super) fn pass(&mut self) -> Plan {
        let mut looked_up = BTreeMap::new();
        let (seen, plan) = loop {
            let seen = self.observed(looked_up.clone());
            let plan = plan(&seen, self.now, &self.config);
            if plan.look_up.is_empty() {
                break (seen, plan);
            }
            for key in &plan.look_up {
                let found = self.objects.get(key).cloned().map(Arc::new);
                looked_up.insert(key.clone(), found.map_or(LookedUp::Absent, LookedUp::Found));
            }
        };
        self.events.extend(plan.events.clone());
        let outcome = self.carry_out(&plan);
        if plan.status == StatusUpdate::Compute
            && let Some(status) = settle(&seen, &plan, &outcome, self.now, &self.config)
            && needs_write(self.cluster.status.as_ref(), &status)
        {
            self.cluster.status = Some(status);
            self.status_writes += 1;
        }
        plan
    }

    /// Passes until nothing is left to do.
    pub(super) fn settle(&mut self) {
        for _ in 0..20 {
            let writes = self.status_writes;
            let plan = self.pass();
            if plan.stages.is_empty() && plan.halt.is_none() && writes == self.status_writes {
                return;
            }
        }
        panic!("the cluster does not come to rest");
    }

    /// Passes until nothing is left to do, with all Pods running and ready.
    pub(super) fn settle_ready(&mut self) {
        for _ in 0..5 {
            self.settle();
            self.run_pods();
        }
        self.settle();
    }

    fn carry_out(&mut self, plan: &Plan) -> Outcome {
        let mut outcome = Outcome::default();
        for stage in &plan.stages {
            for step in stage {
                match (self.refuse)(step) {
                    Some(error) => {
                        if let Some(mut event) = step.failed.clone() {
                            event.note.push_str(&error);
                            self.events.push(event);
                        }
                        outcome.failure.get_or_insert(Failure { reason: step.failure_reason, error });
                    }
                    None => {
                        if self.write(step) {
                            self.events.extend(step.done.clone());
                        }
                    }
                }
            }
            if outcome.failure.is_some() {
                break;
            }
        }
        outcome
    }

    /// Answers whether there was something to do.
    fn write(&mut self, step: &Step) -> bool {
        match &step.action {
            Action::Create { key, body } => {
                if self.objects.contains_key(key) {
                    assert_eq!(step.accept, Accept::AlreadyExists, "{key:?} exists");
                    return false;
                }
                self.counter += 1;
                let mut body = body.value();
                body["metadata"]["uid"] = json!(format!("uid-{}", self.counter));
                body["metadata"]["resourceVersion"] = json!(self.counter.to_string());
                self.objects.insert(key.clone(), body);
            }
            Action::Replace { key, body } => {
                assert!(self.objects.insert(key.clone(), body.value()).is_some(), "{key:?} is absent");
            }
            Action::Merge { key, patch } if key.kind == Kind::RayCluster => {
                if let Some(finalizers) = patch["metadata"].get("finalizers") {
                    self.cluster.metadata.finalizers = serde_json::from_value(finalizers.clone()).unwrap();
                }
            }
            Action::Merge { key, patch } => {
                merge(self.objects.get_mut(key).unwrap(), patch);
                self.remove_unheld(key);
            }
            Action::Delete { key, uid, force } => {
                let Some(object) = self.objects.get_mut(key) else {
                    assert_eq!(step.accept, Accept::NotFound, "{key:?} is absent");
                    return false;
                };
                assert_eq!(object["metadata"]["uid"], json!(uid), "the wrong {key:?}");
                object["metadata"]["deletionTimestamp"] = json!(self.now.to_string());
                if !self.slow_deletion || *force {
                    self.remove_unheld(key);
                }
            }
        }
        true
    }

    /// Removes an object that was deleted, unless a finalizer holds it.
    fn remove_unheld(&mut self, key: &ObjectKey) {
        let metadata = &self.objects[key]["metadata"];
        let held = metadata["finalizers"].as_array().is_some_and(|finalizers| !finalizers.is_empty());
        if metadata.get("deletionTimestamp").is_some() && !held {
            self.objects.remove(key);
        }
    }

    /// An object of any kind.
    pub(super) fn object(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.objects.get(&ObjectKey::new(kind, "ns", name))
    }

    pub(super) fn label(&mut self, key: &str, value: &str) {
        self.cluster.metadata.labels.get_or_insert_default().insert(key.into(), value.into());
    }

    pub(super) fn pods(&self) -> Vec<PodView> {
        let pods = self.objects.iter().filter(|(key, _)| key.kind == Kind::Pod);
        pods.map(|(_, object)| view(object.clone())).collect()
    }

    pub(super) fn pod_names(&self, group: &str) -> Vec<String> {
        let of = |pod: &PodView| pod.metadata.label(labels::GROUP) == Some(group);
        self.pods().into_iter().filter(of).map(|pod| pod.metadata.name).collect()
    }

    pub(super) fn names(&self, kind: Kind) -> Vec<String> {
        self.objects.keys().filter(|key| key.kind == kind).map(|key| key.name.clone()).collect()
    }

    /// Changes a Pod's JSON.
    pub(super) fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        change(self.objects.get_mut(&ObjectKey::new(Kind::Pod, "ns", name)).unwrap());
    }

    pub(super) fn remove_pod(&mut self, name: &str) {
        self.objects.remove(&ObjectKey::new(Kind::Pod, "ns", name)).unwrap();
    }

    /// Ends Pods that were told to go.
    pub(super) fn end_pods(&mut self) {
        self.objects.retain(|_, object| object["metadata"].get("deletionTimestamp").is_none());
    }

    /// All Pods run and are ready.
    pub(super) fn run_pods(&mut self) {
        for (number, pod) in self.pods().iter().enumerate() {
            self.change_pod(&pod.metadata.name, |pod| {
                pod["status"] = json!({
                    "phase": "Running", "podIP": format!("10.244.0.{number}"),
                    "conditions": [{"type": "Ready", "status": "True"}],
                });
            });
        }
    }

    /// A Pod that has ended, with its Ray container's exit code.
    pub(super) fn end_pod(&mut self, name: &str, phase: &str, exit_code: i32) {
        self.change_pod(name, |pod| {
            let container = pod["spec"]["containers"][0]["name"].clone();
            pod["status"] = json!({"phase": phase, "containerStatuses": [
                {"name": container, "state": {"terminated": {"exitCode": exit_code, "reason": "Error"}}},
            ]});
        });
    }

    pub(super) fn advance(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub(super) fn condition(&self, type_: &str) -> Option<&Condition> {
        self.cluster.status.as_ref()?.conditions.as_ref()?.iter().find(|condition| condition.type_ == type_)
    }

    /// `True`, `False`, or nothing where there is no such condition.
    pub(super) fn condition_status(&self, type_: &str) -> &str {
        self.condition(type_).map_or("", |condition| condition.status.as_str())
    }

    pub(super) fn state(&self) -> &str {
        self.cluster.status.as_ref().and_then(|status| status.state.as_deref()).unwrap_or_default()
    }

    /// Notes of the events with this reason.
    pub(super) fn notes(&self, reason: &str) -> Vec<&str> {
        self.events.iter().filter(|event| event.reason == reason).map(|event| event.note.as_str()).collect()
    }
}

fn view<V: serde::de::DeserializeOwned>(object: Value) -> V {
    serde_json::from_value(object).unwrap()
}
