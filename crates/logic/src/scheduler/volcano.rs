//! Volcano: one PodGroup for a cluster, or for a RayJob together with its submitter.
//!
//! ```text
//!   RayCluster ──owns──▶ PodGroup ray-<cluster>-pg ◀──named by── its Pods
//!   RayJob ──────owns──▶ PodGroup ray-<job>-pg     ◀──named by── the Pods of its cluster and its submitter
//! ```
//! The number of Pods and their resources are kept up to date; queue, priority and topology are set once, when the
//! PodGroup is created.

use super::demand::{Demand, Resources};
use super::{GangOwner, GangPlan, SchedulerFields};
use crate::action::{Accept, Action, Body, Event, Kind, ObjectKey, PodGroupApi, Step, merge_difference};
use crate::build::owner::controller_reference;
use crate::build::submitter;
use crate::cluster_spec::{self, Creator};
use crate::job::Mode;
use crate::reasons;
use crate::validate::job::has_selector;
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

/// Returns the name of the PodGroup of a RayCluster or a RayJob.
pub(super) fn pod_group_name(owner: &str) -> String {
    format!("ray-{owner}-pg")
}

/// Returns the name of the RayCluster or RayJob that a PodGroup of this name belongs to.
pub(super) fn owner_name(pod_group: &str) -> Option<&str> {
    pod_group.strip_prefix("ray-")?.strip_suffix("-pg")
}

pub(super) fn fields(owner: GangOwner<'_>, group: &str) -> SchedulerFields {
    let mut fields = SchedulerFields { scheduler_name: Some(SCHEDULER), ..SchedulerFields::default() };
    fields.copy_label(owner, QUEUE, QUEUE);
    fields.copy_label(owner, labels::PRIORITY_CLASS_NAME, labels::PRIORITY_CLASS_NAME);
    if let Some(owner) = pod_group_owner(owner) {
        fields.annotations.push((GROUP_NAME, pod_group_name(owner)));
        fields.annotations.push((TASK_SPEC, group.to_owned()));
    }
    fields
}

/// Returns the name of the object whose PodGroup the Pods belong to.
///
/// The submitter of a RayJob on a selected cluster belongs to none: the cluster's gang is complete without it, and
/// Volcano creates a PodGroup for a Pod that names none.
fn pod_group_owner(owner: GangOwner<'_>) -> Option<&str> {
    match owner {
        GangOwner::Cluster(cluster) if cluster_spec::creator(cluster) == Creator::RayJob => {
            cluster_spec::label(cluster, labels::ORIGINATED_FROM_CR_NAME).or(Some(owner.name()))
        }
        GangOwner::Job(job) if has_selector(&job.spec) => None,
        GangOwner::Cluster(_) | GangOwner::Job(_) => Some(owner.name()),
    }
}

pub(super) fn plan_cluster_gang(seen: &cluster::Observed) -> GangPlan {
    let name = pod_group_name(seen.name());
    // The cluster of a RayJob belongs to the RayJob's gang.
    if cluster_spec::creator(&seen.cluster) == Creator::RayJob || seen.in_flight.is_creating(KIND, &name) {
        return GangPlan::default();
    }
    let known = seen.related(KIND, &name).map(|known| &**known);
    sync(GangOwner::Cluster(&seen.cluster), known, &Demand::minimum(&seen.cluster.spec))
}

/// Reduces the PodGroup of a suspended cluster to nothing, which frees its share of the queue.
pub(super) fn shrink_suspended_gang(seen: &cluster::Observed) -> Option<Step> {
    if cluster_spec::creator(&seen.cluster) == Creator::RayJob {
        return None;
    }
    let known = seen.related(KIND, &pod_group_name(seen.name()))?;
    let step = update(GangOwner::Cluster(&seen.cluster), known, &Demand::default(), "the cluster is suspended")?;
    Some(step.accept(Accept::NotFound))
}

pub(super) fn plan_job_gang(seen: &job::Observed, mode: Mode) -> GangPlan {
    let owner = GangOwner::Job(&seen.job);
    let Some(spec) = owner.cluster_spec() else { return GangPlan::default() };
    let mut demand = Demand::minimum(spec);
    demand.resources.add_all(&submitter_resources(&seen.job, mode));
    sync(owner, seen.pod_group.as_ref(), &demand)
}

/// Returns the resources of the submitter, which is never counted as a member because it is created later.
fn submitter_resources(job: &RayJob, mode: Mode) -> Resources {
    match mode {
        Mode::K8sJob => Resources::of_pod(Some(&submitter::pod_without_command(job))),
        Mode::Sidecar => Resources::of_pod(Some(&submitter::default_pod())),
        Mode::Http | Mode::Interactive => Resources::default(),
    }
}

/// Reduces the PodGroup to the Pods that are left of the cluster, which frees its share of the queue.
pub(super) fn shrink_job_gang(seen: &job::Observed) -> Option<Step> {
    let owner = GangOwner::Job(&seen.job);
    let named = |status: &RayJobStatus| status.ray_cluster_name.as_ref().is_some_and(|name| !name.is_empty());
    if has_selector(&seen.job.spec) || !seen.job.status.as_ref().is_some_and(named) {
        return None;
    }
    let alive = seen.cluster.as_ref().filter(|cluster| cluster.metadata.deletion_timestamp.is_none());
    let demand = alive.map_or_else(Demand::default, |cluster| Demand::minimum(&cluster.spec));
    let path = format!("{}/{}", owner.namespace(), owner.name());
    let step = update(owner, seen.pod_group.as_ref()?, &demand, "the RayJob needs fewer resources")?;
    Some(
        step.done(Event::normal(
            reasons::BATCH_SCHEDULER_CLEANED_UP,
            "Cleanup",
            format!("Cleaned up batch scheduler resources for RayJob {path}"),
        ))
        .failed(Event::warning(
            reasons::FAILED_TO_CLEANUP_BATCH_SCHEDULER,
            "Cleanup",
            format!("Failed to cleanup batch scheduler resources for RayJob {path}: "),
        ))
        .accept(Accept::NotFound),
    )
}

fn sync(owner: GangOwner<'_>, known: Option<&WholeView>, demand: &Demand) -> GangPlan {
    if let Some(known) = known {
        let step = update(owner, known, demand, "the size of the gang has changed");
        return step.map(|step| GangPlan::from_step(step.accept(Accept::NotFound))).unwrap_or_default();
    }
    let name = pod_group_name(owner.name());
    let path = format!("{}/{name}", owner.namespace());
    let failed = |error: &str| {
        Event::warning(
            reasons::FAILED_TO_CREATE_POD_GROUP,
            "Create",
            format!("Failed to create PodGroup {path}: {error}"),
        )
    };
    match pod_group(owner, &name, demand) {
        Ok(body) => {
            let key = ObjectKey::new(KIND, owner.namespace(), &name);
            let action = Action::Create { key, body: Body::of(&body) };
            let step = Step::new(action, "the Pods are scheduled as a gang").failed(failed(""));
            GangPlan::from_step(step.accept(Accept::AlreadyExists))
        }
        Err(error) => GangPlan::refused(error.clone(), failed(&error)),
    }
}

/// Updates size and resources if they differ; other fields belong to the user.
fn update(owner: GangOwner<'_>, known: &WholeView, demand: &Demand, why: &str) -> Option<Step> {
    let spec = &known.object["spec"];
    // Otherwise a RayCluster and a RayJob of the same name would keep changing one PodGroup.
    let is_foreign = known
        .metadata
        .controller()
        .is_some_and(|controller| Some(controller.uid.as_str()) != owner.metadata().uid.as_deref());
    if is_foreign || demand.is_met_by(spec) {
        return None;
    }
    let before = json!({"minMember": spec["minMember"], "minResources": spec["minResources"]});
    let patch = json!({"spec": merge_difference(&before, &demand.to_json())});
    let key = ObjectKey::new(KIND, &known.metadata.namespace, &known.metadata.name);
    Some(Step::new(Action::Merge { key, patch: Box::new(patch) }, why))
}

fn pod_group(owner: GangOwner<'_>, name: &str, demand: &Demand) -> Result<Value, String> {
    let metadata = owner.metadata();
    let mut spec = demand.to_json();
    let labels = [(QUEUE, "queue"), (labels::PRIORITY_CLASS_NAME, "priorityClassName")];
    for (label, field) in labels {
        if let Some(value) = owner.label(label) {
            spec[field] = value.into();
        }
    }
    if let Some(mode) = owner.label(TOPOLOGY_MODE) {
        spec["networkTopology"] = json!({"mode": mode});
        if let Some(tier) = owner.label(TOPOLOGY_TIER) {
            let tier = parse_tier(tier).map_err(|error| {
                let namespace = owner.namespace();
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
            owner_references: Some(vec![controller_reference(owner.kind(), metadata)]),
            ..ObjectMeta::default()
        },
        "spec": spec,
        "status": {"phase": "Pending"},
    }))
}

/// Parses a whole number and returns the error message of Go if it is none.
fn parse_tier(text: &str) -> Result<i64, String> {
    text.parse().map_err(|_| {
        let digits = text.strip_prefix(['-', '+']).unwrap_or(text);
        let is_number = !digits.is_empty() && digits.bytes().all(|digit| digit.is_ascii_digit());
        let why = if is_number { "value out of range" } else { "invalid syntax" };
        format!("strconv.Atoi: parsing {}: {why}", crate::go::quote::quote(text))
    })
}
