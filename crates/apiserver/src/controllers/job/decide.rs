//! What a Job needs next: maps the Job, its pods and the time to a plan.

use std::collections::BTreeSet;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::census::{Census, failures_after, index_of, is_finished, is_terminating, is_tracked};
use super::failure_policy::{self, Action};
use super::indexes::Indexes;
use crate::clock::{add_seconds, seconds};
use crate::controllers::{BURST, has_condition, int, is_scheduled};

/// The initial and the longest back-off after a failed pod, in seconds; it doubles with every failure.
const BACKOFF: (i64, i64) = (10, 600);

/// The next actions for one Job.
#[derive(Debug, Default, PartialEq)]
pub(super) struct Plan {
    pub(super) create: Vec<NewPod>,
    /// Names of pods to delete, which count as failed.
    pub(super) delete: Vec<String>,
    /// Names of pods to delete that do not count.
    pub(super) discard: Vec<String>,
    /// Names of finished pods whose tracking finalizer can be removed.
    pub(super) release: Vec<String>,
    /// What to write before the finalizers are removed, so that pods are counted once whatever breaks off in between.
    pub(super) interim: Option<Value>,
    pub(super) status: Value,
    /// Events: type, reason, message.
    pub(super) events: Vec<(&'static str, String, String)>,
    pub(super) wake: Option<Timestamp>,
    /// The Job's `ttlSecondsAfterFinished` has passed.
    pub(super) expire: bool,
}

/// A pod to create.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct NewPod {
    /// The completion index, for Indexed Jobs.
    pub(super) index: Option<i64>,
    /// How often the index has failed, for Jobs with `backoffLimitPerIndex`: counted and ignored failures.
    pub(super) failures: Option<(i64, i64)>,
}

impl Plan {
    fn wake_at(&mut self, at: Timestamp) {
        self.wake = Some(self.wake.map_or(at, |wake| wake.min(at)));
    }
}

/// How a Job ends.
struct Verdict {
    criterion: &'static str,
    last: &'static str,
    reason: String,
    message: String,
}

impl Verdict {
    fn failed(reason: &str, message: &str) -> Verdict {
        Verdict { criterion: "FailureTarget", last: "Failed", reason: reason.to_owned(), message: message.to_owned() }
    }

    fn succeeded(reason: &str, message: &str) -> Verdict {
        let (reason, message) = (reason.to_owned(), message.to_owned());
        Verdict { criterion: "SuccessCriteriaMet", last: "Complete", reason, message }
    }

    /// Returns the verdict that an earlier pass has reached.
    fn standing(job: &Value) -> Option<Verdict> {
        let conditions = job["status"]["conditions"].as_array().into_iter().flatten();
        conditions.filter(|one| one["status"] == "True").find_map(|one| {
            let text = |key: &str| one[key].as_str().unwrap_or("");
            match one["type"].as_str()? {
                "SuccessCriteriaMet" => Some(Verdict::succeeded(text("reason"), text("message"))),
                "FailureTarget" => Some(Verdict::failed(text("reason"), text("message"))),
                _ => None,
            }
        })
    }

    fn reach(
        job: &Value,
        pods: &[&Value],
        census: &Census<'_>,
        deadline: Option<Timestamp>,
        now: Timestamp,
    ) -> Option<Verdict> {
        let spec = &job["spec"];
        if let Some(standing) = Verdict::standing(job) {
            return Some(standing);
        }
        if let Some(why) = &census.fatal {
            return Some(Verdict::failed("PodFailurePolicy", why));
        }
        if census.failed > spec["backoffLimit"].as_i64().unwrap_or(6) || restarts_exceed_limit(spec, pods) {
            return Some(Verdict::failed("BackoffLimitExceeded", "Job has reached the specified backoff limit"));
        }
        if deadline.is_some_and(|deadline| deadline <= now) {
            return Some(Verdict::failed("DeadlineExceeded", "Job was active longer than specified deadline"));
        }
        let lost = census.failed_indexes.len();
        if spec["maxFailedIndexes"].as_i64().is_some_and(|most| lost > most) {
            let why = "Job has exceeded the specified maximal number of failed indexes";
            return Some(Verdict::failed("MaxFailedIndexesExceeded", why));
        }
        let wanted = spec["completions"].as_i64();
        if lost > 0 && wanted.is_some_and(|wanted| lost + census.completed.len() >= wanted) {
            return Some(Verdict::failed("FailedIndexes", "Job has failed indexes"));
        }
        if let Some(rule) = success_rule(spec, &census.completed) {
            return Some(Verdict::succeeded("SuccessPolicy", &format!("Matched rules at index {rule}")));
        }
        let complete = match wanted {
            Some(wanted) => census.succeeded >= wanted,
            None => census.succeeded > 0 && census.active.is_empty(),
        };
        complete.then(|| Verdict::succeeded("CompletionsReached", "Reached expected number of succeeded pods"))
    }
}

pub(super) fn decide(job: &Value, pods: &[&Value], now: Timestamp) -> Plan {
    let (spec, status) = (&job["spec"], &job["status"]);
    let mut plan = Plan { status: status.clone(), ..Plan::default() };
    if has_condition(job, "Complete") || has_condition(job, "Failed") {
        let over = pods.iter().filter(|pod| is_tracked(pod) && (is_finished(pod) || is_terminating(pod)));
        plan.release = over.map(|pod| name_of(pod)).collect();
        expire(spec, status, now, &mut plan);
        return plan;
    }
    let census = Census::take(job, pods);
    plan.release = census.fresh.iter().map(|pod| name_of(pod)).collect();
    let suspended = spec["suspend"] == true;
    if status["startTime"].is_null() && !suspended {
        plan.status["startTime"] = seconds(now).into();
    }
    count(&mut plan.status, "succeeded", census.succeeded);
    count(&mut plan.status, "failed", census.failed);
    if is_indexed(job) {
        note(&mut plan.status, "completedIndexes", &census.completed.to_text());
        if !spec["backoffLimitPerIndex"].is_null() {
            plan.status["failedIndexes"] = census.failed_indexes.to_text().into();
        }
    }
    let start = plan.status["startTime"].as_str().and_then(|text| text.parse::<Timestamp>().ok());
    let limit = spec["activeDeadlineSeconds"].as_i64().filter(|_| !suspended);
    let deadline = start.zip(limit).map(|(start, limit)| add_seconds(start, limit));
    let mut terminating = census.terminating;
    if let Some(verdict) = Verdict::reach(job, pods, &census, deadline, now) {
        plan.delete = census.active.iter().map(|pod| name_of(pod)).collect();
        terminating += census.active.len() as i64;
        counted_pods(&mut plan.status, &[]);
        finish(&mut plan, job, &verdict, terminating == 0, now);
    } else {
        if let Some(deadline) = deadline {
            plan.wake_at(deadline);
        }
        if suspended {
            plan.discard = census.active.iter().map(|pod| name_of(pod)).collect();
            terminating += census.active.len() as i64;
            suspend(&mut plan, job, now);
            counted_pods(&mut plan.status, &[]);
        } else {
            if has_condition(job, "Suspended") {
                condition(&mut plan.status, "Suspended", "False", "JobResumed", "Job resumed", now);
                plan.status["startTime"] = seconds(now).into();
                plan.events.push(("Normal", "Resumed".into(), "Job resumed".into()));
            }
            let kept = manage(&mut plan, job, pods, &census, now);
            terminating += census.active.len() as i64 - kept.len() as i64;
            counted_pods(&mut plan.status, &kept);
            let active = int(&plan.status["active"]) + plan.create.len() as i64;
            count(&mut plan.status, "active", active);
        }
    }
    expire(spec, &plan.status.clone(), now, &mut plan);
    plan.status["uncountedTerminatedPods"] = json!({});
    plan.status["terminating"] = terminating.into();
    if !plan.release.is_empty() {
        plan.interim = Some(interim(&plan.status, &census, is_indexed(job)));
    }
    plan
}

/// Returns the status before the finished pods are released: they are noted and not counted, and the Job has not ended.
fn interim(last: &Value, census: &Census<'_>, is_indexed: bool) -> Value {
    let mut status = last.clone();
    count(&mut status, "failed", census.released.failed);
    if !is_indexed {
        count(&mut status, "succeeded", census.released.succeeded);
    }
    status["uncountedTerminatedPods"] = census.uncounted.to_value();
    if let Some(status) = status.as_object_mut() {
        status.remove("completionTime");
        if let Some(conditions) = status.get_mut("conditions").and_then(Value::as_array_mut) {
            conditions.retain(|one| one["type"] != "Complete" && one["type"] != "Failed");
        }
    }
    status
}

/// Records how a Job ends, and once all of its pods have stopped, that it has ended.
fn finish(plan: &mut Plan, job: &Value, verdict: &Verdict, stopped: bool, now: Timestamp) {
    let Verdict { criterion, last, reason, message } = verdict;
    if !has_condition(job, criterion) {
        condition(&mut plan.status, criterion, "True", reason, message, now);
    }
    if !stopped {
        return;
    }
    condition(&mut plan.status, last, "True", reason, message, now);
    if *last == "Complete" {
        plan.status["completionTime"] = seconds(now).into();
        plan.events.push(("Normal", "Completed".into(), "Job completed".into()));
    } else {
        plan.events.push(("Warning", reason.clone(), message.clone()));
    }
}

fn suspend(plan: &mut Plan, job: &Value, now: Timestamp) {
    if has_condition(job, "Suspended") {
        return;
    }
    condition(&mut plan.status, "Suspended", "True", "JobSuspended", "Job suspended", now);
    plan.events.push(("Normal", "Suspended".into(), "Job suspended".into()));
    if let Some(status) = plan.status.as_object_mut() {
        status.remove("startTime");
    }
}

/// Plans the pods that are missing and those that are too many; returns the active ones that stay.
fn manage<'a>(plan: &mut Plan, job: &Value, pods: &[&Value], census: &Census<'a>, now: Timestamp) -> Vec<&'a Value> {
    let spec = &job["spec"];
    let parallel = int(&spec["parallelism"]);
    let wanted = spec["completions"].as_i64();
    let mut kept = census.active.clone();
    if is_indexed(job) {
        let end = wanted.unwrap_or(0);
        let mut taken = BTreeSet::new();
        kept.retain(|pod| {
            let index = index_of(pod, end);
            let open = index.filter(|at| !census.completed.contains(*at) && !census.failed_indexes.contains(*at));
            open.is_some_and(|index| taken.insert(index))
        });
    }
    let left = match wanted {
        Some(wanted) => wanted.saturating_sub(census.succeeded).saturating_sub(census.failed_indexes.len()).max(0),
        None if census.succeeded > 0 => kept.len() as i64,
        None => parallel,
    };
    let target = usize::try_from(left.min(parallel)).unwrap_or(0);
    if kept.len() > target {
        // Those that have not started yet go first.
        kept.sort_by_key(|pod| (!has_condition(pod, "Ready"), !is_scheduled(pod)));
        kept.truncate(target);
    }
    let gone = census.active.iter().filter(|pod| !kept.iter().any(|other| std::ptr::eq(*other, **pod)));
    plan.discard = gone.map(|pod| name_of(pod)).collect();
    let blocked =
        if spec["podReplacementPolicy"] == "Failed" { usize::try_from(census.terminating).unwrap_or(0) } else { 0 };
    let unscheduled = kept.iter().filter(|pod| !is_scheduled(pod)).count();
    let room = target.saturating_sub(kept.len()).saturating_sub(blocked).min(BURST.saturating_sub(unscheduled));
    if is_indexed(job) {
        plan_indexes(plan, job, pods, census, &kept, room, now);
    } else if room > 0 {
        match backoff_end(spec, pods, census.failed).filter(|at| *at > now) {
            Some(at) => plan.wake_at(at),
            None => plan.create = vec![NewPod::default(); room],
        }
    }
    kept
}

/// Plans pods for the lowest indexes that have none.
fn plan_indexes(
    plan: &mut Plan,
    job: &Value,
    pods: &[&Value],
    census: &Census<'_>,
    kept: &[&Value],
    room: usize,
    now: Timestamp,
) {
    let spec = &job["spec"];
    let end = int(&spec["completions"]);
    let per_index = !spec["backoffLimitPerIndex"].is_null();
    let shared = if per_index { None } else { backoff_end(spec, pods, census.failed).filter(|at| *at > now) };
    let busy: BTreeSet<i64> = kept.iter().filter_map(|pod| index_of(pod, end)).collect();
    // With this policy the successor of a pod waits for its end.
    let waits_for_end = spec["podReplacementPolicy"] == "Failed";
    let stopping = pods.iter().filter(|pod| waits_for_end && is_terminating(pod) && !is_finished(pod));
    let stopping: BTreeSet<i64> = stopping.filter_map(|pod| index_of(pod, end)).collect();
    let is_open = |index: &i64| {
        !busy.contains(index)
            && !stopping.contains(index)
            && !census.completed.contains(*index)
            && !census.failed_indexes.contains(*index)
    };
    for index in (0..end).filter(is_open) {
        if plan.create.len() >= room {
            return;
        }
        if let Some(at) = shared {
            return plan.wake_at(at);
        }
        if !per_index {
            plan.create.push(NewPod { index: Some(index), failures: None });
            continue;
        }
        let failed =
            pods.iter().filter(|pod| index_of(pod, end) == Some(index) && pod["status"]["phase"] != "Succeeded");
        let counts = failed.map(|pod| {
            let action = failure_policy::action(&spec["podFailurePolicy"], pod);
            (failures_after(pod, &action), ended_at(pod))
        });
        let (failures, last) = counts.max().unwrap_or_default();
        let ready_at = last.map(|last| add_seconds(last, backoff_seconds(failures.0))).filter(|_| failures.0 > 0);
        match ready_at.filter(|at| *at > now) {
            Some(at) => plan.wake_at(at),
            None => plan.create.push(NewPod { index: Some(index), failures: Some(failures) }),
        }
    }
}

/// Returns the first rule of the success policy that the completed indexes fulfil.
fn success_rule(spec: &Value, completed: &Indexes) -> Option<usize> {
    if completed.len() == 0 {
        return None;
    }
    let rules = spec["successPolicy"]["rules"].as_array()?;
    rules.iter().position(|rule| {
        let count = rule["succeededCount"].as_i64();
        match rule["succeededIndexes"].as_str() {
            Some(text) => {
                let wanted = Indexes::parse(text, int(&spec["completions"]));
                let reached = wanted.common(completed);
                wanted.len() > 0 && (reached == wanted.len() || count.is_some_and(|count| reached >= count))
            }
            None => count.is_some_and(|count| completed.len() >= count),
        }
    })
}

/// Returns whether containers that restart in place have done so too often.
fn restarts_exceed_limit(spec: &Value, pods: &[&Value]) -> bool {
    if spec["template"]["spec"]["restartPolicy"] != "OnFailure" {
        return false;
    }
    let limit = spec["backoffLimit"].as_i64().unwrap_or(6);
    let live = pods.iter().filter(|pod| matches!(pod["status"]["phase"].as_str(), Some("Running" | "Pending")));
    let restarts = live.flat_map(|pod| {
        let lists = ["initContainerStatuses", "containerStatuses"];
        lists.into_iter().flat_map(|list| pod["status"][list].as_array().into_iter().flatten())
    });
    let total = restarts.map(|status| int(&status["restartCount"])).fold(0, i64::saturating_add);
    if limit == 0 { total > 0 } else { total >= limit }
}

pub(super) fn is_indexed(job: &Value) -> bool {
    job["spec"]["completionMode"] == "Indexed"
}

fn name_of(pod: &Value) -> String {
    pod["metadata"]["name"].as_str().unwrap_or("").to_owned()
}

/// Sets a counter in a status, or removes it when it is zero.
pub(super) fn count(status: &mut Value, key: &str, number: i64) {
    if number != 0 {
        status[key] = number.into();
    } else if let Some(status) = status.as_object_mut() {
        status.remove(key);
    }
}

/// Sets a text in a status, or removes it when it is empty.
fn note(status: &mut Value, key: &str, text: &str) {
    if !text.is_empty() {
        status[key] = text.into();
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

/// Returns when the back-off after the last failure ends.
fn backoff_end(spec: &Value, pods: &[&Value], failed: i64) -> Option<Timestamp> {
    if failed == 0 {
        return None;
    }
    let counts = |pod: &&&Value| {
        pod["status"]["phase"] == "Failed" && failure_policy::action(&spec["podFailurePolicy"], pod) != Action::Ignore
    };
    let last = pods.iter().filter(counts).filter_map(|pod| ended_at(pod)).max()?;
    Some(add_seconds(last, backoff_seconds(failed)))
}

fn backoff_seconds(failures: i64) -> i64 {
    let doublings = u32::try_from(failures.saturating_sub(1)).unwrap_or(32).min(16);
    BACKOFF.0.checked_shl(doublings).unwrap_or(BACKOFF.1).min(BACKOFF.1)
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
        plan.wake_at(end);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::controllers::has_finalizer;
    use crate::controllers::job::{COMPLETION_INDEX, FAILURE_COUNT, TRACKING};

    fn job(spec: Value) -> Value {
        let mut job = json!({"metadata": {"name": "j"}, "spec": {"parallelism": 1, "completions": 1, "backoffLimit": 1}, "status": {}});
        for (key, value) in spec.as_object().into_iter().flatten() {
            job["spec"][key.as_str()] = value.clone();
        }
        job
    }

    fn pod(name: &str, phase: &str) -> Value {
        json!({"metadata": {"name": name, "uid": name, "finalizers": [TRACKING]}, "status": {"phase": phase}})
    }

    fn indexed(name: &str, index: i64, phase: &str) -> Value {
        let mut pod = pod(name, phase);
        pod["metadata"]["annotations"] = json!({COMPLETION_INDEX: index.to_string()});
        pod
    }

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).expect("in range")
    }

    fn last_condition(plan: &Plan) -> Option<Value> {
        plan.status["conditions"].as_array().and_then(|list| list.last()).map(|one| one["type"].clone())
    }

    #[test]
    fn pods_are_made_until_enough_succeed() {
        let check = |spec: Value, pods: &[Value], create: usize, condition: Option<&str>| {
            let pods: Vec<&Value> = pods.iter().collect();
            let plan = decide(&job(spec.clone()), &pods, at(100));
            assert_eq!(plan.create.len(), create, "{spec} {pods:?}");
            assert_eq!(last_condition(&plan), condition.map(Value::from), "{spec} {pods:?}");
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
    fn indexed_jobs_run_one_pod_per_index() {
        let spec = json!({"completionMode": "Indexed", "completions": 4, "parallelism": 3});
        let pods = [indexed("a", 0, "Succeeded"), indexed("b", 1, "Running"), indexed("twin", 1, "Running")];
        let plan = decide(&job(spec), &pods.iter().collect::<Vec<_>>(), at(100));
        assert_eq!(plan.create.iter().filter_map(|new| new.index).collect::<Vec<_>>(), [2, 3]);
        assert_eq!(plan.discard, ["twin"], "an index has one pod");
        assert_eq!((&plan.status["completedIndexes"], &plan.status["succeeded"]), (&json!("0"), &json!(1)));
    }

    #[test]
    fn indexes_fail_on_their_own_with_a_limit_per_index() {
        let spec = json!({"completionMode": "Indexed", "completions": 2, "parallelism": 2, "backoffLimit": 100,
            "backoffLimitPerIndex": 1});
        let first = indexed("a", 0, "Failed");
        let plan = decide(&job(spec.clone()), &[&first, &indexed("b", 1, "Succeeded")], at(100));
        assert_eq!(plan.create, [NewPod { index: Some(0), failures: Some((1, 0)) }]);
        let mut second = indexed("c", 0, "Failed");
        second["metadata"]["annotations"][FAILURE_COUNT] = json!("1");
        let plan = decide(&job(spec), &[&second, &indexed("b", 1, "Succeeded")], at(100));
        assert_eq!(plan.status["failedIndexes"], "0");
        let last = &plan.status["conditions"][1];
        assert_eq!((&last["type"], &last["reason"]), (&json!("Failed"), &json!("FailedIndexes")));
    }

    #[test]
    fn a_success_policy_ends_the_job_early() {
        let spec = json!({"completionMode": "Indexed", "completions": 3, "parallelism": 3,
            "successPolicy": {"rules": [{"succeededIndexes": "1"}]}});
        let pods = [indexed("a", 0, "Running"), indexed("b", 1, "Succeeded")];
        let plan = decide(&job(spec.clone()), &pods.iter().collect::<Vec<_>>(), at(100));
        assert_eq!(plan.delete, ["a"]);
        assert_eq!(last_condition(&plan), Some(json!("SuccessCriteriaMet")), "the other pod has to stop first");
        let mut later = job(spec);
        later["status"] = plan.status;
        assert_eq!(last_condition(&decide(&later, &[&pods[1]], at(101))), Some(json!("Complete")));
    }

    #[test]
    fn a_failure_policy_decides_what_counts() {
        let rules = json!([{"action": "Ignore", "onExitCodes": {"operator": "In", "values": [7]}},
            {"action": "FailJob", "onExitCodes": {"operator": "In", "values": [8]}}]);
        let spec = json!({"backoffLimit": 0, "podFailurePolicy": {"rules": rules}});
        let failed = |code: i64| {
            let mut pod = pod("a", "Failed");
            pod["status"]["containerStatuses"] = json!([{"name": "c", "state": {"terminated": {"exitCode": code}}}]);
            pod
        };
        let plan = decide(&job(spec.clone()), &[&failed(7)], at(100));
        assert_eq!((plan.create.len(), &plan.status["failed"]), (1, &Value::Null));
        let plan = decide(&job(spec), &[&failed(8)], at(100));
        assert_eq!(plan.status["conditions"][1]["reason"], "PodFailurePolicy");
    }

    /// Plays the writes of one pass, and stops after some of them; returns the Job and the pods as they are then.
    fn play(job: &Value, pods: &[Value], writes: usize) -> (Value, Vec<Value>) {
        let plan = decide(job, &pods.iter().collect::<Vec<_>>(), at(100));
        let (mut job, mut pods) = (job.clone(), pods.to_vec());
        if writes > 0 {
            job["status"] = plan.interim.unwrap_or_else(|| plan.status.clone());
        }
        if writes > 1 {
            let released = pods.iter_mut().filter(|pod| plan.release.contains(&name_of(pod)));
            released.for_each(|pod| pod["metadata"]["finalizers"] = json!([]));
        }
        if writes > 2 {
            job["status"] = plan.status;
        }
        (job, pods)
    }

    #[test]
    fn finished_pods_are_counted_once() {
        for indexed_job in [false, true] {
            for broken_after in 0..=3 {
                for gone in [false, true] {
                    let spec = match indexed_job {
                        true => json!({"completions": 3, "completionMode": "Indexed", "backoffLimit": 9}),
                        false => json!({"completions": 3, "backoffLimit": 9}),
                    };
                    let pods = [indexed("a", 0, "Succeeded"), indexed("b", 1, "Failed")];
                    let (half, mut pods) = play(&job(spec), &pods, broken_after);
                    if gone {
                        // What holds no finalizer any more may be deleted meanwhile.
                        pods.retain(|pod| has_finalizer(pod, TRACKING) || pod["status"]["phase"] == "Succeeded");
                    }
                    let (done, pods) = play(&half, &pods, 3);
                    let (done, _) = play(&done, &pods, 3);
                    let status = &done["status"];
                    let given = format!("indexed {indexed_job}, broken after {broken_after}, gone {gone}: {status}");
                    assert_eq!((&status["succeeded"], &status["failed"]), (&json!(1), &json!(1)), "{given}");
                    assert_eq!(status["uncountedTerminatedPods"], json!({}), "{given}");
                }
            }
        }
    }

    #[test]
    fn pods_are_noted_before_they_are_released_and_counted() {
        let pods = [pod("a", "Succeeded"), pod("b", "Failed")];
        let plan = decide(&job(json!({})), &pods.iter().collect::<Vec<_>>(), at(100));
        let interim = plan.interim.as_ref().expect("a first write");
        assert_eq!(interim["uncountedTerminatedPods"], json!({"succeeded": ["a"], "failed": ["b"]}));
        assert_eq!((&interim["succeeded"], &interim["failed"]), (&Value::Null, &Value::Null));
        let conditions: Vec<_> =
            interim["conditions"].as_array().into_iter().flatten().map(|one| &one["type"]).collect();
        assert_eq!(conditions, ["SuccessCriteriaMet"], "a Job ends once all is counted");
        assert_eq!((plan.release.len(), &plan.status["succeeded"]), (2, &json!(1)));
        assert_eq!(last_condition(&plan), Some(json!("Complete")));
    }

    #[test]
    fn deadlines_and_lifetimes_wake_the_job() {
        let mut late = job(json!({"activeDeadlineSeconds": 10}));
        late["status"]["startTime"] = json!("1970-01-01T00:01:40Z");
        assert_eq!(decide(&late, &[&pod("a", "Running")], at(105)).wake, Some(at(110)));
        let plan = decide(&late, &[&pod("a", "Running")], at(110));
        assert_eq!(plan.delete, ["a"]);
        assert_eq!(last_condition(&plan), Some(json!("FailureTarget")));
        let mut done = job(json!({"ttlSecondsAfterFinished": 5}));
        done["status"] = decide(&done, &[&pod("a", "Succeeded")], at(100)).status;
        assert_eq!(decide(&done, &[], at(101)).wake, Some(at(105)));
        assert!(decide(&done, &[], at(105)).expire);
    }
}
