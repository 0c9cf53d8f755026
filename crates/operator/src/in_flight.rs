//! Writes that were acknowledged but have not come back through a watch.
//!
//! A cache lags behind. Writes that it does not show yet are remembered here and are part of what is observed, so
//! that no plan creates a second Pod or deletes a wrong one.

use crate::lock::lock;
use crate::shrinking_map;
use jiff::{SignedDuration, Timestamp};
use manta_logic::action::{Kind, ObjectKey, PodsOf};
use manta_logic::cluster::InFlight;
use manta_logic::view::MetaView;
use std::collections::HashMap;
use std::sync::Mutex;
use std::time::Duration;
use tokio::time::Instant;

/// After this time a write that no watch has shown is taken for lost, e.g. undone at once by someone. A Pod is looked up first.
const LOST_AFTER: Duration = Duration::from_secs(30);

/// For this long a write that broke off may still take effect: kube-apiserver ends a request after a minute.
const TAKES_EFFECT: Duration = Duration::from_secs(60);

/// The writes in flight of all objects, by the object whose plan asked for them.
pub(crate) struct InFlightWrites {
    by_owner: Mutex<HashMap<ObjectKey, Writes>>,
    remembered: bool,
}

#[derive(Default)]
struct Writes {
    creating: Vec<Creating>,
    deleting: Vec<Deleting>,
    /// UIDs of objects whose deletion broke off, and when it did.
    broken_deletions: HashMap<String, Instant>,
    /// Pods whose creation broke off, and when it did.
    broken_creations: Vec<(MetaView, Instant)>,
    /// The seed of the names in writes that failed, and when they did.
    seed: Option<(u64, Instant)>,
    status: Option<StatusWritten>,
}

/// A status that was written onto this version of the owner.
struct StatusWritten {
    onto: String,
    since: Instant,
}

struct Creating {
    key: ObjectKey,
    pods_of: Option<PodsOf>,
    uid: String,
    since: Instant,
}

impl Creating {
    fn is_overdue(&self) -> bool {
        self.since.elapsed() >= LOST_AFTER
    }

    /// A Pod counts until it is known to be gone: the next one would have another name, and so be one too many.
    fn is_lost(&self) -> bool {
        self.pods_of.is_none() && self.is_overdue()
    }
}

struct Deleting {
    key: ObjectKey,
    uid: String,
}

impl Writes {
    /// Returns how long until the oldest write is taken for lost.
    fn expiry(&self) -> Option<Duration> {
        let created = self.creating.iter().map(|creating| creating.since);
        let oldest = created.chain(self.status.as_ref().map(|written| written.since)).min()?;
        Some((oldest + LOST_AFTER).saturating_duration_since(Instant::now()))
    }

    fn is_empty(&self) -> bool {
        self.creating.is_empty()
            && self.deleting.is_empty()
            && self.broken_deletions.is_empty()
            && self.broken_creations.is_empty()
            && self.seed.is_none()
            && self.status.is_none()
    }
}

/// What a cache shows of an object.
pub(crate) enum Shown {
    Absent,
    /// There, with this UID.
    Alive(String),
    /// There and terminating.
    Terminating,
}

impl Default for InFlightWrites {
    fn default() -> Self {
        Self::new(true)
    }
}

impl InFlightWrites {
    /// Returns an empty memory. With `remembered` off it stays empty: see [`manta_logic::config::Safeguards`].
    pub(crate) fn new(remembered: bool) -> Self {
        Self { by_owner: Mutex::default(), remembered }
    }

    /// Changes what is remembered about an owner.
    fn remember(&self, owner: &ObjectKey, change: impl FnOnce(&mut Writes)) {
        if self.remembered {
            change(lock(&self.by_owner).entry(owner.clone()).or_default());
        }
    }

    /// Remembers that an object was created.
    pub(crate) fn created(&self, owner: &ObjectKey, key: &ObjectKey, pods_of: Option<PodsOf>, uid: String) {
        let creating = Creating { key: key.clone(), pods_of, uid, since: Instant::now() };
        self.remember(owner, |writes| {
            writes.broken_creations.retain(|(broken, _)| key.kind != Kind::Pod || broken.name != key.name);
            writes.creating.push(creating);
        });
    }

    /// Returns the Pods that were created long ago, with their UIDs, and that no watch has shown since.
    pub(crate) fn overdue(&self, owner: &ObjectKey) -> Vec<(ObjectKey, String)> {
        let by_owner = lock(&self.by_owner);
        let creating = by_owner.get(owner).into_iter().flat_map(|writes| &writes.creating);
        let overdue = creating.filter(|creating| creating.pods_of.is_some() && creating.is_overdue());
        overdue.map(|creating| (creating.key.clone(), creating.uid.clone())).collect()
    }

    /// Remembers whether a Pod that no watch has shown is there.
    pub(crate) fn looked_up(&self, owner: &ObjectKey, uid: &str, is_there: bool) {
        let mut by_owner = lock(&self.by_owner);
        let Some(writes) = by_owner.get_mut(owner) else { return };
        writes.creating.retain(|creating| is_there || creating.uid != uid);
        for creating in writes.creating.iter_mut().filter(|creating| creating.uid == uid) {
            creating.since = Instant::now();
        }
    }

    /// Remembers that an object was deleted.
    pub(crate) fn deleted(&self, owner: &ObjectKey, key: &ObjectKey, uid: &str) {
        let deleting = Deleting { key: key.clone(), uid: uid.to_owned() };
        self.remember(owner, |writes| writes.deleting.push(deleting));
    }

    /// Remembers that the deletion of an object broke off.
    pub(crate) fn deletion_broke(&self, owner: &ObjectKey, uid: &str) {
        self.remember(owner, |writes| {
            writes.broken_deletions.insert(uid.to_owned(), Instant::now());
        });
    }

    /// Remembers that the creation of a Pod broke off, so that it may take effect later.
    pub(crate) fn creation_broke(&self, owner: &ObjectKey, pod: MetaView) {
        self.remember(owner, |writes| {
            writes.broken_creations.retain(|(broken, _)| broken.name != pod.name);
            writes.broken_creations.push((pod, Instant::now()));
        });
    }

    /// Remembers that writes failed whose names were drawn from this seed.
    pub(crate) fn failed(&self, owner: &ObjectKey, seed: u64) {
        self.remember(owner, |writes| writes.seed = Some((seed, Instant::now())));
    }

    /// Remembers that a pass failed no write. Names are drawn anew, unless an earlier creation may still take effect: a pass that
    /// had something else to do has not repeated it.
    pub(crate) fn succeeded(&self, owner: &ObjectKey) {
        if let Some(writes) = lock(&self.by_owner).get_mut(owner) {
            writes.seed = writes.seed.filter(|_| !writes.broken_creations.is_empty());
        }
    }

    /// Returns the seed to draw names from again, so that a write that broke off is not made twice, and the same error has the
    /// same text.
    pub(crate) fn seed(&self, owner: &ObjectKey) -> Option<u64> {
        let (seed, since) = lock(&self.by_owner).get(owner)?.seed?;
        (since.elapsed() < TAKES_EFFECT).then_some(seed)
    }

    /// Remembers that the owner's status was written onto this version of it.
    pub(crate) fn wrote_status(&self, owner: &ObjectKey, onto: &str) {
        let status = StatusWritten { onto: onto.to_owned(), since: Instant::now() };
        self.remember(owner, |writes| writes.status = Some(status));
    }

    /// Returns whether the cache still shows the version that a status was written onto: whatever is decided
    /// from it would be refused.
    pub(crate) fn is_outdated(&self, owner: &ObjectKey, version: &str) -> bool {
        let mut by_owner = lock(&self.by_owner);
        let Some(writes) = by_owner.get_mut(owner) else { return false };
        let outdated = writes
            .status
            .as_ref()
            .is_some_and(|written| written.onto == version && written.since.elapsed() < LOST_AFTER);
        if !outdated {
            writes.status = None;
        }
        outdated
    }

    /// Returns what is still in flight for an owner, given what the caches show; the rest is forgotten.
    pub(crate) fn of(&self, owner: &ObjectKey, now: Timestamp, shown: impl Fn(&ObjectKey) -> Shown) -> InFlight {
        let mut by_owner = lock(&self.by_owner);
        let Some(writes) = by_owner.get_mut(owner) else { return InFlight::default() };
        writes.creating.retain(|creating| {
            let visible = matches!(shown(&creating.key), Shown::Terminating)
                || matches!(shown(&creating.key), Shown::Alive(uid) if uid == creating.uid);
            !visible && !creating.is_lost()
        });
        writes.deleting.retain(|deleting| matches!(shown(&deleting.key), Shown::Alive(uid) if uid == deleting.uid));
        writes.broken_deletions.retain(|_, since| since.elapsed() < TAKES_EFFECT);
        writes.broken_creations.retain(|(pod, since)| {
            let key = ObjectKey::new(Kind::Pod, &owner.namespace, &pod.name);
            since.elapsed() < TAKES_EFFECT && matches!(shown(&key), Shown::Absent)
        });
        let in_flight = InFlight {
            creating: writes.creating.iter().map(|of| (of.key.clone(), of.pods_of.clone())).collect(),
            deleting: writes.deleting.iter().map(|of| of.uid.clone()).collect(),
            broken_deletions: writes.broken_deletions.keys().cloned().collect(),
            broken_creations: writes.broken_creations.iter().map(|(pod, _)| pod.clone()).collect(),
            expires: writes.expiry().and_then(|wait| now.checked_add(SignedDuration::try_from(wait).ok()?).ok()),
        };
        writes.seed = writes.seed.filter(|(_, since)| since.elapsed() < TAKES_EFFECT);
        if writes.is_empty() {
            shrinking_map::remove(&mut by_owner, owner);
        }
        in_flight
    }

    /// Forgets a status that was written, once the cache shows the owner in another version than the one it was written onto.
    ///
    /// At rest no pass comes that would ask for it, so it would be remembered for ever.
    pub(crate) fn status_shown(&self, owner: &ObjectKey, version: &str) {
        let mut by_owner = lock(&self.by_owner);
        let Some(writes) = by_owner.get_mut(owner) else { return };
        writes.status.take_if(|written| written.onto != version);
        if writes.is_empty() {
            shrinking_map::remove(&mut by_owner, owner);
        }
    }

    /// Forgets an owner that is gone.
    pub(crate) fn forget(&self, owner: &ObjectKey) {
        shrinking_map::remove(&mut lock(&self.by_owner), owner);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use manta_logic::action::Kind;

    fn owner() -> ObjectKey {
        ObjectKey::new(Kind::RayCluster, "default", "demo")
    }
    fn pod() -> ObjectKey {
        ObjectKey::new(Kind::Pod, "default", "demo-head-x")
    }

    fn group() -> Option<PodsOf> {
        Some(PodsOf::Group("g".to_owned()))
    }

    fn in_flight(writes: &InFlightWrites, shown: impl Fn(&ObjectKey) -> Shown) -> InFlight {
        writes.of(&owner(), Timestamp::UNIX_EPOCH, shown)
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_is_in_flight_until_it_is_seen_or_lost() {
        let writes = InFlightWrites::default();
        writes.created(&owner(), &pod(), group(), "1".into());
        let seen = in_flight(&writes, |_| Shown::Absent);
        assert!(seen.is_creating_in("g") && !seen.is_creating_head());
        assert_eq!(seen.expires, Some("1970-01-01T00:00:30Z".parse().unwrap()));
        assert!(!in_flight(&writes, |_| Shown::Alive("1".into())).is_creating_in("g"));

        writes.created(&owner(), &pod(), group(), "1".into());
        tokio::time::advance(LOST_AFTER).await;
        writes.looked_up(&owner(), "1", false);
        assert_eq!(in_flight(&writes, |_| Shown::Absent), InFlight::default());

        let service = ObjectKey::new(Kind::Service, "default", "demo-head-svc");
        writes.created(&owner(), &service, None, "2".into());
        tokio::time::advance(LOST_AFTER).await;
        assert!(writes.overdue(&owner()).is_empty());
        assert_eq!(in_flight(&writes, |_| Shown::Absent), InFlight::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_pod_is_in_flight_until_it_is_known_to_be_gone() {
        let writes = InFlightWrites::default();
        writes.created(&owner(), &pod(), group(), "1".into());
        assert!(writes.overdue(&owner()).is_empty());
        tokio::time::advance(LOST_AFTER).await;
        assert!(in_flight(&writes, |_| Shown::Absent).is_creating_in("g"));
        assert_eq!(writes.overdue(&owner()), [(pod(), "1".to_owned())]);
        writes.looked_up(&owner(), "1", true);
        assert!(writes.overdue(&owner()).is_empty());
        assert!(in_flight(&writes, |_| Shown::Absent).is_creating_in("g"));
        assert!(!in_flight(&writes, |_| Shown::Alive("1".into())).is_creating_in("g"));
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_that_broke_off_may_take_effect_for_a_while() {
        let writes = InFlightWrites::default();
        writes.deletion_broke(&owner(), "1");
        tokio::time::advance(TAKES_EFFECT / 2).await;
        assert_eq!(
            in_flight(&writes, |_| Shown::Alive("1".into())).broken_deletions,
            std::collections::HashSet::from(["1".to_owned()])
        );
        tokio::time::advance(TAKES_EFFECT / 2).await;
        assert_eq!(in_flight(&writes, |_| Shown::Alive("1".into())), InFlight::default());
    }

    #[tokio::test(start_paused = true)]
    async fn a_creation_that_broke_off_may_take_effect_until_its_pod_is_seen() {
        let writes = InFlightWrites::default();
        let broken = MetaView { name: "demo-worker-x".into(), ..MetaView::default() };
        writes.creation_broke(&owner(), broken.clone());
        writes.creation_broke(&owner(), broken.clone());
        assert_eq!(in_flight(&writes, |_| Shown::Absent).broken_creations, std::slice::from_ref(&broken));
        assert_eq!(in_flight(&writes, |_| Shown::Alive("1".into())), InFlight::default());
        writes.creation_broke(&owner(), broken);
        tokio::time::advance(TAKES_EFFECT).await;
        assert_eq!(in_flight(&writes, |_| Shown::Absent), InFlight::default());
    }

    #[tokio::test(start_paused = true)]
    async fn names_are_drawn_again_while_a_creation_may_take_effect() {
        let writes = InFlightWrites::default();
        let broken = MetaView { name: "demo-worker-x".into(), ..MetaView::default() };
        writes.creation_broke(&owner(), broken.clone());
        writes.failed(&owner(), 7);
        writes.succeeded(&owner());
        assert_eq!(writes.seed(&owner()), Some(7), "other writes succeeded");
        let pod = ObjectKey::new(Kind::Pod, &owner().namespace, &broken.name);
        writes.created(&owner(), &pod, None, "1".into());
        assert!(in_flight(&writes, |_| Shown::Absent).broken_creations.is_empty(), "it was created by another request");
        writes.succeeded(&owner());
        assert_eq!(writes.seed(&owner()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn names_of_failed_writes_are_drawn_again_until_the_writes_succeed() {
        let writes = InFlightWrites::default();
        assert_eq!(writes.seed(&owner()), None);
        writes.failed(&owner(), 7);
        // A pass that had to wait.
        in_flight(&writes, |_| Shown::Absent);
        assert_eq!(writes.seed(&owner()), Some(7));
        writes.succeeded(&owner());
        assert_eq!(writes.seed(&owner()), None);
        writes.failed(&owner(), 8);
        tokio::time::advance(TAKES_EFFECT).await;
        assert_eq!(writes.seed(&owner()), None, "nothing takes effect any more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_version_whose_status_was_written_is_outdated() {
        let writes = InFlightWrites::default();
        assert!(!writes.is_outdated(&owner(), "7"));
        writes.wrote_status(&owner(), "7");
        assert!(writes.is_outdated(&owner(), "7"));
        assert!(!writes.is_outdated(&owner(), "8"));
        writes.wrote_status(&owner(), "8");
        tokio::time::advance(LOST_AFTER).await;
        assert!(!writes.is_outdated(&owner(), "8"), "a write that no watch ever shows is given up");
    }

    #[tokio::test]
    async fn nothing_is_remembered_of_a_status_that_was_shown() {
        let writes = InFlightWrites::default();
        let remembered = || lock(&writes.by_owner).len();
        writes.status_shown(&owner(), "6");
        writes.wrote_status(&owner(), "7");
        writes.status_shown(&owner(), "7");
        assert!(writes.is_outdated(&owner(), "7"), "that is the version before the status");
        writes.status_shown(&owner(), "8");
        assert_eq!(remembered(), 0);
        writes.wrote_status(&owner(), "8");
        writes.created(&owner(), &pod(), group(), "1".into());
        writes.status_shown(&owner(), "9");
        assert!(in_flight(&writes, |_| Shown::Absent).is_creating_in("g"), "other writes stay in flight");
    }

    #[tokio::test(start_paused = true)]
    async fn a_deletion_is_in_flight_while_the_same_object_looks_alive() {
        let writes = InFlightWrites::default();
        let check = |shown: fn(&ObjectKey) -> Shown, expect: usize| {
            writes.deleted(&owner(), &pod(), "1");
            assert_eq!(in_flight(&writes, shown).deleting.len(), expect);
            writes.forget(&owner());
        };
        check(|_| Shown::Alive("1".into()), 1);
        check(|_| Shown::Alive("2".into()), 0);
        check(|_| Shown::Terminating, 0);
        check(|_| Shown::Absent, 0);
    }
}
