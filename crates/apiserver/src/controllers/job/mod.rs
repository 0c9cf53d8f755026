//! Jobs: runs pods until enough of them succeed.
//!
//! `decide` is pure: it maps a Job, its pods and the time to a plan. The task here follows Jobs and pods, adopts orphans,
//! carries the plans out, and wakes when a deadline or a time to live ends.

mod census;
mod decide;
mod failure_policy;
mod indexes;

use std::collections::BTreeSet;
use std::sync::Arc;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::adoption::claim;
use super::schedule::Schedule;
use super::{Informer, Worker, controller_of, has_finalizer, int, owner_reference, record, remove_finalizer};
use crate::ops::{Cluster, DeleteOptions, Propagation, Target, WriteOptions};
use crate::selector::{LabelRule, labels_match};
use crate::store::{Entry, Event, ListRange, ObjectKey};
use decide::{NewPod, Plan, count, decide, is_indexed};

const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
const COMPLETION_INDEX: &str = "batch.kubernetes.io/job-completion-index";
const FAILURE_COUNT: &str = "batch.kubernetes.io/job-index-failure-count";
const IGNORED_COUNT: &str = "batch.kubernetes.io/job-index-ignored-failure-count";
/// The value of `spec.managedBy` that means this controller.
const CONTROLLER: &str = "kubernetes.io/job-controller";
/// A generated name is cut to this length before its suffix is added.
const GENERATED_BASE: usize = 58;

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker) {
    let mut jobs = Informer::new(&cluster, "jobs.batch");
    let mut pods = Informer::new(&cluster, "pods");
    let mut schedule = Schedule::default();
    loop {
        let mut due: BTreeSet<ObjectKey> = BTreeSet::new();
        tokio::select! {
            biased;
            events = jobs.next() => due.extend(events.iter().map(|event| ObjectKey::clone(&event.entry.key))),
            events = pods.next() => due.extend(events.iter().flat_map(|event| jobs_of(&cluster, event))),
            () = schedule.wait(&cluster.clock) => {}
        }
        due.extend(schedule.take_due(cluster.clock.now()));
        for key in due {
            match worker.handle("jobs.batch", &key, || sync(&cluster, &key)) {
                Some(Ok(wake)) => {
                    schedule.succeeded(&key);
                    schedule.set(&key, wake);
                }
                Some(Err(Incomplete(wake))) => {
                    schedule.set(&key, wake);
                    schedule.retry(&key, cluster.clock.now());
                }
                None => {}
            }
        }
    }
}

/// Returns the Jobs that an event of a pod may concern: by its owner, its label, and for orphans by their selectors.
fn jobs_of(cluster: &Cluster, event: &Arc<Event>) -> Vec<ObjectKey> {
    let namespace = &event.entry.key.namespace;
    let versions = [Some(&event.entry), event.before.as_ref()];
    let mut names: BTreeSet<Box<str>> = BTreeSet::new();
    for entry in versions.into_iter().flatten() {
        let tracked = entry.label(JOB_NAME);
        names.extend(tracked.map(Into::into));
        // A pod that lost its label is still known by its owner.
        if tracked.is_none() && !entry.owners.is_empty() && cluster.store.count("jobs.batch") > 0 {
            let value = entry.shared_value();
            let owner = controller_of(&value).filter(|owner| owner["kind"] == "Job");
            names.extend(owner.and_then(|owner| owner["name"].as_str()).map(Into::into));
        }
    }
    if event.entry.owners.is_empty() && names.is_empty() {
        names.extend(adopters(cluster, &event.entry));
    }
    names.into_iter().map(|name| ObjectKey { namespace: namespace.clone(), name }).collect()
}

/// Returns the Jobs whose selector matches an orphan.
fn adopters(cluster: &Cluster, orphan: &Entry) -> Vec<Box<str>> {
    if orphan.labels.is_empty() || cluster.store.count("jobs.batch") == 0 {
        return Vec::new();
    }
    let range = ListRange { namespace: Some(&orphan.key.namespace), ..ListRange::default() };
    let matches = |job: &Entry| labels_match(&rules_of(&job.shared_value()), orphan);
    let found = cluster.store.list("jobs.batch", &range, matches);
    found.map(|page| page.entries).unwrap_or_default().iter().map(|job| job.key.name.clone()).collect()
}

fn rules_of(job: &Value) -> Vec<LabelRule> {
    LabelRule::from_object(&job["spec"]["selector"])
}

/// Not everything could be done; the object is due at the given time, or after a delay.
struct Incomplete(Option<Timestamp>);

/// Reconciles one Job; returns when to reconcile it again.
fn sync(cluster: &Cluster, key: &ObjectKey) -> Result<Option<Timestamp>, Incomplete> {
    let jobs = cluster.registry.builtin("batch", "jobs");
    let target = Target { resource: &jobs, namespace: &key.namespace, name: &key.name };
    let Ok(entry) = cluster.get(target) else {
        release_all(cluster, key, &tracked(cluster, key, |_| true));
        return Ok(None);
    };
    let job = entry.shared_value();
    if job["spec"]["managedBy"].as_str().is_some_and(|manager| manager != CONTROLLER) {
        return Ok(None);
    }
    if entry.deleting {
        release_all(cluster, key, &tracked(cluster, key, |pod| pod.deleting));
        return Ok(None);
    }
    // What an earlier Job of this name has left.
    let has_own_selector = job["spec"]["manualSelector"] == true;
    let is_left = |pod: &Entry| {
        let looks_like = has_own_selector || pod.label(JOB_NAME).is_some();
        looks_like && !pod.owners.is_empty() && !pod.owners.contains(&entry.uid)
    };
    release_all(cluster, key, &tracked(cluster, key, is_left));
    let pods = cluster.registry.builtin("", "pods");
    let owned = claim(cluster, &pods, &job, &rules_of(&job), track);
    let plan = decide(&job, &owned.iter().collect::<Vec<_>>(), cluster.clock.now());
    match act(cluster, target, &job, &plan) {
        true => Ok(plan.wake),
        false => Err(Incomplete(plan.wake)),
    }
}

/// Adds the tracking finalizer to an adopted pod, or removes it from a released one.
fn track(pod: &mut Value, adopted: bool) {
    let mut finalizers = pod["metadata"]["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.retain(|finalizer| finalizer != TRACKING);
    if adopted {
        finalizers.push(TRACKING.into());
    }
    pod["metadata"]["finalizers"] = finalizers.into();
}

/// Returns the tracked pods that a Job of this name owns, and those without an owner that carry its name or none.
///
/// Pods of a Job with `manualSelector`, and adopted ones, do not carry the label, so those without it are parsed.
fn tracked(cluster: &Cluster, key: &ObjectKey, looks_like: impl Fn(&Entry) -> bool) -> Vec<Value> {
    let range = ListRange { namespace: Some(&key.namespace), ..ListRange::default() };
    let named = |pod: &Entry| pod.label(JOB_NAME).is_none_or(|name| name == &*key.name);
    let page = cluster.store.list("pods", &range, |pod| named(pod) && looks_like(pod));
    let pods = page.map(|page| page.entries).unwrap_or_default();
    let belongs = |pod: &Value| match controller_of(pod) {
        Some(owner) => owner["kind"] == "Job" && owner["name"] == *key.name,
        None => true,
    };
    let pods = pods.iter().map(|entry| entry.value());
    pods.filter(|pod| has_finalizer(pod, TRACKING) && belongs(pod)).collect()
}

/// Releases pods, which then need not be counted.
fn release_all(cluster: &Cluster, key: &ObjectKey, pods: &[Value]) {
    for pod in pods {
        release(cluster, key, pod["metadata"]["name"].as_str().unwrap_or(""));
    }
}

/// Carries a plan out; returns whether all of it was done.
fn act(cluster: &Cluster, target: Target<'_>, job: &Value, plan: &Plan) -> bool {
    let pods = cluster.registry.builtin("", "pods");
    let key = ObjectKey::new(target.namespace, target.name);
    let mut created = 0;
    for new in &plan.create {
        match cluster.create(&pods, target.namespace, pod_for(job, new), &WriteOptions::default()) {
            Ok(written) => {
                created += 1;
                let message = format!("Created pod: {}", written.entry.key.name);
                record(cluster, job, "job-controller", "Normal", "SuccessfulCreate", &message);
            }
            Err(error) => {
                let message = format!("Error creating: {error}");
                record(cluster, job, "job-controller", "Warning", "FailedCreate", &message);
                break;
            }
        }
    }
    for name in &plan.discard {
        release(cluster, &key, name);
    }
    for name in plan.delete.iter().chain(&plan.discard) {
        let pod = Target { resource: &pods, namespace: target.namespace, name };
        match cluster.delete(pod, &DeleteOptions::default()) {
            Ok(_) => {
                let message = format!("Deleted pod: {name}");
                record(cluster, job, "job-controller", "Normal", "SuccessfulDelete", &message);
            }
            Err(error) if error.is_not_found() => {}
            Err(error) => tracing::warn!(%error, pod = name, "cannot delete a job's pod"),
        }
    }
    let missing = (plan.create.len() - created) as i64;
    let with_active = |status: &Value| {
        let mut status = status.clone();
        let active = int(&status["active"]) - missing;
        count(&mut status, "active", active);
        status
    };
    // What is noted first is counted once, even if this process ends before the last write.
    if let Some(interim) = plan.interim.as_ref().map(with_active)
        && interim != job["status"]
    {
        match write_status(cluster, target, &interim) {
            Written::Done => {}
            Written::Gone => return true,
            Written::Failed => return false,
        }
    }
    // Counting one that kept its finalizer would count it again in the next pass.
    let released = plan.release.iter().filter(|name| release(cluster, &key, name)).count();
    if released < plan.release.len() {
        return false;
    }
    let status = with_active(&plan.status);
    if status != job["status"] {
        match write_status(cluster, target, &status) {
            Written::Done => {
                for (kind, reason, message) in &plan.events {
                    record(cluster, job, "job-controller", kind, reason, message);
                }
            }
            Written::Gone => return true,
            Written::Failed => return false,
        }
    }
    if plan.expire {
        let options = DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
        if let Err(error) = cluster.delete(target, &options) {
            tracing::debug!(%error, job = target.name, "cannot delete an expired job");
        }
    }
    created == plan.create.len()
}

/// What became of a write of a status.
enum Written {
    Done,
    Gone,
    Failed,
}

fn write_status(cluster: &Cluster, target: Target<'_>, status: &Value) -> Written {
    match cluster.edit_status(target, |job| job["status"] = status.clone()) {
        Ok(_) => Written::Done,
        Err(error) if error.is_not_found() => Written::Gone,
        Err(error) => {
            tracing::warn!(%error, job = target.name, "cannot write a job's status");
            Written::Failed
        }
    }
}

fn pod_for(job: &Value, new: &NewPod) -> Value {
    let template = &job["spec"]["template"];
    let (mut metadata, mut spec) = (template["metadata"].clone(), template["spec"].clone());
    if !metadata.is_object() {
        metadata = json!({});
    }
    let name = job["metadata"]["name"].as_str().unwrap_or("");
    metadata["generateName"] = format!("{name}-").into();
    metadata["ownerReferences"] = json!([owner_reference(job)]);
    let mut finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.push(TRACKING.into());
    metadata["finalizers"] = finalizers.into();
    if let Some(index) = new.index.filter(|_| is_indexed(job)) {
        let suffix = format!("-{index}-");
        let cut = name.len().min(GENERATED_BASE.saturating_sub(suffix.len()));
        metadata["generateName"] = format!("{}{suffix}", name.get(..cut).unwrap_or(name)).into();
        spec["hostname"] = format!("{name}-{index}").into();
        for map in ["annotations", "labels"] {
            if !metadata[map].is_object() {
                metadata[map] = json!({});
            }
            metadata[map][COMPLETION_INDEX] = index.to_string().into();
        }
        if let Some((counted, ignored)) = new.failures {
            metadata["annotations"][FAILURE_COUNT] = counted.to_string().into();
            if ignored > 0 {
                metadata["annotations"][IGNORED_COUNT] = ignored.to_string().into();
            }
        }
        for list in ["initContainers", "containers"] {
            spec.get_mut(list).and_then(Value::as_array_mut).into_iter().flatten().for_each(add_index_variable);
        }
    }
    json!({"metadata": metadata, "spec": spec})
}

/// Gives a container its completion index in the environment.
fn add_index_variable(container: &mut Value) {
    const NAME: &str = "JOB_COMPLETION_INDEX";
    let mut variables = container["env"].as_array().cloned().unwrap_or_default();
    if variables.iter().any(|variable| variable["name"] == NAME) {
        return;
    }
    let path = format!("metadata.labels['{COMPLETION_INDEX}']");
    variables.push(json!({"name": NAME, "valueFrom": {"fieldRef": {"fieldPath": path}}}));
    container["env"] = variables.into();
}

/// Removes the tracking finalizer of a pod; returns whether the pod has none now.
fn release(cluster: &Cluster, key: &ObjectKey, name: &str) -> bool {
    let pods = cluster.registry.builtin("", "pods");
    let target = Target { resource: &pods, namespace: &key.namespace, name };
    match remove_finalizer(cluster, target, TRACKING) {
        Err(error) if !error.is_not_found() => {
            tracing::warn!(%error, pod = name, "cannot release a job's pod");
            false
        }
        _ => true,
    }
}
