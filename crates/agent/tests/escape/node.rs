//! The node under attack: an agent, an API server, a victim, and the pods of the attacker.

use std::future::Future;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::{SocketAddr as UnixAddr, UnixListener};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use futures::{FutureExt, StreamExt};
use k8s_openapi::api::core::v1::{Event, Pod};
use kube::api::{DeleteParams, ListParams, PostParams};
use kube::{Api, Client};
use manta_agent::exec::Streams;
use manta_agent::gpus::Gpus;
use manta_agent::images::{Catalog, Mapping};
use manta_agent::logs::LogQuery;
use manta_agent::mounts::Mounts;
use manta_agent::network::egress::Internet;
use manta_agent::pod::Backoff;
use manta_agent::runtime::isolation::Spawners;
use manta_agent::runtime::{IsolatedProcess, lock};
use manta_agent::{Agent, Config, network};
use manta_apiserver::{Options, Server};
use manta_testkit::{Tally, within};
use serde_json::{Value, json};
use tokio_util::sync::CancellationToken;

/// What no container may ever read.
pub(crate) const SECRET: &str = "the-victims-secret";
/// Printed by an attack that got through.
pub(crate) const ESCAPED: &str = "ESCAPED";

/// Everything an attack needs to know.
pub(crate) struct Node {
    pub(crate) client: Client,
    pub(crate) agent: Agent,
    /// A folder of the host, with a file that holds [`SECRET`].
    pub(crate) victim: PathBuf,
    /// The Python environment that the attacker's image maps to.
    pub(crate) environment: PathBuf,
    pub(crate) state: PathBuf,
    /// A service on the host's loopback, and one on the node's.
    pub(crate) host_port: u16,
    pub(crate) node_port: u16,
    pub(crate) admin_token: String,
    pub(crate) is_root: bool,
}

/// Runs the node and all attacks; returns the exit code.
pub(crate) fn run(process: IsolatedProcess, dir: &Path, form: &str) -> i32 {
    network::prepare_node_network().expect("the node's network");
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().expect("tokio");
    runtime.block_on(async {
        let Spawners { containers, host, .. } = process.connect().expect("spawners");
        let (victim, environment, state) = (dir.join("victim"), dir.join("environment"), dir.join("state"));
        lock::make_private(&state).expect("a state folder");
        std::fs::create_dir_all(environment.join("bin")).expect("an environment");
        std::fs::write(environment.join("bin/tool"), "#!/bin/sh\n").expect("a tool");
        std::fs::create_dir_all(&victim).expect("a victim");
        std::fs::write(victim.join("file"), SECRET).expect("a secret");

        let host_service = host.listen("127.0.0.1:0".parse().expect("an address")).await.expect("a host port");
        let node_service = std::net::TcpListener::bind("127.0.0.1:0").expect("a port of the node");
        let abstract_name = UnixAddr::from_abstract_name("manta-escape").expect("a name");
        let _abstract_service = UnixListener::bind_addr(&abstract_name).expect("an abstract socket");

        let options =
            Options { admit_service_accounts: true, volumes: Some(state.join("claims")), ..Options::default() };
        let server = Server::start(options).await.expect("an API server");
        let stop = CancellationToken::new();
        let (sender, receiver) = tokio::sync::oneshot::channel();
        let config = config(&state, &environment, server.identity().ca_pem.clone());
        let run = Agent::run(config, server.client(), containers, host, stop.clone(), |agent| {
            let _ = sender.send(agent);
        });
        let running = tokio::spawn(run);
        let agent = receiver.await.expect("the agent runs");
        let node = Node {
            client: server.client(),
            agent,
            victim,
            environment,
            state,
            host_port: host_service.local_addr().expect("an address").port(),
            node_port: node_service.local_addr().expect("an address").port(),
            admin_token: server.identity().admin_token.clone(),
            is_root: form == "root",
        };
        let passed = attack(&node, form).await;
        stop.cancel();
        within("the end of the agent", running).await.expect("an end").expect("no panic").expect("an orderly end");
        server.stop().await;
        i32::from(!passed)
    })
}

fn config(state: &Path, environment: &Path, cluster_ca: String) -> Config {
    let mapping = |image: &str, environment: Option<PathBuf>| Mapping {
        image: image.into(),
        environment,
        entrypoint: vec!["sh".into(), "-c".into()],
        ..Mapping::default()
    };
    Config {
        node_name: "local".into(),
        state: state.to_path_buf(),
        cpu_milli: 64_000,
        memory_bytes: 64 << 30,
        gpus: Gpus::default(),
        catalog: Catalog {
            mappings: vec![mapping("tools", None), mapping("python", Some(environment.to_path_buf()))],
            ..Catalog::default()
        },
        progress: std::sync::Arc::new(|_| ()),
        backoff: Backoff::LOCAL,
        eager_readiness: true,
        host_paths: false,
        mounts: Mounts::default(),
        cluster_ca,
        api_backend: None,
        env_without_cgroups: Vec::new(),
        internet: Internet::default(),
        shared_host: None,
    }
}

async fn attack(node: &Node, form: &str) -> bool {
    let mut tally = Tally::default();
    let mut record = async |name: &str, test: futures::future::BoxFuture<'_, ()>| {
        let began = Instant::now();
        let done = tokio::time::timeout(Duration::from_secs(60), AssertUnwindSafe(test).catch_unwind()).await;
        tally.record(&format!("{form}::{name}"), matches!(done, Ok(Ok(()))), began.elapsed());
    };
    let attacker = system::prepare(node).await;
    for (name, script) in system::attacks(node) {
        record(name, system::must_fail(node, &attacker, script).boxed()).await;
    }
    for (name, test) in system::checks(node, &attacker) {
        record(name, test).await;
    }
    for (name, test) in spec::attacks(node) {
        record(name, test).await;
    }
    for (name, test) in spec::unguarded(node) {
        record(name, test).await;
    }
    tally.finish()
}

use crate::{spec, system};

impl Node {
    pub(crate) fn pods(&self) -> Api<Pod> {
        Api::namespaced(self.client.clone(), "default")
    }

    pub(crate) async fn try_create(&self, name: &str, spec: Value) -> Result<Pod, String> {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec});
        let pod: Pod = serde_json::from_value(pod).expect("a pod");
        self.pods().create(&PostParams::default(), &pod).await.map_err(|e| e.to_string())
    }

    pub(crate) async fn create(&self, name: &str, spec: Value) -> Pod {
        self.try_create(name, spec).await.expect("created")
    }

    /// Waits until the pod is as wanted.
    pub(crate) async fn until<T>(&self, name: &str, want: impl Fn(&Pod) -> Option<T>) -> T {
        poll(|| async { want(&self.pods().get_opt(name).await.expect("the API")?) }).await
    }

    pub(crate) async fn running(&self, name: &str) -> Pod {
        self.until(name, |p| (phase(p) == Some("Running")).then(|| p.clone())).await
    }

    /// Waits for the end of a pod and returns what it printed.
    pub(crate) async fn output(&self, name: &str) -> String {
        let pod = self.until(name, |p| matches!(phase(p), Some("Succeeded" | "Failed")).then(|| p.clone())).await;
        let uid = pod.metadata.uid.as_deref().expect("a uid");
        match self.agent.logs(uid, "c", false, LogQuery::default()).await {
            Ok(mut stream) => {
                let mut text = Vec::new();
                while let Some(piece) = stream.next().await {
                    text.extend_from_slice(&piece.expect("a piece"));
                }
                String::from_utf8_lossy(&text).into_owned()
            }
            Err(error) => error.to_string(),
        }
    }

    /// Waits until an event on the pod holds all these words.
    pub(crate) async fn event(&self, pod: &str, words: &[&str]) -> String {
        let events: Api<Event> = Api::namespaced(self.client.clone(), "default");
        poll(|| async {
            let list = events.list(&ListParams::default()).await.expect("events");
            let about = list.items.into_iter().filter(|e| e.involved_object.name.as_deref() == Some(pod));
            let mut notes = about.filter_map(|e| e.message);
            notes.find(|note| words.iter().all(|word| note.contains(word)))
        })
        .await
    }

    /// Creates a pod that the agent must refuse, with an event that names the field.
    pub(crate) async fn refused(&self, name: &str, spec: Value, words: &[&str]) {
        // An API server that refuses it first is just as good.
        if self.try_create(name, spec).await.is_ok() {
            self.event(name, words).await;
            self.delete(name).await;
        }
        self.assert_untouched();
    }

    pub(crate) async fn delete(&self, name: &str) {
        self.pods().delete(name, &DeleteParams::default().grace_period(0)).await.expect("deleted");
        poll(|| async { self.pods().get_opt(name).await.expect("the API").is_none().then_some(()) }).await;
    }

    /// The victim's folder is as it was.
    pub(crate) fn assert_untouched(&self) {
        let entries: Vec<_> = std::fs::read_dir(&self.victim).expect("a folder").flatten().collect();
        assert_eq!(entries.len(), 1, "{entries:?}");
        assert_eq!(std::fs::read_to_string(self.victim.join("file")).expect("a file"), SECRET);
    }

    /// Runs a command in a pod; returns its exit code and output.
    pub(crate) async fn exec(&self, pod: &Pod, command: &[&str]) -> (i32, String) {
        let (stdout, mut out) = tokio::sync::mpsc::channel(64);
        let (_sizes, resize) = tokio::sync::mpsc::channel(1);
        let streams = Streams { stdin: None, stdout: stdout.clone(), stderr: stdout, resize };
        let reading = tokio::spawn(async move {
            let mut text = String::new();
            while let Some(bytes) = out.recv().await {
                text.push_str(&String::from_utf8_lossy(&bytes));
            }
            text
        });
        let command = command.iter().map(|part| (*part).to_owned()).collect();
        let uid = pod.metadata.uid.as_deref().expect("a uid");
        let code = self.agent.exec(uid, "c", command, false, streams).await.expect("ran");
        (code, reading.await.expect("output"))
    }
}

pub(crate) fn phase(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.phase.as_deref()
}

/// A pod of one container that runs a script.
pub(crate) fn shell(script: &str) -> Value {
    json!({"restartPolicy": "Never", "terminationGracePeriodSeconds": 0,
           "containers": [{"name": "c", "image": "tools:1", "command": ["bash", "-c", script]}]})
}

/// Asks again until there is an answer; the caller has the deadline.
pub(crate) async fn poll<T, F: Future<Output = Option<T>>>(ask: impl Fn() -> F) -> T {
    let mut tick = tokio::time::interval(Duration::from_millis(50));
    loop {
        tick.tick().await;
        if let Some(answer) = ask().await {
            return answer;
        }
    }
}
