//! The pure plan of a RayCluster with many Pods.
//!
//! `speed PODS` prints passes a second, `count PODS CASE PASSES` runs that many for callgrind. `make bench SCENARIO=plan`
//! runs both.

#![allow(clippy::unwrap_used, clippy::print_stdout, reason = "a benchmark")]
#![allow(clippy::disallowed_methods, reason = "it measures time, which no decision reads")]

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use jiff::Timestamp;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use manta_api::RayCluster;
use manta_logic::action::{Action, Kind, ObjectKey, Stage};
use manta_logic::cluster::{InFlight, Observed};
use manta_logic::config::Config;
use manta_logic::pass::{Need, Pass, StatusWrite, StepResult};
use manta_logic::plan::{LookUps, LookedUp};
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

/// What passes are measured over: nothing to do, and all workers to create.
const CASES: [&str; 2] = ["at-rest", "starting"];
/// How long each of the batches takes whose median is printed.
const BATCH: Duration = Duration::from_millis(500);
const BATCHES: usize = 7;

fn main() {
    let args: Vec<String> = std::env::args().skip(1).collect();
    match args.iter().map(String::as_str).collect::<Vec<_>>().as_slice() {
        ["count", pods, case, passes] => {
            let seen = observe(case, pods.parse().expect("a number of Pods"));
            (0..passes.parse().expect("a number of passes")).for_each(|_| pass(black_box(&seen)));
        }
        ["speed", pods] => print_speed(pods.parse().expect("a number of Pods")),
        _ => print_speed(1_000),
    }
}

fn print_speed(pods: usize) {
    for case in CASES {
        let seen = observe(case, pods);
        let mut batches: Vec<f64> = (0..BATCHES).map(|_| passes_a_second(&seen)).collect();
        batches.sort_by(f64::total_cmp);
        println!("{case} {:.1}", batches[BATCHES / 2]);
    }
}

fn passes_a_second(seen: &Observed) -> f64 {
    let (begun, mut passes) = (Instant::now(), 0);
    while begun.elapsed() < BATCH {
        pass(black_box(seen));
        passes += 1;
    }
    f64::from(passes) / begun.elapsed().as_secs_f64()
}

/// Runs a whole pass; its writes succeed and have no effect.
fn pass(seen: &Observed) {
    black_box(run(seen, |_| {}));
}

/// Runs a pass, shows its stages, and returns the cluster's new status, if any.
fn run(seen: &Observed, mut execute: impl FnMut(&Stage)) -> Option<Value> {
    let config = Config::default();
    let mut pass = Pass::<RayCluster>::begin(seen, LookUps::new(), now(), &config);
    let mut status = None;
    loop {
        match pass.advance() {
            Need::LookUp(keys) => {
                let absent = keys.iter().map(|_: &ObjectKey| LookedUp::Absent).collect();
                pass.looked_up(absent);
            }
            Need::Poll(_) => {}
            Need::Publish(events) => drop(black_box(events)),
            Need::Execute(stage) => {
                execute(stage);
                let done = stage.into_iter().map(|_| StepResult::Done).collect();
                pass.executed(done, now());
            }
            Need::WriteStatus(written) => {
                status = Some(json!(written));
                pass.wrote_status(StatusWrite::Done);
            }
            Need::Done(_) => return status,
        }
    }
}

fn now() -> Timestamp {
    "2026-01-01T00:00:00Z".parse().unwrap()
}

/// Returns what is observed of a RayCluster with a head and the other Pods as workers.
fn observe(case: &str, pods: usize) -> Observed {
    let mut world = World { cluster: cluster(0), objects: Vec::new() };
    world.settle();
    world.cluster.spec = cluster(pods - 1).spec;
    if case == "at-rest" {
        world.settle();
        assert_eq!(world.observed().pods.len(), pods, "all Pods exist");
    }
    world.observed()
}

/// A RayCluster and its objects; writes take effect at once, and Pods are ready at once.
struct World {
    cluster: RayCluster,
    objects: Vec<(Kind, Value)>,
}

impl World {
    /// Runs passes until nothing changes.
    fn settle(&mut self) {
        for _ in 0..20 {
            let seen = self.observed();
            let mut created = Vec::new();
            let status = run(&seen, |stage| {
                for step in stage {
                    let Action::Create { key, body } = &step.action else { panic!("only creates: {step:?}") };
                    created.push((key.kind, body.value()));
                }
            });
            let at_rest = created.is_empty() && status.is_none();
            for (kind, mut object) in created {
                let number = self.objects.len();
                object["metadata"]["uid"] = json!(format!("u-{number}"));
                object["metadata"]["resourceVersion"] = json!(number.to_string());
                object["metadata"]["creationTimestamp"] = json!(now());
                if kind == Kind::Pod {
                    object["status"] = json!({
                        "phase": "Running", "podIP": format!("10.244.{}.{}", number / 250, number % 250),
                        "conditions": [{"type": "Ready", "status": "True"}],
                    });
                }
                self.objects.push((kind, object));
            }
            if let Some(status) = status {
                self.cluster.status = Some(serde_json::from_value(status).unwrap());
            }
            if at_rest {
                return;
            }
        }
        panic!("the cluster does not come to rest");
    }

    fn observed(&self) -> Observed {
        let mut pods = self.views(Kind::Pod);
        pods.sort_by(|a: &Arc<manta_logic::view::PodView>, b| a.metadata.name.cmp(&b.metadata.name));
        let seen = Observed {
            cluster: Arc::new(self.cluster.clone()),
            pods: Vec::new(),
            earlier_pods: Vec::new(),
            services: self.views(Kind::Service),
            cleanup_jobs: Vec::new(),
            related: Vec::new(),
            in_flight: InFlight::default(),
            seed: self.objects.len() as u64,
        };
        seen.with_pods(pods)
    }

    fn views<T: DeserializeOwned>(&self, kind: Kind) -> Vec<Arc<T>> {
        let of_kind = self.objects.iter().filter(|(found, _)| *found == kind);
        of_kind.map(|(_, object)| Arc::new(serde_json::from_value(object.clone()).unwrap())).collect()
    }
}

fn cluster(workers: usize) -> RayCluster {
    let template = |name: &str| {
        json!({"spec": {"containers": [{
            "name": name, "image": "rayproject/ray:2.52.0",
            "resources": {"limits": {"cpu": "1", "memory": "2Gi"}, "requests": {"cpu": "1", "memory": "2Gi"}},
        }]}})
    };
    let mut cluster: RayCluster = serde_json::from_value(json!({
        "metadata": {"name": "demo", "namespace": "ns", "uid": "u", "generation": 1, "resourceVersion": "1"},
        "spec": {
            "rayVersion": "2.52.0",
            "headGroupSpec": {"rayStartParams": {}, "template": template("ray-head")},
            "workerGroupSpecs": [{
                "groupName": "workers", "replicas": workers, "minReplicas": 0, "maxReplicas": 100_000, "numOfHosts": 1,
                "rayStartParams": {}, "template": template("ray-worker"),
            }],
        },
    }))
    .unwrap();
    cluster.metadata.creation_timestamp = Some(Time(now()));
    cluster
}
