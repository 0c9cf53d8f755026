//! What the pods of a Job amount to: how many run, and how many have ended in which way.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::decide::is_indexed;
use super::failure_policy::{self, Action};
use super::indexes::Indexes;
use super::{COMPLETION_INDEX, FAILURE_COUNT, IGNORED_COUNT, TRACKING};
use crate::controllers::{has_finalizer, int, is_scheduled};

/// How many pods have ended.
#[derive(Clone, Copy)]
pub(super) struct Tally {
    pub(super) succeeded: i64,
    pub(super) failed: i64,
}

/// `status.uncountedTerminatedPods`: the uids of pods that end, by how they end.
#[derive(Default)]
pub(super) struct Uncounted {
    pub(super) succeeded: Vec<String>,
    pub(super) failed: Vec<String>,
}

impl Uncounted {
    fn read(status: &Value) -> Uncounted {
        let list = |key: &str| {
            let uids = status["uncountedTerminatedPods"][key].as_array().into_iter().flatten();
            uids.filter_map(Value::as_str).map(str::to_owned).collect()
        };
        Uncounted { succeeded: list("succeeded"), failed: list("failed") }
    }

    pub(super) fn to_value(&self) -> Value {
        let lists = [("succeeded", &self.succeeded), ("failed", &self.failed)];
        let lists = lists.into_iter().filter(|(_, uids)| !uids.is_empty());
        Value::Object(lists.map(|(key, uids)| (key.to_owned(), json!(uids))).collect())
    }
}

/// What the pods of a Job amount to.
pub(super) struct Census<'a> {
    pub(super) active: Vec<&'a Value>,
    pub(super) terminating: i64,
    /// Finished pods that are not counted yet.
    pub(super) fresh: Vec<&'a Value>,
    /// Those that have lost their finalizers: what the status counts, and what it has noted as uncounted.
    pub(super) released: Tally,
    /// The uids of those in `fresh` that will count.
    pub(super) uncounted: Uncounted,
    pub(super) succeeded: i64,
    pub(super) failed: i64,
    /// Completed and failed indexes, for Indexed Jobs.
    pub(super) completed: Indexes,
    pub(super) failed_indexes: Indexes,
    /// Why a rule of `podFailurePolicy` ends the Job.
    pub(super) fatal: Option<String>,
}

impl<'a> Census<'a> {
    /// Counts the pods of a Job.
    pub(super) fn take(job: &Value, pods: &[&'a Value]) -> Census<'a> {
        let (spec, status) = (&job["spec"], &job["status"]);
        let waits_for_end = spec["podReplacementPolicy"] == "Failed";
        let is_over = |pod: &Value| {
            is_finished(pod) || (is_terminating(pod) && (!waits_for_end || !is_scheduled(pod) || has_stopped(pod)))
        };
        // Noted pods without a finalizer are released and count from now on; the others are among the fresh ones.
        let noted = Uncounted::read(status);
        let held: BTreeSet<&str> = pods.iter().filter(|pod| is_tracked(pod)).map(|pod| uid_of(pod)).collect();
        let lost = |uids: &[String]| uids.iter().filter(|uid| !held.contains(uid.as_str())).count() as i64;
        let released = Tally {
            succeeded: int(&status["succeeded"]).saturating_add(lost(&noted.succeeded)),
            failed: int(&status["failed"]).saturating_add(lost(&noted.failed)),
        };
        let mut census = Census {
            active: pods.iter().copied().filter(|pod| !is_finished(pod) && !is_terminating(pod)).collect(),
            terminating: pods.iter().filter(|pod| is_terminating(pod) && !is_finished(pod)).count() as i64,
            fresh: pods.iter().copied().filter(|pod| is_tracked(pod) && is_over(pod)).collect(),
            released,
            uncounted: Uncounted::default(),
            succeeded: released.succeeded,
            failed: released.failed,
            completed: Indexes::default(),
            failed_indexes: Indexes::default(),
            fatal: None,
        };
        let end = spec["completions"].as_i64().unwrap_or(0);
        let per_index = spec["backoffLimitPerIndex"].as_i64();
        if is_indexed(job) {
            census.completed = Indexes::parse(status["completedIndexes"].as_str().unwrap_or(""), end);
            census.failed_indexes = Indexes::parse(status["failedIndexes"].as_str().unwrap_or(""), end);
            let succeeded = pods.iter().filter(|pod| pod["status"]["phase"] == "Succeeded");
            for index in succeeded.filter_map(|pod| index_of(pod, end)) {
                census.completed.insert(index);
            }
        }
        for pod in census.fresh.clone() {
            let uid = uid_of(pod).to_owned();
            if pod["status"]["phase"] == "Succeeded" && !noted.failed.contains(&uid) {
                census.succeeded = census.succeeded.saturating_add(1);
                // The completed indexes say the same of an Indexed Job.
                if !is_indexed(job) {
                    census.uncounted.succeeded.push(uid);
                }
                continue;
            }
            // A pod that was deleted before it ended has failed, as far as the Job is concerned.
            let action = failure_policy::action(&spec["podFailurePolicy"], pod);
            if action != Action::Ignore {
                census.failed = census.failed.saturating_add(1);
                census.uncounted.failed.push(uid);
            }
            if let (Some(index), Some(limit)) = (index_of(pod, end), per_index.filter(|_| is_indexed(job)))
                && (action == Action::FailIndex || failures_after(pod, &action).0 > limit)
            {
                census.failed_indexes.insert(index);
            }
            if let Action::FailJob(why) = action {
                census.fatal.get_or_insert(why);
            }
        }
        if is_indexed(job) {
            census.succeeded = census.completed.len();
        }
        census
    }
}

pub(super) fn is_finished(pod: &Value) -> bool {
    matches!(pod["status"]["phase"].as_str(), Some("Succeeded" | "Failed"))
}

pub(super) fn is_terminating(pod: &Value) -> bool {
    pod["metadata"]["deletionTimestamp"].is_string()
}

fn has_stopped(pod: &Value) -> bool {
    pod["metadata"]["deletionGracePeriodSeconds"] == 0
}

pub(super) fn is_tracked(pod: &Value) -> bool {
    has_finalizer(pod, TRACKING)
}

fn uid_of(pod: &Value) -> &str {
    pod["metadata"]["uid"].as_str().unwrap_or("")
}

/// Returns the completion index of a pod, if it is below `end`.
pub(super) fn index_of(pod: &Value, end: i64) -> Option<i64> {
    let index = pod["metadata"]["annotations"][COMPLETION_INDEX].as_str()?.parse().ok()?;
    (0..end).contains(&index).then_some(index)
}

/// Returns how often the index of a failed pod has failed: counted and ignored failures.
pub(super) fn failures_after(pod: &Value, action: &Action) -> (i64, i64) {
    let number =
        |key: &str| pod["metadata"]["annotations"][key].as_str().and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    let (counted, ignored) = (number(FAILURE_COUNT), number(IGNORED_COUNT));
    match action {
        Action::Ignore => (counted, ignored.saturating_add(1)),
        _ => (counted.saturating_add(1), ignored),
    }
}
