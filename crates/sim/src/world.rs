//! One world: the API server with its controllers, the operator, nodes, Ray and users, on one thread and one clock.

use crate::checker::Checker;
use crate::kubelet::{Known, Kubelet};
use crate::network::Network;
use crate::ray::Ray;
use crate::rng::Rng;
use crate::script::{Act, Script, Timed};
use crate::transcript::Transcript;
use anyhow::{Context, Result};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Pod, Secret};
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{Api, DeleteParams, ListParams, Patch, PatchParams, PostParams};
use kube::core::{ApiResource, DynamicObject, GroupVersionKind};
use kube::{Client, ResourceExt};
use manta_api::crd::{self, Versions};
use manta_apiserver::{Options, Server};
use manta_operator::Settings;
use manta_operator::clock::Clock;
use manta_operator::dashboard::Route;
use manta_operator::random::Random;
use serde_json::{Value, json};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

/// When every world begins.
const BEGINNING: i64 = 1_767_225_600;
/// Within this time after the last fault everything must be as the specs ask.
const PATIENCE: Duration = Duration::from_secs(1_200);
/// At rest nothing is written for this time.
const REST: Duration = Duration::from_secs(400);
const NAMESPACE: &str = "default";

/// What became of a world.
#[derive(Clone, Debug)]
pub struct Report {
    /// What went wrong, if anything did.
    pub violation: Option<String>,
    pub transcript: String,
    /// How many writes operators sent.
    pub writes: u64,
    /// How much time passed in the world.
    pub time: Duration,
}

/// Runs the script in a world of its own.
///
/// # Errors
///
/// If the world cannot be set up.
pub fn run(script: &Script) -> Result<Report> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().start_paused(true).build()?;
    runtime.block_on(async {
        let world = World::start(script).await?;
        let violation = world.play(script).await;
        let time = world.start.elapsed();
        Ok(Report { violation, transcript: world.transcript.text(), writes: world.network.writes(), time })
    })
}

struct World {
    start: Instant,
    client: Client,
    rng: Rng,
    transcript: Transcript,
    ray: Ray,
    network: Network,
    kubelet: Kubelet,
    checker: Checker,
    clock: Clock,
    _server: Server,
}

impl World {
    async fn start(script: &Script) -> Result<Self> {
        let rng = Rng::new(script.seed);
        let clock = Clock::from_timers(Timestamp::from_second(BEGINNING)?);
        let transcript = Transcript::new();
        let options = Options {
            trust_everyone: true,
            clock: Some(manta_apiserver::clock::Clock::new(move || clock.now(), rng.next())),
            ..Options::default()
        };
        let server = Server::start(options).await?;
        let client = server.client();
        install_crds(&client).await?;
        let ray = Ray::new(rng.clone(), transcript.clone());
        let network = Network::new(client.clone(), ray.clone(), rng.clone(), transcript.clone(), script.faults.clone());
        let kubelet = Kubelet {
            client: client.clone(),
            ray: ray.clone(),
            rng: rng.clone(),
            transcript: transcript.clone(),
            known: Arc::new(std::sync::Mutex::new(Known::default())),
            addresses: Arc::default(),
        };
        let checker = Checker::new(transcript.clone());
        tokio::spawn(checker.clone().run(client.clone()));
        tokio::spawn(kubelet.clone().run());
        Ok(Self {
            start: Instant::now(),
            client,
            rng,
            transcript,
            ray,
            network,
            kubelet,
            checker,
            clock,
            _server: server,
        })
    }

    /// Plays the script to its end, and then waits for everything to be as it should. Returns what went wrong.
    async fn play(&self, script: &Script) -> Option<String> {
        let mut operator = Some(self.start_operator());
        let mut down_until = self.start;
        let mut acts = script.acts.iter();
        let mut next = acts.next();
        let over = self.start + Duration::from_millis(script.acts.last().map_or(0, |timed| timed.at) + 30_000);
        loop {
            let moment = next.map_or(over, |Timed { at, .. }| self.start + Duration::from_millis(*at));
            let moment = if operator.is_none() { moment.min(down_until) } else { moment };
            tokio::select! {
                biased;
                () = self.network.crash(), if operator.is_some() => {
                    self.stop_operator(operator.take());
                    down_until = Instant::now() + Duration::from_millis(self.rng.within(50..5_000));
                }
                () = sleep_until(moment) => {
                    if operator.is_none() && Instant::now() >= down_until {
                        operator = Some(self.start_operator());
                        continue;
                    }
                    match next {
                        Some(Timed { act: Act::Crash(millis), .. }) => {
                            self.transcript.line("world", "the operator dies");
                            self.stop_operator(operator.take());
                            down_until = Instant::now() + Duration::from_millis((*millis).into());
                        }
                        Some(Timed { act, .. }) => self.act(act).await,
                        None => break,
                    }
                    next = acts.next();
                }
            }
            if let Some(violation) = self.checker.violation() {
                return Some(violation);
            }
        }
        self.network.heal();
        self.transcript.line("world", "faults are over");
        if operator.is_none() {
            operator = Some(self.start_operator());
        }
        let violation = self.settle().await;
        self.stop_operator(operator);
        violation
    }

    /// Waits until everything is as it should, is at rest, and can be deleted.
    async fn settle(&self) -> Option<String> {
        if let Some(violation) = self.until(|| self.checker.unsettled()).await {
            return Some(violation);
        }
        self.transcript.line("world", "everything is as it should be");
        sleep(Duration::from_secs(60)).await;
        let before = self.network.writes();
        sleep(REST).await;
        let writes = self.network.writes() - before;
        if writes > 0 {
            return Some(format!("{writes} writes at rest"));
        }
        for kind in ["RayJob", "RayCluster"] {
            for object in self.ray_objects(kind).list(&ListParams::default()).await.ok()? {
                // It may be gone already, with the object that owns it.
                let _ = self.ray_objects(kind).delete(&object.name_any(), &DeleteParams::default()).await;
            }
        }
        self.transcript.line("world", "everything is deleted");
        let left = || Some(self.checker.left()).filter(|left| !left.is_empty()).map(|left| format!("left: {left:?}"));
        self.until(left).await
    }

    /// Waits until nothing is wrong any more, for as long as is acceptable. Returns what is wrong then.
    async fn until(&self, wrong: impl Fn() -> Option<String>) -> Option<String> {
        let end = Instant::now() + PATIENCE;
        loop {
            sleep(Duration::from_secs(1)).await;
            if let Some(violation) = self.checker.violation() {
                return Some(violation);
            }
            match wrong() {
                None => return None,
                Some(wrong) if Instant::now() > end => return Some(wrong),
                Some(_) => {}
            }
        }
    }

    fn start_operator(&self) -> RunningOperator {
        self.transcript.line("world", "the operator starts");
        let alive = Arc::new(AtomicBool::new(true));
        let stop = CancellationToken::new();
        let settings = Settings {
            host: "sim".to_owned(),
            dashboard_route: Route::ApiServerProxy,
            clock: self.clock,
            random: Random::seeded(self.rng.next()),
            ..Settings::default()
        };
        let task = tokio::spawn(manta_operator::run(self.network.client(&alive), settings, stop.clone()));
        RunningOperator { alive, stop, task }
    }

    fn stop_operator(&self, operator: Option<RunningOperator>) {
        if let Some(RunningOperator { alive, stop, task }) = operator {
            alive.store(false, Ordering::Relaxed);
            task.abort();
            stop.cancel();
        }
    }

    async fn act(&self, act: &Act) {
        self.transcript.line("world", format!("{act:?}"));
        match act {
            Act::CreateCluster { cluster, workers, token } => {
                let mut spec = cluster_spec(*workers);
                if *token {
                    spec["authOptions"] = json!({"mode": "token"});
                }
                self.create("RayCluster", &format!("c{cluster}"), spec).await;
            }
            Act::Scale { cluster, workers } => {
                let groups = cluster_spec(*workers)["workerGroupSpecs"].clone();
                self.patch("RayCluster", &format!("c{cluster}"), json!({"workerGroupSpecs": groups})).await;
            }
            Act::Suspend { cluster, suspend } => {
                self.patch("RayCluster", &format!("c{cluster}"), json!({"suspend": suspend})).await;
            }
            Act::DeleteCluster(cluster) => self.delete("RayCluster", &format!("c{cluster}")).await,
            Act::CreateJob { job, http, fails, retries, shutdown } => {
                let spec = json!({
                    "entrypoint": if *fails { "fail" } else { "succeed" },
                    "submissionMode": if *http { "HTTPMode" } else { "K8sJobMode" },
                    "backoffLimit": retries, "shutdownAfterJobFinishes": shutdown,
                    "rayClusterSpec": cluster_spec(1),
                });
                self.create("RayJob", &format!("j{job}"), spec).await;
            }
            Act::SuspendJob { job, suspend } => {
                self.patch("RayJob", &format!("j{job}"), json!({"suspend": suspend})).await;
            }
            Act::DeleteJob(job) => self.delete("RayJob", &format!("j{job}")).await,
            Act::FailPod(number) => {
                if let Some(pod) = self.pod(*number).await {
                    let containers = pod.spec.as_ref().map(|spec| spec.containers.as_slice()).unwrap_or_default();
                    let ended: Vec<Value> = containers
                        .iter()
                        .map(|container| json!({
                            "name": container.name, "image": "ray", "imageID": "", "ready": false, "restartCount": 0,
                            "state": {"terminated": {"exitCode": 1, "reason": "Error"}},
                        }))
                        .collect();
                    let conditions = json!([{"type": "Ready", "status": "False"}]);
                    let status = json!({"phase": "Failed", "containerStatuses": ended, "conditions": conditions});
                    self.kubelet.set_status(&pod, status).await;
                }
            }
            Act::DeletePod(number) => {
                if let Some(pod) = self.pod(*number).await {
                    let pods: Api<Pod> = Api::namespaced(self.client.clone(), NAMESPACE);
                    let _ = pods.delete(&pod.name_any(), &DeleteParams::default()).await;
                }
            }
            Act::DeleteSecret(cluster) => {
                let secrets: Api<Secret> = Api::namespaced(self.client.clone(), NAMESPACE);
                let _ = secrets.delete(&format!("c{cluster}"), &DeleteParams::default()).await;
            }
            Act::Silence(seconds) => self.ray.silence(Instant::now() + Duration::from_secs((*seconds).into())),
            Act::CutWatches => self.network.cut(),
            Act::ExpireWatches => self.network.expire(),
            Act::Lag { millis, seconds } => {
                let until = Instant::now() + Duration::from_secs((*seconds).into());
                self.network.lag(Duration::from_millis((*millis).into()), until);
            }
            Act::Crash(_) => {} // handled where the operator is
        }
    }

    async fn pod(&self, number: u8) -> Option<Pod> {
        let names = self.checker.pods();
        let name = names.get(usize::from(number) % names.len().max(1))?;
        Api::<Pod>::namespaced(self.client.clone(), NAMESPACE).get_opt(name).await.ok()?
    }

    fn ray_objects(&self, kind: &str) -> Api<DynamicObject> {
        let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("ray.io", "v1", kind));
        Api::namespaced_with(self.client.clone(), NAMESPACE, &resource)
    }

    // What users do may be refused: the object may be there already, or gone.

    async fn create(&self, kind: &str, name: &str, spec: Value) {
        let object = json!({"apiVersion": "ray.io/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        if let Ok(object) = serde_json::from_value(object) {
            let _ = self.ray_objects(kind).create(&PostParams::default(), &object).await;
        }
    }

    async fn patch(&self, kind: &str, name: &str, spec: Value) {
        let patch = Patch::Merge(json!({"spec": spec}));
        let _ = self.ray_objects(kind).patch(name, &PatchParams::default(), &patch).await;
    }

    async fn delete(&self, kind: &str, name: &str) {
        let _ = self.ray_objects(kind).delete(name, &DeleteParams::default()).await;
    }
}

struct RunningOperator {
    alive: Arc<AtomicBool>,
    stop: CancellationToken,
    task: JoinHandle<()>,
}

fn cluster_spec(workers: u8) -> Value {
    let container = |name: &str| json!({"name": name, "image": "rayproject/ray:2.53.0"});
    json!({
        "rayVersion": "2.53.0",
        "headGroupSpec": {"rayStartParams": {}, "template": {"spec": {"containers": [container("ray-head")]}}},
        "workerGroupSpecs": [{
            "groupName": "small", "replicas": workers, "minReplicas": 0, "maxReplicas": 10, "rayStartParams": {},
            "template": {"spec": {"containers": [container("ray-worker")]}},
        }],
    })
}

async fn install_crds(client: &Client) -> Result<()> {
    let api: Api<CustomResourceDefinition> = Api::all(client.clone());
    for crd in crd::all(Versions::V1) {
        api.create(&PostParams::default(), &crd).await.with_context(|| format!("cannot create {}", crd.name_any()))?;
    }
    Ok(())
}
