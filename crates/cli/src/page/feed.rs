//! The rows of the overview: one watch per kind, however many browsers look.
//!
//! Every change gets the next number. A browser asks for what changed since the number that it knows, so that a slow one
//! gets the latest state of a row and not every state in between.

use super::row::{key, row};
use super::watched::{Watched, watched};
use crate::resource::Kind;
use futures::StreamExt;
use kube::api::DynamicObject;
use kube::runtime::watcher;
use kube::{Api, Client};
use serde::Serialize;
use serde_json::value::RawValue;
use std::collections::{HashMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Whole objects are in memory while their page of a list is read.
const PAGE: u32 = 100;
/// How many deleted rows are remembered; whoever lags further behind starts over.
const MAX_GONE: usize = 10_000;
/// How many rows one message holds, so that the first can be drawn while the others come.
const MAX_ROWS: usize = 1000;

/// The rows that one viewer may see.
pub(super) struct Feed {
    rows: Arc<Rows>,
    /// One watch per kind; they end with the feed.
    _watches: JoinSet<()>,
}

struct Rows {
    state: Mutex<State>,
    version: watch::Sender<u64>,
}

#[derive(Default)]
struct State {
    version: u64,
    rows: HashMap<Box<str>, Stored>,
    /// Deleted rows, the oldest first.
    gone: VecDeque<(u64, Box<str>)>,
    /// The number of the last deletion that is forgotten.
    forgotten: u64,
    kinds: HashMap<Kind, Progress>,
}

struct Stored {
    kind: Kind,
    version: u64,
    json: Box<RawValue>,
    /// Whether the list that is being read contains it.
    is_listed: bool,
}

/// How far the watch of a kind is.
#[derive(Default)]
struct Progress {
    version: u64,
    is_ready: bool,
    problem: Option<String>,
}

/// How far a browser is.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Cursor {
    /// The number of the last change that it has.
    seen: u64,
    /// The number of the last change when it started over: it never had what was deleted before.
    started: u64,
}

/// What changed.
#[derive(Debug, Default, Serialize)]
pub(super) struct Changes {
    /// Forget all rows before.
    #[serde(skip_serializing_if = "std::ops::Not::not")]
    reset: bool,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    rows: Vec<Box<RawValue>>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gone: Vec<Box<str>>,
    /// Whether each kind is complete, and why not.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    kinds: Vec<(&'static str, bool, Option<String>)>,
    /// How far the browser is with these.
    #[serde(skip)]
    pub(super) cursor: Cursor,
    /// Whether more changes are waiting.
    #[serde(skip)]
    pub(super) has_more: bool,
}

impl Feed {
    /// Starts the watches, in all namespaces or in one.
    pub(super) fn start(client: &Client, namespace: Option<&str>) -> Arc<Self> {
        let rows = Arc::new(Rows { state: Mutex::default(), version: watch::Sender::new(0) });
        let mut watches = JoinSet::new();
        for kind in Kind::ALL {
            let resource = kind.api_resource();
            let api: Api<DynamicObject> = match namespace {
                Some(namespace) => Api::namespaced_with(client.clone(), namespace, &resource),
                None => Api::all_with(client.clone(), &resource),
            };
            let rows = Arc::clone(&rows);
            watches.spawn(async move { rows.follow(kind, api).await });
        }
        Arc::new(Self { rows, _watches: watches })
    }

    /// Returns the number of the last change, and wakes whoever waits for the next.
    pub(super) fn version(&self) -> watch::Receiver<u64> {
        self.rows.version.subscribe()
    }

    /// Returns what a browser lacks.
    pub(super) fn changes_since(&self, cursor: Cursor) -> Changes {
        self.rows.lock().changes_since(cursor)
    }
}

impl Rows {
    async fn follow(&self, kind: Kind, api: Api<DynamicObject>) {
        let config = watcher::Config::default().page_size(PAGE);
        let mut events = watched(api, config);
        while let Some(event) = events.next().await {
            let mut state = self.lock();
            match event {
                Watched::Event(event) => state.apply(kind, event),
                Watched::Failed(problem) => state.report(kind, Some(problem)),
                Watched::Recovered => state.report(kind, None),
            }
            let version = state.version;
            drop(state);
            self.version.send_replace(version);
        }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn apply(&mut self, kind: Kind, event: watcher::Event<DynamicObject>) {
        match event {
            watcher::Event::Init => {
                self.rows.values_mut().filter(|row| row.kind == kind).for_each(|row| row.is_listed = false);
            }
            watcher::Event::Apply(object) | watcher::Event::InitApply(object) => self.put(kind, &object),
            watcher::Event::Delete(object) => self.remove(key(kind, &object).into()),
            watcher::Event::InitDone => {
                let stale = self.rows.iter().filter(|(_, row)| row.kind == kind && !row.is_listed);
                let stale: Vec<Box<str>> = stale.map(|(key, _)| key.clone()).collect();
                stale.into_iter().for_each(|key| self.remove(key));
                let version = self.next();
                self.kinds.insert(kind, Progress { version, is_ready: true, problem: None });
            }
        }
    }

    fn next(&mut self) -> u64 {
        self.version += 1;
        self.version
    }

    fn put(&mut self, kind: Kind, object: &DynamicObject) {
        let Ok(json) = serde_json::value::to_raw_value(&row(kind, object)) else { return };
        let version = self.version + 1;
        let key = key(kind, object).into_boxed_str();
        if let Some(stored) = self.rows.get_mut(&key) {
            stored.is_listed = true;
            // A status that says the same again is no change.
            if stored.json.get() == json.get() {
                return;
            }
        }
        self.rows.insert(key, Stored { kind, version, json, is_listed: true });
        self.version = version;
    }

    fn remove(&mut self, key: Box<str>) {
        if self.rows.remove(&key).is_some() {
            let version = self.next();
            self.gone.push_back((version, key));
            if self.gone.len() > MAX_GONE {
                self.forgotten = self.gone.pop_front().map_or(self.forgotten, |(version, _)| version);
            }
        }
    }

    /// Reports why a kind cannot be watched, or that it can be again.
    fn report(&mut self, kind: Kind, problem: Option<String>) {
        let version = self.next();
        let is_ready = self.kinds.get(&kind).is_some_and(|progress| progress.is_ready);
        self.kinds.insert(kind, Progress { version, is_ready, problem });
    }

    fn changes_since(&self, Cursor { seen, started }: Cursor) -> Changes {
        // A browser that is half-way through a long list lags behind, but has nothing that was deleted before it started.
        let reset = seen == 0 || seen.max(started) < self.forgotten;
        let (seen, started) = if reset { (0, self.version) } else { (seen, started) };
        let mut changed: Vec<&Stored> = self.rows.values().filter(|row| row.version > seen).collect();
        changed.sort_unstable_by_key(|row| row.version);
        let has_more = changed.len() > MAX_ROWS;
        let version = if has_more { changed[MAX_ROWS - 1].version } else { self.version };
        let gone = self
            .gone
            .iter()
            .filter(|(at, key)| *at > seen.max(started) && *at <= version && !self.rows.contains_key(key));
        let kinds = self.kinds.iter().filter(|(_, progress)| progress.version > seen && progress.version <= version);
        Changes {
            reset,
            rows: changed.into_iter().take(MAX_ROWS).map(|row| row.json.clone()).collect(),
            gone: gone.map(|(_, key)| key.clone()).collect(),
            kinds: kinds.map(|(kind, progress)| (kind.name(), progress.is_ready, progress.problem.clone())).collect(),
            cursor: Cursor { seen: version, started },
            has_more,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn cluster(name: &str, state: &str) -> DynamicObject {
        serde_json::from_value(json!({
            "apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {"name": name, "namespace": "default"},
            "status": {"state": state},
        }))
        .unwrap()
    }

    fn names(changes: &Changes) -> Vec<String> {
        let name = |row: &RawValue| serde_json::from_str::<serde_json::Value>(row.get()).unwrap()["name"].clone();
        changes.rows.iter().map(|row| name(row).as_str().unwrap().to_owned()).collect()
    }

    #[test]
    fn a_browser_gets_what_changed_since_it_looked() {
        let mut state = State::default();
        state.apply(Kind::Cluster, watcher::Event::Init);
        state.apply(Kind::Cluster, watcher::Event::InitApply(cluster("a", "ready")));
        state.apply(Kind::Cluster, watcher::Event::InitApply(cluster("b", "ready")));
        state.apply(Kind::Cluster, watcher::Event::InitDone);
        let first = state.changes_since(Cursor::default());
        assert!(first.reset);
        assert_eq!(names(&first), ["a", "b"]);
        assert_eq!(first.kinds, [("RayCluster", true, None)]);

        state.apply(Kind::Cluster, watcher::Event::Apply(cluster("a", "ready")));
        assert!(state.changes_since(first.cursor).rows.is_empty(), "nothing that is shown has changed");
        state.apply(Kind::Cluster, watcher::Event::Apply(cluster("a", "failed")));
        state.apply(Kind::Cluster, watcher::Event::Apply(cluster("a", "suspended")));
        state.apply(Kind::Cluster, watcher::Event::Delete(cluster("b", "ready")));
        let second = state.changes_since(first.cursor);
        assert!(!second.reset);
        assert_eq!(names(&second), ["a"], "the latest state only");
        assert_eq!(second.gone.len(), 1);
        assert!(state.changes_since(second.cursor).gone.is_empty());
    }

    #[test]
    fn what_a_new_list_lacks_is_gone() {
        let mut state = State::default();
        state.apply(Kind::Cluster, watcher::Event::Apply(cluster("a", "ready")));
        state.apply(Kind::Cluster, watcher::Event::Apply(cluster("b", "ready")));
        let seen = state.changes_since(Cursor::default()).cursor;
        state.apply(Kind::Cluster, watcher::Event::Init);
        state.apply(Kind::Cluster, watcher::Event::InitApply(cluster("b", "ready")));
        state.apply(Kind::Cluster, watcher::Event::InitDone);
        let changes = state.changes_since(seen);
        assert_eq!(changes.gone, ["RayCluster/default/a".into()]);
        assert!(changes.rows.is_empty());
    }

    #[test]
    fn long_lists_come_in_parts_and_are_complete() {
        let mut state = State::default();
        for number in 0..MAX_ROWS * 2 + 1 {
            state.apply(Kind::Cluster, watcher::Event::Apply(cluster(&format!("c{number}"), "ready")));
        }
        assert_eq!(catch_up(&state, Cursor::default()).1, [MAX_ROWS, MAX_ROWS, 1]);
    }

    /// Returns where a browser arrives, and the length of every part on its way there.
    fn catch_up(state: &State, mut cursor: Cursor) -> (Cursor, Vec<usize>) {
        let mut parts = Vec::new();
        while parts.len() < 10 {
            let changes = state.changes_since(cursor);
            assert_eq!(changes.reset, parts.is_empty(), "it starts over at the start only");
            cursor = changes.cursor;
            parts.push(changes.rows.len());
            if !changes.has_more {
                return (cursor, parts);
            }
        }
        panic!("it never arrives: {parts:?}");
    }

    fn create_and_delete(state: &mut State, number: usize) {
        for index in 0..number {
            let cluster = cluster(&format!("short-{index}"), "ready");
            state.apply(Kind::Cluster, watcher::Event::Apply(cluster.clone()));
            state.apply(Kind::Cluster, watcher::Event::Delete(cluster));
        }
    }

    #[test]
    fn long_lists_are_complete_after_many_deletions() {
        let mut state = State::default();
        for number in 0..=MAX_ROWS {
            state.apply(Kind::Cluster, watcher::Event::Apply(cluster(&format!("c{number}"), "ready")));
        }
        create_and_delete(&mut state, MAX_GONE + 1);
        let (arrived, parts) = catch_up(&state, Cursor::default());
        assert_eq!(parts, [MAX_ROWS, 1]);
        assert!(!state.changes_since(arrived).reset);

        // What is deleted between two parts goes with the last one.
        let first = state.changes_since(Cursor::default());
        state.apply(Kind::Cluster, watcher::Event::Delete(cluster("c0", "ready")));
        let last = state.changes_since(first.cursor);
        assert_eq!((last.gone, last.has_more), (vec!["RayCluster/default/c0".into()], false));
        // More deletions than are remembered, and it starts over.
        create_and_delete(&mut state, MAX_GONE + 1);
        assert!(state.changes_since(first.cursor).reset);
    }

    #[test]
    fn a_problem_ends_when_the_watch_works_again() {
        let mut state = State::default();
        state.apply(Kind::Cluster, watcher::Event::InitDone);
        state.report(Kind::Cluster, Some("no answer".to_owned()));
        let broken = state.changes_since(Cursor::default());
        assert_eq!(broken.kinds, [("RayCluster", true, Some("no answer".to_owned()))]);
        state.report(Kind::Cluster, None);
        assert_eq!(state.changes_since(broken.cursor).kinds, [("RayCluster", true, None)]);
    }

    #[test]
    fn whoever_lags_too_far_behind_starts_over() {
        let mut state = State::default();
        state.apply(Kind::Cluster, watcher::Event::Apply(cluster("stays", "ready")));
        let seen = state.changes_since(Cursor::default()).cursor;
        create_and_delete(&mut state, MAX_GONE + 1);
        let changes = state.changes_since(seen);
        assert!(changes.reset);
        assert_eq!(names(&changes), ["stays"]);
    }
}
