//! `--watch`: prints rows again when they change.

use super::{Query, Rows, print, worker_selection};
use crate::connect::Target;
use crate::signals::StopSignals;
use crate::wait::refusal;
use anyhow::bail;
use futures::{Stream, StreamExt, stream};
use k8s_openapi::api::core::v1::Pod;
use kube::api::{DynamicObject, ListParams};
use kube::runtime::{WatchStreamExt, watcher};
use kube::{Resource, ResourceExt};
use std::collections::{BTreeMap, HashMap};
use std::io::Write;

type Key = (String, String);

/// A change of one of the watched kinds.
enum Change {
    Object(Box<watcher::Event<DynamicObject>>),
    Pod(Box<watcher::Event<Pod>>),
    Failed(watcher::Error),
}

/// The objects of one kind, as far as they are known.
struct Known<K> {
    objects: BTreeMap<Key, K>,
    /// Those of a list that is not complete.
    listing: Option<BTreeMap<Key, K>>,
    is_complete: bool,
}

/// Prints the rows that change, until interrupted.
pub(super) async fn follow(target: &Target, query: &Query, printed: Rows) -> anyhow::Result<()> {
    let mut stop = StopSignals::listen()?;
    let mut printed: HashMap<String, Vec<_>> =
        printed.rows.into_iter().map(|row| (row.key, row.cells)).collect();
    let (mut objects, mut pods) = (Known::new(), Known::new());
    pods.is_complete = !query.view.with_worker_pods;
    let mut changes = changes(target, query);
    loop {
        let change = tokio::select! {
            () = stop.recv() => return Ok(()),
            change = changes.next() => change,
        };
        match change {
            None => return Ok(()),
            Some(Change::Object(event)) => objects.apply(*event),
            Some(Change::Pod(event)) => pods.apply(*event),
            Some(Change::Failed(error)) => {
                if let Some(message) = refusal(&error) {
                    bail!("cannot watch: {message}");
                }
                let error = anyhow::Error::new(error);
                // Nowhere is left to report to when stderr is closed.
                let _ = writeln!(std::io::stderr(), "warning: the watch was interrupted and goes on: {error:#}");
            }
        }
        if !objects.is_complete || !pods.is_complete {
            continue;
        }
        let mut rows = (query.view.rows)(query, &objects.list(), &pods.list())?;
        printed.retain(|key, _| rows.rows.iter().any(|row| row.key == *key));
        rows.rows.retain(|row| printed.get(&row.key) != Some(&row.cells));
        for row in &rows.rows {
            printed.insert(row.key.clone(), row.cells.clone());
        }
        if !rows.rows.is_empty() {
            print(query, &rows, false)?;
        }
    }
}

fn changes(target: &Target, query: &Query) -> impl Stream<Item = Change> + Unpin {
    let objects = watcher(query.objects(target), config(&query.selection()))
        .default_backoff()
        .map(|event| event.map_or_else(Change::Failed, |event| Change::Object(Box::new(event))));
    let pods = match query.view.with_worker_pods {
        true => watcher(query.worker_pods(target), config(&worker_selection()))
            .default_backoff()
            .map(|event| event.map_or_else(Change::Failed, |event| Change::Pod(Box::new(event))))
            .boxed(),
        false => stream::pending().boxed(),
    };
    stream::select(objects.boxed(), pods)
}

fn config(selection: &ListParams) -> watcher::Config {
    watcher::Config {
        label_selector: selection.label_selector.clone(),
        field_selector: selection.field_selector.clone(),
        ..watcher::Config::default()
    }
}

impl<K: Resource + Clone> Known<K> {
    fn new() -> Self {
        Self { objects: BTreeMap::new(), listing: None, is_complete: false }
    }

    fn apply(&mut self, event: watcher::Event<K>) {
        let key = |object: &K| (object.namespace().unwrap_or_default(), object.name_any());
        match event {
            watcher::Event::Init => self.listing = Some(BTreeMap::new()),
            watcher::Event::InitApply(object) => {
                self.listing.get_or_insert_default().insert(key(&object), object);
            }
            watcher::Event::InitDone => {
                self.objects = self.listing.take().unwrap_or_default();
                self.is_complete = true;
            }
            watcher::Event::Apply(object) => {
                self.objects.insert(key(&object), object);
            }
            watcher::Event::Delete(object) => {
                self.objects.remove(&key(&object));
            }
        }
    }

    fn list(&self) -> Vec<K> {
        self.objects.values().cloned().collect()
    }
}
