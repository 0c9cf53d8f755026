//! What the watches have shown, in memory.
//!
//! Objects are kept by their owner, the object whose plan reads them: looking at one RayCluster
//! costs as much as that cluster has Pods, however many others there are.

use crate::wire::View;
use manta_api::{RayCluster, RayCronJob, RayJob, RayService};
use manta_logic::action::{Kind, Target};
use manta_logic::labels;
use manta_logic::view::{EndpointSliceView, JobView, MetaView, PodView, ServiceView, WholeView};
use std::collections::{BTreeMap, HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All caches of the operator.
#[derive(Default)]
pub struct Stores {
    pub clusters: Arc<Table<RayCluster>>,
    pub jobs: Arc<Table<RayJob>>,
    pub services: Arc<Table<RayService>>,
    pub cron_jobs: Arc<Table<RayCronJob>>,
    pub pods: Arc<Table<PodView>>,
    pub kube_services: Arc<Table<ServiceView>>,
    pub kube_jobs: Arc<Table<JobView>>,
    /// Endpoints of serve Services; those of others are not kept.
    pub slices: Arc<Table<EndpointSliceView>>,
    related: Mutex<HashMap<Kind, Arc<Table<WholeView>>>>,
}

impl Stores {
    /// The kinds that have not been told whole yet.
    pub(crate) fn unsynced(&self, with_cron_jobs: bool) -> Vec<&'static str> {
        let synced = [
            ("RayCluster", self.clusters.is_synced()),
            ("RayJob", self.jobs.is_synced()),
            ("RayService", self.services.is_synced()),
            ("RayCronJob", !with_cron_jobs || self.cron_jobs.is_synced()),
            ("Pod", self.pods.is_synced()),
            ("Service", self.kube_services.is_synced()),
            ("Job", self.kube_jobs.is_synced()),
        ];
        synced.into_iter().filter(|(_, synced)| !synced).map(|(kind, _)| kind).collect()
    }

    /// The cache of a kind of which there are few.
    pub fn related(&self, kind: Kind) -> Arc<Table<WholeView>> {
        Arc::clone(lock(&self.related).entry(kind).or_default())
    }
}

/// Objects of one kind, by owner and by name. Several watches may fill one table.
pub struct Table<V> {
    inner: Mutex<Inner<V>>,
    /// How many watches have not told everything yet.
    unlisted: AtomicUsize,
}

struct Inner<V> {
    by_owner: HashMap<Target, BTreeMap<String, Arc<V>>>,
    /// Where each object was put, to find it again when its labels have changed.
    places: HashMap<(String, String), Place>,
    /// The keys that a watch has told since it began anew; what is missing at its end is gone.
    listing: HashMap<usize, HashSet<(String, String)>>,
    /// The watches that have once told everything.
    listed: HashSet<usize>,
    /// Whose plans wait for the table to hold everything.
    waiters: HashSet<Target>,
}

struct Place {
    owners: Vec<Target>,
    /// The watch that told the object.
    part: usize,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        let inner = Inner {
            by_owner: HashMap::new(),
            places: HashMap::new(),
            listing: HashMap::new(),
            listed: HashSet::new(),
            waiters: HashSet::new(),
        };
        Self { inner: Mutex::new(inner), unlisted: AtomicUsize::new(usize::MAX) }
    }
}

impl<V: View> Table<V> {
    /// Whether the table has once held everything.
    pub fn is_synced(&self) -> bool {
        self.unlisted.load(Ordering::Acquire) == 0
    }

    /// Whether the table has once held everything; if not, the target is woken when it does.
    pub(crate) fn is_synced_for(&self, target: &Target) -> bool {
        let mut inner = lock(&self.inner);
        let synced = self.is_synced();
        if !synced {
            inner.waiters.insert(target.clone());
        }
        synced
    }

    /// The objects of an owner, sorted by name.
    pub fn of(&self, owner: &Target) -> Vec<Arc<V>> {
        lock(&self.inner).by_owner.get(owner).map(|objects| objects.values().cloned().collect()).unwrap_or_default()
    }

    /// One object of an owner.
    pub fn get(&self, owner: &Target, name: &str) -> Option<Arc<V>> {
        lock(&self.inner).by_owner.get(owner)?.get(name).cloned()
    }

    /// One object, whoever owns it.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        let inner = lock(&self.inner);
        let place = inner.places.get(&(namespace.to_owned(), name.to_owned()))?;
        place.owners.iter().find_map(|owner| inner.by_owner.get(owner)?.get(name).cloned())
    }

    /// Who owns an object.
    pub fn owners_of(&self, namespace: &str, name: &str) -> Vec<Target> {
        let inner = lock(&self.inner);
        let place = inner.places.get(&(namespace.to_owned(), name.to_owned()));
        place.map(|place| place.owners.clone()).unwrap_or_default()
    }

    /// All owners that have objects here.
    pub fn owners(&self) -> Vec<Target> {
        lock(&self.inner).by_owner.keys().cloned().collect()
    }

    /// How many watches fill the table.
    pub(crate) fn expect_listings(&self, watches: usize) {
        self.unlisted.store(watches, Ordering::Release);
    }

    /// Puts an object under its owners and answers whom that concerns.
    pub(crate) fn put(&self, part: usize, object: Arc<V>, owners: Vec<Target>) -> Vec<Target> {
        let (namespace, name) = object.key();
        let key = (namespace.to_owned(), name.to_owned());
        let mut inner = lock(&self.inner);
        if let Some(told) = inner.listing.get_mut(&part) {
            told.insert(key.clone());
        }
        let mut concerned = inner.remove(&key);
        for owner in &owners {
            inner.by_owner.entry(owner.clone()).or_default().insert(key.1.clone(), Arc::clone(&object));
            if !concerned.contains(owner) {
                concerned.push(owner.clone());
            }
        }
        if !owners.is_empty() {
            inner.places.insert(key, Place { owners, part });
        }
        concerned
    }

    /// Removes an object and answers whom that concerns.
    pub(crate) fn remove(&self, namespace: &str, name: &str) -> Vec<Target> {
        lock(&self.inner).remove(&(namespace.to_owned(), name.to_owned()))
    }

    /// A watch begins anew.
    pub(crate) fn begin_listing(&self, part: usize) {
        lock(&self.inner).listing.insert(part, HashSet::new());
    }

    /// A watch has told everything: what it did not tell is gone. Answers whom that concerns.
    pub(crate) fn end_listing(&self, part: usize) -> Vec<Target> {
        let mut inner = lock(&self.inner);
        let told = inner.listing.remove(&part).unwrap_or_default();
        let is_gone = |(key, place): &(&(String, String), &Place)| place.part == part && !told.contains(*key);
        let gone: Vec<(String, String)> = inner.places.iter().filter(is_gone).map(|(key, _)| key.clone()).collect();
        let mut concerned: Vec<Target> = gone.iter().flat_map(|key| inner.remove(key)).collect();
        if inner.listed.insert(part) {
            let left = self.unlisted.fetch_sub(1, Ordering::AcqRel);
            if left == 1 {
                concerned.extend(inner.waiters.drain());
            }
        }
        concerned
    }
}

impl<V> Inner<V> {
    fn remove(&mut self, key: &(String, String)) -> Vec<Target> {
        let Some(Place { owners, .. }) = self.places.remove(key) else { return Vec::new() };
        for owner in &owners {
            if let Some(objects) = self.by_owner.get_mut(owner) {
                objects.remove(&key.1);
                if objects.is_empty() {
                    self.by_owner.remove(owner);
                }
            }
        }
        owners
    }
}

/// A lock that a panicked task cannot take away from the others.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The RayCluster that a Pod belongs to.
pub(crate) fn pod_owners(pod: &PodView) -> Vec<Target> {
    by_cluster_label(&pod.metadata).into_iter().collect()
}

/// The object whose Service this is: the owner that controls it, and the cluster that it is labelled with.
pub(crate) fn service_owners(service: &ServiceView) -> Vec<Target> {
    let meta = &service.metadata;
    let labelled = by_cluster_label(meta)
        .or_else(|| by_label(meta, labels::HEADLESS_WORKER_SERVICE, Kind::RayCluster))
        .or_else(|| match meta.label(labels::ORIGINATED_FROM_CRD) {
            Some("RayCluster") => by_label(meta, labels::ORIGINATED_FROM_CR_NAME, Kind::RayCluster),
            _ => None,
        });
    merged(by_controller(meta), labelled)
}

/// The RayJob that a submitter Job belongs to, or the RayCluster that a clean-up Job does.
pub(crate) fn job_owners(job: &JobView) -> Vec<Target> {
    merged(by_controller(&job.metadata), by_cluster_label(&job.metadata))
}

/// The RayCluster that a related object is labelled with, and its controller.
pub(crate) fn related_owners(object: &WholeView) -> Vec<Target> {
    merged(by_controller(&object.metadata), by_cluster_label(&object.metadata))
}

/// The RayService whose requests an EndpointSlice is about; none for the slices of other Services.
///
/// The slice carries the labels of its Service, where a real controller made it. Where not, the name leads to the
/// RayService, to one of its clusters, or to a Service that is known.
pub(crate) fn slice_owners(stores: &Stores, slice: &EndpointSliceView) -> Vec<Target> {
    let meta = &slice.metadata;
    let Some(service) = slice.service() else { return Vec::new() };
    let mut owners = Vec::new();
    if let Some(base) = service.strip_suffix("-serve-svc") {
        owners.extend(stores.services.owners_of(&meta.namespace, base));
        owners.extend(stores.clusters.owners_of(&meta.namespace, base));
    }
    if meta.label(labels::ORIGINATED_FROM_CRD) == Some("RayService")
        && let Some(name) = meta.label(labels::ORIGINATED_FROM_CR_NAME)
    {
        owners.push(Target::new(Kind::RayService, &meta.namespace, name));
    }
    owners.extend(stores.kube_services.owners_of(&meta.namespace, service));
    owners.retain(|owner| owner.kind == Kind::RayService);
    owners.sort();
    owners.dedup();
    owners
}

/// A kind of ours belongs to itself, and to what made it.
pub(crate) fn own_owners<K: kube::Resource<DynamicType = ()>>(kind: Kind, object: &K) -> Vec<Target> {
    let meta = object.meta();
    let namespace = meta.namespace.as_deref().unwrap_or_default();
    let mut owners = vec![Target::new(kind, namespace, meta.name.as_deref().unwrap_or_default())];
    let controller = meta.owner_references.iter().flatten().find(|owner| owner.controller == Some(true));
    if let Some(owner) = controller
        && let Some(kind) = ray_kind(&owner.kind)
    {
        owners.push(Target::new(kind, namespace, &owner.name));
    }
    owners
}

fn by_cluster_label(meta: &MetaView) -> Option<Target> {
    by_label(meta, labels::CLUSTER, Kind::RayCluster)
}

fn by_label(meta: &MetaView, label: &str, kind: Kind) -> Option<Target> {
    meta.label(label).map(|name| Target::new(kind, &meta.namespace, name))
}

fn by_controller(meta: &MetaView) -> Option<Target> {
    let owner = meta.controller()?;
    Some(Target::new(ray_kind(&owner.kind)?, &meta.namespace, &owner.name))
}

fn ray_kind(kind: &str) -> Option<Kind> {
    match kind {
        "RayCluster" => Some(Kind::RayCluster),
        "RayJob" => Some(Kind::RayJob),
        "RayService" => Some(Kind::RayService),
        "RayCronJob" => Some(Kind::RayCronJob),
        _ => None,
    }
}

fn merged(first: Option<Target>, second: Option<Target>) -> Vec<Target> {
    let mut owners: Vec<Target> = first.into_iter().collect();
    owners.extend(second.filter(|target| !owners.contains(target)));
    owners
}
