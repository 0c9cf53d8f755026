//! The watches that fill the stores and wake the objects concerned.
//!
//! Dependent objects are selected by label, and Secrets are never watched. Rarely used kinds are watched from the moment
//! that the first object needs them.
//!
//! Where the API server can, a watch begins with the objects that there are: the server sends them one by one from its
//! memory, and no page is whole in memory on either side. Elsewhere they are listed in pages first.

use crate::in_flight::InFlightWrites;
use crate::lock::lock;
use crate::owners;
use crate::post_mortem::DeletedObject;
use crate::queue::{Queue, WakeReason};
use crate::stores::{Stores, Table};
use crate::watched_object::{View, Watched};
use futures::StreamExt;
use http::{Request, Uri};
use kube::client::Body;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, InitialListStrategy, watcher};
use kube::{Api, Client};
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::view::{EndpointSliceView, WholeView};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

/// Pods that Ray runs in, and those that clean up after it.
const RAY_PODS: &str = "ray.io/node-type in (head,worker,redis-cleanup)";
const OWN_JOBS: &str = "app.kubernetes.io/created-by=kuberay-operator";
/// Services carry one of three labels, and a selector cannot say "or".
const SERVICES: [Option<&str>; 3] =
    [Some(CLUSTER_LABEL), Some("ray.io/headless-worker-svc"), Some("ray.io/originated-from-crd")];
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
const CLUSTER_LABEL: &str = "ray.io/cluster";

/// How long a streamed list may pause: a server that has never heard of them sends nothing more.
const SILENT: Duration = Duration::from_secs(30);

/// Objects per page of a list: a whole page is in memory at once, both as text and as objects.
pub(crate) const PAGE: u32 = 500;

/// Returns the label selectors that show the objects of a kind; an object is of interest if any selects it.
pub(crate) fn selectors(kind: Kind) -> &'static [Option<&'static str>] {
    match kind {
        Kind::RayCluster | Kind::RayJob | Kind::RayService | Kind::RayCronJob => &[None],
        // Objects of a RayService or a batch scheduler carry no label; those of others are not stored.
        Kind::Gateway | Kind::HttpRoute | Kind::PodGroup(_) | Kind::Workload => &[None],
        Kind::Pod => &[Some(RAY_PODS)],
        Kind::Job => &[Some(OWN_JOBS)],
        Kind::Service => &SERVICES,
        Kind::EndpointSlice => &[Some(SERVICE_NAME_LABEL)],
        _ => &[Some(CLUSTER_LABEL)],
    }
}

/// Starts watches and tracks which are running.
pub(crate) struct Watches {
    client: Client,
    namespaces: Vec<String>,
    stores: Arc<Stores>,
    queue: Arc<Queue>,
    running: Mutex<HashSet<Kind>>,
    tasks: TaskTracker,
    stop: CancellationToken,
    streaming_lists: bool,
    in_flight: Arc<InFlightWrites>,
    /// Receives the Ray objects that are deleted, for post-mortems.
    deleted: Option<mpsc::Sender<DeletedObject>>,
}

impl Watches {
    pub(crate) fn new(
        client: Client,
        namespaces: Vec<String>,
        stores: Arc<Stores>,
        queue: Arc<Queue>,
        tasks: TaskTracker,
        stop: CancellationToken,
        deleted: Option<mpsc::Sender<DeletedObject>>,
    ) -> Self {
        let (running, streaming_lists, in_flight) = (Mutex::default(), false, Arc::default());
        Self { client, namespaces, stores, queue, running, tasks, stop, streaming_lists, in_flight, deleted }
    }

    /// Reports the statuses that the watches show.
    pub(crate) fn with_in_flight(mut self, in_flight: Arc<InFlightWrites>) -> Self {
        self.in_flight = in_flight;
        self
    }

    /// Lets watches begin with the objects that there are, unless the server refuses.
    pub(crate) fn with_streaming_lists(mut self, on: bool) -> Self {
        self.streaming_lists = on;
        if on {
            self.client = with_current_lists(self.client);
        }
        self
    }

    /// Starts the watches that every controller needs.
    pub(crate) fn start(&self, with_cron_jobs: bool) {
        lock(&self.running).extend([
            Kind::RayCluster,
            Kind::RayJob,
            Kind::RayService,
            Kind::Pod,
            Kind::Job,
            Kind::Service,
        ]);
        self.spawn(Kind::RayCluster, |stores| &stores.clusters, |object| object.owners(Kind::RayCluster));
        self.spawn(Kind::RayJob, |stores| &stores.jobs, |object| object.owners(Kind::RayJob));
        self.spawn(Kind::RayService, |stores| &stores.services, |object| object.owners(Kind::RayService));
        if with_cron_jobs {
            lock(&self.running).insert(Kind::RayCronJob);
            self.spawn(Kind::RayCronJob, |stores| &stores.cron_jobs, |object| object.owners(Kind::RayCronJob));
        }
        self.spawn(Kind::Pod, |stores| &stores.pods, owners::pod_owners);
        self.spawn(Kind::Job, |stores| &stores.kube_jobs, owners::job_owners);
        self.spawn(Kind::Service, |stores| &stores.kube_services, owners::service_owners);
    }

    /// Starts the watch of a kind that is watched on demand, unless it is running.
    pub(crate) fn ensure(&self, kind: Kind) {
        if !lock(&self.running).insert(kind) {
            return;
        }
        info!(kind = kind.resource().kind, "starting a watch");
        if kind == Kind::EndpointSlice {
            self.start_slices();
        } else {
            let owners = move |object: &WholeView| owners::related_owners(kind, object);
            self.spawn_into(kind, self.stores.related(kind), owners);
        }
    }

    /// Starts the watch of EndpointSlices, once the RayServices, RayClusters and Services that decide which slices matter
    /// are cached.
    fn start_slices(&self) {
        let stores = Arc::clone(&self.stores);
        let owners = move |slice: &EndpointSliceView| owners::slice_owners(&stores, slice);
        self.spawn(Kind::EndpointSlice, |stores| &stores.slices, owners);
    }

    fn spawn<V: View>(
        &self,
        kind: Kind,
        table: impl Fn(&Stores) -> &Arc<Table<V>>,
        owners: impl Fn(&V) -> Vec<ObjectKey> + Clone + Send + Sync + 'static,
    ) {
        self.spawn_into(kind, Arc::clone(table(&self.stores)), owners);
    }

    fn spawn_into<V: View>(
        &self,
        kind: Kind,
        table: Arc<Table<V>>,
        owners: impl Fn(&V) -> Vec<ObjectKey> + Clone + Send + Sync + 'static,
    ) {
        let resource = kind.resource();
        let gvk = GroupVersionKind::gvk(resource.group, resource.version, resource.kind);
        let api_resource = ApiResource::from_gvk_with_plural(&gvk, resource.plural);
        let selectors = selectors(kind);
        let scopes: Vec<Option<&str>> = match self.namespaces.as_slice() {
            [] => vec![None],
            names => names.iter().map(|name| Some(name.as_str())).collect(),
        };
        table.expect_listings(scopes.len() * selectors.len());
        for (part, (scope, selector)) in
            scopes.iter().flat_map(|scope| selectors.iter().map(move |selector| (scope, selector))).enumerate()
        {
            let api: Api<Watched<V>> = match scope {
                Some(namespace) => Api::namespaced_with(self.client.clone(), namespace, &api_resource),
                None => Api::all_with(self.client.clone(), &api_resource),
            };
            let mut config = watcher::Config::default().page_size(PAGE);
            if self.streaming_lists {
                config = config.streaming_lists();
            }
            if let Some(selector) = selector {
                config = config.labels(selector);
            }
            let watch = WatchTask {
                kind,
                part,
                table: Arc::clone(&table),
                queue: Arc::clone(&self.queue),
                owners: owners.clone(),
                in_flight: Arc::clone(&self.in_flight),
                deleted: self.deleted.clone(),
            };
            let stop = self.stop.clone();
            self.tasks.spawn(async move {
                tokio::select! {
                    biased;
                    () = stop.cancelled() => {}
                    () = watch.run(api, config) => {}
                }
            });
        }
    }
}

/// Returns a client whose streamed lists show the current state.
///
/// kube streams them from version 0, which means any version: an API server may then answer from a cache that is older than
/// what this operator has already seen and written. Without a version the server reads its store, or waits for its cache.
fn with_current_lists(client: Client) -> Client {
    let service = tower::service_fn(move |mut request: Request<Body>| {
        let client = client.clone();
        async move {
            if let Some(uri) = without_version_zero(request.uri()) {
                *request.uri_mut() = uri;
            }
            client.send(request).await
        }
    });
    Client::new(service, "default")
}

/// Returns the URI of a streamed list from version 0 without that version.
fn without_version_zero(uri: &Uri) -> Option<Uri> {
    let parameters = || uri.query().unwrap_or_default().split('&');
    let is_streamed_list = parameters().any(|parameter| parameter == "sendInitialEvents=true");
    if !is_streamed_list || parameters().all(|parameter| parameter != "resourceVersion=0") {
        return None;
    }
    let others: Vec<&str> = parameters().filter(|parameter| *parameter != "resourceVersion=0").collect();
    let mut parts = uri.clone().into_parts();
    parts.path_and_query = format!("{}?{}", uri.path(), others.join("&")).parse().ok();
    Uri::from_parts(parts).ok()
}

/// Why a watch has to begin again.
enum End {
    /// Lists are streamed, and the server does not do that.
    NoStreaming,
    /// It cannot be continued where it was.
    Stale,
}

/// One watch: from the stream into the table, and from the table to the queue.
struct WatchTask<V, F> {
    kind: Kind,
    /// The index of this watch among those of its table.
    part: usize,
    table: Arc<Table<V>>,
    queue: Arc<Queue>,
    owners: F,
    in_flight: Arc<InFlightWrites>,
    deleted: Option<mpsc::Sender<DeletedObject>>,
}

impl<V: View, F: Fn(&V) -> Vec<ObjectKey>> WatchTask<V, F> {
    /// Watches until it is dropped.
    async fn run(&self, api: Api<Watched<V>>, mut config: watcher::Config) {
        loop {
            match self.follow(api.clone(), config.clone()).await {
                End::NoStreaming => config.initial_list_strategy = InitialListStrategy::ListWatch,
                End::Stale => {
                    self.table.set_stale(self.part);
                    tokio::time::sleep(FIRST_WAIT).await;
                }
            }
        }
    }

    /// Handles the events of a watch until it has to begin with a list again.
    ///
    /// A watch that cannot be continued begins again, although it might be possible later: nothing tells when it works
    /// again, and until then the table may be old. A server that answers 410 never continues it.
    async fn follow(&self, api: Api<Watched<V>>, config: watcher::Config) -> End {
        let streaming = config.initial_list_strategy == InitialListStrategy::StreamingList;
        let mut events = watcher(api, config).backoff(WatchBackOff::default()).boxed();
        let kind = self.kind.resource().kind;
        let (mut logged, mut is_listed) = (false, false);
        loop {
            let next = events.next();
            let event = match streaming && !is_listed {
                true => timeout(SILENT, next).await,
                false => Ok(next.await),
            };
            let event = match event {
                Ok(Some(event)) => event,
                Ok(None) => return End::Stale,
                Err(_) => {
                    info!(kind, "the API server does not end a streamed list; listing in pages");
                    return End::NoStreaming;
                }
            };
            match event {
                Ok(event) => {
                    logged = false;
                    is_listed |= matches!(event, Event::InitDone);
                    self.handle(event);
                }
                Err(error) if streaming && !is_listed && is_refusal(&error) => {
                    info!(kind, %error, "the API server refuses to stream a list; listing in pages");
                    return End::NoStreaming;
                }
                Err(error) if is_missing_kind(&error) => {
                    self.table.set_unserved();
                    if !logged {
                        info!(kind, "the API server does not serve this kind yet; install the CRDs");
                        logged = true;
                    }
                }
                Err(error @ watcher::Error::WatchStartFailed(_)) if is_listed => {
                    warn!(kind, %error, "watch cannot be continued; listing again");
                    return End::Stale;
                }
                Err(error) => warn!(kind, %error, "watch failed; retrying"),
            }
        }
    }

    /// Stores what an event shows and wakes the objects that it concerns.
    fn handle(&self, event: Event<Watched<V>>) {
        match event {
            Event::Init => self.table.begin_listing(self.part),
            Event::InitDone => {
                let reason = || WakeReason::Listed(self.kind);
                self.table.end_listing(self.part).iter().for_each(|key| self.queue.wake(key, reason));
            }
            Event::Apply(object) | Event::InitApply(object) => match &object.view {
                Ok(view) => {
                    let (concerned, status_only) = self.table.put(self.part, Arc::clone(view), (self.owners)(view));
                    if let Some(itself) = concerned.iter().find(|key| self.is_itself(key, view.key())) {
                        self.in_flight.status_shown(itself, view.version());
                    }
                    self.wake(concerned, view.key(), status_only, || {
                        WakeReason::Changed(self.kind, view.key().1.into())
                    });
                }
                Err(error) => {
                    let name = kube::ResourceExt::name_any(&object);
                    warn!(kind = self.kind.resource().kind, name, error, "cannot read an object; leaving it alone");
                }
            },
            Event::Delete(object) => {
                let namespace = kube::ResourceExt::namespace(&object).unwrap_or_default();
                let name = kube::ResourceExt::name_any(&object);
                let concerned = self.table.remove(&namespace, &name);
                self.bury(&namespace, &name, &object);
                self.wake(concerned, (&namespace, &name), false, || {
                    WakeReason::Deleted(self.kind, name.as_str().into())
                });
            }
        }
    }

    /// Hands a Ray object over that was deleted; if too many wait, it goes without a post-mortem.
    fn bury(&self, namespace: &str, name: &str, object: &Watched<V>) {
        let (Some(deleted), Ok(view)) = (&self.deleted, &object.view) else { return };
        if let Some(text) = view.text() {
            let key = ObjectKey::new(self.kind, namespace, name);
            let _ = deleted.try_send(DeletedObject { key, text: text.into() });
        }
    }

    fn is_itself(&self, key: &ObjectKey, (namespace, name): (&str, &str)) -> bool {
        key.kind == self.kind && key.namespace == namespace && key.name == name
    }

    /// Wakes the objects that a change of this one concerns.
    fn wake(
        &self,
        concerned: Vec<ObjectKey>,
        object: (&str, &str),
        status_only: bool,
        reason: impl Fn() -> WakeReason,
    ) {
        for key in concerned {
            match (self.is_itself(&key, object), status_only) {
                (true, true) => self.queue.status_shown(&key, || WakeReason::StatusShown),
                (true, false) => self.queue.wake_itself(&key, &reason),
                (false, _) => self.queue.wake(&key, &reason),
            }
        }
    }
}

/// The waits before a watch that failed is started again. Nothing is reconciled meanwhile, so the longest is short.
const FIRST_WAIT: Duration = Duration::from_millis(800);
const LONGEST_WAIT: Duration = Duration::from_secs(5);

/// The wait before a watch that failed is started again: it doubles, and starts over once the watch works.
struct WatchBackOff(Duration);

impl Default for WatchBackOff {
    fn default() -> Self {
        Self(FIRST_WAIT)
    }
}

impl Iterator for WatchBackOff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = self.0;
        self.0 = (2 * wait).min(LONGEST_WAIT);
        Some(wait)
    }
}

impl Backoff for WatchBackOff {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Returns whether the server does not accept a watch as it was requested; without one that begins with a list it may.
fn is_refusal(error: &watcher::Error) -> bool {
    let watcher::Error::WatchStartFailed(kube::Error::Api(status)) = error else { return false };
    (400..500).contains(&status.code) && !matches!(status.code, 401 | 404 | 410 | 429)
}

/// Returns whether a kind is not served: its CRD is not installed.
fn is_missing_kind(error: &watcher::Error) -> bool {
    let cause = match error {
        watcher::Error::InitialListFailed(cause) | watcher::Error::WatchStartFailed(cause) => cause,
        _ => return false,
    };
    matches!(cause, kube::Error::Api(status) if status.code == 404)
}

#[cfg(test)]
mod tests;
