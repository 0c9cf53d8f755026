//! In-memory caches of the watched objects.
//!
//! Objects are indexed by owner, the object whose plan reads them, so that the cost of observing one RayCluster depends
//! on its own Pods only.

use crate::lock::lock;
use crate::raw_object::RawObject;
use crate::watched_object::View;
use manta_api::{RayCluster, RayCronJob, RayJob, RayService};
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::view::{EndpointSliceView, JobView, PodView, ServiceView, WholeView};
use std::collections::{BTreeSet, HashMap, HashSet};
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

/// All caches of the operator.
#[derive(Default)]
pub struct Stores {
    pub clusters: Arc<Table<RawObject<RayCluster>>>,
    pub jobs: Arc<Table<RawObject<RayJob>>>,
    pub services: Arc<Table<RawObject<RayService>>>,
    pub cron_jobs: Arc<Table<RawObject<RayCronJob>>>,
    pub pods: Arc<Table<PodView>>,
    pub kube_services: Arc<Table<ServiceView>>,
    pub kube_jobs: Arc<Table<JobView>>,
    /// EndpointSlices of serve Services; others are not stored.
    pub slices: Arc<Table<EndpointSliceView>>,
    related: Mutex<HashMap<Kind, Arc<Table<WholeView>>>>,
}

impl Stores {
    /// Returns those of the kinds that are always watched whose watches have not listed everything yet. Kinds that the API
    /// server does not serve do not count: they have no objects.
    pub(crate) fn unsynced(&self, with_cron_jobs: bool) -> Vec<&'static str> {
        let always = [Kind::RayCluster, Kind::RayJob, Kind::RayService, Kind::Pod, Kind::Service, Kind::Job];
        let kinds = always.into_iter().chain(with_cron_jobs.then_some(Kind::RayCronJob));
        let counts = |kind: &Kind| {
            let listings = self.listings(*kind);
            !listings.is_listed() && !listings.is_unserved()
        };
        kinds.filter(counts).map(|kind| kind.resource().kind).collect()
    }

    /// Returns the generation of a Ray object, if it is there.
    pub(crate) fn generation(&self, key: &ObjectKey) -> Option<i64> {
        match key.kind {
            Kind::RayCluster => self.clusters.get(key, &key.name).map(|object| object.generation()),
            Kind::RayJob => self.jobs.get(key, &key.name).map(|object| object.generation()),
            Kind::RayService => self.services.get(key, &key.name).map(|object| object.generation()),
            Kind::RayCronJob => self.cron_jobs.get(key, &key.name).map(|object| object.generation()),
            _ => None,
        }
    }

    /// Returns the resource version of a Ray object, if it is there.
    pub(crate) fn version(&self, key: &ObjectKey) -> Option<Box<str>> {
        match key.kind {
            Kind::RayCluster => self.clusters.get(key, &key.name).map(|object| object.version().into()),
            Kind::RayJob => self.jobs.get(key, &key.name).map(|object| object.version().into()),
            Kind::RayService => self.services.get(key, &key.name).map(|object| object.version().into()),
            Kind::RayCronJob => self.cron_jobs.get(key, &key.name).map(|object| object.version().into()),
            _ => None,
        }
    }

    /// Returns whether the watch of a kind has listed everything, and follows its changes.
    pub(crate) fn is_synced(&self, kind: Kind) -> bool {
        self.listings(kind).is_synced()
    }

    /// Wakes an object when the watch of a kind has listed everything. Returns whether it has already.
    pub(crate) fn wait_until_synced(&self, kind: Kind, key: &ObjectKey) -> bool {
        self.listings(kind).wait_until_synced(key)
    }

    fn listings(&self, kind: Kind) -> Arc<dyn Listings> {
        match kind {
            Kind::RayCluster => Arc::clone(&self.clusters) as Arc<dyn Listings>,
            Kind::RayJob => Arc::clone(&self.jobs) as _,
            Kind::RayService => Arc::clone(&self.services) as _,
            Kind::RayCronJob => Arc::clone(&self.cron_jobs) as _,
            Kind::Pod => Arc::clone(&self.pods) as _,
            Kind::Service => Arc::clone(&self.kube_services) as _,
            Kind::Job => Arc::clone(&self.kube_jobs) as _,
            Kind::EndpointSlice => Arc::clone(&self.slices) as _,
            kind => self.related(kind) as _,
        }
    }

    /// Returns the cache of a kind of which there are few.
    pub fn related(&self, kind: Kind) -> Arc<Table<WholeView>> {
        Arc::clone(lock(&self.related).entry(kind).or_default())
    }
}

/// Objects of one kind, by owner and by name. Several watches may fill one table.
pub struct Table<V> {
    inner: Mutex<Inner<V>>,
    /// How many watches have not listed everything yet.
    unlisted: AtomicUsize,
    /// How many watches list again, because they could not be continued.
    stale: AtomicUsize,
    /// Whether the API server does not serve the kind.
    unserved: AtomicBool,
}

struct Inner<V> {
    /// The objects of each owner, sorted by name.
    by_owner: HashMap<Arc<ObjectKey>, Vec<Arc<V>>>,
    /// Where each object is, by namespace and name, to find it again when its labels have changed.
    locations: HashMap<Box<str>, HashMap<Box<str>, Location>>,
    /// The keys that a watch has listed since it started over; objects missing at the end of the list are gone.
    listing: HashMap<usize, HashSet<(String, String)>>,
    /// The watches that have once listed everything.
    listed: HashSet<usize>,
    /// The watches that cannot be continued, until they have listed everything again.
    stale: HashSet<usize>,
    /// The objects to wake when the table holds everything.
    waiters: BTreeSet<ObjectKey>,
}

struct Location {
    owners: Box<[Arc<ObjectKey>]>,
    /// The watch that showed the object.
    part: usize,
}

impl<V> Default for Table<V> {
    fn default() -> Self {
        let inner = Inner {
            by_owner: HashMap::new(),
            locations: HashMap::new(),
            listing: HashMap::new(),
            listed: HashSet::new(),
            stale: HashSet::new(),
            waiters: BTreeSet::new(),
        };
        Self {
            inner: Mutex::new(inner),
            unlisted: AtomicUsize::new(usize::MAX),
            stale: AtomicUsize::new(0),
            unserved: AtomicBool::new(false),
        }
    }
}

/// Whether a table holds everything.
trait Listings {
    fn is_listed(&self) -> bool;
    fn is_synced(&self) -> bool;
    fn is_unserved(&self) -> bool;
    fn wait_until_synced(&self, key: &ObjectKey) -> bool;
}

impl<V: View> Listings for Table<V> {
    /// Returns whether the table has once held everything.
    fn is_listed(&self) -> bool {
        self.unlisted.load(Ordering::Acquire) == 0
    }

    /// Returns whether the table holds everything, as far as its watches have got.
    fn is_synced(&self) -> bool {
        self.is_listed() && self.stale.load(Ordering::Acquire) == 0
    }

    fn is_unserved(&self) -> bool {
        self.unserved.load(Ordering::Acquire)
    }

    /// Wakes an object when the table holds everything. Returns whether it does already.
    fn wait_until_synced(&self, key: &ObjectKey) -> bool {
        let mut inner = lock(&self.inner);
        let synced = self.is_synced();
        if !synced {
            inner.waiters.insert(key.clone());
        }
        synced
    }
}

impl<V: View> Table<V> {
    /// The objects of an owner, sorted by name.
    pub fn of(&self, owner: &ObjectKey) -> Vec<Arc<V>> {
        lock(&self.inner).by_owner.get(owner).cloned().unwrap_or_default()
    }

    /// Returns one object of an owner.
    pub fn get(&self, owner: &ObjectKey, name: &str) -> Option<Arc<V>> {
        lock(&self.inner).get(owner, name)
    }

    /// Returns one object, whatever its owner.
    pub fn find(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        lock(&self.inner).find(namespace, name)
    }

    /// Returns the owners of an object.
    pub fn owners_of(&self, namespace: &str, name: &str) -> Vec<ObjectKey> {
        let inner = lock(&self.inner);
        let owners = inner.location(namespace, name).map(|location| &*location.owners).unwrap_or_default();
        owners.iter().map(|owner| (**owner).clone()).collect()
    }

    /// Returns all owners of objects in this table.
    pub fn owners(&self) -> Vec<ObjectKey> {
        lock(&self.inner).by_owner.keys().map(|owner| (**owner).clone()).collect()
    }

    /// Sets how many watches fill the table.
    pub(crate) fn expect_listings(&self, watches: usize) {
        self.unlisted.store(watches, Ordering::Release);
    }

    /// Takes note that the API server does not serve the kind. The next list that succeeds says otherwise.
    pub(crate) fn set_unserved(&self) {
        self.unserved.store(true, Ordering::Release);
    }

    /// Stores an object under its owners. Returns the objects to wake, and whether only its status is new.
    ///
    /// The first list of a watch wakes the owners at its end: until then little can be decided about any of them.
    pub(crate) fn put(&self, part: usize, object: Arc<V>, owners: Vec<ObjectKey>) -> (Vec<ObjectKey>, bool) {
        let mut inner = lock(&self.inner);
        if let Some(listed) = inner.listing.get_mut(&part) {
            let (namespace, name) = object.key();
            listed.insert((namespace.to_owned(), name.to_owned()));
        }
        let (namespace, name) = object.key();
        let status_only = inner.find(namespace, name).is_some_and(|before| object.differs_in_status_only(&before));
        let mut concerned = inner.remove(namespace, name);
        inner.insert(part, &object, &owners);
        if !inner.is_in_first_list(part) {
            concerned.extend(owners);
        }
        concerned.sort();
        concerned.dedup();
        (concerned, status_only)
    }

    /// Removes an object. Returns the objects to wake.
    pub(crate) fn remove(&self, namespace: &str, name: &str) -> Vec<ObjectKey> {
        lock(&self.inner).remove(namespace, name)
    }

    /// Takes note that a watch cannot be continued, so that changes may be missing until it has listed everything again.
    pub(crate) fn set_stale(&self, part: usize) {
        let mut inner = lock(&self.inner);
        if inner.listed.contains(&part) && inner.stale.insert(part) {
            self.stale.fetch_add(1, Ordering::AcqRel);
        }
    }

    /// Starts a new list of a watch.
    pub(crate) fn begin_listing(&self, part: usize) {
        lock(&self.inner).listing.insert(part, HashSet::new());
    }

    /// Ends the list of a watch and removes the objects that it did not contain. Returns the objects to wake.
    pub(crate) fn end_listing(&self, part: usize) -> Vec<ObjectKey> {
        self.unserved.store(false, Ordering::Release);
        let mut inner = lock(&self.inner);
        let listed = inner.listing.remove(&part).unwrap_or_default();
        let mut gone: Vec<_> = inner.keys_of(part).filter(|key| !listed.contains(key)).collect();
        gone.sort();
        let mut concerned: Vec<ObjectKey> =
            gone.iter().flat_map(|(namespace, name)| inner.remove(namespace, name)).collect();
        if inner.listed.insert(part) {
            self.unlisted.fetch_sub(1, Ordering::AcqRel);
            let owners: BTreeSet<ObjectKey> = inner.owners_in(part).cloned().collect();
            concerned.extend(owners);
        }
        if inner.stale.remove(&part) {
            self.stale.fetch_sub(1, Ordering::AcqRel);
        }
        if self.is_synced() {
            concerned.extend(std::mem::take(&mut inner.waiters));
        }
        concerned
    }
}

impl<V: View> Inner<V> {
    fn get(&self, owner: &ObjectKey, name: &str) -> Option<Arc<V>> {
        let objects = self.by_owner.get(owner)?;
        Some(Arc::clone(&objects[position(objects, name).ok()?]))
    }

    fn find(&self, namespace: &str, name: &str) -> Option<Arc<V>> {
        self.location(namespace, name)?.owners.iter().find_map(|owner| self.get(owner, name))
    }

    fn location(&self, namespace: &str, name: &str) -> Option<&Location> {
        self.locations.get(namespace)?.get(name)
    }

    fn is_in_first_list(&self, part: usize) -> bool {
        self.listing.contains_key(&part) && !self.listed.contains(&part)
    }

    /// Returns the owners of the objects that a watch has shown, each once for every such object.
    fn owners_in(&self, part: usize) -> impl Iterator<Item = &ObjectKey> {
        let locations = self.locations.values().flat_map(HashMap::values).filter(move |location| location.part == part);
        locations.flat_map(|location| location.owners.iter().map(|owner| &**owner))
    }

    /// Returns the objects that a watch has shown.
    fn keys_of(&self, part: usize) -> impl Iterator<Item = (String, String)> {
        self.locations.iter().flat_map(move |(namespace, by_name)| {
            let names = by_name.iter().filter(move |(_, location)| location.part == part).map(|(name, _)| name);
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
                Ok(index) => objects[index] = Arc::clone(object),
                Err(index) => {
                    objects.reserve_exact(1); // most owners have few objects, and there are many owners
                    objects.insert(index, Arc::clone(object));
                }
            }
            shared
        });
        let location = Location { owners: owners.collect(), part };
        if !self.locations.contains_key(namespace) {
            self.locations.insert(namespace.into(), HashMap::new());
        }
        if let Some(by_name) = self.locations.get_mut(namespace) {
            by_name.insert(name.into(), location);
        }
    }

    fn remove(&mut self, namespace: &str, name: &str) -> Vec<ObjectKey> {
        let Some(by_name) = self.locations.get_mut(namespace) else { return Vec::new() };
        let Some(Location { owners, .. }) = by_name.remove(name) else { return Vec::new() };
        if by_name.is_empty() {
            self.locations.remove(namespace);
        }
        for owner in &owners {
            if let Some(objects) = self.by_owner.get_mut(&**owner) {
                if let Ok(index) = position(objects, name) {
                    objects.remove(index);
                }
                if objects.is_empty() {
                    self.by_owner.remove(&**owner);
                }
            }
        }
        owners.iter().map(|owner| (**owner).clone()).collect()
    }
}

/// Returns where an object of this name is, or would be.
fn position<V: View>(objects: &[Arc<V>], name: &str) -> Result<usize, usize> {
    objects.binary_search_by(|object| object.key().1.cmp(name))
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
        table.of(&owner(of)).iter().map(|pod| pod.metadata.name.to_string()).collect()
    }

    #[test]
    fn objects_are_found_by_owner_and_by_name() {
        let table = Table::default();
        for name in ["b", "c", "a"] {
            assert_eq!(table.put(0, pod("ns", name), vec![owner("x")]), (vec![owner("x")], false));
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
    fn an_object_that_changes_owner_wakes_both() {
        let table = Table::default();
        table.put(0, pod("ns", "a"), vec![owner("x")]);
        assert_eq!(table.put(0, pod("ns", "a"), vec![owner("y")]).0, [owner("x"), owner("y")]);
        assert_eq!((names(&table, "x").len(), names(&table, "y").len()), (0, 1));
        assert_eq!(table.put(0, pod("ns", "a"), vec![]).0, [owner("y")]);
        assert!(table.owners().is_empty() && table.find("ns", "a").is_none());
    }

    #[test]
    fn objects_missing_from_a_new_list_are_gone() {
        let table = Table::default();
        table.expect_listings(2);
        for part in [0, 1] {
            table.begin_listing(part);
            table.put(part, pod("ns", &format!("stays-{part}")), vec![owner("x")]);
            table.put(part, pod("ns", &format!("goes-{part}")), vec![owner("x")]);
            assert!(!table.wait_until_synced(&owner("w")));
            assert_eq!(
                table.end_listing(part).contains(&owner("w")),
                part == 1,
                "waiters are woken at the end of the last list"
            );
        }
        assert!(table.is_synced());
        table.begin_listing(0);
        table.put(0, pod("ns", "stays-0"), vec![owner("x")]);
        assert_eq!(table.end_listing(0), [owner("x")]);
        assert_eq!(names(&table, "x"), ["goes-1", "stays-0", "stays-1"]);
    }

    #[test]
    fn the_first_list_of_a_watch_wakes_owners_at_its_end() {
        let table = Table::default();
        table.expect_listings(2);
        table.begin_listing(0);
        for name in ["a", "b"] {
            assert_eq!(table.put(0, pod("ns", name), vec![owner("x")]).0, []);
        }
        assert_eq!(table.put(0, pod("ns", "c"), vec![owner("y")]).0, []);
        assert_eq!(table.end_listing(0), [owner("x"), owner("y")]);
        // What it shows afterwards, or lists again, wakes at once.
        assert_eq!(table.put(0, pod("ns", "a"), vec![owner("x")]).0, [owner("x")]);
        table.begin_listing(0);
        for name in ["a", "b"] {
            assert_eq!(table.put(0, pod("ns", name), vec![owner("x")]).0, [owner("x")]);
        }
        assert_eq!(table.end_listing(0), [owner("y")]);
        // The other watch takes an object from its earlier owner.
        table.begin_listing(1);
        assert_eq!(table.put(1, pod("ns", "a"), vec![owner("z")]).0, [owner("x")]);
        assert_eq!(table.end_listing(1), [owner("z")]);
    }

    #[test]
    fn what_cannot_be_followed_is_not_synced_until_it_is_listed_again() {
        let table = Table::<PodView>::default();
        table.expect_listings(2);
        table.set_stale(0);
        for part in [0, 1] {
            table.begin_listing(part);
            table.end_listing(part);
        }
        assert!(table.is_synced(), "a watch that has listed nothing cannot become old");
        table.set_stale(1);
        table.set_stale(1);
        assert!(table.is_listed() && !table.is_synced());
        assert!(!table.wait_until_synced(&owner("waits")));
        table.begin_listing(0);
        assert_eq!(table.end_listing(0), [], "the other watch is still old");
        table.begin_listing(1);
        assert_eq!(table.end_listing(1), [owner("waits")]);
        assert!(table.is_synced());
    }

    #[test]
    fn kinds_without_a_crd_do_not_count_as_unsynced() {
        let stores = Stores::default();
        let kinds = ["RayCluster", "RayJob", "RayService", "Pod", "Service", "Job", "RayCronJob"];
        assert_eq!(stores.unsynced(true), kinds);
        assert_eq!(stores.unsynced(false), kinds[..6]);
        stores.cron_jobs.expect_listings(1);
        stores.cron_jobs.set_unserved();
        assert_eq!(stores.unsynced(true), kinds[..6]);
        stores.cron_jobs.begin_listing(0);
        assert_eq!(stores.unsynced(true), kinds[..6]);
        stores.cron_jobs.end_listing(0);
        assert!(stores.is_synced(Kind::RayCronJob));
    }
}
