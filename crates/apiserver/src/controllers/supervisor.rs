//! Keeps controllers running: a panic is logged and counted, and the object that caused it is set aside.
//!
//! A controller handles each object through its [`Worker`], which catches panics; a panic elsewhere in the
//! controller restarts it. An object that was set aside is handled again once it changes.

use std::any::Any;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures::FutureExt;

use crate::ops::Cluster;
use crate::store::{Event, ObjectKey};

/// The delay before a controller that panicked outside of an object is restarted.
const RESTART_DELAY: Duration = Duration::from_secs(1);
/// More set-aside objects than this are forgotten, so that their record stays small.
const MAX_SET_ASIDE: usize = 10_000;

/// The number of panics of each controller.
#[derive(Default)]
pub struct Panics(Mutex<BTreeMap<&'static str, u64>>);

impl Panics {
    /// Returns the panics of every component that has panicked.
    pub fn counts(&self) -> BTreeMap<&'static str, u64> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// Counts one panic of a component.
    pub(crate) fn count(&self, component: &'static str) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner).entry(component).or_default() += 1;
    }
}

/// Handles the objects of one controller.
pub(super) struct Worker {
    cluster: Arc<Cluster>,
    controller: &'static str,
    /// Objects whose handling panicked, by the revision that did it.
    set_aside: HashMap<(Box<str>, ObjectKey), u64>,
}

impl Worker {
    /// Handles the object at a key; `None` if it panics, or did so before and has not changed since.
    pub(super) fn handle<T>(&mut self, table: &str, key: &ObjectKey, work: impl FnOnce() -> T) -> Option<T> {
        let revision = self.cluster.store.get(table, key).map_or(0, |entry| entry.revision);
        self.handle_revision(table, key, revision, work)
    }

    /// Handles one event.
    pub(super) fn handle_event(&mut self, table: &str, event: &Event, work: impl FnOnce()) {
        self.handle_revision(table, &event.entry.key, event.entry.revision, work);
    }

    fn handle_revision<T>(
        &mut self,
        table: &str,
        key: &ObjectKey,
        revision: u64,
        work: impl FnOnce() -> T,
    ) -> Option<T> {
        let known = |set_aside: &HashMap<_, u64>| set_aside.get(&(table.into(), key.clone())) == Some(&revision);
        if !self.set_aside.is_empty() && known(&self.set_aside) {
            return None;
        }
        match catch_unwind(AssertUnwindSafe(work)) {
            Ok(done) => Some(done),
            Err(panic) => {
                self.cluster.panics.count(self.controller);
                tracing::error!(
                    controller = self.controller,
                    table,
                    namespace = &*key.namespace,
                    name = &*key.name,
                    panic = message_of(&*panic),
                    "a controller panicked; the object is set aside until it changes"
                );
                if self.set_aside.len() >= MAX_SET_ASIDE {
                    self.set_aside.clear();
                }
                self.set_aside.insert((table.into(), key.clone()), revision);
                None
            }
        }
    }
}

/// Runs a controller, and restarts it when it panics.
pub(super) async fn supervise<F: Future<Output = ()>>(
    cluster: Arc<Cluster>,
    controller: &'static str,
    run: impl Fn(Arc<Cluster>, Worker) -> F,
) {
    loop {
        let worker = Worker { cluster: cluster.clone(), controller, set_aside: HashMap::new() };
        let Err(panic) = AssertUnwindSafe(run(cluster.clone(), worker)).catch_unwind().await else { return };
        cluster.panics.count(controller);
        tracing::error!(controller, panic = message_of(&*panic), "a controller panicked and is restarted");
        tokio::time::sleep(RESTART_DELAY).await;
    }
}

/// Returns the message of a panic.
pub(crate) fn message_of(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<&str>().copied();
    text.or_else(|| panic.downcast_ref::<String>().map(String::as_str)).unwrap_or("unknown")
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use serde_json::json;

    use super::*;
    use crate::store::Write;
    use crate::{Options, Server};

    #[tokio::test(start_paused = true)]
    async fn a_panicking_object_is_set_aside_until_it_changes() {
        let server = Server::start(Options::default()).await.expect("starts");
        let cluster = server.cluster().clone();
        let key = ObjectKey::new("default", "a");
        let table: Arc<str> = "configmaps".into();
        let write = |write: Write| cluster.store.commit(&table, key.clone(), write).expect("committed").revision;
        let object = || json!({"metadata": {"name": "a", "namespace": "default"}});
        let first = write(Write::Create(object()));
        let mut worker = Worker { cluster: cluster.clone(), controller: "test", set_aside: HashMap::new() };
        let bomb = || -> () { panic!("on purpose") };
        assert_eq!(worker.handle("configmaps", &key, bomb), None);
        assert_eq!(worker.handle("configmaps", &key, || 1), None, "set aside");
        assert_eq!(worker.handle("configmaps", &ObjectKey::new("default", "b"), || 2), Some(2), "others are handled");
        write(Write::Update(first, object()));
        assert_eq!(worker.handle("configmaps", &key, || 3), Some(3), "it has changed");
        assert_eq!(cluster.panics.counts().get("test"), Some(&1));
    }

    #[tokio::test(start_paused = true)]
    async fn a_controller_that_panics_is_restarted() {
        let server = Server::start(Options::default()).await.expect("starts");
        let cluster = server.cluster().clone();
        let runs = AtomicUsize::new(0);
        supervise(cluster.clone(), "test", async |_, _| {
            assert!(runs.fetch_add(1, Ordering::Relaxed) >= 2, "on purpose");
        })
        .await;
        assert_eq!(cluster.panics.counts().get("test"), Some(&2));
    }
}
