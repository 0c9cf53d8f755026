//! Objects that the API server does not let the operator create.

use super::super::Cause;
use super::super::evidence::{Event, Evidence};
use super::lifecycle::true_condition;
use super::patterns::{Pattern, find, sentence};
use crate::conditions::REPLICA_FAILURE;

const PATTERNS: &[Pattern] = &[
    Pattern {
        parts: &["exceeded quota"],
        reason: "QuotaExceeded",
        advice: "Ask for less, free resources in the namespace, or raise the ResourceQuota.",
    },
    Pattern {
        parts: &["violates podsecurity"],
        reason: "PodSecurityViolated",
        advice: "Set the securityContext that the namespace's Pod Security level asks for in all templates.",
    },
    Pattern {
        parts: &["failed calling webhook"],
        reason: "WebhookUnreachable",
        advice: "Repair the service behind this admission webhook, or remove its configuration.",
    },
    Pattern {
        parts: &["validatingadmissionpolicy"],
        reason: "DeniedByPolicy",
        advice: "Change the manifest to meet the policy, or ask the cluster's administrator.",
    },
    Pattern {
        parts: &["admission webhook", "denied"],
        reason: "DeniedByWebhook",
        advice: "Change the manifest to meet the webhook's rule, or ask the cluster's administrator.",
    },
    Pattern {
        parts: &["serviceaccount", "not found"],
        reason: "ServiceAccountMissing",
        advice: "Create the ServiceAccount, or correct serviceAccountName in the template.",
    },
    Pattern {
        parts: &["usage per"],
        reason: "LimitRangeViolated",
        advice: "Choose requests and limits within the namespace's LimitRange.",
    },
    Pattern {
        parts: &["cannot create resource"],
        reason: "OperatorForbidden",
        advice: "Give the operator's role this permission; its chart has the complete list.",
    },
    Pattern {
        parts: &["is being terminated"],
        reason: "NamespaceTerminating",
        advice: "The namespace is being deleted; use another one.",
    },
    Pattern {
        parts: &["no priorityclass"],
        reason: "PriorityClassMissing",
        advice: "Create the PriorityClass, or correct priorityClassName in the template.",
    },
    Pattern {
        parts: &["is invalid"],
        reason: "InvalidPod",
        advice: "Correct the field that the message names in the template.",
    },
    Pattern {
        parts: &["already exists"],
        reason: "NameTaken",
        advice: "Delete the other object of this name, or rename this one.",
    },
];

const OTHER: Pattern = Pattern {
    parts: &[],
    reason: "CreationFailed",
    advice: "The message names the object and the API server's reason.",
};

pub(super) fn refused(evidence: &Evidence) -> Option<Cause> {
    if let Some((cluster, message)) = true_condition(evidence, REPLICA_FAILURE) {
        let message = message.split_once('\n').map_or(message, |(_, error)| error);
        let what = format!("The Pods of RayCluster {cluster} cannot be created");
        return Some(find(PATTERNS, message).unwrap_or(&OTHER).cause(format!("RayCluster {cluster}"), &what, message));
    }
    let event = evidence.events.iter().rfind(|event| is_refusal(event))?;
    let came_later = |other: &Event| {
        other.reason.starts_with("Created")
            && other.is_about(&event.kind, &event.name, &event.uid)
            && other.last > event.last
    };
    if evidence.events.iter().any(came_later)
        || !evidence.pods.is_empty() && evidence.pods.iter().all(|pod| pod.is_ready())
    {
        return None;
    }
    let what = format!("{} {} cannot create what it needs", event.kind, event.name);
    let found = find(PATTERNS, &event.message).unwrap_or(&OTHER);
    Some(Cause { summary: sentence(&what, cause_of(&event.message)), ..found.cause(String::new(), "", "") })
        .map(|cause| Cause { object: format!("{} {}", event.kind, event.name), ..cause })
}

fn is_refusal(event: &Event) -> bool {
    // A Pod creates nothing: that is the kubelet's FailedCreatePodSandBox.
    let is_ours = event.kind != "Pod" && event.is_warning;
    is_ours && (event.reason.starts_with("FailedToCreate") || event.reason.starts_with("FailedCreate"))
}

/// Returns the API server's part of the note of an event: what follows `Failed to create … : `.
fn cause_of(message: &str) -> &str {
    match message.split_once(": ") {
        Some((before, error)) if before.starts_with("Failed to create") || before.starts_with("Error creating") => {
            error
        }
        Some((before, error)) if before.to_lowercase().starts_with("failed to") => error,
        _ => message,
    }
}
