//! Jobs: runs pods until enough of them succeed.
//!
//! `decide` is pure: it maps a job, its pods and the time to a plan. The task around it follows jobs and pods,
//! and wakes when a deadline or a time to live ends.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::{
    BURST, Informer, Worker, controller_of, has_condition, has_finalizer, int, is_scheduled, owner_reference, record,
    remove_finalizer,
};
use crate::clock::{add_seconds, seconds};
use crate::ops::{Cluster, DeleteOptions, Propagation, Target, WriteOptions};
use crate::store::{Event, ListRange, ObjectKey};

const TRACKING: &str = "batch.kubernetes.io/job-tracking";
const JOB_NAME: &str = "batch.kubernetes.io/job-name";
/// The initial and the longest back-off after a failed pod, in seconds; it doubles with every failure.
const BACKOFF: (i64, i64) = (10, 600);

type Keys = BTreeSet<(Box<str>, Box<str>)>;

pub(super) async fn run(cluster: Arc<Cluster>, mut worker: Worker) {
    let mut jobs = Informer::new(&cluster, "jobs.batch");
    let mut pods = Informer::new(&cluster, "pods");
    let mut later: BTreeMap<(Box<str>, Box<str>), Timestamp> = BTreeMap::new();
    loop {
        let now = cluster.clock.now();
        let wake = later.values().min().map(|at| at.duration_since(now));
        let wait = wake.map_or(Duration::from_secs(3600), |wait| Duration::try_from(wait).unwrap_or(Duration::ZERO));
        let mut due: Keys = BTreeSet::new();
        tokio::select! {
            biased;
            events = jobs.next() => due.extend(events.iter().map(key_of)),
            events = pods.next() => due.extend(events.iter().filter_map(job_of)),
            () = tokio::time::sleep(wait) => {}
        }
        let now = cluster.clock.now();
        due.extend(later.iter().filter(|(_, at)| **at <= now).map(|(key, _)| key.clone()));
        for key in due {
            later.remove(&key);
            let object = ObjectKey { namespace: key.0.clone(), name: key.1.clone() };
            if let Some(at) = worker.handle("jobs.batch", &object, || sync(&cluster, &object)).flatten() {
                later.insert(key, at);
            }
        }
    }
}

fn key_of(event: &Arc<Event>) -> (Box<str>, Box<str>) {
    (event.entry.key.namespace.clone(), event.entry.key.name.clone())
}

fn job_of(event: &Arc<Event>) -> Option<(Box<str>, Box<str>)> {
    let name = event.entry.label(JOB_NAME)?;
    Some((event.entry.key.namespace.clone(), name.into()))
}

/// The next actions for one Job.
#[derive(Debug, Default, PartialEq)]
struct Plan {
    create: usize,
    /// Names of pods to delete.
    delete: Vec<String>,
    /// Names of finished pods whose tracking finalizer can be removed.
    release: Vec<String>,
    status: Value,
    /// Events: type, reason, message.
    events: Vec<(&'static str, &'static str, String)>,
    wake: Option<Timestamp>,
    /// The Job's `ttlSecondsAfterFinished` has passed.
    expire: bool,
}

/// Reconciles one Job; returns when to reconcile it again.
fn sync(cluster: &Cluster, key: &ObjectKey) -> Option<Timestamp> {
    let jobs = cluster.registry.builtin("batch", "jobs");
    let target = Target { resource: &jobs, namespace: &key.namespace, name: &key.name };
    let job = cluster.get(target).ok().map(|entry| entry.value());
    let pods = pods_of(cluster, key);
    let Some(job) = job else {
        // Pods of a deleted job need not be counted.
        for pod in &pods {
            release(cluster, key, pod["metadata"]["name"].as_str().unwrap_or(""));
        }
        return None;
    };
    if job["metadata"]["deletionTimestamp"].is_string() {
        for pod in pods.iter().filter(|pod| pod["metadata"]["deletionTimestamp"].is_string()) {
            release(cluster, key, pod["metadata"]["name"].as_str().unwrap_or(""));
        }
        return None;
    }
    let uid = &job["metadata"]["uid"];
    let owned: Vec<&Value> =
        pods.iter().filter(|pod| controller_of(pod).is_some_and(|owner| owner["uid"] == *uid)).collect();
    let plan = decide(&job, &owned, cluster.clock.now());
    act(cluster, target, &job, &plan);
    plan.wake
}

fn pods_of(cluster: &Cluster, key: &ObjectKey) -> Vec<Value> {
    let span = ListRange { namespace: Some(&key.namespace), ..ListRange::default() };
    let page = cluster.store.list("pods", &span, |pod| pod.label(JOB_NAME) == Some(&*key.name));
    page.map(|page| page.entries).unwrap_or_default().iter().map(|entry| entry.value()).collect()
}

fn decide(job: &Value, pods: &[&Value], now: Timestamp) -> Plan {
    let (spec, status) = (&job["spec"], &job["status"]);
    let mut plan = Plan { status: status.clone(), ..Plan::default() };
    if has_condition(job, "Complete") || has_condition(job, "Failed") {
        plan.release = pods.iter().filter(|pod| is_tracked(pod) && is_finished(pod)).map(|pod| name_of(pod)).collect();
        expire(spec, status, now, &mut plan);
        return plan;
    }
    let is = |pod: &&&Value, phase: &str| pod["status"]["phase"] == phase;
    let terminating_pod = |pod: &&&Value| pod["metadata"]["deletionTimestamp"].is_string();
    let over: Vec<&&Value> =
        pods.iter().filter(|pod| is_finished(pod) || (terminating_pod(pod) && is_tracked(pod))).collect();
    let fresh: Vec<&&Value> = over.iter().copied().filter(|pod| is_tracked(pod)).collect();
    // A pod that was deleted before it ended has failed, as far as the job is concerned.
    let counted = |key: &str, fresh: usize| int(&status[key]).saturating_add(fresh as i64);
    let succeeded = counted("succeeded", fresh.iter().filter(|pod| is(pod, "Succeeded")).count());
    let failed = counted("failed", fresh.iter().filter(|pod| !is(pod, "Succeeded")).count());
    plan.release = fresh.iter().map(|pod| name_of(pod)).collect();
    let active: Vec<&&Value> = pods.iter().filter(|pod| !is_finished(pod) && !terminating_pod(pod)).collect();
    let suspended = spec["suspend"] == true;
    if status["startTime"].is_null() && !suspended {
        plan.status["startTime"] = seconds(now).into();
    }
    count(&mut plan.status, "succeeded", succeeded);
    count(&mut plan.status, "failed", failed);
    let start = plan.status["startTime"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let deadline = start.zip(spec["activeDeadlineSeconds"].as_i64()).map(|(start, limit)| add_seconds(start, limit));
    let wanted = spec["completions"].as_i64();
    let backoff_limit = spec["backoffLimit"].as_i64().unwrap_or(6);
    let parallel = int(&spec["parallelism"]);
    let failure = match deadline {
        Some(deadline) if deadline <= now => {
            Some(("DeadlineExceeded", "Job was active longer than specified deadline"))
        }
        _ if failed > backoff_limit => Some(("BackoffLimitExceeded", "Job has reached the specified backoff limit")),
        _ => None,
    };
    let complete = match wanted {
        Some(wanted) => succeeded >= wanted,
        None => succeeded > 0 && active.is_empty(),
    };
    if let Some((reason, message)) = failure {
        plan.delete = active.iter().map(|pod| name_of(pod)).collect();
        finish(&mut plan, "FailureTarget", "Failed", reason, message, now);
        plan.events.push(("Warning", reason, message.into()));
        counted_pods(&mut plan.status, &[]);
    } else if complete {
        let message = "Reached expected number of succeeded pods";
        plan.delete = active.iter().map(|pod| name_of(pod)).collect();
        plan.status["completionTime"] = seconds(now).into();
        finish(&mut plan, "SuccessCriteriaMet", "Complete", "CompletionsReached", message, now);
        plan.events.push(("Normal", "Completed", "Job completed".into()));
        counted_pods(&mut plan.status, &[]);
    } else if suspended {
        plan.delete = active.iter().map(|pod| name_of(pod)).collect();
        if !has_condition(job, "Suspended") {
            condition(&mut plan.status, "Suspended", "True", "JobSuspended", "Job suspended", now);
            plan.events.push(("Normal", "Suspended", "Job suspended".into()));
            if let Some(status) = plan.status.as_object_mut() {
                status.remove("startTime");
            }
        }
        counted_pods(&mut plan.status, &[]);
    } else {
        if has_condition(job, "Suspended") {
            condition(&mut plan.status, "Suspended", "False", "JobResumed", "Job resumed", now);
            plan.status["startTime"] = seconds(now).into();
            plan.events.push(("Normal", "Resumed", "Job resumed".into()));
        }
        let left =
            wanted.map_or(if succeeded > 0 { 0 } else { parallel }, |wanted| wanted.saturating_sub(succeeded).max(0));
        let unscheduled = active.iter().filter(|pod| !is_scheduled(pod)).count();
        let target = left.min(parallel);
        let running = active.len() as i64;
        let ready_at = backoff_end(pods, failed);
        if running < target {
            match ready_at.filter(|at| *at > now) {
                Some(at) => plan.wake = Some(at),
                None => {
                    plan.create = usize::try_from(target - running).unwrap_or(0).min(BURST.saturating_sub(unscheduled))
                }
            }
        } else if running > target {
            let surplus = usize::try_from(running - target).unwrap_or(0);
            plan.delete = active.iter().rev().take(surplus).map(|pod| name_of(pod)).collect();
        }
        let kept: Vec<&Value> =
            active.iter().map(|pod| **pod).filter(|pod| !plan.delete.contains(&name_of(pod))).collect();
        counted_pods(&mut plan.status, &kept);
        let created = int(&plan.status["active"]) + plan.create as i64;
        count(&mut plan.status, "active", created);
    }
    let unfinished = !has_condition(&json!({"status": plan.status}), "Failed");
    if let Some(deadline) = deadline.filter(|_| unfinished) {
        plan.wake = Some(plan.wake.map_or(deadline, |wake| wake.min(deadline)));
    }
    expire(spec, &plan.status.clone(), now, &mut plan);
    plan.status["uncountedTerminatedPods"] = json!({});
    let terminating = pods.iter().filter(|pod| terminating_pod(pod) && !is_finished(pod)).count() as i64;
    plan.status["terminating"] = terminating.into();
    plan
}

fn is_finished(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

fn is_tracked(pod: &Value) -> bool {
    has_finalizer(pod, TRACKING)
}

fn name_of(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap_or("").to_owned()
}

/// Sets a counter in a status, or removes it when it is zero.
fn count(status: &mut Value, key: &str, number: i64) {
    if number != 0 {
        status[key] = number.into();
    } else if let Some(status) = status.as_object_mut() {
        status.remove(key);
    }
}

fn counted_pods(status: &mut Value, active: &[&Value]) {
    count(status, "active", active.len() as i64);
    status["ready"] = active.iter().filter(|pod| has_condition(pod, "Ready")).count().into();
}

fn condition(status: &mut Value, kind: &str, value: &str, reason: &str, message: &str, now: Timestamp) {
    let mut conditions = status["conditions"].as_array().cloned().unwrap_or_default();
    conditions.retain(|known| known["type"] != kind);
    conditions.push(json!({"type": kind, "status": value, "reason": reason, "message": message,
        "lastProbeTime": seconds(now), "lastTransitionTime": seconds(now)}));
    status["conditions"] = conditions.into();
}

fn finish(plan: &mut Plan, first: &str, last: &str, reason: &str, message: &str, now: Timestamp) {
    condition(&mut plan.status, first, "True", reason, message, now);
    condition(&mut plan.status, last, "True", reason, message, now);
}

/// Returns when the back-off after the last failure ends.
fn backoff_end(pods: &[&Value], failed: i64) -> Option<Timestamp> {
    if failed == 0 {
        return None;
    }
    let last = pods.iter().filter(|pod| pod["status"]["phase"] == "Failed").filter_map(|pod| ended_at(pod)).max()?;
    let wait = BACKOFF
        .0
        .checked_shl(u32::try_from(failed.saturating_sub(1)).unwrap_or(32).min(16))
        .unwrap_or(BACKOFF.1)
        .min(BACKOFF.1);
    Some(add_seconds(last, wait))
}

fn ended_at(pod: &Value) -> Option<Timestamp> {
    let statuses = pod["status"]["containerStatuses"].as_array().into_iter().flatten();
    statuses
        .filter_map(|one| one["state"]["terminated"]["finishedAt"].as_str())
        .filter_map(|text| text.parse().ok())
        .max()
}

fn expire(spec: &Value, status: &Value, now: Timestamp, plan: &mut Plan) {
    let Some(limit) = spec["ttlSecondsAfterFinished"].as_i64() else { return };
    let conditions = status["conditions"].as_array().into_iter().flatten();
    let finished = conditions
        .filter(|one| (one["type"] == "Complete" || one["type"] == "Failed") && one["status"] == "True")
        .filter_map(|one| one["lastTransitionTime"].as_str()?.parse::<Timestamp>().ok())
        .max();
    let Some(end) = finished.map(|finished| add_seconds(finished, limit)) else { return };
    if end <= now {
        plan.expire = true;
    } else {
        plan.wake = Some(plan.wake.map_or(end, |wake| wake.min(end)));
    }
}

fn act(cluster: &Cluster, target: Target<'_>, job: &Value, plan: &Plan) {
    let pods = cluster.registry.builtin("", "pods");
    let key = ObjectKey::new(target.namespace, target.name);
    let mut created = 0;
    for _ in 0..plan.create {
        match cluster.create(&pods, target.namespace, pod_for(job), &WriteOptions::default()) {
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
    for name in &plan.delete {
        release(cluster, &key, name);
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
    let mut status = plan.status.clone();
    if created < plan.create {
        let active = int(&status["active"]) - (plan.create - created) as i64;
        count(&mut status, "active", active);
    }
    if status != job["status"] {
        match cluster.edit_status(target, |value| value["status"] = status.clone()) {
            Ok(_) => {
                for (kind, reason, message) in &plan.events {
                    record(cluster, job, "job-controller", kind, reason, message);
                }
            }
            Err(error) if error.is_not_found() => return,
            // The pods keep their finalizers, so they will be counted next time.
            Err(error) => return tracing::warn!(%error, job = target.name, "cannot write a job's status"),
        }
    }
    for name in &plan.release {
        release(cluster, &key, name);
    }
    if plan.expire {
        let options = DeleteOptions { propagation: Some(Propagation::Foreground), ..DeleteOptions::default() };
        if let Err(error) = cluster.delete(target, &options) {
            tracing::debug!(%error, job = target.name, "cannot delete an expired job");
        }
    }
}

fn pod_for(job: &Value) -> Value {
    let template = &job["spec"]["template"];
    let mut metadata = template["metadata"].clone();
    if !metadata.is_object() {
        metadata = json!({});
    }
    metadata["generateName"] = format!("{}-", job["metadata"]["name"].as_str().unwrap_or("")).into();
    metadata["ownerReferences"] = json!([owner_reference(job)]);
    let mut finalizers = metadata["finalizers"].as_array().cloned().unwrap_or_default();
    finalizers.push(TRACKING.into());
    metadata["finalizers"] = finalizers.into();
    json!({"metadata": metadata, "spec": template["spec"]})
}

/// Removes the tracking finalizer of a pod.
fn release(cluster: &Cluster, key: &ObjectKey, name: &str) {
    let pods = cluster.registry.builtin("", "pods");
    let target = Target { resource: &pods, namespace: &key.namespace, name };
    if let Err(error) = remove_finalizer(cluster, target, TRACKING)
        && !error.is_not_found()
    {
        tracing::warn!(%error, pod = name, "cannot release a job's pod");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn job(spec: Value) -> Value {
        let mut job = json!({"metadata": {"name": "j"}, "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 1}, "status": {}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            job["spec"][key.as_str()] = value.clone();
        }
        job
    }

    fn pod(name: &str, phase: &str) -> Value {
        json!({"metadata": {"name": name, "finalizers": [TRACKING]}, "status": {"phase": phase}})
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    #[test]
    fn pods_are_made_until_enough_succeed() {
        let check = |spec: Value, pods: &[Value], create: usize, condition: Option<&str>| {
            let pods: Vec<&Value> = pods.iter().collect();
            let plan = decide(&job(spec.clone()), &pods, at(100));
            assert_eq!(plan.create, create, "{spec} {pods:?}");
            let last = plan.status["conditions"].as_array().and_then(|list| list.last()).map(|one| one["type"].clone());
            assert_eq!(last, condition.map(Value::from), "{spec} {pods:?}");
        };
        check(json!({}), &[], 1, None);
        check(json!({"parallelism": 3, "completions": 2}), &[], 2, None);
        check(json!({}), &[pod("a", "Running")], 0, None);
        check(json!({}), &[pod("a", "Succeeded")], 0, Some("Complete"));
        check(json!({}), &[pod("a", "Failed")], 1, None);
        check(json!({}), &[pod("a", "Failed"), pod("b", "Failed")], 0, Some("Failed"));
        check(json!({"suspend": true}), &[], 0, Some("Suspended"));
        check(json!({"completions": null, "parallelism": 2}), &[pod("a", "Succeeded"), pod("b", "Running")], 0, None);
    }

    #[test]
    fn finished_pods_are_counted_once() {
        let plan = decide(&job(json!({"completions": 2})), &[&pod("a", "Succeeded")], at(100));
        assert_eq!((plan.release.as_slice(), &plan.status["succeeded"]), (["a".to_owned()].as_slice(), &json!(1)));
        let mut counted = pod("a", "Succeeded");
        counted["metadata"]["finalizers"] = json!([]);
        let mut again = job(json!({"completions": 2}));
        again["status"] = plan.status;
        assert_eq!(decide(&again, &[&counted], at(101)).status["succeeded"], 1);
    }

    #[test]
    fn deadlines_and_lifetimes_wake_the_job() {
        let mut late = job(json!({"activeDeadlineSeconds": 10}));
        late["status"]["startTime"] = json!("1970-01-01T00:01:40Z");
        assert_eq!(decide(&late, &[&pod("a", "Running")], at(105)).wake, Some(at(110)));
        let plan = decide(&late, &[&pod("a", "Running")], at(110));
        assert_eq!(plan.delete, ["a"]);
        let mut done = job(json!({"ttlSecondsAfterFinished": 5}));
        done["status"] = decide(&done, &[&pod("a", "Succeeded")], at(100)).status;
        assert_eq!(decide(&done, &[], at(101)).wake, Some(at(105)));
        assert!(decide(&done, &[], at(105)).expire);
    }
}
