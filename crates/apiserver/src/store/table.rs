//! The objects of one kind, and their recent history.
//!
//! The history is the only queue: a watcher holds a position in it and continues when notified, so a
//! watcher that never reads costs nothing, and one that falls too far behind gets a 410.

use std::collections::{BTreeMap, VecDeque};
use std::ops::Bound;
use std::sync::Arc;

use super::entry::{Entry, ObjectKey};
use super::signal::Signal;

/// The largest history of a table, in changes and in bytes of JSON.
const HISTORY_EVENTS: usize = 16_384;
const HISTORY_BYTES: usize = 32 << 20;

/// The kind of a change.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Change {
    /// It was created.
    Added,
    /// It was updated.
    Modified,
    /// It was deleted; the entry is its last state at the revision of the deletion.
    Deleted,
}

/// One change in the history of a table.
#[derive(Debug)]
pub struct Event {
    /// What happened.
    pub change: Change,
    /// The object after the change.
    pub entry: Arc<Entry>,
    /// The object before the change, for watches with a selector.
    pub before: Option<Arc<Entry>>,
}

impl Event {
    /// Returns the size of the JSON that it references.
    fn size(&self) -> usize {
        self.entry.json.len() + self.before.as_ref().map_or(0, |before| before.json.len())
    }
}

/// The objects of one kind.
#[derive(Default)]
pub(super) struct Table {
    pub(super) objects: BTreeMap<Arc<ObjectKey>, Arc<Entry>>,
    history: VecDeque<Arc<Event>>,
    history_bytes: usize,
    /// The newest revision that the history has compacted.
    compacted: u64,
    pub(super) changed: Signal,
}

impl Table {
    /// Creates a table whose history starts at `revision`.
    pub(super) fn since(revision: u64) -> Table {
        Table { compacted: revision, ..Table::default() }
    }

    /// Returns the revision of the last change, or of the start of the history.
    pub(super) fn last_change(&self) -> u64 {
        self.history.back().map_or(self.compacted, |event| event.entry.revision)
    }

    /// Applies one change and appends it to the history.
    pub(super) fn apply(&mut self, event: Event) {
        let key = &event.entry.key;
        match event.change {
            Change::Deleted => self.objects.remove(key),
            _ => self.objects.insert(key.clone(), event.entry.clone()),
        };
        self.history_bytes += event.size();
        self.history.push_back(Arc::new(event));
        while self.history.len() > HISTORY_EVENTS || self.history_bytes > HISTORY_BYTES {
            if !self.forget_oldest() {
                break;
            }
        }
    }

    /// Forgets the changes up to a revision.
    pub(super) fn compact(&mut self, revision: u64) {
        while self.history.front().is_some_and(|oldest| oldest.entry.revision <= revision) {
            self.forget_oldest();
        }
        self.history.shrink_to(2 * self.history.len());
    }

    /// Forgets the oldest change; returns whether there was one.
    fn forget_oldest(&mut self) -> bool {
        let Some(oldest) = self.history.pop_front() else { return false };
        self.history_bytes -= oldest.size();
        self.compacted = oldest.entry.revision;
        true
    }

    /// Returns the changes after `revision` and up to `visible`, oldest first; `None` if some are compacted.
    pub(super) fn after(&self, revision: u64, visible: u64, limit: usize) -> Option<Vec<Arc<Event>>> {
        if revision < self.compacted {
            return None;
        }
        let start = self.history.partition_point(|event| event.entry.revision <= revision);
        let fresh = self.history.range(start..).take_while(|event| event.entry.revision <= visible);
        Some(fresh.take(limit).cloned().collect())
    }

    /// Returns the objects of a namespace (or of all) after a key, in order.
    pub(super) fn range<'a>(
        &'a self,
        namespace: Option<&'a str>,
        after: Option<&ObjectKey>,
    ) -> impl Iterator<Item = &'a Arc<Entry>> {
        let first = ObjectKey::new(namespace.unwrap_or(""), "");
        let start = match after {
            Some(key) if *key > first => Bound::Excluded(key.clone()),
            _ => Bound::Included(first),
        };
        self.objects
            .range::<ObjectKey, _>((start, Bound::Unbounded))
            .map(|(_, entry)| entry)
            .take_while(move |entry| namespace.is_none_or(|namespace| *entry.key.namespace == *namespace))
    }

    /// Undoes the changes after a revision; returns them, newest first.
    pub(super) fn undo_after(&mut self, revision: u64) -> Vec<Arc<Event>> {
        let mut undone = Vec::new();
        while let Some(event) = self.history.pop_back_if(|event| event.entry.revision > revision) {
            self.history_bytes -= event.size();
            match &event.before {
                Some(before) => self.objects.insert(before.key.clone(), before.clone()),
                None => self.objects.remove(&event.entry.key),
            };
            undone.push(event);
        }
        undone
    }

    /// Returns the table at an earlier revision by undoing the later changes.
    pub(super) fn rewind(&self, revision: u64) -> Option<Table> {
        if revision < self.compacted {
            return None;
        }
        let mut objects = self.objects.clone();
        for event in self.history.iter().rev().take_while(|event| event.entry.revision > revision) {
            match &event.before {
                Some(before) => objects.insert(before.key.clone(), before.clone()),
                None => objects.remove(&event.entry.key),
            };
        }
        Some(Table { objects, ..Table::default() })
    }
}
