//! A server with a data file, its watchers, and what has to hold between them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use http_body_util::BodyExt;
use manta_apiserver::auth::User;
use manta_apiserver::store::{ObjectKey, Store};
use manta_apiserver::{Options, Server};
use serde_json::Value;
use tower::ServiceExt;

use crate::history::{self, Objects, Watchers};
use crate::requests::{self, Operation, Request, Target, Verb};

/// How long a restarted server may take to serve its custom kinds; generous, because the machine may be busy.
const TIMEOUT: Duration = Duration::from_secs(60);

/// What was done, by HTTP status.
#[derive(Debug, Default)]
pub(crate) struct Tally {
    responses: BTreeMap<u16, u64>,
    restarts: u64,
}

impl Tally {
    #[allow(clippy::print_stdout, reason = "the figures of a run by hand")]
    pub(crate) fn print(&self) {
        let total: u64 = self.responses.values().sum();
        println!("{total} requests, {} restarts, responses by status: {:?}", self.restarts, self.responses);
    }
}

pub(crate) struct World {
    folder: PathBuf,
    server: Server,
    watchers: Watchers,
    memory: Memory,
}

/// What later requests refer to.
#[derive(Default)]
struct Memory {
    /// Uids that a request may name as owner.
    uids: Vec<String>,
    /// Objects that were created.
    targets: Vec<Target>,
}

impl Memory {
    /// Returns an object to change: mostly one that was created, because few others exist.
    fn aim(&self, verb: Verb, target: Target, seed: u64) -> Target {
        let exists_already = !matches!(verb, Verb::Create | Verb::Apply | Verb::Damaged);
        match self.targets.get((seed / 4) as usize % self.targets.len().max(1)) {
            Some(known) if exists_already && !seed.is_multiple_of(4) => Target { status: target.status, ..*known },
            _ => target,
        }
    }
}

impl World {
    pub(crate) async fn open(folder: &Path) -> Result<World, String> {
        let options = Options {
            data: Some(folder.join("data")),
            volumes: Some(folder.join("claims")),
            admit_service_accounts: true,
            ..Options::default()
        };
        let server = Server::start(options).await.map_err(|error| format!("the server does not start: {error}"))?;
        let mut world =
            World { folder: folder.to_owned(), server, watchers: Watchers::default(), memory: Memory::default() };
        world.observe()?;
        Ok(world)
    }

    pub(crate) async fn apply(mut self, operation: &Operation, tally: &mut Tally) -> Result<World, String> {
        match operation {
            Operation::Restart => return self.restart(tally).await,
            Operation::Send(verb, target, seed) => {
                let target = self.memory.aim(*verb, *target, *seed);
                let request = self.request(*verb, target, *seed).await;
                let described = format!("{} {}", request.method, request.path);
                let is_write = request.method != http::Method::GET && !request.path.contains("dryRun");
                let (status, answer) = self.send(request).await;
                *tally.responses.entry(status).or_default() += 1;
                if status >= 500 && !is_kubernetes_own(&answer) {
                    return Err(format!("{described}: {status} {answer}"));
                }
                self.observe()?;
                if is_write && status < 300 {
                    self.check_acknowledged(&described, &answer)?;
                    if *verb == Verb::Create {
                        self.memory.targets.push(target);
                    }
                }
                self.check_panics()?;
            }
        }
        Ok(self)
    }

    async fn request(&self, verb: Verb, target: Target, seed: u64) -> Request {
        let current = match verb {
            Verb::Update => {
                let get =
                    Request { method: http::Method::GET, path: target.path(), content_type: "", body: Vec::new() };
                self.send(get).await
            }
            _ => (404, Value::Null),
        };
        let current = if current.0 == 200 { current.1 } else { Value::Null };
        requests::build(verb, target, seed, &current, &self.memory.uids)
    }

    async fn send(&self, request: Request) -> (u16, Value) {
        let mut built = http::Request::builder().method(request.method).uri(request.path);
        if !request.content_type.is_empty() {
            built = built.header("content-type", request.content_type);
        }
        let mut built = built.body(Body::from(request.body)).expect("a request");
        built.extensions_mut().insert(User::admin());
        let response = self.server.router().oneshot(built).await.expect("infallible");
        let status = response.status().as_u16();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
    }

    /// Watches new tables, and applies the events of all.
    fn observe(&mut self) -> Result<(), String> {
        let cluster = self.server.cluster();
        for resource in cluster.registry.now().tables().filter(|resource| resource.is_stored()) {
            self.watchers.watch(&cluster.store, &resource.table)?;
        }
        self.watchers.catch_up()
    }

    /// An acknowledged version of an object is durable, and its watchers have seen it.
    fn check_acknowledged(&mut self, request: &str, answer: &Value) -> Result<(), String> {
        let metadata = &answer["metadata"];
        let (Some(uid), Some(version)) = (metadata["uid"].as_str(), metadata["resourceVersion"].as_str()) else {
            return Ok(());
        };
        let revision: u64 = version.parse().map_err(|_| format!("{request}: the version {version} is no number"))?;
        let visible = self.server.cluster().store.visible();
        if revision > visible {
            return Err(format!("{request}: acknowledged at {revision}, durable up to {visible}"));
        }
        let expect = ObjectKey::new(text(&metadata["namespace"]), text(&metadata["name"]));
        match self.watchers.revisions.get(&revision) {
            Some((_, key)) if *key == expect => {}
            other => return Err(format!("{request}: watchers saw {other:?} at {revision}, not {expect:?}")),
        }
        if !self.memory.uids.iter().any(|known| known == uid) {
            self.memory.uids.push(uid.to_owned());
        }
        Ok(())
    }

    fn check_panics(&self) -> Result<(), String> {
        let panics = self.server.cluster().panics.counts();
        if panics.is_empty() { Ok(()) } else { Err(format!("panics: {panics:?}")) }
    }

    /// Stops the server, compares watchers, memory and data file, and starts it again.
    pub(crate) async fn restart(self, tally: &mut Tally) -> Result<World, String> {
        tally.restarts += 1;
        let World { folder, server, mut watchers, memory: referred } = self;
        let cluster = Arc::clone(server.cluster());
        server.stop().await;
        watchers.catch_up()?;
        let tables = watchers.tables();
        let memory = history::read(&cluster.store, &tables)?;
        history::compare("memory differs from what watchers saw", &watchers.objects, &memory)?;
        let revision = cluster.store.revision();
        let panics = cluster.panics.counts();
        if !panics.is_empty() {
            return Err(format!("panics: {panics:?}"));
        }
        drop((cluster, watchers));

        let store = Store::open(&folder.join("data")).map_err(|error| format!("the data does not open: {error}"))?;
        let disk = history::read(&store, &tables)?;
        history::compare("the data file differs from memory", &memory, &disk)?;
        if store.revision() != revision {
            return Err(format!("the revision was {revision} and is {}", store.revision()));
        }
        for table in &tables {
            if store.follow(table, revision).poll(1).map_or(true, |events| !events.is_empty()) {
                return Err(format!("a watch of {table} cannot continue at {revision}"));
            }
            if store.follow(table, revision - 1).poll(1).is_ok() {
                return Err(format!("a watch of {table} misses what came before {revision}"));
            }
        }
        drop(store);
        let mut world = World::open(&folder).await?;
        world.memory = referred;
        world.wait_for_custom_kinds(&disk).await?;
        Ok(world)
    }

    /// Waits until the kinds that were established are served again.
    async fn wait_for_custom_kinds(&mut self, disk: &Objects) -> Result<(), String> {
        let mut changes = self.server.cluster().registry.changes();
        for ((table, key), stored) in disk {
            if !table.starts_with("customresourcedefinitions") || !is_established(&stored.json) {
                continue;
            }
            let registry = &self.server.cluster().registry;
            let served = changes.wait_for(|_| registry.now().find_table(&key.name).is_some());
            if tokio::time::timeout(TIMEOUT, served).await.is_err() {
                return Err(format!("{} is not served after a restart", key.name));
            }
        }
        self.observe()
    }

    pub(crate) async fn close(self) {
        self.server.stop().await;
    }
}

/// Whether kube-apiserver answers 500 in the same words: it does for an applied object of the wrong type.
fn is_kubernetes_own(answer: &Value) -> bool {
    text(&answer["message"]).starts_with("failed to create typed patch object")
}

/// Whether a definition is established and stays.
fn is_established(json: &str) -> bool {
    let definition: Value = serde_json::from_str(json).unwrap_or_default();
    let conditions = definition["status"]["conditions"].as_array();
    let established = |condition: &Value| condition["type"] == "Established" && condition["status"] == "True";
    definition["metadata"]["deletionTimestamp"].is_null() && conditions.into_iter().flatten().any(established)
}

fn text(value: &Value) -> &str {
    value.as_str().unwrap_or_default()
}
