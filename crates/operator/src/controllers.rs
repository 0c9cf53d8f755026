//! The controllers: one pass over one object, driven against the API server and Ray.
//!
//! The order of a pass is in [`manta_logic::pass`]; what it knows is in [`crate::observe`]. Only the executors, the
//! look-ups and the status write wait for anybody.

use crate::api_request::look_up;
use crate::concurrency_limit::Permit;
use crate::context::Context;
use crate::execute::RunningPass;
use crate::observe::{Observation, Observe, Sources};
use crate::queue::{Due, Requeue, WakeReason};
use futures::future::join_all;
use jiff::Timestamp;
use kube::Resource;
use manta_api::{RayCluster, RayCronJob, RayJob, RayService};
use manta_logic::action::{Kind, ObjectKey};
use manta_logic::labels::{CLUSTER, NODE_TYPE};
use manta_logic::pass::{Need, Pass, StatusWrite};
use manta_logic::plan::{LookedUp, Reconciled, Wake};
use manta_logic::post_mortem::{self, Occasion};
use serde::Serialize;
use serde_json::Value;
use std::time::Duration;
use tracing::{Level, debug, enabled, error};

/// A kind that is reconciled.
trait Controller: Observe<Status: Serialize> + Resource<DynamicType = ()> {
    /// Polls this at Ray's dashboards from now on, or nothing.
    fn poll(_context: &Context, _key: &ObjectKey, _poll: Option<&Self::Poll>) {}

    /// Forgets what is only kept while the object exists.
    fn gone(_context: &Context, _key: &ObjectKey) {}

    /// Returns whether the object ends with a status that was written.
    fn has_ended(_seen: &Self::Observed, _status: &Self::Status) -> bool {
        false
    }

    /// Takes note of a status that was written.
    fn wrote_status(_context: &Context, _seen: &Self::Observed, _status: &Self::Status, _now: Timestamp) {}
}

impl Controller for RayCluster {
    fn gone(context: &Context, key: &ObjectKey) {
        context.executor.ray.dashboards.forget_cluster(&key.namespace, &key.name);
    }
}

impl Controller for RayCronJob {}

impl Controller for RayJob {
    fn poll(context: &Context, key: &ObjectKey, poll: Option<&Self::Poll>) {
        context.jobs.follow(key, poll.cloned());
    }

    fn has_ended(seen: &Self::Observed, status: &Self::Status) -> bool {
        post_mortem::job_ended(seen.job.status.as_ref(), status)
    }

    fn wrote_status(context: &Context, seen: &Self::Observed, status: &Self::Status, now: Timestamp) {
        context.metrics.job_status_written(&seen.job, status, now);
    }
}

impl Controller for RayService {
    fn poll(context: &Context, key: &ObjectKey, poll: Option<&Self::Poll>) {
        context.serve.follow(key, poll.cloned());
    }
}

/// Makes one pass over an object.
pub(crate) async fn reconcile(context: &Context, due: &Due, permit: &Permit) -> Requeue {
    match due.key.kind {
        Kind::RayCluster => pass::<RayCluster>(context, due, permit).await,
        Kind::RayJob => pass::<RayJob>(context, due, permit).await,
        Kind::RayService => pass::<RayService>(context, due, permit).await,
        Kind::RayCronJob => pass::<RayCronJob>(context, due, permit).await,
        _ => Requeue::OnChange,
    }
}

async fn pass<K: Controller>(context: &Context, due: &Due, permit: &Permit) -> Requeue {
    let key = &due.key;
    if !context.stores.is_synced(key.kind) {
        return wait_for_watches(context, key, &[key.kind]);
    }
    if !look_for_late_pods(context, key).await {
        return Requeue::BackOff;
    }
    let now = context.clock.now();
    let sources = context.sources(now, context.in_flight.seed(key).unwrap_or_else(|| context.random.number()));
    let seen = match K::observe(&sources, key) {
        Observation::Ready { seen, not_synced } => {
            not_synced.into_iter().for_each(|kind| context.watches.ensure(kind));
            seen
        }
        Observation::NotSynced(kinds) => return wait_for_watches(context, key, &kinds),
        Observation::Unreadable => return Requeue::OnChange,
        Observation::InFlight => return Requeue::OnceShown,
        Observation::Gone => {
            context.in_flight.forget(key);
            context.existence.forget(key);
            K::poll(context, key, None);
            K::gone(context, key);
            return Requeue::OnChange;
        }
    };
    let generation = K::object(&seen).meta().generation.unwrap_or_default();
    let running = RunningPass { key, reason: &due.reason, generation, stores: &context.stores };
    drive::<K>(context, &running, &seen, &sources, permit).await
}

/// Looks up the Pods that were created for an object and that no watch has shown for long: they are gone, or the watch is late.
/// Returns whether that was possible.
async fn look_for_late_pods(context: &Context, owner: &ObjectKey) -> bool {
    let overdue = context.in_flight.overdue(owner);
    let found = join_all(overdue.iter().map(|(pod, _)| look_up(&context.client, pod))).await;
    let mut known = true;
    for ((_, uid), found) in overdue.iter().zip(&found) {
        match found {
            LookedUp::Found(pod) => context.in_flight.looked_up(owner, uid, will_be_shown(pod, owner, uid)),
            LookedUp::Absent => context.in_flight.looked_up(owner, uid, false),
            LookedUp::Failed(_) => known = false,
        }
    }
    known
}

/// Returns whether a Pod is the one that was created, and the watch will show it as the owner's: its labels may have changed.
fn will_be_shown(pod: &Value, owner: &ObjectKey, uid: &str) -> bool {
    let metadata = &pod["metadata"];
    let labels = &metadata["labels"];
    metadata["uid"] == uid
        && metadata["deletionTimestamp"].is_null()
        && labels[CLUSTER] == owner.name
        && labels[NODE_TYPE].is_string()
}

/// Starts the watches that are missing; these, and those that list again, wake the object when they have everything.
fn wait_for_watches(context: &Context, key: &ObjectKey, kinds: &[Kind]) -> Requeue {
    let mut synced = true;
    for kind in kinds {
        context.watches.ensure(*kind);
        synced &= context.stores.wait_until_synced(*kind, key);
    }
    if synced { Requeue::After(Duration::ZERO, None) } else { Requeue::OnChange }
}

async fn drive<K: Controller>(
    context: &Context,
    running: &RunningPass<'_>,
    seen: &K::Observed,
    sources: &Sources<'_>,
    permit: &Permit,
) -> Requeue {
    let (key, now) = (running.key, sources.now);
    let object = K::object(seen);
    let uid = object.meta().uid.as_deref().unwrap_or_default();
    let mut pass = Pass::<K>::begin(seen, context.existence.of(key, uid), now, &context.config);
    loop {
        match pass.advance() {
            Need::LookUp(keys) => {
                let found = join_all(keys.iter().map(|key| look_up(&context.client, key))).await;
                for (looked_up, found) in keys.iter().zip(&found) {
                    context.existence.remember(key, uid, looked_up, found);
                }
                pass.looked_up(found);
            }
            Need::Poll(poll) => K::poll(context, key, poll),
            Need::Publish(events) => context.publisher.publish(&object.object_ref(&()), events),
            Need::Execute(stage) => {
                let has_failed =
                    |pod: &str| context.stores.pods.get(key, pod).is_some_and(|pod| post_mortem::has_failed(&pod));
                if let Some((subject, occasion)) = post_mortem::before_stage(key, stage, has_failed) {
                    keep_record(context, &subject, occasion, permit).await;
                }
                let results = context.executor.execute(running, stage, permit).await;
                pass.executed(results, context.clock.now());
            }
            Need::WriteStatus(status) => {
                let version = object.meta().resource_version.as_deref();
                let result = context.status.write(key, version, status).await;
                if result == StatusWrite::Done {
                    // The watch may have been faster than the response.
                    if let Some(shown) = context.stores.version(key) {
                        context.in_flight.status_shown(key, &shown);
                    }
                    K::wrote_status(context, seen, status, now);
                    if K::has_ended(seen, status) {
                        keep_record(context, key, Occasion::Ended, permit).await;
                    }
                }
                pass.wrote_status(result);
            }
            Need::Done(wake) => {
                report_end::<K>(key, &pass, running.reason);
                if wake == Wake::Refused {
                    context.in_flight.failed(key, sources.seed);
                } else if !pass.plan().stages.is_empty() {
                    context.in_flight.succeeded(key);
                }
                return Requeue::by(wake, now, pass.plan().waiting_for.as_deref());
            }
        }
    }
}

/// Keeps a record before the evidence is gone; other passes go on meanwhile.
async fn keep_record(context: &Context, subject: &ObjectKey, occasion: Occasion, permit: &Permit) {
    if context.recorder.is_on() {
        // Boxed, because every pass would be as large as what is gathered here.
        let kept = Box::pin(context.recorder.keep(&context.executor.kubernetes, subject, occasion));
        permit.released(kept).await;
    }
}

fn report_end<K: Reconciled>(key: &ObjectKey, pass: &Pass<'_, K>, reason: &WakeReason) {
    let plan = pass.plan();
    let (kind, namespace, name) = (key.kind.resource().kind, &key.namespace, &key.name);
    if !plan.lookups.is_empty() {
        error!(kind, %namespace, %name, "the plan keeps asking for look-ups; this is a bug");
    }
    if enabled!(Level::DEBUG) {
        let halts: Vec<&str> = plan.halts.iter().map(|halt| halt.error.as_str()).collect();
        let (waiting_for, halts) = (plan.waiting_for.as_deref(), halts.join("; "));
        debug!(kind, %namespace, %name, woken_by = %reason, writes = plan.stages.len(), waiting_for, halts, "reconciled");
    }
}
