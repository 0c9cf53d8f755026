//! One RayService, its clusters and a Ray that answers, in memory.
//!
//! A [`World::step`] takes two seconds: clusters get their Pods, endpoints follow labels and readiness, the plan is
//! carried out and seen at once, and the poller asks once.

use crate::action::{Kind, ObjectKey};
use crate::config::Config;
use crate::dashboard::{RayRequest, RequestFailure};
use crate::fake_api::{FakeApi, view};
use crate::labels::annotation::DELETE_AFTER;
use crate::labels::{CLUSTER, HEAD, NODE_TYPE, SERVE, WORKER};
use crate::service::dashboard::{ClusterReply, Details, ServePoll, ServeReply, ServeState};
use crate::service::{Observed, Plan};
use crate::view::{EndpointSliceView, PodView, ServiceView, WholeView};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, Time};
use manta_api::{ClusterServeStatus, RayCluster, RayService, RayServiceStatus};
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) const CONFIG: &str = "applications:\n- name: app\n  import_path: app:deployment\n  route_prefix: /\n";

pub(crate) struct World {
    pub(crate) service: RayService,
    pub(crate) api: FakeApi,
    pub(crate) config: Config,
    pub(crate) now: Timestamp,
    pub(crate) gateway_api: bool,
    /// What the poller knows; lost when the operator restarts.
    pub(crate) known: ServeState,
    /// The applications of each cluster, as Ray reports them.
    pub(crate) apps: BTreeMap<String, BTreeMap<String, Value>>,
    /// The status of applications that are submitted to these clusters, or to any other.
    pub(crate) outcome: String,
    pub(crate) outcomes: BTreeMap<String, String>,
    /// What Ray was sent: cluster and body.
    pub(crate) puts: Vec<(String, Value)>,
    /// Clusters whose dashboards are unreachable.
    pub(crate) dashboard_down: BTreeSet<String>,
    /// The error with which Ray rejects submissions, if it does.
    pub(crate) refused: Option<String>,
    /// The error of submissions that get lost on their way, if they do; Ray replies to everything else.
    pub(crate) lost: Option<String>,
    /// The capacity that dashboards show, if it is not the one that was submitted last.
    pub(crate) shown_capacity: Option<i32>,
    /// Clusters whose proxies are unhealthy.
    pub(crate) proxy_down: BTreeSet<String>,
    /// Clusters whose Pods never become ready.
    pub(crate) pods_not_ready: BTreeSet<String>,
    /// Clusters where only the head is not ready.
    pub(crate) head_not_ready: BTreeSet<String>,
    /// For how many steps a cluster has been in no slot without a deletion time.
    left: BTreeMap<String, usize>,
    pub(crate) status_writes: usize,
    counter: u64,
}

/// Returns a RayService with one worker, as the API server stores it.
pub(crate) fn service() -> World {
    World::new(json!({"rayClusterConfig": cluster_config(), "serveConfigV2": CONFIG}))
}

/// Returns the same with incremental upgrades.
pub(crate) fn incremental(step: i32, interval: i32, surge: i32) -> World {
    let mut config = cluster_config();
    config["enableInTreeAutoscaling"] = json!(true);
    let options = json!({
        "gatewayClassName": "istio", "stepSizePercent": step, "intervalSeconds": interval, "maxSurgePercent": surge,
    });
    World::new(json!({
        "rayClusterConfig": config, "serveConfigV2": CONFIG,
        "upgradeStrategy": {"type": "NewClusterWithIncrementalUpgrade", "clusterUpgradeOptions": options},
    }))
}

fn cluster_config() -> Value {
    let container = |name: &str| json!({"name": name, "image": "rayproject/ray:2.53.0"});
    json!({
        "rayVersion": "2.53.0",
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [container("ray-head")]}}},
        "workerGroupSpecs": [group("small", 1)],
    })
}

pub(crate) fn group(name: &str, replicas: i32) -> Value {
    json!({
        "groupName": name, "replicas": replicas, "minReplicas": 1, "maxReplicas": 10, "numOfHosts": 1, "priority": 0,
        "rayStartParams": {},
        "template": {"spec": {"containers": [{"name": "ray-worker", "image": "rayproject/ray:2.53.0"}]}},
    })
}

impl World {
    pub(crate) fn new(spec: Value) -> Self {
        Self::named("web", spec)
    }

    pub(crate) fn named(name: &str, spec: Value) -> Self {
        let uid = format!("u-{name}");
        let metadata = json!({"name": name, "namespace": "ns", "uid": uid, "generation": 1, "resourceVersion": "1"});
        Self {
            service: serde_json::from_value(json!({"metadata": metadata, "spec": spec})).unwrap(),
            api: FakeApi::default(),
            config: Config::default(),
            now: "2026-01-01T00:00:00Z".parse().unwrap(),
            gateway_api: true,
            known: ServeState::new(),
            apps: BTreeMap::new(),
            outcome: "RUNNING".to_owned(),
            outcomes: BTreeMap::new(),
            puts: Vec::new(),
            dashboard_down: BTreeSet::new(),
            refused: None,
            lost: None,
            shown_capacity: None,
            proxy_down: BTreeSet::new(),
            pods_not_ready: BTreeSet::new(),
            head_not_ready: BTreeSet::new(),
            left: BTreeMap::new(),
            status_writes: 0,
            counter: 0,
        }
    }

    /// Changes the spec, as a user would.
    pub(crate) fn edit(&mut self, change: impl FnOnce(&mut Value)) {
        let mut spec = serde_json::to_value(&self.service.spec).unwrap();
        change(&mut spec);
        self.service.spec = serde_json::from_value(spec).unwrap();
        *self.service.metadata.generation.get_or_insert_default() += 1;
    }

    /// Asks for another cluster by another version of Ray.
    pub(crate) fn set_version(&mut self, version: &str) {
        self.edit(|spec| spec["rayClusterConfig"]["rayVersion"] = json!(version));
    }

    pub(crate) fn annotate(&mut self, key: &str, value: &str) {
        self.service.metadata.annotations.get_or_insert_default().insert(key.into(), value.into());
    }

    /// Drops all state that is not in the API.
    pub(crate) fn restart_operator(&mut self) {
        self.known.clear();
    }

    pub(crate) fn advance(&mut self, seconds: i64) {
        self.now += SignedDuration::from_secs(seconds);
    }

    /// Advances two seconds, with one pass and one polling round.
    pub(crate) fn step(&mut self) -> Plan {
        self.advance(2);
        self.play();
        let plan = self.pass();
        self.poll(plan.poll.as_ref());
        self.play();
        self.check_invariants();
        plan
    }

    pub(crate) fn steps(&mut self, count: usize) {
        for _ in 0..count {
            self.step();
        }
    }

    /// Steps until something holds; panics when it takes too long.
    #[track_caller]
    pub(crate) fn until(&mut self, what: &str, holds: impl Fn(&World) -> bool) {
        for _ in 0..600 {
            if holds(self) {
                return;
            }
            self.step();
        }
        panic!("never: {what}; {:#?}\n{:#?}", self.service.status, self.api.objects.keys());
    }

    /// Steps until the service serves.
    #[track_caller]
    pub(crate) fn until_ready(&mut self) {
        self.until("ready", |world| world.condition("Ready") == ("True", "NonZeroServeEndpoints"));
        self.steps(3);
    }

    fn key(&self) -> ObjectKey {
        key(Kind::RayService, self.name())
    }

    /// Runs one pass, as the operator does.
    pub(crate) fn pass(&mut self) -> Plan {
        let key = self.key();
        self.api.objects.insert(key.clone(), json!(self.service));
        let seen = self.observed();
        let clusters: Vec<ObjectKey> = self
            .api
            .names(Kind::RayCluster)
            .iter()
            .map(|name| crate::service::tests::world::key(Kind::RayCluster, name))
            .collect();
        let mut requests = Vec::new();
        let (refused, lost) = (self.refused.clone(), self.lost.clone());
        let dashboard_down = self.dashboard_down.clone();
        let ran = self.api.run::<RayService>(&seen, self.now, &self.config, |key, request| {
            let lost = lost.clone().or_else(|| dashboard_down.contains(&key.name).then(|| "connection refused".into()));
            let refused = refused.clone().map(|why| RequestFailure { text: why.clone(), refusal: Some(why) });
            let result = lost.map(RequestFailure::from).or(refused).map_or(Ok(()), Err);
            requests.push((key.name.clone(), request.clone(), result.clone()));
            result.map_err(|failure| failure.text)
        });
        match self.api.objects.remove(&key) {
            Some(service) => self.service = view(service),
            None => self.service.metadata.finalizers = Some(Vec::new()),
        }
        for cluster in clusters {
            if !self.api.objects.contains_key(&cluster) {
                self.remove(&cluster);
            }
        }
        if let Some(status) = ran.status {
            self.service.status = Some(status);
            self.status_writes += 1;
        }
        self.follow(ran.plan.poll.as_ref());
        for (cluster, request, result) in requests {
            self.known.entry(cluster.clone()).or_default().record(&request, &result, self.now);
            if let (RayRequest::ConfigureServe { body, .. }, Ok(())) = (request, result) {
                self.accept(&cluster, body);
            }
        }
        ran.plan
    }

    /// Drops replies that are not polled any more, as the pollers do.
    fn follow(&mut self, poll: Option<&ServePoll>) {
        let wanted = poll.map(|poll| poll.clusters.as_slice()).unwrap_or_default();
        self.known.retain(|name, _| wanted.iter().any(|cluster| cluster.cluster == *name));
    }

    pub(crate) fn observed(&self) -> Observed {
        let mut seen = Observed {
            service: Arc::new(self.service.clone()),
            gateway_api: self.gateway_api,
            serve: self.known.clone(),
            seed: self.api.version(),
            ..Observed::default()
        };
        for (key, object) in &self.api.objects {
            let object = object.clone();
            match key.kind {
                Kind::RayCluster => seen.clusters.push(Arc::new(view::<RayCluster>(object))),
                Kind::Pod => seen.pods.push(Arc::new(view::<PodView>(object))),
                Kind::Service => seen.services.push(Arc::new(view::<ServiceView>(object))),
                Kind::EndpointSlice => seen.slices.push(Arc::new(view::<EndpointSliceView>(object))),
                Kind::Gateway => seen.gateway = Some(Arc::new(view::<WholeView>(object))),
                Kind::HttpRoute => seen.http_route = Some(Arc::new(view::<WholeView>(object))),
                _ => {}
            }
        }
        seen
    }

    /// Removes an object and, if it is a cluster, what belongs to it.
    pub(crate) fn remove(&mut self, key: &ObjectKey) {
        self.api.objects.remove(key);
        if key.kind == Kind::RayCluster {
            let name = key.name.clone();
            self.api.objects.retain(|other, object| match other.kind {
                Kind::Pod => object["metadata"]["labels"][CLUSTER] != json!(name),
                Kind::Service => object["metadata"]["ownerReferences"][0]["name"] != json!(name),
                _ => true,
            });
            self.apps.remove(&name);
        }
    }

    /// Simulates the other controllers: Pods, their readiness, cluster statuses, endpoints, Gateways.
    pub(crate) fn play(&mut self) {
        for name in self.api.names(Kind::RayCluster) {
            self.play_cluster(&name);
        }
        let pods: Vec<PodView> = self.api.all(Kind::Pod).into_iter().map(view).collect();
        self.api.objects.retain(|key, _| key.kind != Kind::EndpointSlice);
        for service in self.api.all(Kind::Service) {
            let service: ServiceView = view(service);
            let selects = |pod: &&PodView| {
                let selector = &service.spec.selector;
                selector.iter().all(|(key, value)| pod.metadata.label(key) == Some(value))
            };
            let endpoints = pods.iter().filter(selects).map(|pod| {
                json!({"conditions": {"ready": pod.is_running_and_ready()}, "targetRef": {"uid": pod.metadata.uid}})
            });
            let name = &service.metadata.name;
            let slice = json!({
                "metadata": {"name": name, "namespace": "ns", "labels": {"kubernetes.io/service-name": name}},
                "endpoints": endpoints.collect::<Value>(),
            });
            self.api.objects.insert(key(Kind::EndpointSlice, name), slice);
        }
        for (kind, status) in
            [(Kind::Gateway, gateway_status()), (Kind::HttpRoute, route_status(&format!("{}-gateway", self.name())))]
        {
            for name in self.api.names(kind) {
                self.object(kind, &name)["status"] = status.clone();
            }
        }
    }

    fn play_cluster(&mut self, name: &str) {
        let cluster: RayCluster = view(self.object(Kind::RayCluster, name).clone());
        if cluster.metadata.deletion_timestamp.is_some() {
            return;
        }
        let groups = cluster.spec.worker_group_specs.clone().unwrap_or_default();
        let workers: i32 = groups.iter().map(|group| group.replicas.or(group.min_replicas).unwrap_or(0)).sum();
        let (ready, head_not_ready) = (!self.pods_not_ready.contains(name), self.head_not_ready.contains(name));
        for number in 0..=workers {
            let (node_type, serve) = if number == 0 { (HEAD, "false") } else { (WORKER, "true") };
            let pod = key(Kind::Pod, &format!("{name}-{node_type}-{number}"));
            if self.api.objects.contains_key(&pod) {
                continue;
            }
            self.counter += 1;
            let labels = json!({CLUSTER: name, NODE_TYPE: node_type, SERVE: serve});
            let metadata = json!({
                "name": pod.name, "namespace": "ns", "uid": format!("pod-{}", self.counter), "labels": labels,
            });
            self.api.objects.insert(pod, json!({"metadata": metadata, "spec": {"containers": []}}));
        }
        for pod in self.api.names(Kind::Pod) {
            let object = self.object(Kind::Pod, &pod);
            if object["metadata"]["labels"][CLUSTER] == json!(name) {
                let is_head = object["metadata"]["labels"][NODE_TYPE] == json!(HEAD);
                let value = if ready && !(is_head && head_not_ready) { "True" } else { "False" };
                let conditions = json!([{"type": "Ready", "status": value}]);
                object["status"] = json!({"phase": "Running", "podIP": "10.244.0.1", "conditions": conditions});
            }
        }
        let (status, reason) =
            if ready && !head_not_ready { ("True", "HeadPodRunningAndReady") } else { ("False", "ContainersNotReady") };
        self.object(Kind::RayCluster, name)["status"] = json!({
            "desiredWorkerReplicas": workers, "desiredCPU": "0", "desiredMemory": "0", "desiredGPU": "0",
            "desiredTPU": "0",
            "conditions": [{
                "type": "HeadPodReady", "status": status, "reason": reason, "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z",
            }],
        });
    }

    /// Runs one polling round. Returns whether anything changed.
    pub(crate) fn poll(&mut self, poll: Option<&ServePoll>) -> bool {
        let mut changed = false;
        for cluster in poll.map(|poll| poll.clusters.as_slice()).unwrap_or_default() {
            let name = &cluster.cluster;
            let proxy = cluster.proxy.as_ref().map(|proxy| {
                let healthy =
                    self.apps.get(name).is_some_and(|apps| !apps.is_empty()) && !self.proxy_down.contains(name);
                (proxy.uid.clone(), healthy)
            });
            let serve = cluster.dashboard.as_ref().map(|_| ServeReply { at: self.now, answer: self.details(name) });
            changed |= self.known.entry(name.clone()).or_default().observe(ClusterReply { serve, proxy });
        }
        changed
    }

    fn details(&self, name: &str) -> Result<Details, String> {
        let apps = self.apps.get(name).cloned().unwrap_or_default();
        match self.dashboard_down.contains(name) {
            true => Err("connection refused".to_owned()),
            false => Ok(view(json!({"applications": apps, "target_capacity": self.shown_capacity(name)}))),
        }
    }

    fn shown_capacity(&self, name: &str) -> Option<f64> {
        let submitted = self.puts.iter().rev().find(|(cluster, _)| cluster == name);
        let submitted = submitted.and_then(|(_, body)| body["target_capacity"].as_f64());
        self.shown_capacity.map(f64::from).or(submitted)
    }

    /// Accepts a configuration as Ray does: new applications begin to deploy, unchanged ones go on.
    fn accept(&mut self, name: &str, body: Value) {
        let outcome = self.outcomes.get(name).unwrap_or(&self.outcome);
        let apps = body["applications"].as_array().cloned().unwrap_or_default();
        let known = self.apps.get(name);
        let running = apps.into_iter().map(|app| {
            let app_name = app["name"].as_str().unwrap_or_default().to_owned();
            let unchanged =
                known.and_then(|known| known.get(&app_name)).filter(|known| known["deployed_app_config"] == app);
            let next = unchanged.cloned().unwrap_or_else(|| json!({"status": outcome, "deployed_app_config": app}));
            (app_name, next)
        });
        let running = running.collect();
        self.apps.insert(name.to_owned(), running);
        self.puts.push((name.to_owned(), body));
    }

    /// Sets the status of all applications of a cluster.
    pub(crate) fn set_apps(&mut self, cluster: &str, status: &str) {
        for app in self.apps.get_mut(cluster).into_iter().flatten() {
            app.1["status"] = json!(status);
        }
        self.outcomes.insert(cluster.to_owned(), status.to_owned());
    }

    fn check_invariants(&mut self) {
        let status = self.service.status.clone().unwrap_or_default();
        let named = |slot: &Option<ClusterServeStatus>| slot.as_ref().and_then(|slot| slot.ray_cluster_name.clone());
        let slots = [named(&status.active_service_status), named(&status.pending_service_status)];
        if let [Some(active), Some(pending)] = &slots {
            assert_ne!(active, pending, "two slots, one cluster");
        }
        let weights = self.weights();
        assert!(weights.is_empty() || weights.iter().sum::<i64>() == 100, "{weights:?}");
        if self.condition("Suspending").0 != "True" {
            self.check_clusters(&slots);
        }
    }

    /// Asserts that at most two clusters are in use, and that all others have a deletion time unless a Service leads there.
    fn check_clusters(&mut self, slots: &[Option<String>; 2]) {
        let services = self.api.all(Kind::Service);
        let is_selected = |name: &String| {
            services.iter().any(|service| service["spec"]["selector"]["ray.io/cluster"] == name.as_str())
        };
        let left: Vec<String> = self
            .api
            .all(Kind::RayCluster)
            .iter()
            .filter(|cluster| cluster["metadata"]["deletionTimestamp"].is_null())
            .filter(|cluster| cluster["metadata"]["annotations"][DELETE_AFTER].is_null())
            .map(|cluster| cluster["metadata"]["name"].as_str().unwrap_or_default().to_owned())
            .filter(|name| !slots.iter().flatten().any(|slot| slot == name) && !is_selected(name))
            .collect();
        self.left.retain(|name, _| left.contains(name));
        for name in left {
            let steps = self.left.entry(name.clone()).or_default();
            *steps += 1;
            assert!(*steps <= 2, "{name} has no deletion time");
        }
    }

    /// Sends a request to every endpoint. Returns how many reply, and which do not.
    pub(crate) fn requests(&self) -> (usize, Vec<String>) {
        let mut services = vec![format!("{}-serve-svc", self.name())];
        if let Some(route) = self.api.objects.get(&key(Kind::HttpRoute, &format!("{}-httproute", self.name()))) {
            let backends = route["spec"]["rules"][0]["backendRefs"].as_array().cloned().unwrap_or_default();
            let used = backends.iter().filter(|backend| backend["weight"] != 0);
            services = used.map(|backend| backend["name"].as_str().unwrap_or_default().to_owned()).collect();
        }
        let slices = services.iter().filter_map(|name| self.api.objects.get(&key(Kind::EndpointSlice, name)));
        let endpoints = slices.flat_map(|slice| slice["endpoints"].as_array().cloned().unwrap_or_default());
        let ready = endpoints.filter(|endpoint| endpoint["conditions"]["ready"] == true);
        let pods = self.api.all(Kind::Pod);
        let (mut answered, mut failed) = (0, Vec::new());
        for endpoint in ready {
            let uid = &endpoint["targetRef"]["uid"];
            match pods.iter().find(|pod| pod["metadata"]["uid"] == *uid) {
                Some(pod) if self.answers(pod) => answered += 1,
                pod => failed.push(format!("{uid} {:?}", pod.map(|pod| &pod["metadata"]["name"]))),
            }
        }
        (answered, failed)
    }

    fn answers(&self, pod: &Value) -> bool {
        let labels = &pod["metadata"]["labels"];
        let cluster = labels[CLUSTER].as_str().unwrap_or_default();
        let proxy_down = labels[NODE_TYPE] == HEAD && self.proxy_down.contains(cluster);
        let apps = self.apps.get(cluster).filter(|apps| !apps.is_empty());
        let running = apps.is_some_and(|apps| apps.values().all(|app| app["status"] == "RUNNING"));
        running && !proxy_down && self.capacities(cluster).last() != Some(&0)
    }

    pub(crate) fn name(&self) -> &str {
        self.service.metadata.name.as_deref().unwrap_or_default()
    }

    pub(crate) fn object(&mut self, kind: Kind, name: &str) -> &mut Value {
        self.api.objects.get_mut(&key(kind, name)).unwrap_or_else(|| panic!("no {kind:?} {name}"))
    }

    pub(crate) fn clusters(&self) -> usize {
        self.api.names(Kind::RayCluster).len()
    }

    pub(crate) fn status(&self) -> RayServiceStatus {
        self.service.status.clone().unwrap_or_default()
    }

    pub(crate) fn active(&self) -> String {
        let slot = self.status().active_service_status.unwrap_or_default();
        slot.ray_cluster_name.unwrap_or_default()
    }

    pub(crate) fn pending(&self) -> String {
        let slot = self.status().pending_service_status.unwrap_or_default();
        slot.ray_cluster_name.unwrap_or_default()
    }

    /// Returns capacity and traffic of the active and of the pending cluster.
    pub(crate) fn shares(&self) -> [(Option<i32>, Option<i32>); 2] {
        let status = self.status();
        [status.active_service_status, status.pending_service_status].map(|slot| {
            let slot = slot.unwrap_or_default();
            (slot.target_capacity, slot.traffic_routed_percent)
        })
    }

    /// Returns the weights in the route.
    pub(crate) fn weights(&self) -> Vec<i64> {
        let Some(route) = self.api.objects.get(&key(Kind::HttpRoute, &format!("{}-httproute", self.name()))) else {
            return Vec::new();
        };
        let backends = route["spec"]["rules"][0]["backendRefs"].as_array().cloned().unwrap_or_default();
        backends.iter().map(|backend| backend["weight"].as_i64().unwrap_or(1)).collect()
    }

    pub(crate) fn endpoints(&self) -> i32 {
        self.status().num_serve_endpoints.unwrap_or(0)
    }

    pub(crate) fn full_condition(&self, type_: &str) -> Option<Condition> {
        self.status().conditions.unwrap_or_default().into_iter().find(|condition| condition.type_ == type_)
    }

    /// Returns status and reason of a condition.
    pub(crate) fn condition(&self, type_: &str) -> (&str, &str) {
        let list = self.service.status.as_ref().and_then(|status| status.conditions.as_ref());
        let condition = list.into_iter().flatten().find(|condition| condition.type_ == type_);
        condition.map_or(("", ""), |condition| (condition.status.as_str(), condition.reason.as_str()))
    }

    /// Returns the notes of the events with this reason, without repetitions.
    pub(crate) fn notes(&self, reason: &str) -> Vec<String> {
        let mut notes: Vec<String> =
            self.api.events.iter().filter(|event| event.reason == reason).map(|event| event.note.clone()).collect();
        notes.dedup();
        notes
    }

    /// Returns the cluster that a Service leads to.
    pub(crate) fn leads_to(&self, service: &str) -> String {
        let found = self.api.objects.get(&key(Kind::Service, service));
        found.and_then(|service| service["spec"]["selector"][CLUSTER].as_str()).unwrap_or_default().to_owned()
    }

    /// Returns the capacities that a cluster was sent, in order.
    pub(crate) fn capacities(&self, cluster: &str) -> Vec<i64> {
        let sent = self.puts.iter().filter(|(to, _)| to == cluster);
        sent.filter_map(|(_, body)| body["target_capacity"].as_i64()).collect()
    }

    pub(crate) fn delete_service(&mut self) {
        self.service.metadata.deletion_timestamp = Some(Time(self.now));
    }
}

pub(crate) fn key(kind: Kind, name: &str) -> ObjectKey {
    ObjectKey::new(kind, "ns", name)
}

fn gateway_status() -> Value {
    json!({"conditions": [{"type": "Accepted", "status": "True"}, {"type": "Programmed", "status": "True"}]})
}

fn route_status(gateway: &str) -> Value {
    let conditions = json!([{"type": "Accepted", "status": "True"}, {"type": "ResolvedRefs", "status": "True"}]);
    json!({"parents": [{"parentRef": {"name": gateway}, "conditions": conditions}]})
}
