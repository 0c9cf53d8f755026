//! What the watches have shown, in memory.
//!
//! Objects are kept by their owner, the object whose plan reads them: looking at one RayCluster
//! costs as much as that cluster has Pods, however many others there are.

use crate::kept::Kept;
use crate::wire::View;
use manta_api::{RayCluster, RayCronJob, RayJob, RayService};
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::labels;
use manta_logic::scheduler;
use manta_logic::view::{EndpointSliceView, JobView, MetaView, PodView, ServiceView, WholeView};
use std::collections::{HashMap, HashSet};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// All caches of the operator.
#[derive(Default)]
pub struct Stores {
    pub clusters: Arc<Table<Kept<RayCluster>>>,
    pub jobs: Arc<Table<Kept<RayJob>>>,
    pub services: Arc<Table<Kept<RayService>>>,
    pub cron_jobs: Arc<Table<Kept<RayCronJob>>>,
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
    /// The objects of each owner, sorted by name.
    by_owner: HashMap<Arc<ObjectKey>, Vec<Arc<V>>>,
    /// Where each object was put, by namespace and name, to find it again when its labels have changed.
    places: HashMap<Box<str>, HashMap<Box<str>, Place>>,
    /// The keys that a watch has told since it began anew; what is missing at its end is gone.
    listing: HashMap<usize, HashSet<(String, String)>>,
    /// The watches that have once told everything.
    listed: HashSet<usize>,
    /// Whose plans wait for the table to hold everything.
    waiters: HashSet<ObjectKey>,
}

struct Place {
    owners: Box<[Arc<ObjectKey>]>,
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

    /// Whether the table has once held everything; if not, this object is woken when it does.
    pub(crate) fn is_synced_for(&self, key: &ObjectKey) -> bool {
        let mut inner = lock(&self.inner);
        let synced = self.is_synced();
        if !synced {
            inner.waiters.insert(key.clone());
        }
        synced
    }

    /// The objects of an owner, sorted by name.
    pub fn of(&self, owner: &ObjectKey) -> Vec<Arc<V>> {
        lock(&self.inner).by_owner.get(owner).cloned().unwrap_or_default()
    }

    /// One object of an owner.
    pub fn get(&self, owner: &ObjectKey, name: &str) -> Option<Arc<V>> {
        lock(&self.inner).get(owner, name)
    }

    /// One object, whoever owns it.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        let inner = lock(&self.inner);
        inner.place(namespace, name)?.owners.iter().find_map(|owner| inner.get(owner, name))
    }

    /// Who owns an object.
    pub fn owners_of(&self, namespace: &str, name: &str) -> Vec<ObjectKey> {
        let inner = lock(&self.inner);
        let owners = inner.place(namespace, name).map(|place| &*place.owners).unwrap_or_default();
        owners.iter().map(|owner| (**owner).clone()).collect()
    }

    /// All owners that have objects here.
    pub fn owners(&self) -> Vec<ObjectKey> {
        lock(&self.inner).by_owner.keys().map(|owner| (**owner).clone()).collect()
    }

    /// How many watches fill the table.
    pub(crate) fn expect_listings(&self, watches: usize) {
        self.unlisted.store(watches, Ordering::Release);
    }

    /// Puts an object under its owners and answers whom that concerns.
    pub(crate) fn put(&self, part: usize, object: Arc<V>, owners: Vec<ObjectKey>) -> Vec<ObjectKey> {
        let mut inner = lock(&self.inner);
        if let Some(told) = inner.listing.get_mut(&part) {
            let (namespace, name) = object.key();
            told.insert((namespace.to_owned(), name.to_owned()));
        }
        let (namespace, name) = object.key();
        let mut concerned = inner.remove(namespace, name);
        inner.insert(part, &object, &owners);
        concerned.extend(owners);
        concerned.sort();
        concerned.dedup();
        concerned
    }

    /// Removes an object and answers whom that concerns.
    pub(crate) fn remove(&self, namespace: &str, name: &str) -> Vec<ObjectKey> {
        lock(&self.inner).remove(namespace, name)
    }

    /// A watch begins anew.
    pub(crate) fn begin_listing(&self, part: usize) {
        lock(&self.inner).listing.insert(part, HashSet::new());
    }

    /// A watch has told everything: what it did not tell is gone. Answers whom that concerns.
    pub(crate) fn end_listing(&self, part: usize) -> Vec<ObjectKey> {
        let mut inner = lock(&self.inner);
        let told = inner.listing.remove(&part).unwrap_or_default();
        let gone = inner.keys_of(part).filter(|key| !told.contains(key)).collect::<Vec<_>>();
        let mut concerned: Vec<ObjectKey> =
            gone.iter().flat_map(|(namespace, name)| inner.remove(namespace, name)).collect();
        if inner.listed.insert(part) {
            let left = self.unlisted.fetch_sub(1, Ordering::AcqRel);
            if left == 1 {
                concerned.extend(inner.waiters.drain());
            }
        }
        concerned
    }
}

impl<V: View> Inner<V> {
    fn get(&self, owner: &ObjectKey, name: &str) -> Option<Arc<V>> {
        let objects = self.by_owner.get(owner)?;
        Some(Arc::clone(&objects[position(objects, name).ok()?]))
    }

    fn place(&self, namespace: &str, name: &str) -> Option<&Place> {
        self.places.get(namespace)?.get(name)
    }

    /// The objects that a watch has told.
    fn keys_of(&self, part: usize) -> impl Iterator<Item = (String, String)> {
        self.places.iter().flat_map(move |(namespace, places)| {
            let names = places.iter().filter(move |(_, place)| place.part == part).map(|(name, _)| name);
            names.map(move |name| (namespace.to_string(), name.to_string()))
        })
    }

    fn insert(&mut self, part: usize, object: &Arc<V>, owners: &[ObjectKey]) {
        if owners.is_empty() {
            return;
        }
        let (namespace, name) = object.key();
        let owners = owners.iter().map(|owner| {
            let shared = match self.by_owner.get_key_value(owner) {
                Some((shared, _)) => Arc::clone(shared),
                None => Arc::new(owner.clone()),
            };
            let objects = self.by_owner.entry(Arc::clone(&shared)).or_default();
            match position(objects, name) {
                Ok(place) => objects[place] = Arc::clone(object),
                Err(place) => {
                    objects.reserve_exact(1); // most owners have few objects, and there are many owners
                    objects.insert(place, Arc::clone(object));
                }
            }
            shared
        });
        let place = Place { owners: owners.collect(), part };
        if !self.places.contains_key(namespace) {
            self.places.insert(namespace.into(), HashMap::new());
        }
        if let Some(places) = self.places.get_mut(namespace) {
            places.insert(name.into(), place);
        }
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Vec<ObjectKey> {
        let Some(places) = self.places.get_mut(namespace) else { return Vec::new() };
        let Some(Place { owners, .. }) = places.remove(name) else { return Vec::new() };
        if places.is_empty() {
            self.places.remove(namespace);
        }
        for owner in &owners {
            if let Some(objects) = self.by_owner.get_mut(&**owner) {
                if let Ok(place) = position(objects, name) {
                    objects.remove(place);
                }
                if objects.is_empty() {
                    self.by_owner.remove(&**owner);
                }
            }
        }
        owners.iter().map(|owner| (**owner).clone()).collect()
    }
}

/// Where an object of this name is, or would be.
fn position<V: View>(objects: &[Arc<V>], name: &str) -> Result<usize, usize> {
    objects.binary_search_by(|object| object.key().1.cmp(name))
}

/// A lock that a panicked task cannot take away from the others.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The RayCluster that a Pod belongs to.
pub(crate) fn pod_owners(pod: &PodView) -> Vec<ObjectKey> {
    by_cluster_label(&pod.metadata).into_iter().collect()
}

/// The object whose Service this is: the owner that controls it, and the cluster that it is labelled with.
pub(crate) fn service_owners(service: &ServiceView) -> Vec<ObjectKey> {
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
pub(crate) fn job_owners(job: &JobView) -> Vec<ObjectKey> {
    merged(by_controller(&job.metadata), by_cluster_label(&job.metadata))
}

/// The RayCluster that a related object is labelled with, its controller, and whose batch scheduler reads it.
pub(crate) fn related_owners(kind: Kind, object: &WholeView) -> Vec<ObjectKey> {
    let meta = &object.metadata;
    let mut owners = merged(by_controller(meta), by_cluster_label(meta));
    for reader in scheduler::readers(kind, &meta.namespace, &meta.name) {
        if !owners.contains(&reader) {
            owners.push(reader);
        }
    }
    owners
}

/// The RayService whose requests an EndpointSlice is about; none for the slices of other Services.
///
/// The slice carries the labels of its Service, where a real controller made it. Where not, the name leads to the
/// RayService, to one of its clusters, or to a Service that is known.
pub(crate) fn slice_owners(stores: &Stores, slice: &EndpointSliceView) -> Vec<ObjectKey> {
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
        owners.push(ObjectKey::new(Kind::RayService, &meta.namespace, name));
    }
    owners.extend(stores.kube_services.owners_of(&meta.namespace, service));
    owners.retain(|owner| owner.kind == Kind::RayService);
    owners.sort();
    owners.dedup();
    owners
}

fn by_cluster_label(meta: &MetaView) -> Option<ObjectKey> {
    by_label(meta, labels::CLUSTER, Kind::RayCluster)
}

fn by_label(meta: &MetaView, label: &str, kind: Kind) -> Option<ObjectKey> {
    meta.label(label).map(|name| ObjectKey::new(kind, &meta.namespace, name))
}

fn by_controller(meta: &MetaView) -> Option<ObjectKey> {
    let owner = meta.controller()?;
    Some(ObjectKey::new(ray_kind(&owner.kind)?, &meta.namespace, &owner.name))
}

pub(crate) fn ray_kind(kind: &str) -> Option<Kind> {
    match kind {
        "RayCluster" => Some(Kind::RayCluster),
        "RayJob" => Some(Kind::RayJob),
        "RayService" => Some(Kind::RayService),
        "RayCronJob" => Some(Kind::RayCronJob),
        _ => None,
    }
}

fn merged(first: Option<ObjectKey>, second: Option<ObjectKey>) -> Vec<ObjectKey> {
    let mut owners: Vec<ObjectKey> = first.into_iter().collect();
    owners.extend(second.filter(|key| !owners.contains(key)));
    owners
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn pod(namespace: &str, name: &str) -> Arc<PodView> {
        Arc::new(serde_json::from_value(json!({"metadata": {"name": name, "namespace": namespace}})).unwrap())
    }
    fn owner(name: &str) -> ObjectKey {
        ObjectKey::new(Kind::RayCluster, "ns", name)
    }
    fn names(table: &Table<PodView>, of: &str) -> Vec<String> {
        table.of(&owner(of)).iter().map(|pod| pod.metadata.name.clone()).collect()
    }

    #[test]
    fn objects_are_found_by_owner_and_by_name() {
        let table = Table::default();
        for name in ["b", "c", "a"] {
            assert_eq!(table.put(0, pod("ns", name), vec![owner("x")]), [owner("x")]);
        }
        table.put(0, pod("ns", "b"), vec![owner("x")]);
        table.put(0, pod("elsewhere", "b"), vec![owner("y")]);
        assert_eq!(names(&table, "x"), ["a", "b", "c"]);
        assert_eq!(table.get(&owner("x"), "b").map(|pod| pod.metadata.namespace.clone()), Some("ns".into()));
        assert!(table.get(&owner("x"), "bb").is_none() && table.get(&owner("z"), "b").is_none());
        assert_eq!(table.find("elsewhere", "b").map(|pod| pod.metadata.namespace.clone()), Some("elsewhere".into()));
        assert_eq!(table.owners_of("ns", "a"), [owner("x")]);
        assert_eq!(table.remove("ns", "b"), [owner("x")]);
        assert_eq!(names(&table, "x"), ["a", "c"]);
        assert!(table.remove("ns", "b").is_empty() && table.find("ns", "b").is_none());
        assert_eq!(names(&table, "y"), ["b"]);
    }

    #[test]
    fn an_object_that_changes_hands_concerns_both_owners() {
        let table = Table::default();
        table.put(0, pod("ns", "a"), vec![owner("x")]);
        assert_eq!(table.put(0, pod("ns", "a"), vec![owner("y")]), [owner("x"), owner("y")]);
        assert_eq!((names(&table, "x").len(), names(&table, "y").len()), (0, 1));
        assert_eq!(table.put(0, pod("ns", "a"), vec![]), [owner("y")]);
        assert!(table.owners().is_empty() && table.find("ns", "a").is_none());
    }

    #[test]
    fn what_a_new_list_does_not_tell_is_gone() {
        let table = Table::default();
        table.expect_listings(2);
        for part in [0, 1] {
            table.begin_listing(part);
            table.put(part, pod("ns", &format!("stays-{part}")), vec![owner("x")]);
            table.put(part, pod("ns", &format!("goes-{part}")), vec![owner("x")]);
            assert!(!table.is_synced_for(&owner("w")));
            assert_eq!(table.end_listing(part).contains(&owner("w")), part == 1, "those who wait are woken in the end");
        }
        assert!(table.is_synced());
        table.begin_listing(0);
        table.put(0, pod("ns", "stays-0"), vec![owner("x")]);
        assert_eq!(table.end_listing(0), [owner("x")]);
        assert_eq!(names(&table, "x"), ["goes-1", "stays-0", "stays-1"]);
    }
}
