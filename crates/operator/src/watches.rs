//! The watches that fill the stores and wake the objects concerned.
//!
//! Dependent objects are selected by label, and Secrets are never watched. Rarely used kinds are watched from the moment
//! that the first object needs them.

use crate::lock::lock;
use crate::owners;
use crate::queue::{Queue, WakeReason};
use crate::stores::{Stores, Table};
use crate::watched_object::{View, Watched};
use futures::StreamExt;
use kube::core::{ApiResource, GroupVersionKind};
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::view::{EndpointSliceView, WholeView};
use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use tracing::{info, warn};

/// Pods that Ray runs in, and those that clean up after it.
const RAY_PODS: &str = "ray.io/node-type in (head,worker,redis-cleanup)";
const OWN_JOBS: &str = "app.kubernetes.io/created-by=kuberay-operator";
/// Services carry one of three labels, and a selector cannot say "or".
const SERVICES: [&str; 3] = ["ray.io/cluster", "ray.io/headless-worker-svc", "ray.io/originated-from-crd"];
const SERVICE_NAME_LABEL: &str = "kubernetes.io/service-name";
const CLUSTER_LABEL: &str = "ray.io/cluster";

/// Objects per page of a list: a whole page is in memory at once, both as text and as objects.
const PAGE: u32 = 500;

/// Starts watches and tracks which are running.
pub(crate) struct Watches {
    client: Client,
    namespaces: Vec<String>,
    stores: Arc<Stores>,
    queue: Arc<Queue>,
    running: Mutex<HashSet<Kind>>,
    tasks: TaskTracker,
    stop: CancellationToken,
}

impl Watches {
    pub(crate) fn new(
        client: Client,
        namespaces: Vec<String>,
        stores: Arc<Stores>,
        queue: Arc<Queue>,
        tasks: TaskTracker,
        stop: CancellationToken,
    ) -> Self {
        Self { client, namespaces, stores, queue, running: Mutex::default(), tasks, stop }
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
        self.spawn(Kind::RayCluster, &[None], |stores| &stores.clusters, |object| object.owners(Kind::RayCluster));
        self.spawn(Kind::RayJob, &[None], |stores| &stores.jobs, |object| object.owners(Kind::RayJob));
        self.spawn(Kind::RayService, &[None], |stores| &stores.services, |object| object.owners(Kind::RayService));
        if with_cron_jobs {
            self.spawn(Kind::RayCronJob, &[None], |stores| &stores.cron_jobs, |object| object.owners(Kind::RayCronJob));
        }
        self.spawn(Kind::Pod, &[Some(RAY_PODS)], |stores| &stores.pods, owners::pod_owners);
        self.spawn(Kind::Job, &[Some(OWN_JOBS)], |stores| &stores.kube_jobs, owners::job_owners);
        self.spawn(Kind::Service, &SERVICES.map(Some), |stores| &stores.kube_services, owners::service_owners);
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
            // Objects of a RayService or a batch scheduler carry no label; those of others are not stored.
            let selector = match kind {
                Kind::Gateway | Kind::HttpRoute | Kind::PodGroup(_) | Kind::Workload => None,
                _ => Some(CLUSTER_LABEL),
            };
            let owners = move |object: &WholeView| owners::related_owners(kind, object);
            self.spawn_into(kind, &[selector], self.stores.related(kind), owners);
        }
    }

    /// Starts the watch of EndpointSlices, once the RayServices, RayClusters and Services that decide which slices matter
    /// are cached.
    fn start_slices(&self) {
        let stores = Arc::clone(&self.stores);
        let owners = move |slice: &EndpointSliceView| owners::slice_owners(&stores, slice);
        self.spawn(Kind::EndpointSlice, &[Some(SERVICE_NAME_LABEL)], |stores| &stores.slices, owners);
    }

    fn spawn<V: View>(
        &self,
        kind: Kind,
        selectors: &[Option<&'static str>],
        table: impl Fn(&Stores) -> &Arc<Table<V>>,
        owners: impl Fn(&V) -> Vec<ObjectKey> + Clone + Send + Sync + 'static,
    ) {
        self.spawn_into(kind, selectors, Arc::clone(table(&self.stores)), owners);
    }

    fn spawn_into<V: View>(
        &self,
        kind: Kind,
        selectors: &[Option<&'static str>],
        table: Arc<Table<V>>,
        owners: impl Fn(&V) -> Vec<ObjectKey> + Clone + Send + Sync + 'static,
    ) {
        let resource = kind.resource();
        let gvk = GroupVersionKind::gvk(resource.group, resource.version, resource.kind);
        let api_resource = ApiResource::from_gvk_with_plural(&gvk, resource.plural);
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
            if let Some(selector) = selector {
                config = config.labels(selector);
            }
            let watch = WatchTask {
                kind,
                part,
                table: Arc::clone(&table),
                queue: Arc::clone(&self.queue),
                owners: owners.clone(),
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

/// One watch: from the stream into the table, and from the table to the queue.
struct WatchTask<V, F> {
    kind: Kind,
    /// The index of this watch among those of its table.
    part: usize,
    table: Arc<Table<V>>,
    queue: Arc<Queue>,
    owners: F,
}

impl<V: View, F: Fn(&V) -> Vec<ObjectKey>> WatchTask<V, F> {
    async fn run(&self, api: Api<Watched<V>>, config: watcher::Config) {
        let mut events = watcher(api, config).backoff(WatchBackOff::default()).boxed();
        let kind = self.kind.resource().kind;
        let mut logged = false;
        while let Some(event) = events.next().await {
            match event {
                Ok(event) => {
                    logged = false;
                    self.handle(event);
                }
                Err(error) if is_missing_kind(&error) => {
                    self.table.set_unserved();
                    if !logged {
                        info!(kind, "the API server does not serve this kind yet; install the CRDs");
                        logged = true;
                    }
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
                self.wake(concerned, (&namespace, &name), false, || {
                    WakeReason::Deleted(self.kind, name.as_str().into())
                });
            }
        }
    }

    /// Wakes the objects that a change of this one concerns.
    fn wake(
        &self,
        concerned: Vec<ObjectKey>,
        (namespace, name): (&str, &str),
        status_only: bool,
        reason: impl Fn() -> WakeReason,
    ) {
        for key in concerned {
            let itself = key.kind == self.kind && key.namespace == namespace && key.name == name;
            match (itself, status_only) {
                (true, true) => self.queue.status_shown(&key, || WakeReason::StatusShown),
                (true, false) => self.queue.wake_itself(&key, &reason),
                (false, _) => self.queue.wake(&key, &reason),
            }
        }
    }
}

/// The wait before a watch that failed is started again: it doubles, and starts over once the watch works.
struct WatchBackOff(Duration);

impl Default for WatchBackOff {
    fn default() -> Self {
        Self(Duration::from_millis(800))
    }
}

impl Iterator for WatchBackOff {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let wait = self.0;
        self.0 = (2 * wait).min(Duration::from_secs(30));
        Some(wait)
    }
}

impl Backoff for WatchBackOff {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

/// Returns whether a kind is not served: its CRD is not installed.
fn is_missing_kind(error: &watcher::Error) -> bool {
    let cause = match error {
        watcher::Error::InitialListFailed(cause) | watcher::Error::WatchStartFailed(cause) => cause,
        _ => return false,
    };
    matches!(cause, kube::Error::Api(status) if status.code == 404)
}
