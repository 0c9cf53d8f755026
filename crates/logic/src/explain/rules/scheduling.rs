//! Pods that no node takes.

use super::super::Cause;
use super::super::evidence::{Evidence, Pod};
use super::patterns::{Pattern, find, sentence};
use super::{pod_object, pods};

const PATTERNS: &[Pattern] = &[
    Pattern {
        parts: &["persistentvolumeclaim", "not found"],
        reason: "ClaimMissing",
        advice: "Create the PersistentVolumeClaim, or correct its name in the template.",
    },
    Pattern {
        parts: &["unbound immediate persistentvolumeclaims"],
        reason: "ClaimUnbound",
        advice: "Check its StorageClass and the volumes that are free: kubectl get pvc,pv,storageclass.",
    },
    Pattern {
        parts: &["volume node affinity conflict"],
        reason: "VolumeInOtherZone",
        advice: "Let the Pod run in the zone of its volume, or use a StorageClass with WaitForFirstConsumer.",
    },
    Pattern {
        parts: &["insufficient", "/gpu"],
        reason: "NotEnoughGpus",
        advice: "Add nodes with free GPUs of this kind, ask for fewer, or in local mode offer more with --gpus.",
    },
    Pattern {
        parts: &["insufficient", "/tpu"],
        reason: "NotEnoughTpus",
        advice: "Add nodes with free TPUs of this topology, or ask for fewer.",
    },
    Pattern {
        parts: &["insufficient cpu", "insufficient memory"],
        reason: "NotEnoughCpuAndMemory",
        advice: "Ask for less, add nodes, or in local mode declare more with --cpus and --memory.",
    },
    Pattern {
        parts: &["insufficient cpu"],
        reason: "NotEnoughCpu",
        advice: "Ask for fewer CPUs, add nodes, or in local mode declare more with --cpus.",
    },
    Pattern {
        parts: &["insufficient memory"],
        reason: "NotEnoughMemory",
        advice: "Ask for less memory, add nodes, or in local mode declare more with --memory.",
    },
    Pattern {
        parts: &["insufficient ephemeral-storage"],
        reason: "NotEnoughDisk",
        advice: "Ask for less ephemeral-storage, or add nodes with more disk.",
    },
    Pattern {
        parts: &["insufficient "],
        reason: "NotEnoughOfResource",
        advice: "Add nodes that offer this resource and check that its device plugin runs.",
    },
    Pattern {
        parts: &["node affinity/selector"],
        reason: "NoNodeMatches",
        advice: "Correct nodeSelector or affinity in the template, or label a node.",
    },
    Pattern {
        parts: &["untolerated taint"],
        reason: "NodeTainted",
        advice: "Add a toleration for the taint to the template, or remove the taint from a node.",
    },
    Pattern {
        parts: &["anti-affinity"],
        reason: "AntiAffinity",
        advice: "Add nodes, or relax podAntiAffinity in the template.",
    },
    Pattern {
        parts: &["topology spread"],
        reason: "TopologySpread",
        advice: "Add nodes in the other zones, or relax topologySpreadConstraints in the template.",
    },
    Pattern {
        parts: &["free ports"],
        reason: "HostPortTaken",
        advice: "Remove hostPort or hostNetwork from the template, or add nodes.",
    },
    Pattern {
        parts: &["too many pods"],
        reason: "TooManyPods",
        advice: "Add nodes: those that fit run as many Pods as they may.",
    },
    Pattern {
        parts: &["group"],
        reason: "GangWaiting",
        advice: "The scheduler starts all Pods of the group together: make room for all of them.",
    },
    Pattern { parts: &["unschedulable"], reason: "NodesCordoned", advice: "Uncordon a node, or add one." },
];

const OTHER: Pattern = Pattern {
    parts: &[],
    reason: "Unschedulable",
    advice: "The scheduler's message names what is missing; kubectl describe node shows what nodes offer.",
};

pub(super) fn unscheduled(evidence: &Evidence) -> Option<Cause> {
    let (pod, reason, message) = pods(evidence).find_map(|pod| {
        let condition = pod.condition("PodScheduled").filter(|condition| condition.status == "False")?;
        Some((pod, condition.reason.as_str(), condition.message.as_str()))
    })?;
    let others = pods(evidence).filter(|other| is_unscheduled(other)).count() - 1;
    let and = match others {
        0 => String::new(),
        1 => " and one more".to_owned(),
        others => format!(" and {others} more"),
    };
    if reason == "SchedulingGated" {
        let what = format!("The {} has scheduling gates, which another controller has to remove", pod.words());
        return Some(Cause::new(
            "SchedulingGated",
            pod_object(pod),
            sentence(&what, message),
            "Look at the controller that set spec.schedulingGates, such as Kueue.",
        ));
    }
    let what = format!("No node can take the {}{and}", pod.words());
    Some(find(PATTERNS, message).unwrap_or(&OTHER).cause(pod_object(pod), &what, message))
}

fn is_unscheduled(pod: &Pod) -> bool {
    pod.condition("PodScheduled").is_some_and(|condition| condition.status == "False")
}

/// A scheduler that does not run says nothing at all.
pub(super) fn no_scheduler(evidence: &Evidence) -> Option<Cause> {
    let is_ignored = |pod: &&Pod| {
        let age = pod.metadata.creation_timestamp.map(|created| evidence.at.duration_since(created).as_secs());
        pod.status.phase == "Pending"
            && pod.spec.node_name.is_empty()
            && pod.status.conditions.is_empty()
            && pod.all_containers().next().is_none()
            && age > Some(30)
    };
    let pod = pods(evidence).find(is_ignored)?;
    if evidence.events.iter().any(|event| event.is_about_pod(pod) && event.reason != "Killing") {
        return None;
    }
    let scheduler = match pod.spec.scheduler_name.as_str() {
        "" => "default-scheduler",
        name => name,
    };
    let what = format!("No scheduler has looked at the {}, which asks for {scheduler}.", pod.words());
    let advice = format!("Check that {scheduler} runs, or correct schedulerName in the template.");
    Some(Cause::new("NoScheduler", pod_object(pod), what, advice))
}
