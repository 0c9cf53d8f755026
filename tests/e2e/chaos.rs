//! A RayService that is asked all the time, while Pods, Ray's processes and local mode itself are killed.
//!
//! `make chaos-local` runs this with more rounds and prints how many requests failed, and why.

use std::collections::BTreeMap;
use std::path::Path;
use std::process::Command;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use k8s_openapi::api::core::v1::Pod;
use kube::ResourceExt;
use kube::api::DeleteParams;
use manta_logic::splitmix;
use serde_json::{Value, json};
use tempfile::TempDir;

use crate::kills::{Traces, family};
use crate::up::{MANTA, folder, wait_for};
use crate::user::{Machine, User, example, poll};

/// How long a request may take.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The pause between two requests.
const PAUSE: Duration = Duration::from_millis(100);
/// So many requests in a row must be answered before the next kill.
const IN_A_ROW: usize = 30;

/// What is killed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Victim {
    Nothing,
    /// `raylet` in the worker.
    WorkerProcess,
    WorkerPod,
    /// `gcs_server` in the head.
    HeadProcess,
    HeadPod,
    /// The process of local mode that runs the API server, the operator and the agent.
    ServerAndAgent,
    /// The first process of local mode.
    LocalMode,
}

const VICTIMS: [Victim; 6] = [
    Victim::WorkerProcess,
    Victim::WorkerPod,
    Victim::HeadProcess,
    Victim::HeadPod,
    Victim::ServerAndAgent,
    Victim::LocalMode,
];

/// How many times each is killed; `make chaos-local` sets `MANTA_CHAOS_ROUNDS`.
fn rounds() -> usize {
    std::env::var("MANTA_CHAOS_ROUNDS").ok().and_then(|n| n.parse().ok()).unwrap_or(3)
}

fn seed() -> u64 {
    let fresh = || u64::from(std::process::id());
    std::env::var("SEED").ok().and_then(|n| n.parse().ok()).unwrap_or_else(fresh)
}

pub(crate) async fn a_service_is_back_after_every_kill() {
    let mut seed = seed();
    println!("make chaos-local SEED={seed}");
    let folder = Arc::new(folder());
    let mut machine = Machine::run(Arc::clone(&folder), &[]).await;
    machine.user_of("default").apply(&service()).await;
    let asker = Asker::start(Arc::clone(&folder));
    asker.until_answered(&machine.user_of("default")).await;
    asker.forget();
    asker.until_answered(&machine.user_of("default")).await;
    for _ in 0..rounds() {
        let mut victims = VICTIMS.to_vec();
        while !victims.is_empty() {
            let victim =
                victims.swap_remove(usize::try_from(splitmix::next(&mut seed) % victims.len() as u64).expect("few"));
            asker.begin(victim);
            machine = kill(victim, machine).await;
            asker.begin_row();
            asker.until_answered(&machine.user_of("default")).await;
        }
    }
    let tally = asker.tally();
    print_table(&tally);
    assert_eq!(tally[&Victim::Nothing].failed, 0, "requests fail while nothing is killed");
    drop(asker);

    let traces = Traces::of(machine.pid(), folder.path());
    let down = Command::new(MANTA).arg("down").arg("--state").arg(folder.path()).status().expect("manta down");
    assert!(down.success(), "manta down: {down}");
    drop(machine);
    wait_for(|| traces.left().is_empty().then_some(()));
    assert_eq!(manta_agent::clean_leftovers(folder.path()), None, "control groups are gone");
}

/// Kills something. Returns the local mode that runs afterwards.
async fn kill(victim: Victim, machine: Machine) -> Machine {
    let user = machine.user_of("default");
    match victim {
        Victim::Nothing => machine,
        Victim::WorkerProcess | Victim::HeadProcess => {
            let (group, container, process) = match victim {
                Victim::WorkerProcess => ("worker", "ray-worker", "raylet"),
                _ => ("head", "ray-head", "gcs_server"),
            };
            let pod = pod_of(&user, group).await;
            let kill = ["pkill", "-KILL", "-f", &format!("/{process}")];
            // The command may be killed with the container.
            let _ = user.run_in(&pod.name_any(), container, &kill).await;
            until_replaced(&user, group, &pod).await;
            machine
        }
        Victim::WorkerPod | Victim::HeadPod => {
            let group = if victim == Victim::HeadPod { "head" } else { "worker" };
            let pod = pod_of(&user, group).await;
            let now = DeleteParams::default().grace_period(0);
            let _ = user.pods().delete(&pod.name_any(), &now).await.expect("deleted");
            until_replaced(&user, group, &pod).await;
            machine
        }
        Victim::ServerAndAgent => {
            let traces = Traces::of(machine.pid(), machine.folder());
            let server = server(machine.pid());
            assert!(Command::new("kill").args(["-KILL", &server.to_string()]).status().expect("kill").success());
            // The rest ends with it.
            wait_for(|| traces.left().iter().all(|left| *left == format!("process {}", machine.pid())).then_some(()));
            Machine::run(machine.kill(), &[]).await
        }
        Victim::LocalMode => Machine::run(machine.kill(), &[]).await,
    }
}

/// Returns a running Pod of the service, once there is one.
async fn pod_of(user: &User, node_type: &str) -> Pod {
    running_pod(user, node_type, |_| true).await
}

/// Waits until another Pod runs than the one that was killed, or another instance of its containers. Before that, requests may be
/// answered although what answers them is about to end.
async fn until_replaced(user: &User, node_type: &str, killed: &Pod) {
    let incarnation = |pod: &Pod| {
        let statuses = pod.status.as_ref().and_then(|status| status.container_statuses.as_ref());
        let restarts: i32 = statuses.into_iter().flatten().map(|status| status.restart_count).sum();
        (pod.uid(), restarts)
    };
    running_pod(user, node_type, |pod| incarnation(pod) != incarnation(killed)).await;
}

async fn running_pod(user: &User, node_type: &str, is_wanted: impl Fn(&Pod) -> bool) -> Pod {
    let selector = format!("ray.io/node-type={node_type}");
    let runs = |pod: &Pod| crate::user::is_ready(pod) && pod.metadata.deletion_timestamp.is_none();
    poll(|| async { user.pods_with(&selector).await.into_iter().find(|pod| runs(pod) && is_wanted(pod)) }).await
}

/// Returns the process with the API server, the operator and the agent: the only one of local mode with many threads.
fn server(root: u32) -> u32 {
    let program = |pid: u32| std::fs::read_link(format!("/proc/{pid}/exe")).ok();
    let threads = |pid: u32| std::fs::read_dir(format!("/proc/{pid}/task")).map_or(0, Iterator::count);
    let ours = family(root).into_iter().filter(|pid| program(*pid) == program(root));
    ours.max_by_key(|pid| threads(*pid)).expect("a process")
}

/// Returns the example's service with a replica on the head and one on a worker.
fn service() -> Vec<Value> {
    let mut documents = example("rayservice.yaml");
    let spec = &mut documents[1]["spec"];
    let config = spec["serveConfigV2"].as_str().expect("a config").to_owned();
    let spread = "- name: Greeter\n    num_replicas: 2\n    max_replicas_per_node: 1\n";
    let config = config.replace("- name: Greeter\n", spread);
    assert!(config.contains("num_replicas"), "{config}");
    spec["serveConfigV2"] = json!(config);
    let mut template = spec["rayClusterConfig"]["headGroupSpec"]["template"].clone();
    template["spec"]["containers"][0]["name"] = json!("ray-worker");
    template["spec"]["containers"][0].as_object_mut().expect("a container").remove("ports");
    spec["rayClusterConfig"]["workerGroupSpecs"] = json!([{
        "groupName": "small", "replicas": 1, "minReplicas": 1, "maxReplicas": 1,
        "rayStartParams": {"num-cpus": "1"}, "template": template,
    }]);
    documents
}

/// What became of the requests while something was killed, until the next kill.
#[derive(Debug, Default, Clone)]
struct Outcome {
    kills: usize,
    answered: usize,
    failed: usize,
    /// The longest time without a response.
    longest: Duration,
    /// The errors, and how often they came.
    errors: BTreeMap<String, usize>,
}

#[derive(Debug)]
struct Asked {
    victim: Victim,
    outcomes: BTreeMap<Victim, Outcome>,
    in_a_row: usize,
    failing_since: Option<Instant>,
}

/// Sends requests one after the other, through the port of this machine that leads to the service.
struct Asker {
    asked: Arc<Mutex<Asked>>,
    task: tokio::task::JoinHandle<()>,
}

impl Asker {
    fn start(folder: Arc<TempDir>) -> Self {
        let asked = Asked { victim: Victim::Nothing, outcomes: BTreeMap::new(), in_a_row: 0, failing_since: None };
        let asked = Arc::new(Mutex::new(asked));
        let shared = Arc::clone(&asked);
        // A connection for every request.
        let client = reqwest::Client::builder().pool_max_idle_per_host(0).timeout(REQUEST_TIMEOUT).build();
        let client = client.expect("a client");
        let task = tokio::spawn(async move {
            loop {
                let response = ask(&client, folder.path()).await;
                lock(&shared).note(response);
                tokio::time::sleep(PAUSE).await;
            }
        });
        Self { asked, task }
    }

    /// Counts from now on as requests during and after this kill.
    fn begin(&self, victim: Victim) {
        let mut asked = lock(&self.asked);
        asked.victim = victim;
        asked.outcomes.entry(victim).or_default().kills += 1;
        println!("kill: {victim:?}");
    }

    /// Begins to count those in a row.
    fn begin_row(&self) {
        lock(&self.asked).in_a_row = 0;
    }

    /// Forgets all requests so far.
    fn forget(&self) {
        let mut asked = lock(&self.asked);
        asked.outcomes.clear();
        asked.in_a_row = 0;
    }

    /// Waits until the service is ready and many requests in a row were answered.
    async fn until_answered(&self, user: &User) {
        user.until("RayService", "greeter", |status| {
            let conditions = status["conditions"].as_array()?;
            let ready = conditions.iter().any(|c| c["type"] == "Ready" && c["status"] == "True");
            (ready && lock(&self.asked).in_a_row >= IN_A_ROW).then_some(())
        })
        .await;
        pod_of(user, "worker").await;
    }

    fn tally(&self) -> BTreeMap<Victim, Outcome> {
        lock(&self.asked).outcomes.clone()
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl Asked {
    fn note(&mut self, response: Result<(), String>) {
        let outcome = self.outcomes.entry(self.victim).or_default();
        match response {
            Ok(()) => {
                outcome.answered += 1;
                self.in_a_row += 1;
                if let Some(since) = self.failing_since.take() {
                    outcome.longest = outcome.longest.max(since.elapsed());
                }
            }
            Err(error) => {
                outcome.failed += 1;
                *outcome.errors.entry(error).or_default() += 1;
                self.in_a_row = 0;
                self.failing_since.get_or_insert_with(Instant::now);
            }
        }
    }
}

fn lock(asked: &Mutex<Asked>) -> std::sync::MutexGuard<'_, Asked> {
    asked.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Asks the service once. The error is short, so that equal ones can be counted.
async fn ask(client: &reqwest::Client, state: &Path) -> Result<(), String> {
    let url = address(state).ok_or("no port leads to it")?;
    let response = client.get(url).send().await.map_err(|error| match error {
        error if error.is_timeout() => format!("no response within {} s", REQUEST_TIMEOUT.as_secs()),
        error if error.is_connect() => "connection refused".to_owned(),
        _ => "connection closed".to_owned(),
    })?;
    let status = response.status();
    if status.is_success() { Ok(()) } else { Err(format!("status {}", status.as_u16())) }
}

/// Returns the URL of the service, as `manta status` shows it.
fn address(state: &Path) -> Option<String> {
    let addresses: Value = serde_json::from_str(&std::fs::read_to_string(state.join("addresses.json")).ok()?).ok()?;
    let is_service =
        |address: &&Value| address["object"] == "RayService default/greeter" && address["endpoint"] == "serve";
    Some(addresses.as_array()?.iter().find(is_service)?["url"].as_str()?.to_owned())
}

fn print_table(tally: &BTreeMap<Victim, Outcome>) {
    println!(
        "| killed | times | answered | failed | longest without a response | errors |\n| --- | --- | --- | --- | --- | --- |"
    );
    for (victim, Outcome { kills, answered, failed, longest, errors }) in tally {
        let errors: Vec<String> = errors.iter().map(|(error, count)| format!("{error}: {count}")).collect();
        let longest = longest.as_secs_f64();
        println!("| {victim:?} | {kills} | {answered} | {failed} | {longest:.1} s | {} |", errors.join(", "));
    }
}
