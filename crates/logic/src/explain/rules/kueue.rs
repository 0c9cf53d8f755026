//! Objects that Kueue keeps suspended.

use super::super::Cause;
use super::super::evidence::{Evidence, PodCondition, Workload};
use super::patterns::sentence;
use super::subject_words;

const QUEUE: &str = "kueue.x-k8s.io/queue-name";

/// Returns the name of the queue that the subject asks for.
pub(super) fn queue_of(evidence: &Evidence) -> Option<&str> {
    evidence.meta().map(|meta| meta.label(QUEUE)).filter(|queue| !queue.is_empty())
}

pub(super) fn held(evidence: &Evidence) -> Option<Cause> {
    let workload = evidence.workloads.first()?;
    if condition(workload, "Finished").is_some() || is_true(workload, "Admitted") {
        return None;
    }
    let who = subject_words(evidence);
    let object = format!("Workload {}", workload.metadata.name);
    let queue = &workload.spec.queue_name;
    if let Some(evicted) = condition(workload, "Evicted").filter(|evicted| evicted.status == "True") {
        let what = match evicted.reason.as_str() {
            "Preempted" => format!("Kueue has preempted {who} in favour of another workload of queue {queue}"),
            reason => format!("Kueue has evicted {who} from queue {queue} ({reason})"),
        };
        let advice = "It starts again when its queue has room; a higher priority class or more quota keeps it running.";
        return Some(Cause::new("KueuePreempted", object, sentence(&what, &evicted.message), advice));
    }
    let reserved = condition(workload, "QuotaReserved");
    if let Some(check) = workload.status.admission_checks.iter().find(|check| check.state != "Ready")
        && reserved.is_some_and(|reserved| reserved.status == "True")
    {
        let what = format!("{who} has quota, but Kueue's admission check {} is {}", check.name, check.state);
        let advice = format!("Look at the controller of the AdmissionCheck {}.", check.name);
        return Some(Cause::new("KueueAdmissionCheck", object, sentence(&what, &check.message), advice));
    }
    let message = reserved.map(|reserved| reserved.message.as_str()).unwrap_or_default();
    if reserved.is_some_and(|reserved| reserved.reason == "Inadmissible") {
        let what = format!("Kueue cannot admit {who} through queue {queue}");
        let advice = format!("Check the LocalQueue {queue} and its ClusterQueue: kubectl describe localqueue {queue}.");
        return Some(Cause::new("KueueInadmissible", object, sentence(&what, message), advice));
    }
    let what = format!("{who} waits for quota in Kueue's queue {queue}");
    let advice = "Wait, free quota by deleting other workloads, or raise the quota of the ClusterQueue.";
    Some(Cause::new("KueueQueued", object, sentence(&what, message), advice))
}

fn condition<'a>(workload: &'a Workload, type_: &str) -> Option<&'a PodCondition> {
    workload.status.conditions.iter().find(|condition| condition.type_ == type_)
}

fn is_true(workload: &Workload, type_: &str) -> bool {
    condition(workload, type_).is_some_and(|condition| condition.status == "True")
}
