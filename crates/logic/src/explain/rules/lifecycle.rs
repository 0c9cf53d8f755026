//! What the object itself and the operator say: deletion, suspension, an invalid spec, no operator.

use super::super::Cause;
use super::super::evidence::{self, Evidence};
use super::patterns::sentence;
use super::{exits, kueue, subject_words};
use crate::{conditions, reasons};
use jiff::SignedDuration;

/// How long an operator may take to look at a new object or a changed spec.
const PATIENCE: SignedDuration = SignedDuration::from_secs(30);

const MULTI_KUEUE: &str = "kueue.x-k8s.io/multikueue";

pub(super) fn being_deleted(evidence: &Evidence) -> Option<Cause> {
    let meta = evidence.meta().filter(|meta| meta.deletion_timestamp.is_some() && !evidence.is_deleted)?;
    let who = subject_words(evidence);
    let failed = evidence.batch_jobs.iter().find(|job| {
        job.metadata.name.contains("redis-cleanup")
            && job.status.conditions.iter().any(|condition| condition.type_ == "Failed" && condition.status == "True")
    });
    if let Some(job) = failed {
        let what = format!("{who} is being deleted and the Job {} that cleans Redis up has failed", job.metadata.name);
        let advice = "Make Redis reachable again, or remove the finalizer ray.io/gcs-ft-redis-cleanup-finalizer to leave the keys behind.";
        return Some(Cause::new(
            "RedisCleanupFailed",
            format!("Job {}", job.metadata.name),
            sentence(&what, ""),
            advice,
        ));
    }
    let (text, advice) = match meta.finalizers.as_slice() {
        [] => (format!("{who} is being deleted"), "Wait for it to end; nothing holds it.".to_owned()),
        all => (
            format!("{who} is being deleted and waits for {}", all.join(", ")),
            format!(
                "Wait for the controller behind the finalizer, or remove it if that controller is gone: kubectl patch {} {} --type merge -p '{{\"metadata\":{{\"finalizers\":null}}}}'.",
                evidence.subject.kind.to_lowercase(),
                evidence.subject.name
            ),
        ),
    };
    Some(Cause::new("BeingDeleted", who, format!("{text}."), advice))
}

pub(super) fn managed_elsewhere(evidence: &Evidence) -> Option<Cause> {
    let of_cluster = || evidence.clusters.first().and_then(|cluster| cluster.spec.managed_by.as_deref());
    let of_job = || evidence.job.as_ref().and_then(|job| job.spec.managed_by.as_deref());
    let of_service = || evidence.service.as_ref().and_then(|service| service.spec.managed_by.as_deref());
    of_service().or_else(of_job).or_else(of_cluster).filter(|manager| *manager == MULTI_KUEUE)?;
    let who = subject_words(evidence);
    let what = format!("{who} has managedBy {MULTI_KUEUE}, so the operator of this cluster leaves it alone.");
    Some(Cause::new("ManagedByMultiKueue", who, what, "Look for it on the worker cluster that MultiKueue chose."))
}

pub(super) fn never_observed(evidence: &Evidence) -> Option<Cause> {
    let has_status = match evidence.subject.kind.as_str() {
        "RayCluster" => evidence.clusters.first()?.status.is_some(),
        "RayJob" => evidence.job.as_ref()?.status.is_some(),
        "RayService" => evidence.service.as_ref()?.status.is_some(),
        // A RayCronJob has none before its first run.
        _ => true,
    };
    let age = evidence.at.duration_since(evidence.meta()?.creation_timestamp?);
    let who = subject_words(evidence);
    let subject = &evidence.subject;
    let has_events = evidence.events.iter().any(|event| event.is_about(&subject.kind, &subject.name, &subject.uid));
    if has_status || has_events || age < PATIENCE {
        return None;
    }
    let text = format!("No operator has looked at {who} in the {} s since it was created.", age.as_secs());
    Some(Cause::new(
        "NoOperator",
        who,
        text,
        "Check that the operator runs, is the leader, and watches this namespace: kubectl get deployment -A -l app.kubernetes.io/component=kuberay-operator.",
    ))
}

pub(super) fn invalid(evidence: &Evidence) -> Option<Cause> {
    const EVENTS: &[&str] = &[
        reasons::INVALID_RAY_CLUSTER_METADATA,
        reasons::INVALID_RAY_CLUSTER_SPEC,
        reasons::INVALID_RAY_CLUSTER_STATUS,
        reasons::INVALID_RAY_CRON_JOB_SPEC,
        reasons::INVALID_RAY_JOB_METADATA,
        reasons::INVALID_RAY_JOB_SPEC,
        reasons::INVALID_RAY_JOB_STATUS,
        reasons::INVALID_RAY_SERVICE_METADATA,
        reasons::INVALID_RAY_SERVICE_SPEC,
    ];
    let who = subject_words(evidence);
    let status = evidence.job_status();
    let refused = status.filter(|status| status.job_deployment_status.as_deref() == Some("ValidationFailed"));
    let message = match refused {
        Some(status) => status.message.clone().unwrap_or_default(),
        None => {
            let event = evidence.events.iter().rfind(|event| EVENTS.contains(&event.reason.as_str()))?;
            // A corrected spec leaves the event behind.
            let corrected = evidence.meta()?.managed_fields.iter().filter(|writer| writer.subresource.is_empty());
            let corrected = corrected.filter_map(|writer| writer.time).max();
            if corrected.zip(event.last).is_some_and(|(spec, event)| spec > event) || !evidence.pods.is_empty() {
                return None;
            }
            event.message.clone()
        }
    };
    Some(Cause::new(
        "InvalidSpec",
        who.clone(),
        sentence(&format!("The operator refuses {who} because it is invalid"), &message),
        "Correct the manifest; manta lint shows all problems with their lines.",
    ))
}

pub(super) fn suspended(evidence: &Evidence) -> Option<Cause> {
    let spec = |kind: &str| match kind {
        "RayJob" => evidence.job.as_ref().is_some_and(|job| job.spec.suspend),
        "RayService" => evidence.service.as_ref().is_some_and(|service| service.spec.suspend),
        _ => false,
    };
    let is_over = evidence.job_status().and_then(|status| status.job_deployment_status.as_deref());
    if is_over.is_some_and(|status| ["Complete", "Failed"].contains(&status)) {
        return None;
    }
    let cluster =
        evidence.clusters.iter().find(|cluster| cluster.spec.suspend && cluster.metadata.deletion_timestamp.is_none());
    let (kind, name) = match (["RayJob", "RayService"].into_iter().find(|kind| spec(kind)), cluster) {
        (Some("RayJob"), _) => ("RayJob", evidence.job.as_ref()?.metadata.name.as_str()),
        (Some(kind), _) => (kind, evidence.subject.name.as_str()),
        (None, Some(cluster)) => ("RayCluster", cluster.metadata.name.as_str()),
        (None, None) => return suspended_group(evidence),
    };
    let advice = match kueue::queue_of(evidence) {
        Some(queue) => {
            format!("It is in Kueue's queue {queue}, but has no Workload: check that Kueue runs and manages {kind}s.")
        }
        None => format!(
            "Resume it: kubectl patch {} {name} --type merge -p '{{\"spec\":{{\"suspend\":false}}}}'.",
            kind.to_lowercase()
        ),
    };
    Some(Cause::new(
        "Suspended",
        format!("{kind} {name}"),
        format!("{kind} {name} is suspended: its spec.suspend is true."),
        advice,
    ))
}

/// Only while the other groups are well: a suspended group is the user's choice.
fn suspended_group(evidence: &Evidence) -> Option<Cause> {
    let cluster = evidence.clusters.first()?;
    let group = cluster.spec.worker_group_specs.iter().find(|group| group.suspend)?;
    if evidence.pods.iter().any(|pod| !pod.is_ready()) || evidence.subject.kind != "RayCluster" {
        return None;
    }
    let (name, group) = (&cluster.metadata.name, &group.group_name);
    let what = format!("Worker group {group} of RayCluster {name} is suspended, so it has no Pods.");
    let advice = format!("Set suspend to false in the worker group {group}.");
    Some(Cause::new("WorkerGroupSuspended", format!("RayCluster {name}"), what, advice))
}

pub(super) fn certificates(evidence: &Evidence) -> Option<Cause> {
    let event = evidence.events.iter().rfind(|event| {
        [reasons::MTLS_CERTS_NOT_READY, reasons::MTLS_FAILED_TO_RECONCILE].contains(&event.reason.as_str())
    })?;
    if evidence.pods.iter().any(evidence::Pod::is_head) {
        return None;
    }
    Some(Cause::new(
        "CertificatesNotReady",
        format!("{} {}", event.kind, event.name),
        sentence(&format!("RayCluster {} waits for its TLS certificates", event.name), &event.message),
        "Check that cert-manager runs and issues: kubectl get certificates,issuers.",
    ))
}

/// The object was well, and somebody deleted it.
pub(super) fn was_deleted(evidence: &Evidence) -> Option<Cause> {
    if !evidence.is_deleted {
        return None;
    }
    let who = subject_words(evidence);
    let text = format!("{who} was deleted while it was in use.");
    if let Some(replaced) = evidence.replaced.last() {
        let cause = exits::replaced_cause(replaced);
        return Some(Cause { summary: format!("{text} Before that: {}", cause.summary), ..cause });
    }
    let advice = "Nothing else went wrong; the audit log of the API server knows who deleted it.";
    Some(Cause::new("Deleted", who, text, advice))
}

/// A spec that no operator has acted on for a while.
pub(super) fn change_not_observed(evidence: &Evidence) -> Option<Cause> {
    let meta = evidence.meta()?;
    let observed = match evidence.subject.kind.as_str() {
        "RayCluster" => evidence.clusters.first()?.status.as_ref()?.observed_generation,
        "RayJob" => evidence.job_status()?.observed_generation,
        "RayService" => evidence.service_status()?.observed_generation,
        _ => None,
    }?;
    let spec = meta.managed_fields.iter().filter(|writer| writer.subresource.is_empty());
    let changed = spec.filter_map(|writer| writer.time).max().or(meta.creation_timestamp)?;
    let since = evidence.at.duration_since(changed);
    let is_over = evidence.job_status().and_then(|status| status.job_deployment_status.as_deref());
    let is_over = is_over.is_some_and(|status| ["Complete", "Failed"].contains(&status));
    if Some(observed) >= meta.generation || since < PATIENCE || is_over {
        return None;
    }
    let who = subject_words(evidence);
    let text = format!(
        "The operator has not acted on the change of {who} {} s ago (generation {}).",
        since.as_secs(),
        meta.generation?
    );
    Some(Cause::new(
        "ChangeNotObserved",
        who,
        text,
        "Check that the operator runs and its log for errors about this object.",
    ))
}

/// Returns the conditions of the first cluster that has a condition True.
pub(super) fn true_condition<'a>(evidence: &'a Evidence, type_: &str) -> Option<(&'a str, &'a str)> {
    evidence.clusters.iter().find_map(|cluster| {
        let list = cluster.status.as_ref()?.conditions.as_deref()?;
        let found = conditions::find(list, type_).filter(|condition| condition.status == "True")?;
        Some((cluster.metadata.name.as_str(), found.message.as_str()))
    })
}
