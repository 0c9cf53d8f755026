//! Kueue: what waits in its queue is suspended until it is admitted, and again when it is evicted.
//!
//! Its webhook suspends what is created with a queue; users create it that way.

use crate::api::Api;
use crate::checker::Checker;
use crate::object::{controller, is_deleting, name, uid};
use crate::rng::Rng;
use crate::transcript::Transcript;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;
use tokio::time::sleep;

/// The label with the name of the queue.
pub(crate) const QUEUE: &str = "kueue.x-k8s.io/queue-name";
/// How long something waits for admission, in milliseconds.
const WAITS: std::ops::Range<u64> = 100..15_000;
/// The kinds that queues admit.
const KINDS: [&str; 2] = ["RayCluster", "RayJob"];

/// The queue.
#[derive(Clone)]
pub(crate) struct Kueue {
    pub(crate) api: Api,
    pub(crate) checker: Checker,
    pub(crate) rng: Rng,
    pub(crate) transcript: Transcript,
    pub(crate) waiting: Arc<Mutex<BTreeSet<String>>>,
}

/// Returns whether Kueue decides when an object runs. What a RayJob owns runs when the RayJob does.
pub(crate) fn is_queued(object: &Value) -> bool {
    let belongs_to_job = controller(object).is_some_and(|owner| owner["kind"] == "RayJob");
    object["metadata"]["labels"][QUEUE].is_string() && !belongs_to_job
}

impl Kueue {
    /// Admits what is created or has been evicted, until dropped.
    pub(crate) async fn run(self) {
        let follow = |kind: &'static str| {
            let (kueue, changes) = (self.clone(), self.api.changes(kind));
            async move {
                let Some(mut changes) = changes else { return };
                loop {
                    for event in changes.next().await {
                        kueue.see(kind, &event.entry.shared_value());
                    }
                }
            }
        };
        futures::future::join_all(KINDS.map(follow)).await;
    }

    fn see(&self, kind: &'static str, object: &Value) {
        let uid = uid(object);
        if !is_queued(object) || object["spec"]["suspend"] != true || !self.lock().insert(uid.clone()) {
            return;
        }
        let kueue = self.clone();
        let name = name(object);
        tokio::spawn(async move { kueue.admit(kind, &name, &uid).await });
    }

    /// Admits an object after a while, once what it ran before is gone.
    async fn admit(&self, kind: &str, name: &str, uid: &str) {
        loop {
            sleep(Duration::from_millis(self.rng.within(WAITS))).await;
            let Some(object) = self.api.get(kind, name).filter(|object| object["metadata"]["uid"] == uid) else {
                return;
            };
            if object["spec"]["suspend"] != true {
                self.lock().remove(uid);
                return;
            }
            if !is_active(kind, &object) || !self.checker.was_admitted(uid) {
                break;
            }
        }
        self.lock().remove(uid);
        self.transcript.line("kueue", format!("admits {kind} {name}"));
        self.decide(kind, name, uid, false);
    }

    /// Evicts one of those that run, if any do.
    pub(crate) fn evict(&self, number: u8) {
        let of_kind = |kind: &'static str| self.api.list(kind).into_iter().map(move |object| (kind, object));
        let is_over = |object: &Value| {
            matches!(object["status"]["jobDeploymentStatus"].as_str(), Some("Complete" | "Failed"))
                || is_deleting(object)
        };
        let runs = |object: &Value| is_queued(object) && object["spec"]["suspend"] == false && !is_over(object);
        let running: Vec<(&str, Arc<Value>)> =
            KINDS.into_iter().flat_map(of_kind).filter(|(_, object)| runs(object)).collect();
        let Some((kind, object)) = running.get(usize::from(number) % running.len().max(1)) else { return };
        self.transcript.line("kueue", format!("evicts {kind} {}", name(object)));
        self.decide(kind, &name(object), &uid(object), true);
    }

    fn decide(&self, kind: &str, name: &str, uid: &str, suspend: bool) {
        self.checker.kueue_decided(uid, suspend);
        self.api.patch(kind, name, &json!({"metadata": {"uid": uid}, "spec": {"suspend": suspend}}));
    }

    fn lock(&self) -> MutexGuard<'_, BTreeSet<String>> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Returns whether Pods of an object may still run.
fn is_active(kind: &str, object: &Value) -> bool {
    let status = &object["status"];
    match kind {
        "RayCluster" => status["state"] != "suspended",
        _ => !matches!(status["jobDeploymentStatus"].as_str(), None | Some("" | "Suspended")),
    }
}
