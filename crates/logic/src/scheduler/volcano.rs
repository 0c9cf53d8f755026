//! Volcano: one PodGroup for a cluster, or for a RayJob together with its submitter.
//!
//! ```text
//!   RayCluster ──owns──▶ PodGroup ray-<cluster>-pg ◀──named by── its Pods
//!   RayJob ──────owns──▶ PodGroup ray-<job>-pg     ◀──named by── the Pods of its cluster and its submitter
//! ```
//! How many Pods and how much of what is kept up to date; queue, priority and topology are those of the
//! moment at which the PodGroup was made.

use super::demand::{Demand, Resources};
use super::{Gang, Marks, Parent, has_selector};
use crate::action::{Accept, Action, Body, Event, Kind, ObjectKey, PodGroupApi, Step, merge_difference};
use crate::build::owner::controller_reference;
use crate::build::submitter;
use crate::cluster_spec::{self, Creator};
use crate::job::Mode;
use crate::view::WholeView;
use crate::{cluster, job, labels};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use manta_api::{RayJob, RayJobStatus};
use serde_json::{Value, json};

const KIND: Kind = Kind::PodGroup(PodGroupApi::Volcano);
const SCHEDULER: &str = "volcano";
const QUEUE: &str = "volcano.sh/queue-name";
const TOPOLOGY_MODE: &str = "volcano.sh/network-topology-mode";
const TOPOLOGY_TIER: &str = "volcano.sh/network-topology-highest-tier-allowed";
const GROUP_NAME: &str = "scheduling.k8s.io/group-name";
const TASK_SPEC: &str = "volcano.sh/task-spec";

/// The PodGroup of a RayCluster or a RayJob.
pub(super) fn pod_group_name(owner: &str) -> String {
    format!("ray-{owner}-pg")
}

/// The RayCluster or RayJob that a PodGroup of this name is for.
pub(super) fn owner_name(pod_group: &str) -> Option<&str> {
    pod_group.strip_prefix("ray-")?.strip_suffix("-pg")
}

pub(super) fn marks(parent: Parent<'_>, group: &str) -> Marks {
    let mut marks = Marks { scheduler_name: Some(SCHEDULER), ..Marks::default() };
    marks.copy_label(parent, QUEUE, QUEUE);
    marks.copy_label(parent, labels::PRIORITY_CLASS_NAME, labels::PRIORITY_CLASS_NAME);
    if let Some(owner) = gang_owner(parent) {
        marks.annotations.push((GROUP_NAME, pod_group_name(owner)));
        marks.annotations.push((TASK_SPEC, group.to_owned()));
    }
    marks
}

/// The owner of the PodGroup that the Pods of a parent are in.
///
/// The submitter of a RayJob on somebody else's cluster is in none: the cluster's is complete without it, and Volcano
/// makes one for a Pod that names none.
fn gang_owner(parent: Parent<'_>) -> Option<&str> {
    match parent {
        Parent::Cluster(cluster) if cluster_spec::creator(cluster) == Creator::RayJob => {
            cluster_spec::label(cluster, labels::ORIGINATED_FROM_CR_NAME).or(Some(parent.name()))
        }
        Parent::Job(job) if has_selector(job) => None,
        Parent::Cluster(_) | Parent::Job(_) => Some(parent.name()),
    }
}

pub(super) fn gather_cluster(seen: &cluster::Observed) -> Gang {
    let name = pod_group_name(seen.name());
    // The cluster of a RayJob is in the RayJob's gang.
    if cluster_spec::creator(&seen.cluster) == Creator::RayJob || seen.in_flight.is_creating(KIND, &name) {
        return Gang::default();
    }
    let known = seen.related(KIND, &name).map(|known| &**known);
    sync(Parent::Cluster(&seen.cluster), known, &Demand::least(&seen.cluster.spec))
}

pub(super) fn gather_job(seen: &job::Observed, mode: Mode) -> Gang {
    let parent = Parent::Job(&seen.job);
    let Some(spec) = parent.cluster_spec() else { return Gang::default() };
    let mut demand = Demand::least(spec);
    demand.resources.add_all(&submitter_resources(&seen.job, mode));
    sync(parent, seen.pod_group.as_ref(), &demand)
}

/// What the submitter takes beside the cluster. It is never counted as a member: it comes later.
fn submitter_resources(job: &RayJob, mode: Mode) -> Resources {
    match mode {
        Mode::K8sJob => Resources::of_pod(Some(&submitter::pod_without_command(job))),
        Mode::Sidecar => Resources::of_pod(Some(&submitter::default_pod())),
        Mode::Http | Mode::Interactive => Resources::default(),
    }
}

/// Asks for no more than what is left of the cluster: its share of the queue is free for others.
pub(super) fn release_job(seen: &job::Observed) -> Option<Step> {
    let parent = Parent::Job(&seen.job);
    let named = |status: &RayJobStatus| status.ray_cluster_name.as_ref().is_some_and(|name| !name.is_empty());
    if has_selector(&seen.job) || !seen.job.status.as_ref().is_some_and(named) {
        return None;
    }
    let alive = seen.cluster.as_ref().filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
    let demand = alive.map_or_else(Demand::default, |cluster| Demand::least(&cluster.spec));
    let path = format!("{}/{}", parent.namespace(), parent.name());
    let step = update(parent, seen.pod_group.as_ref()?, &demand, "the RayJob needs less than before")?;
    Some(
        step.done(Event::normal(
            "BatchSchedulerCleanedUp",
            "Cleanup",
            format!("Cleaned up batch scheduler resources for RayJob {path}"),
        ))
        .failed(Event::warning(
            "FailedToCleanupBatchScheduler",
            "Cleanup",
            format!("Failed to cleanup batch scheduler resources for RayJob {path}: "),
        ))
        .accept(Accept::NotFound),
    )
}

fn sync(parent: Parent<'_>, known: Option<&WholeView>, demand: &Demand) -> Gang {
    if let Some(known) = known {
        let step = update(parent, known, demand, "the gang has another size than before");
        return step.map(|step| Gang::doing(step.accept(Accept::NotFound))).unwrap_or_default();
    }
    let name = pod_group_name(parent.name());
    let path = format!("{}/{name}", parent.namespace());
    let failed = |error: &str| {
        Event::warning("FailedToCreatePodGroup", "Create", format!("Failed to create PodGroup {path}: {error}"))
    };
    match pod_group(parent, &name, demand) {
        Ok(body) => {
            let key = ObjectKey::new(KIND, parent.namespace(), &name);
            let action = Action::Create { key, body: Body::of(&body) };
            let step = Step::new(action, "the Pods are placed as one").failed(failed(""));
            Gang::doing(step.accept(Accept::AlreadyExists))
        }
        Err(error) => Gang::refused(error.clone(), failed(&error)),
    }
}

/// Sets size and resources, if they differ; nothing else is ours to change.
fn update(parent: Parent<'_>, known: &WholeView, demand: &Demand, why: &str) -> Option<Step> {
    let spec = &known.object["spec"];
    // A RayCluster and a RayJob of the same name would pull at one PodGroup in turn.
    let is_anothers =
        known.metadata.controller().is_some_and(|owner| Some(&owner.uid) != parent.metadata().uid.as_ref());
    if is_anothers || demand.is_met_by(spec) {
        return None;
    }
    let before = json!({"minMember": spec["minMember"], "minResources": spec["minResources"]});
    let patch = json!({"spec": merge_difference(&before, &demand.to_json())});
    let key = ObjectKey::new(KIND, &known.metadata.namespace, &known.metadata.name);
    Some(Step::new(Action::Merge { key, patch: Box::new(patch) }, why))
}

fn pod_group(parent: Parent<'_>, name: &str, demand: &Demand) -> Result<Value, String> {
    let metadata = parent.metadata();
    let mut spec = demand.to_json();
    let labels = [(QUEUE, "queue"), (labels::PRIORITY_CLASS_NAME, "priorityClassName")];
    for (label, field) in labels {
        if let Some(value) = parent.label(label) {
            spec[field] = value.into();
        }
    }
    if let Some(mode) = parent.label(TOPOLOGY_MODE) {
        spec["networkTopology"] = json!({"mode": mode});
        if let Some(tier) = parent.label(TOPOLOGY_TIER) {
            let tier = read_tier(tier).map_err(|error| {
                let namespace = parent.namespace();
                format!(
                    "failed to convert {TOPOLOGY_TIER} label to int: {error} for podgroup {name} in namespace {namespace}"
                )
            })?;
            spec["networkTopology"]["highestTierAllowed"] = tier.into();
        }
    }
    Ok(json!({
        "apiVersion": KIND.resource().api_version(),
        "kind": KIND.resource().kind,
        "metadata": ObjectMeta {
            name: Some(name.to_owned()),
            namespace: metadata.namespace.clone(),
            annotations: metadata.annotations.clone(),
            owner_references: Some(vec![controller_reference(parent.kind(), metadata)]),
            ..ObjectMeta::default()
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }))
}

/// A whole number, or what Go says about a text that is none.
fn read_tier(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        format!("strconv.Atoi: parsing {}: {why}", crate::go::quote::quote(text))
    })
}
