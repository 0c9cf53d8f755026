//! One RayCluster and its objects, in memory: plans take effect at once.

use crate::action::{Kind, ObjectKey};
use crate::cluster::{InFlight, Observed, Plan};
use crate::conditions;
use crate::config::Config;
use crate::fake_api::{FakeApi, Ran, view};
use crate::labels;
use crate::plan::Wake;
use crate::view::{JobView, PodView, ServiceView, WholeView};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use manta_api::RayCluster;
use serde_json::{Value, json};
use std::sync::Arc;

pub(crate) struct World {
    pub(crate) cluster: RayCluster,
    pub(crate) api: FakeApi,
    pub(crate) status_writes: usize,
    pub(crate) now: Timestamp,
    pub(crate) config: Config,
    pub(crate) in_flight: InFlight,
    /// The seed of names; if unset, another one after each write.
    pub(crate) seed: Option<u64>,
}

/// Returns a cluster with one group of `replicas` workers.
pub(crate) fn cluster(replicas: i32) -> World {
    World::new(json!({
        "rayVersion": "2.53.0",
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [container("ray-head")]}}},
        "workerGroupSpecs": [group("small", replicas)],
    }))
}

/// Returns a worker group as the API server stores it.
pub(crate) fn group(name: &str, replicas: i32) -> Value {
    json!({
        "groupName": name, "replicas": replicas, "minReplicas": 0, "maxReplicas": 10, "numOfHosts": 1, "priority": 0,
        "rayStartParams": {}, "template": {"spec": {"containers": [container("ray-worker")]}},
    })
}

pub(crate) fn container(name: &str) -> Value {
    json!({
        "name": name, "image": "rayproject/ray:2.53.0",
        "resources": {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}},
    })
}

impl World {
    pub(crate) fn new(spec: Value) -> Self {
        let now: Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let mut cluster: RayCluster = serde_json::from_value(json!({
            "metadata": {"name": "demo", "namespace": "ns", "uid": "u-1", "generation": 1, "resourceVersion": "1"},
            "spec": spec,
        }))
        .unwrap();
        cluster.metadata.creation_timestamp = Some(Time(now));
        Self {
            cluster,
            api: FakeApi::default(),
            status_writes: 0,
            now,
            config: Config::default(),
            in_flight: InFlight::default(),
            seed: None,
        }
    }

    /// Changes the spec, as a user would.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        let mut spec = serde_json::to_value(&self.cluster.spec).unwrap();
        change(&mut spec);
        self.cluster.spec = serde_json::from_value(spec).unwrap();
        *self.cluster.metadata.generation.get_or_insert_default() += 1;
    }

    pub(crate) fn annotate(&mut self, key: &str, value: &str) {
        self.cluster.metadata.annotations.get_or_insert_default().insert(key.into(), value.into());
    }

    pub(crate) fn delete_cluster(&mut self) {
        self.cluster.metadata.deletion_timestamp = Some(Time(self.now));
    }

    pub(crate) fn finalizers(&self) -> Vec<String> {
        self.cluster.metadata.finalizers.clone().unwrap_or_default()
    }

    pub(crate) fn observed(&self) -> Observed {
        let labelled = |object: &Value| object["metadata"]["labels"][labels::CLUSTER] == "demo";
        let mut seen = Observed {
            cluster: Arc::new(self.cluster.clone()),
            pods: Vec::new(),
            earlier_pods: Vec::new(),
            services: Vec::new(),
            cleanup_jobs: Vec::new(),
            related: Vec::new(),
            in_flight: self.in_flight.clone(),
            seed: self.seed.unwrap_or_else(|| self.api.version()),
        };
        let mut pods = Vec::new();
        for (key, object) in &self.api.objects {
            let object = object.clone();
            match key.kind {
                Kind::Pod if labelled(&object) => pods.push(Arc::new(view::<PodView>(object))),
                Kind::Service => seen.services.push(Arc::new(view::<ServiceView>(object))),
                Kind::Job => seen.cleanup_jobs.push(Arc::new(view::<JobView>(object))),
                Kind::Pod | Kind::Secret | Kind::RayCluster => {}
                // As the operator does: those of batch schedulers are found by their name.
                kind @ (Kind::PodGroup(_) | Kind::Workload) => {
                    seen.related.push((kind, Arc::new(view::<WholeView>(object))));
                }
                kind if labelled(&object) => seen.related.push((kind, Arc::new(view::<WholeView>(object)))),
                _ => {}
            }
        }
        seen.with_pods(pods)
    }

    fn key(&self) -> ObjectKey {
        ObjectKey::new(Kind::RayCluster, "ns", "demo")
    }

    /// Runs one pass, as the operator does.
    pub(crate) fn pass(&mut self) -> Plan {
        self.run().plan
    }

    fn run(&mut self) -> Ran<RayCluster> {
        self.api.objects.insert(self.key(), json!(self.cluster));
        let seen = self.observed();
        let ran = self.api.run::<RayCluster>(&seen, self.now, &self.config, |key, _| panic!("asks the Ray of {key:?}"));
        if let Some(cluster) = self.api.objects.remove(&self.key()) {
            self.cluster = view(cluster);
        } else {
            self.cluster.metadata.finalizers = None;
        }
        if let Some(status) = &ran.status {
            self.cluster.status = Some(status.clone());
            self.status_writes += 1;
        }
        ran
    }

    /// Runs passes until nothing is left to do, and asserts that each one asked for the next.
    pub(crate) fn settle(&mut self) {
        let mut at_rest = false;
        for _ in 0..20 {
            let Ran { plan, status, wake } = self.run();
            if plan.stages.is_empty() && plan.halts.is_empty() && status.is_none() {
                return;
            }
            assert!(!at_rest, "nothing would have woken the cluster for {plan:?} {status:?}");
            at_rest = plan.stages.is_empty() && plan.halts.is_empty() && wake != Wake::OnceShown;
        }
        panic!("the cluster does not come to rest");
    }

    /// Runs passes until nothing is left to do, with all Pods running and ready.
    pub(crate) fn settle_ready(&mut self) {
        for _ in 0..5 {
            self.settle();
            self.run_pods();
        }
        self.settle();
    }

    /// Returns an object of any kind.
    pub(crate) fn object(&self, kind: Kind, name: &str) -> Option<&Value> {
        self.api.objects.get(&ObjectKey::new(kind, "ns", name))
    }

    pub(crate) fn label(&mut self, key: &str, value: &str) {
        self.cluster.metadata.labels.get_or_insert_default().insert(key.into(), value.into());
    }

    pub(crate) fn pods(&self) -> Vec<PodView> {
        let pods = self.api.objects.iter().filter(|(key, _)| key.kind == Kind::Pod);
        pods.map(|(_, object)| view(object.clone())).collect()
    }

    pub(crate) fn pod_names(&self, group: &str) -> Vec<String> {
        let of = |pod: &PodView| pod.metadata.label(labels::GROUP) == Some(group);
        self.pods().into_iter().filter(of).map(|pod| pod.metadata.name.into()).collect()
    }

    /// Changes a Pod's JSON.
    pub(crate) fn change_pod(&mut self, name: &str, change: impl FnOnce(&mut Value)) {
        change(self.api.objects.get_mut(&ObjectKey::new(Kind::Pod, "ns", name)).unwrap());
    }

    pub(crate) fn remove_pod(&mut self, name: &str) {
        self.api.objects.remove(&ObjectKey::new(Kind::Pod, "ns", name)).unwrap();
    }

    /// Ends Pods that are terminating.
    pub(crate) fn end_pods(&mut self) {
        self.api.objects.retain(|_, object| object["metadata"].get("deletionTimestamp").is_none());
    }

    /// Sets all Pods running and ready.
    pub(crate) fn run_pods(&mut self) {
        for (number, pod) in self.pods().iter().enumerate() {
            self.change_pod(&pod.metadata.name, |pod| {
                pod["status"] = json!({
                    "phase": "Running", "podIP": format!("10.244.0.{number}"),
                    "conditions": [{"type": "Ready", "status": "True"}],
                });
            });
        }
    }

    /// Ends a Pod with its Ray container's exit code.
    pub(crate) fn end_pod(&mut self, name: &str, phase: &str, exit_code: i32) {
        self.change_pod(name, |pod| {
            let container = pod["spec"]["containers"][0]["name"].clone();
            pod["status"] = json!({"phase": phase, "containerStatuses": [
                {"name": container, "state": {"terminated": {"exitCode": exit_code, "reason": "Error"}}},
            ]});
        });
    }

    pub(crate) fn advance(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    pub(crate) fn condition(&self, type_: &str) -> Option<&Condition> {
        conditions::find(conditions::of_cluster(&self.cluster), type_)
    }

    /// Returns `True`, `False`, or an empty string without such a condition.
    pub(crate) fn condition_status(&self, type_: &str) -> &str {
        self.condition(type_).map_or("", |condition| condition.status.as_str())
    }

    pub(crate) fn state(&self) -> &str {
        self.cluster.status.as_ref().and_then(|status| status.state.as_deref()).unwrap_or_default()
    }
}
