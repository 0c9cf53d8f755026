//! All objects, in memory, with one revision counter; optionally with a durable copy behind them.
//!
//! ```text
//!   commit ─▶ State (one small lock) ─queue─▶ committer thread ─▶ redb
//!                │                                  │ synced up to r
//!   get/list ◀───┘        watchers ◀──── visible = r┘
//! ```
//!
//! A write is applied to memory at once, so the next write sees it, but its client, and every
//! reader and watcher, waits until it is durable. In memory mode there is nothing to wait for.
//!
//! When the data file cannot be written, the changes that are not durable are rolled back in memory, and the
//! store stays readable but refuses writes until it is opened again.

mod disk;
mod entry;
mod signal;
mod table;

use std::collections::{BTreeSet, HashMap};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};

use serde_json::Value;

pub use disk::DiskError;
use disk::{Disk, Pending};
pub use entry::{Entry, ObjectKey, Uid};
use signal::Listener;
use table::Table;
pub use table::{Change, Event};

use crate::controllers::supervisor::message_of;

/// How long a batch waits for concurrent writers.
const GATHER: std::time::Duration = std::time::Duration::from_micros(250);

/// The deepest nesting of a stored object. Parsers, ours and those of clients, give up at 128 levels, and lists and
/// reviews add a few of their own.
pub const MAX_DEPTH: usize = 120;

/// Returns whether lists and objects nest deeper than a limit.
pub(crate) fn nests_deeper_than(value: &Value, limit: usize) -> bool {
    let below = |value: &Value| nests_deeper_than(value, limit - 1);
    match value {
        Value::Array(items) => limit == 0 || items.iter().any(below),
        Value::Object(fields) => limit == 0 || fields.values().any(below),
        _ => false,
    }
}

/// The store.
pub struct Store {
    shared: Arc<Shared>,
    committer: Mutex<Option<std::thread::JoinHandle<()>>>,
}

struct Shared {
    state: Mutex<State>,
    /// Wakes the committer.
    queued: Condvar,
    /// The newest durable revision.
    visible: tokio::sync::watch::Sender<Visible>,
    durable: bool,
}

#[derive(Clone, Debug, Default)]
struct Visible {
    revision: u64,
    failure: Option<WriteFailed>,
}

/// A table and a key in it.
type Location = (Arc<str>, Arc<ObjectKey>);

#[derive(Default)]
struct State {
    revision: u64,
    /// The revision at which the store was opened: the history of every table starts here.
    opened: u64,
    /// The revision up to which changes were forgotten because of their age.
    compacted: u64,
    tables: HashMap<Arc<str>, Table>,
    /// The dependents of each owner uid.
    dependents: HashMap<Uid, BTreeSet<Location>>,
    queue: Vec<Pending>,
    closing: bool,
    failure: Option<WriteFailed>,
    /// Whether entries keep their value beside its JSON.
    keeps_values: bool,
}

/// A write to one object.
#[derive(Debug)]
pub enum Write {
    /// Creates an object that must not exist.
    Create(Value),
    /// Updates an object at this revision.
    Update(u64, Value),
    /// Deletes an object at this revision; the value is its last state.
    Delete(u64, Value),
}

/// Why a write was not committed.
#[derive(Debug, PartialEq, Eq)]
pub enum CommitError {
    /// The object already exists.
    AlreadyExists,
    /// The object does not exist.
    NotFound,
    /// The object is at another revision.
    Conflict,
    /// The object nests deeper than [`MAX_DEPTH`] and could not be read back.
    TooDeep,
    /// The store accepts no more writes.
    Unavailable(WriteFailed),
}

/// The requested revision is no longer in the history.
#[derive(Debug, PartialEq, Eq)]
pub struct Compacted;

/// The data file cannot be written; the store refuses further writes.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the data file could not be written, so the server refuses changes until it is restarted: {0}")]
pub struct WriteFailed(Arc<str>);

/// One page of a list.
#[derive(Debug)]
pub struct Page {
    /// The revision that the list shows.
    pub revision: u64,
    /// The matching objects in order.
    pub entries: Vec<Arc<Entry>>,
    /// Whether more follow.
    pub more: bool,
    /// How many follow, if nothing was filtered.
    pub remaining: Option<usize>,
}

/// The range of a table to list.
#[derive(Debug, Default)]
pub struct ListRange<'a> {
    /// Only this namespace.
    pub namespace: Option<&'a str>,
    /// Only after this key.
    pub after: Option<&'a ObjectKey>,
    /// The largest number of objects.
    pub limit: Option<usize>,
    /// As of this revision.
    pub at: Option<u64>,
}

impl Store {
    /// Creates a store without a data file.
    pub fn in_memory() -> Store {
        Store::start(State::default(), None)
    }

    /// Creates a store without a data file that keeps every object as a value beside its JSON: it takes several times the
    /// memory, and no reader parses anything.
    pub fn in_memory_with_values() -> Store {
        Store::start(State { keeps_values: true, ..State::default() }, None)
    }

    /// Opens the store of a data directory.
    pub fn open(directory: &Path) -> Result<Store, DiskError> {
        Store::load(Disk::open(directory)?)
    }

    fn load(disk: Disk) -> Result<Store, DiskError> {
        let (revision, found) = disk.load()?;
        let mut state = State { revision, ..State::default() };
        for (name, entry) in found {
            let entry = Arc::new(entry);
            state.link(&name, &entry);
            let table = state.tables.entry(name).or_insert_with(|| Table::since(revision));
            table.objects.insert(entry.key.clone(), entry);
        }
        Ok(Store::start(state, Some(disk)))
    }

    fn start(mut state: State, disk: Option<Disk>) -> Store {
        // Revision 0 means "any" to clients, so the first one they may see is 1.
        state.revision = state.revision.max(1);
        state.opened = state.revision;
        let visible = tokio::sync::watch::Sender::new(Visible { revision: state.revision, failure: None });
        let durable = disk.is_some();
        let shared = Arc::new(Shared { state: Mutex::new(state), queued: Condvar::new(), visible, durable });
        let committer = disk.and_then(|disk| {
            let shared = shared.clone();
            let committer = shared.clone();
            let thread = std::thread::Builder::new().name("store".into());
            match thread.spawn(move || committer.write_batches(&disk)) {
                Ok(thread) => Some(thread),
                Err(error) => {
                    shared.fail(&error.to_string());
                    None
                }
            }
        });
        Store { shared, committer: Mutex::new(committer) }
    }

    /// Returns the object at a key, as last written.
    pub fn get(&self, table: &str, key: &ObjectKey) -> Option<Arc<Entry>> {
        self.shared.lock().tables.get(table)?.objects.get(key).cloned()
    }

    /// Returns the objects in a range that pass a filter.
    pub fn list(
        &self,
        table: &str,
        span: &ListRange<'_>,
        mut filter: impl FnMut(&Entry) -> bool,
    ) -> Result<Page, Compacted> {
        let state = self.shared.lock();
        let now = state.revision;
        let Some(found) = state.tables.get(table) else {
            return Ok(Page { revision: span.at.unwrap_or(now), entries: Vec::new(), more: false, remaining: Some(0) });
        };
        if let Some(at) = span.at.filter(|at| *at != now) {
            // Also where this table could still tell: what a client may rely on is the same for all kinds.
            if at < state.compacted {
                return Err(Compacted);
            }
            let old = found.rewind(at).ok_or(Compacted)?;
            drop(state);
            return Ok(page(&old, at, span, filter));
        }
        // Filters may parse JSON, so they run on a copy of the pointers, outside the lock.
        if span.limit.is_none() {
            let mut entries: Vec<_> = found.range(span.namespace, span.after).cloned().collect();
            drop(state);
            entries.retain(|entry| filter(entry));
            return Ok(Page { revision: now, entries, more: false, remaining: Some(0) });
        }
        Ok(page(found, now, span, filter))
    }

    /// Commits one write and returns the new entry; `wait_visible` waits until it is durable.
    pub fn commit(&self, table: &Arc<str>, key: ObjectKey, write: Write) -> Result<Arc<Entry>, CommitError> {
        let (Write::Create(value) | Write::Update(_, value) | Write::Delete(_, value)) = &write;
        if nests_deeper_than(value, MAX_DEPTH) {
            return Err(CommitError::TooDeep);
        }
        let mut guard = self.shared.lock();
        let state = &mut *guard;
        if let Some(failure) = &state.failure {
            return Err(CommitError::Unavailable(failure.clone()));
        }
        if state.closing {
            return Err(CommitError::Unavailable(WriteFailed("the store is closed".into())));
        }
        let before = state.tables.get(table).and_then(|table| table.objects.get(&key)).cloned();
        let (change, value) = match (write, &before) {
            (Write::Create(value), None) => (Change::Added, value),
            (Write::Create(_), Some(_)) => return Err(CommitError::AlreadyExists),
            (_, None) => return Err(CommitError::NotFound),
            (Write::Update(seen, _) | Write::Delete(seen, _), Some(found)) if found.revision != seen => {
                return Err(CommitError::Conflict);
            }
            (Write::Update(_, value), Some(_)) => (Change::Modified, value),
            (Write::Delete(_, value), Some(_)) => (Change::Deleted, value),
        };
        state.revision += 1;
        let revision = state.revision;
        let key = before.as_ref().map_or_else(|| Arc::new(key), |before| before.key.clone());
        let make = if state.keeps_values { Entry::with_value } else { Entry::new };
        let entry = Arc::new(make(revision, key, value));
        if let Some(before) = &before {
            state.unlink(table, before);
        }
        if change != Change::Deleted {
            state.link(table, &entry);
        }
        // Only an empty queue may have put the committer to sleep.
        let wake = state.queue.is_empty();
        if self.shared.durable {
            let json = (change != Change::Deleted).then(|| entry.json.clone());
            state.queue.push(Pending { table: table.clone(), key: entry.key.clone(), json, revision });
        }
        let opened = state.opened;
        let target = state.tables.entry(table.clone()).or_insert_with(|| Table::since(opened));
        target.apply(Event { change, entry: entry.clone(), before });
        if self.shared.durable {
            drop(guard);
            if wake {
                self.shared.queued.notify_one();
            }
        } else {
            // A woken reader must already be allowed to see the change.
            self.shared.visible.send_modify(|visible| visible.revision = revision);
            target.changed.notify();
        }
        Ok(entry)
    }

    /// Waits until a revision is durable and visible to readers.
    pub async fn wait_visible(&self, revision: u64) -> Result<(), WriteFailed> {
        if !self.shared.durable {
            return Ok(());
        }
        let mut visible = self.shared.visible.subscribe();
        let seen = visible.wait_for(|seen| seen.revision >= revision || seen.failure.is_some()).await;
        match seen {
            Ok(seen) if seen.revision >= revision => Ok(()),
            Ok(seen) => Err(seen.failure.clone().unwrap_or_else(|| WriteFailed("unknown".into()))),
            Err(_) => Err(WriteFailed("the store is closed".into())),
        }
    }

    /// Waits until something has been written after a revision.
    pub(crate) async fn wait_newer(&self, revision: u64) {
        let mut visible = self.shared.visible.subscribe();
        // The sender lives as long as the store.
        let _ = visible.wait_for(|seen| seen.revision > revision).await;
    }

    /// Returns why the store refuses writes, if it does.
    pub fn failure(&self) -> Option<WriteFailed> {
        self.shared.visible.borrow().failure.clone()
    }

    /// Returns the newest visible revision.
    pub fn visible(&self) -> u64 {
        self.shared.visible.borrow().revision
    }

    /// Returns the newest revision, visible or not.
    pub fn revision(&self) -> u64 {
        self.shared.lock().revision
    }

    /// Returns a follower of the changes of a table after a revision.
    pub fn follow(&self, table: &Arc<str>, after: u64) -> Follower {
        let mut state = self.shared.lock();
        let opened = state.opened;
        let changed = state.tables.entry(table.clone()).or_insert_with(|| Table::since(opened)).changed.subscribe();
        Follower { shared: self.shared.clone(), table: table.clone(), position: after, changed }
    }

    /// Forgets the changes of all tables up to a revision: watches and lists from before it are told to start again.
    pub fn compact(&self, revision: u64) {
        let mut state = self.shared.lock();
        state.compacted = state.compacted.max(revision);
        for table in state.tables.values_mut() {
            table.compact(revision);
        }
    }

    /// Returns the objects that name a uid as their owner.
    pub fn dependents(&self, owner: Uid) -> Vec<(Arc<str>, Arc<ObjectKey>)> {
        self.shared.lock().dependents.get(&owner).map_or_else(Vec::new, |found| found.iter().cloned().collect())
    }

    /// Returns the revision of the last change of a table, visible or not.
    pub fn last_change(&self, table: &str) -> u64 {
        self.shared.lock().tables.get(table).map_or(0, Table::last_change)
    }

    /// Returns the number of objects in a table.
    pub fn count(&self, table: &str) -> usize {
        self.shared.lock().tables.get(table).map_or(0, |table| table.objects.len())
    }

    /// Flushes queued writes and stops the committer; later writes are refused.
    pub fn close(&self) {
        self.shared.lock().closing = true;
        self.shared.queued.notify_one();
        let committer = self.committer.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(committer) = committer {
            // A committer that panicked has already reported its failure to everyone who waits.
            let _ = committer.join();
        }
    }
}

impl Drop for Store {
    fn drop(&mut self) {
        self.close();
    }
}

fn page(table: &Table, revision: u64, span: &ListRange<'_>, mut filter: impl FnMut(&Entry) -> bool) -> Page {
    let limit = span.limit.unwrap_or(usize::MAX);
    let mut rest = table.range(span.namespace, span.after);
    let mut entries = Vec::new();
    let mut filtered = false;
    let mut more = false;
    for entry in rest.by_ref() {
        if !filter(entry) {
            filtered = true;
        } else if entries.len() == limit {
            more = true;
            break;
        } else {
            entries.push(entry.clone());
        }
    }
    let remaining = (!filtered).then(|| usize::from(more) + rest.count());
    Page { revision, entries, more, remaining }
}

/// A position in the history of a table.
pub struct Follower {
    shared: Arc<Shared>,
    table: Arc<str>,
    position: u64,
    changed: Listener,
}

impl Follower {
    /// Returns the next changes, at most `limit`, without waiting.
    pub fn poll(&mut self, limit: usize) -> Result<Vec<Arc<Event>>, Compacted> {
        let visible = self.shared.visible.borrow().revision;
        let events = {
            let state = self.shared.lock();
            let Some(table) = state.tables.get(&self.table) else { return Ok(Vec::new()) };
            table.after(self.position, visible, limit).ok_or(Compacted)?
        };
        if let Some(last) = events.last() {
            self.position = last.entry.revision;
        }
        Ok(events)
    }

    /// Waits until `poll` may return new changes.
    pub async fn changed(&mut self) {
        self.changed.changed().await;
    }

    /// Returns the revision up to which this follower has seen everything, after an empty `poll`.
    pub fn caught_up(&self, visible: u64) -> u64 {
        self.position.max(visible)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn write_batches(&self, disk: &Disk) {
        let mut together = 0;
        loop {
            let mut state = self.lock();
            while state.queue.is_empty() && !state.closing {
                state = self.queued.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
            if together > 1 && together > state.queue.len() && !state.closing {
                // Clients whose writes just completed tend to write again: one sync for all of them costs less.
                drop(state);
                std::thread::sleep(GATHER);
                state = self.lock();
            }
            let batch = std::mem::take(&mut state.queue);
            drop(state);
            let Some(last) = batch.last().map(|pending| pending.revision) else { return };
            let written = catch_unwind(AssertUnwindSafe(|| disk.write(&batch)));
            match written {
                Ok(Ok(())) => {}
                Ok(Err(failure)) => return self.fail(&failure.to_string()),
                Err(panic) => return self.fail(&format!("panic: {}", message_of(&*panic))),
            }
            self.visible.send_modify(|visible| visible.revision = last);
            let touched: BTreeSet<&Arc<str>> = batch.iter().map(|pending| &pending.table).collect();
            let state = self.lock();
            for table in touched.into_iter().filter_map(|name| state.tables.get(name)) {
                table.changed.notify();
            }
            // Writers of this batch, and those that queued meanwhile.
            together = batch.len() + state.queue.len();
        }
    }
}

impl Shared {
    /// Rolls memory back to the last durable revision, and refuses further writes.
    fn fail(&self, why: &str) {
        tracing::error!(error = why, "cannot write the data file; refusing all further writes until a restart");
        let failure = WriteFailed(why.into());
        let durable = self.visible.borrow().revision;
        let mut state = self.lock();
        state.roll_back(durable);
        state.failure = Some(failure.clone());
        drop(state);
        self.visible.send_modify(|visible| visible.failure = Some(failure));
    }
}

impl State {
    /// Undoes the changes after a revision.
    fn roll_back(&mut self, revision: u64) {
        self.queue.clear();
        self.revision = revision;
        let names: Vec<Arc<str>> = self.tables.keys().cloned().collect();
        for name in names {
            let undone = self.tables.get_mut(&name).map(|table| table.undo_after(revision)).unwrap_or_default();
            for event in undone {
                if event.change != Change::Deleted {
                    self.unlink(&name, &event.entry);
                }
                if let Some(before) = &event.before {
                    self.link(&name, before);
                }
            }
        }
    }

    fn link(&mut self, table: &Arc<str>, entry: &Entry) {
        for owner in &entry.owners {
            self.dependents.entry(*owner).or_default().insert((table.clone(), entry.key.clone()));
        }
    }

    fn unlink(&mut self, table: &Arc<str>, entry: &Entry) {
        for owner in &entry.owners {
            if let Some(found) = self.dependents.get_mut(owner) {
                found.remove(&(table.clone(), entry.key.clone()));
                if found.is_empty() {
                    self.dependents.remove(owner);
                }
            }
        }
    }
}

#[cfg(test)]
pub(crate) mod faults;
#[cfg(test)]
mod power_loss;
#[cfg(test)]
mod tests;
