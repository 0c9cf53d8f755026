//! The state of a store, as read at once and as watchers see it grow.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use manta_apiserver::store::{Change, Entry, Event, Follower, ListRange, ObjectKey, Store};

/// All objects of a store by table and key.
pub(crate) type Objects = BTreeMap<(Arc<str>, ObjectKey), Stored>;

/// Everything that is kept of one object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Stored {
    pub(crate) revision: u64,
    uid: manta_apiserver::store::Uid,
    labels: Box<[(Box<str>, Box<str>)]>,
    owners: Box<[manta_apiserver::store::Uid]>,
    deleting: bool,
    pub(crate) json: String,
}

impl From<&Entry> for Stored {
    fn from(entry: &Entry) -> Stored {
        Stored {
            revision: entry.revision,
            uid: entry.uid,
            labels: entry.labels.clone(),
            owners: entry.owners.clone(),
            deleting: entry.deleting,
            json: String::from_utf8_lossy(&entry.json).into_owned(),
        }
    }
}

/// Returns the objects of some tables, and the dependents of every owner among them.
pub(crate) fn read(store: &Store, tables: &BTreeSet<Arc<str>>) -> Result<Objects, String> {
    let mut objects = Objects::new();
    for table in tables {
        let page = store.list(table, &ListRange::default(), |_| true).map_err(|_| format!("{table} is compacted"))?;
        objects.extend(page.entries.iter().map(|entry| (key(table, entry), Stored::from(&**entry))));
    }
    for (place, object) in &objects {
        for owner in &object.owners {
            let found = store.dependents(*owner).iter().any(|(table, key)| (table.clone(), (**key).clone()) == *place);
            if !found {
                return Err(format!("{place:?} is no dependent of its owner"));
            }
        }
    }
    Ok(objects)
}

fn key(table: &Arc<str>, entry: &Entry) -> (Arc<str>, ObjectKey) {
    (table.clone(), (*entry.key).clone())
}

/// Compares two states; the error names the first difference.
pub(crate) fn compare(what: &str, before: &Objects, after: &Objects) -> Result<(), String> {
    for place in before.keys().chain(after.keys()) {
        let (old, new) = (before.get(place), after.get(place));
        if old != new {
            return Err(format!("{what}: {place:?} was {old:?} and is {new:?}"));
        }
    }
    Ok(())
}

/// Watches every table of a store and applies the events to a copy of its objects.
#[derive(Default)]
pub(crate) struct Watchers {
    followers: BTreeMap<Arc<str>, Follower>,
    pub(crate) objects: Objects,
    /// Every revision that was seen, with the object it belongs to.
    pub(crate) revisions: BTreeMap<u64, (Arc<str>, ObjectKey)>,
}

impl Watchers {
    /// Starts to watch a table, unless it is watched already: a list, then its changes.
    pub(crate) fn watch(&mut self, store: &Store, table: &Arc<str>) -> Result<(), String> {
        if self.followers.contains_key(table) {
            return Ok(());
        }
        let page = store.list(table, &ListRange::default(), |_| true).map_err(|_| format!("{table} is compacted"))?;
        for entry in &page.entries {
            self.revisions.insert(entry.revision, key(table, entry));
            self.objects.insert(key(table, entry), Stored::from(&**entry));
        }
        self.followers.insert(table.clone(), store.follow(table, page.revision));
        Ok(())
    }

    /// Returns the tables that are watched.
    pub(crate) fn tables(&self) -> BTreeSet<Arc<str>> {
        self.followers.keys().cloned().collect()
    }

    /// Applies the events that have become visible.
    pub(crate) fn catch_up(&mut self) -> Result<(), String> {
        for (table, follower) in &mut self.followers {
            let events = follower.poll(usize::MAX).map_err(|_| format!("the watch of {table} is compacted"))?;
            for event in events {
                apply(&mut self.objects, table, &event)?;
                let known = self.revisions.insert(event.entry.revision, key(table, &event.entry));
                if let Some(known) = known {
                    return Err(format!("revision {} was used before, by {known:?}", event.entry.revision));
                }
            }
        }
        Ok(())
    }
}

/// Applies one event; it has to fit the state before it.
fn apply(objects: &mut Objects, table: &Arc<str>, event: &Event) -> Result<(), String> {
    let place = key(table, &event.entry);
    let present = objects.get(&place);
    let fits = match event.change {
        Change::Added => present.is_none() && event.before.is_none(),
        Change::Modified | Change::Deleted => {
            let before = event.before.as_ref().map(|before| Stored::from(&**before));
            present.is_some()
                && present == before.as_ref()
                && present.is_some_and(|p| p.revision < event.entry.revision)
        }
    };
    if !fits {
        return Err(format!("{place:?}: the event {event:?} does not fit {present:?}"));
    }
    match event.change {
        Change::Deleted => drop(objects.remove(&place)),
        _ => drop(objects.insert(place, Stored::from(&*event.entry))),
    }
    Ok(())
}
