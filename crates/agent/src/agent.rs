//! The node agent: runs a worker for every pod of the node, schedules pending pods, and updates the Service table.

use std::collections::{BTreeMap, HashMap, HashSet};
use std::net::{Ipv4Addr, SocketAddr};
use std::panic::AssertUnwindSafe;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use futures::FutureExt;
use futures::stream::BoxStream;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{ObjectReference, Pod};
use kube::runtime::events::{Event, EventType, Recorder, Reporter};
use kube::runtime::reflector::ObjectRef;
use kube::{Client, Resource};
use tokio::sync::broadcast::error::{RecvError, TryRecvError};
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::environments::Progress;
use crate::exec::{self, Streams};
use crate::gpus::{Allocations, Gpus};
use crate::images::Catalog;
use crate::installations::Installations;
use crate::logs::{Log, LogQuery};
use crate::mounts::Mounts;
use crate::network::egress::{self, Egress, Internet};
use crate::network::ipam::Ipam;
use crate::network::services::{self, Reach, Table};
use crate::network::{self, PodNetwork, dns, proxy};
use crate::node;
use crate::pod::Backoff;
use crate::runtime::Spawner;
use crate::runtime::cgroup::Cgroups;
use crate::runtime::memory;
use crate::runtime::user_namespace::IdMap;
use crate::scheduler::{self, NodeInfo, Verdict};
use crate::shared_host::{self, SharedHost};
use crate::stores::Stores;
use crate::worker::{ContainerUsage, Input, PodHandle, Worker};

/// How long a pod whose worker panicked is left alone.
const PANIC_BACKOFF: std::time::Duration = std::time::Duration::from_secs(10);

/// Receives the progress of installations.
pub type ProgressFn = Arc<dyn Fn(&Progress) + Send + Sync>;

/// How the agent behaves; read once.
#[derive(Clone)]
pub struct Config {
    pub node_name: String,
    /// Where pods keep their files; also names the control groups.
    pub state: PathBuf,
    /// The declared size of the node, in thousandths of a CPU.
    pub cpu_milli: i64,
    pub memory_bytes: i64,
    pub gpus: Gpus,
    pub catalog: Catalog,
    /// Called while an environment is installed.
    pub progress: ProgressFn,
    pub backoff: Backoff,
    /// Run readiness probes from the start, ahead of their initial delay.
    pub eager_readiness: bool,
    /// Allow hostPath volumes.
    pub host_paths: bool,
    /// Folders of the host that pods see besides.
    pub mounts: Mounts,
    /// The certificate of the API server's authority, in PEM.
    pub cluster_ca: String,
    /// Where connections to the API server's Service address go, unless it listens there itself.
    pub api_backend: Option<SocketAddr>,
    pub internet: Internet,
    /// Variables of every container where no control group divides the CPUs among containers and other programs.
    pub env_without_cgroups: Vec<(String, String)>,
    /// Set where pods have no namespaces of their own.
    pub shared_host: Option<SharedHost>,
}

/// Why the agent cannot start.
#[derive(Debug, thiserror::Error)]
pub enum AgentError {
    #[error("cannot set up the pod network")]
    Network(#[source] std::io::Error),
    #[error("cannot connect pods to the Internet; leave out --internet to run without")]
    Egress(#[source] std::io::Error),
    #[error("cannot use the state directory {folder}")]
    State {
        folder: PathBuf,
        #[source]
        cause: std::io::Error,
    },
    #[error("cannot register the node {name}")]
    Register {
        name: String,
        #[source]
        cause: Box<kube::Error>,
    },
}

/// Why a request about a pod cannot be served.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequestError {
    #[error("{0}")]
    NotFound(String),
    #[error("{0}")]
    BadRequest(String),
    #[error("{0}")]
    Internal(String),
}

pub(crate) struct Shared {
    pub(crate) config: Config,
    pub(crate) client: Client,
    pub(crate) containers: Spawner,
    pub(crate) host: Spawner,
    pub(crate) cgroups: Cgroups,
    pub(crate) ids: IdMap,
    pub(crate) stores: Stores,
    pub(crate) recorder: Recorder,
    pub(crate) ipam: Mutex<Ipam>,
    pub(crate) gpus: Mutex<Allocations>,
    pub(crate) table: watch::Receiver<Arc<Table>>,
    pub(crate) installations: Installations,
    logged: Mutex<HashSet<String>>,
    pods: Mutex<HashMap<String, Entry>>,
}

struct Entry {
    object: watch::Sender<Option<Arc<Pod>>>,
    handle: Arc<PodHandle>,
}

/// A running agent; requests about its pods go through here.
#[derive(Clone)]
pub struct Agent(Arc<Shared>);

impl Shared {
    pub(crate) fn lock<'a, T>(&self, mutex: &'a Mutex<T>) -> MutexGuard<'a, T> {
        mutex.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Logs a message once, however many pods it concerns.
    pub(crate) fn log_once(&self, text: &str) {
        if self.lock(&self.logged).insert(text.to_owned()) {
            tracing::info!("{text}");
        }
    }

    /// Logs a warning once, however many pods it concerns.
    pub(crate) fn warn_once(&self, text: &str) {
        if self.lock(&self.logged).insert(text.to_owned()) {
            tracing::warn!("{text}");
        }
    }

    /// Records an event of a pod, in the background.
    pub(crate) fn record_event(&self, pod: &Pod, type_: EventType, reason: &str, note: &str) {
        let event = Event {
            type_,
            reason: reason.to_owned(),
            note: Some(note.chars().take(1000).collect()),
            action: reason.to_owned(),
            secondary: None,
        };
        let (about, recorder): (ObjectReference, _) = (pod.object_ref(&()), self.recorder.clone());
        tokio::spawn(async move {
            if let Err(error) = recorder.publish(&event, &about).await {
                tracing::debug!(%error, "cannot record the event");
            }
        });
    }

    pub(crate) fn pod_folder(&self, uid: &str) -> PathBuf {
        self.config.state.join("pods").join(uid)
    }

    /// Identifies this agent among others on the host.
    pub(crate) fn agent_id(&self) -> String {
        cgroup_name(&self.config.state)
    }

    pub(crate) fn log_folder(&self, uid: &str) -> PathBuf {
        self.config.state.join("logs").join(uid)
    }
}

/// Removes what an earlier agent left in its state folder and describes it. Must be called outside the namespaces, after
/// a run or before the next one.
pub fn clean_leftovers(state: &Path) -> Option<String> {
    let pods = std::fs::read_dir(state.join("pods")).map(Iterator::count).unwrap_or_default();
    let cgroups = Cgroups::sweep(&cgroup_name(state));
    let _ = std::fs::remove_dir_all(state.join("pods"));
    let _ = std::fs::remove_dir_all(state.join("logs"));
    let _ = std::fs::remove_dir_all(state.join("unpack"));
    let _ = std::fs::remove_dir_all(shared_host::temp_dir(&cgroup_name(state)));
    (pods + cgroups > 0).then(|| {
        format!("cleaned up after an earlier run that was killed: {pods} pod folder(s), {cgroups} control group(s)")
    })
}

/// Returns a name that depends only on the state folder: control groups outlive a killed agent.
fn cgroup_name(state: &Path) -> String {
    let text = state.display().to_string();
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |h, b| (h ^ u64::from(b)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

impl Agent {
    /// Runs the agent until `stop`, then stops every pod. `ready` is called once pods can run.
    /// The node's network must have been prepared ([`network::prepare_node_network`]).
    pub async fn run(
        config: Config,
        client: Client,
        containers: Spawner,
        host: Spawner,
        stop: CancellationToken,
        ready: impl FnOnce(Agent),
    ) -> Result<(), AgentError> {
        let mut tasks = JoinSet::new();
        std::fs::create_dir_all(config.state.join("pods"))
            .map_err(|cause| AgentError::State { folder: config.state.clone(), cause })?;
        let (table_sender, table) = watch::channel(Arc::new(Table::default()));
        if config.shared_host.is_none() {
            let outside = match config.internet.ports.as_slice() {
                [] => None,
                ports => Some(egress::start(&host, ports, &mut tasks).await.map_err(AgentError::Egress)?),
            };
            serve_services(&table, outside.as_ref(), &mut tasks);
        }
        if let Some(backend) = config.api_backend {
            let address = SocketAddr::from((network::API_SERVER, 443));
            let listener = std::net::TcpListener::bind(address).map_err(AgentError::Network)?;
            listener.set_nonblocking(true).map_err(AgentError::Network)?;
            tasks.spawn(async move {
                let _ = proxy::expose(listener, move || Some(backend)).await;
            });
        }

        let registered = node::register(&client, &config).await;
        registered.map_err(|cause| AgentError::Register { name: config.node_name.clone(), cause: Box::new(cause) })?;
        tasks.spawn(node::keep_alive(client.clone(), config.clone()));
        let stores = Stores::start(&client, &mut tasks).await;
        let reporter = Reporter { controller: "kubelet".into(), instance: Some(config.node_name.clone()) };
        let cgroups = Cgroups::detect(&cgroup_name(&config.state), config.cpu_milli / 1000);
        let addresses = if config.shared_host.is_some() { shared_host::ADDRESSES } else { network::POD_ADDRESSES };
        let shared = Arc::new(Shared {
            recorder: Recorder::new(client.clone(), reporter),
            gpus: Mutex::new(Allocations::new(config.gpus.offered.clone())),
            config,
            client,
            containers,
            host,
            cgroups,
            ids: IdMap::detect(),
            stores,
            ipam: Mutex::new(Ipam::new(addresses)),
            table,
            installations: Installations::default(),
            logged: Mutex::default(),
            pods: Mutex::default(),
        });
        // Memory is accounted by PID namespace, so without namespaces it is unknown.
        if !shared.cgroups.is_real() && shared.config.shared_host.is_none() {
            shared.log_once("control groups are not writable here: the agent enforces memory limits instead");
            tasks.spawn(watch_memory(Arc::clone(&shared)));
        }
        ready(Self(Arc::clone(&shared)));
        run_pods(&shared, &table_sender, &stop).await;
        shared.installations.stop().await;
        tasks.shutdown().await;
        Ok(())
    }

    fn handle(&self, uid: &str) -> Result<Arc<PodHandle>, RequestError> {
        let pods = self.0.lock(&self.0.pods);
        let found = pods.get(uid).map(|entry| Arc::clone(&entry.handle));
        found.ok_or_else(|| RequestError::NotFound(format!("pod {uid} is not on this node")))
    }

    /// The log of a container, of its last run or the one before.
    pub async fn logs(
        &self,
        uid: &str,
        container: &str,
        previous: bool,
        query: LogQuery,
    ) -> Result<BoxStream<'static, std::io::Result<Bytes>>, RequestError> {
        let log: Option<Log> = self.handle(uid)?.log(container, previous);
        match log {
            Some(log) => Ok(log.read(query).await),
            None if previous => Err(RequestError::BadRequest(format!(
                "previous terminated container \"{container}\" in pod \"{uid}\" not found"
            ))),
            None => {
                Err(RequestError::BadRequest(format!("container \"{container}\" in pod \"{uid}\" is waiting to start")))
            }
        }
    }

    /// Runs a command in a container, or follows its own output when there is none.
    pub async fn exec(
        &self,
        uid: &str,
        container: &str,
        command: Vec<String>,
        tty: bool,
        streams: Streams,
    ) -> Result<i32, RequestError> {
        let handle = self.handle(uid)?;
        let missing = || RequestError::BadRequest(format!("container not found (\"{container}\")"));
        if command.is_empty() {
            let log = handle.log(container, false).ok_or_else(missing)?;
            if log.is_closed() {
                // kubectl then shows the log instead.
                return Err(RequestError::BadRequest(format!("container \"{container}\" in pod \"{uid}\" has ended")));
            }
            attach(log, handle.input(container), streams).await;
            return Ok(0);
        }
        let inside = handle.inside(container).ok_or_else(missing)?;
        exec::interactive(&inside, command, tty, streams).await.map_err(RequestError::Internal)
    }

    /// Returns what the containers of each pod use, by the pods' UIDs.
    pub fn usage(&self) -> Vec<(String, Vec<(String, ContainerUsage)>)> {
        let now = Timestamp::now();
        let pods: Vec<(String, Arc<PodHandle>)> =
            self.0.lock(&self.0.pods).iter().map(|(uid, entry)| (uid.clone(), Arc::clone(&entry.handle))).collect();
        let used = pods.into_iter().map(|(uid, handle)| (uid, handle.usage(now)));
        used.filter(|(_, containers)| !containers.is_empty()).collect()
    }

    /// Connects to a port as seen from inside a pod.
    pub async fn dial(&self, uid: &str, port: u16) -> Result<tokio::net::TcpStream, RequestError> {
        let network: Option<PodNetwork> = self.handle(uid)?.network();
        let network = network.ok_or_else(|| RequestError::BadRequest(format!("pod {uid} is not running")))?;
        network.dial(port).await.map_err(|e| RequestError::Internal(format!("cannot connect to port {port}: {e}")))
    }
}

/// Starts the proxy and the resolver of Services.
fn serve_services(table: &watch::Receiver<Arc<Table>>, outside: Option<&Egress>, tasks: &mut JoinSet<()>) {
    tasks.spawn(proxy::serve(table.clone()));
    for address in [network::RESOLVER, Ipv4Addr::LOCALHOST] {
        let sources = dns::Sources { table: table.clone(), outside: outside.cloned() };
        tasks.spawn(async move {
            if let Err(error) = dns::serve((address, 53).into(), sources).await {
                tracing::error!(%error, %address, "the resolver failed");
            }
        });
    }
}

async fn attach(log: Log, input: Option<Input>, streams: Streams) {
    let mut live = log.live();
    let mut clients = JoinSet::new();
    if let Some(input) = input {
        clients.spawn(input.clone().resize(streams.resize));
        if let Some(typed) = streams.stdin {
            clients.spawn(input.feed(typed));
        }
    }
    loop {
        let piece = tokio::select! {
            biased;
            piece = live.recv() => piece,
            // What was written before the end is still there.
            () = log.wait_until_closed() => match live.try_recv() {
                Ok(piece) => Ok(piece),
                Err(TryRecvError::Lagged(_)) => continue,
                Err(TryRecvError::Empty | TryRecvError::Closed) => return,
            },
        };
        let sent = match piece {
            Ok((crate::logs::Stream::Stdout, bytes)) => streams.stdout.send(bytes).await,
            Ok((crate::logs::Stream::Stderr, bytes)) => streams.stderr.send(bytes).await,
            Err(RecvError::Lagged(_)) => continue,
            Err(RecvError::Closed) => return,
        };
        if sent.is_err() {
            return;
        }
    }
}

/// Handles every change of pods and Services until `stop`.
async fn run_pods(shared: &Arc<Shared>, table: &watch::Sender<Arc<Table>>, stop: &CancellationToken) {
    let mut workers = JoinSet::new();
    let mut changed = shared.stores.changed.clone();
    let mut bound = HashSet::new();
    loop {
        changed.borrow_and_update();
        let pods = shared.stores.pods.state();
        assign(shared, &pods, &mut workers, stop);
        let services = shared.stores.services.state();
        let reach = if shared.config.shared_host.is_some() { Reach::Pods } else { Reach::VirtualAddresses };
        let slices = shared.stores.slices.state();
        let fresh = services::table(
            services.iter().map(|s| &**s),
            slices.iter().map(|s| &**s),
            pods.iter().map(|p| &**p),
            reach,
        );
        table.send_if_modified(|old| {
            let differs = **old != fresh;
            if differs {
                *old = Arc::new(fresh);
            }
            differs
        });
        schedule(shared, &pods, &mut bound).await;
        while workers.try_join_next().is_some() {}
        tokio::select! {
            () = stop.cancelled() => break,
            _ = changed.changed() => {}
        }
    }
    while workers.join_next().await.is_some() {}
}

/// Passes every worker the newest version of its pod, starting workers for new pods.
fn assign(shared: &Arc<Shared>, pods: &[Arc<Pod>], workers: &mut JoinSet<()>, stop: &CancellationToken) {
    let mut known = shared.lock(&shared.pods);
    let mut present = HashSet::new();
    for pod in pods {
        let on_this_node = pod.spec.as_ref().and_then(|s| s.node_name.as_deref()) == Some(&shared.config.node_name);
        let Some(uid) = pod.metadata.uid.clone().filter(|_| on_this_node) else { continue };
        present.insert(uid.clone());
        match known.get(&uid) {
            Some(entry) => {
                entry.object.send_if_modified(|old| {
                    let version = |p: &Pod| p.metadata.resource_version.clone();
                    let newer = old.as_ref().is_none_or(|old| version(old) != version(pod));
                    if newer {
                        *old = Some(Arc::clone(pod));
                    }
                    newer
                });
            }
            None => {
                let (object, seen) = watch::channel(Some(Arc::clone(pod)));
                let handle = Arc::new(PodHandle::default());
                let worker = Worker::new(Arc::clone(shared), Arc::clone(pod), seen, Arc::clone(&handle), stop.clone());
                workers.spawn(supervise(Arc::clone(shared), uid.clone(), Arc::clone(&handle), worker));
                known.insert(uid, Entry { object, handle });
            }
        }
    }
    known.retain(|uid, entry| {
        let keep = present.contains(uid);
        if !keep {
            entry.object.send_replace(None);
        }
        keep
    });
}

/// Runs a worker; after a panic it kills the pod's containers and lets a new worker take over.
async fn supervise(shared: Arc<Shared>, uid: String, handle: Arc<PodHandle>, worker: Worker) {
    if AssertUnwindSafe(worker.run()).catch_unwind().await.is_ok() {
        return;
    }
    tracing::error!(%uid, "the worker of a pod panicked; its containers are killed and started again");
    for run in handle.all_runs() {
        shared.containers.kill(run, nix::libc::SIGKILL);
    }
    tokio::time::sleep(PANIC_BACKOFF).await;
    // The next change of any pod, such as the deletion of this one, starts the new worker.
    shared.lock(&shared.pods).remove(&uid);
}

async fn schedule(shared: &Shared, pods: &[Arc<Pod>], bound: &mut HashSet<String>) {
    let known = shared.stores.nodes.get(&ObjectRef::new(&shared.config.node_name));
    let spec = known.as_ref().and_then(|node| node.spec.clone()).unwrap_or_default();
    let mut labels = node::labels(&shared.config);
    labels.extend(known.iter().flat_map(|node| node.metadata.labels.clone()).flatten());
    let node = NodeInfo {
        name: shared.config.node_name.clone(),
        allocatable: scheduler::amounts(Some(&node::capacity(&shared.config))),
        labels,
        max_pods: node::MAX_PODS,
        taints: spec.taints.unwrap_or_default(),
        unschedulable: spec.unschedulable == Some(true),
    };
    let uid = |pod: &Pod| pod.metadata.uid.clone().unwrap_or_default();
    let current: HashSet<String> = pods.iter().map(|p| uid(p)).collect();
    bound.retain(|uid| current.contains(uid));
    // A binding not yet observed counts as done, or its resources would be allocated twice.
    let assumed: Vec<Arc<Pod>> = pods
        .iter()
        .map(|pod| {
            let waiting = pod.spec.as_ref().is_some_and(|s| s.node_name.is_none());
            if !(waiting && bound.contains(&uid(pod))) {
                return Arc::clone(pod);
            }
            let mut pod = Pod::clone(pod);
            if let Some(spec) = &mut pod.spec {
                spec.node_name = Some(node.name.clone());
            }
            Arc::new(pod)
        })
        .collect();
    for (pod, verdict) in scheduler::schedule(&node, assumed.iter().map(|p| &**p)) {
        match verdict {
            Verdict::Bind => match node::bind(&shared.client, pod, &node.name).await {
                Ok(()) => {
                    bound.insert(uid(pod));
                }
                Err(error) => tracing::debug!(pod = ?pod.metadata.name, %error, "cannot bind the pod"),
            },
            Verdict::Wait(why) => {
                if let Err(error) = node::set_unschedulable(&shared.client, pod, &why, Timestamp::now()).await {
                    tracing::debug!(pod = ?pod.metadata.name, %error, "cannot update the PodScheduled condition");
                }
            }
        }
    }
}

/// Enforces memory limits where control groups cannot.
async fn watch_memory(shared: Arc<Shared>) {
    let mut tick = tokio::time::interval(std::time::Duration::from_secs(1));
    loop {
        tick.tick().await;
        let Ok(used) = tokio::task::spawn_blocking(memory::by_pid_namespace).await else { continue };
        let all: Vec<Arc<PodHandle>> = shared.lock(&shared.pods).values().map(|e| Arc::clone(&e.handle)).collect();
        for handle in all {
            handle.apply_memory(&used, &shared.containers);
        }
    }
}

/// Environment variables that every container starts with.
pub(crate) fn base_env(config: &Config, hostname: &str) -> BTreeMap<&'static str, String> {
    let service = SocketAddr::from((network::API_SERVER, 443));
    let api = config.shared_host.as_ref().map_or(service, |one| one.api);
    BTreeMap::from([
        ("HOSTNAME", hostname.to_owned()),
        ("KUBERNETES_SERVICE_HOST", api.ip().to_string()),
        ("KUBERNETES_SERVICE_PORT", api.port().to_string()),
        ("KUBERNETES_SERVICE_PORT_HTTPS", api.port().to_string()),
    ])
}
