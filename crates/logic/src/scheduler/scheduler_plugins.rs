//! Coscheduling of scheduler-plugins: a PodGroup with the cluster's name, for clusters that request a gang.
//!
//! The PodGroup is created once. It is changed only when the cluster has become smaller than the group, because
//! coscheduling schedules no Pod of a group that has fewer Pods than its minimum, so a lost worker could not be replaced.
//!
//! The Pods of a RayJob's cluster are a gang like any other, and its submitter is scheduled separately. KubeRay refuses
//! every RayJob.

use super::demand::Demand;
use super::{GangOwner, GangPlan, SchedulerFields, is_gang};
use crate::action::{Accept, Action, Body, Event, Kind, PodGroupApi, Step, merge_difference};
use crate::cluster::Observed;
use crate::reasons;
use crate::view::WholeView;
use manta_api::{API_VERSION, RayCluster};
use serde_json::{Value, json};

const KIND: Kind = Kind::PodGroup(PodGroupApi::SchedulerPlugins);
const SCHEDULER: &str = "scheduler-plugins-scheduler";
const POD_GROUP: &str = "scheduling.x-k8s.io/pod-group";

pub(super) fn fields(owner: GangOwner<'_>) -> SchedulerFields {
    let mut fields = SchedulerFields { scheduler_name: Some(SCHEDULER), ..SchedulerFields::default() };
    if let GangOwner::Cluster(_) = owner
        && is_gang(owner)
    {
        fields.labels.push((POD_GROUP, owner.name().to_owned()));
    }
    fields
}

pub(super) fn plan_cluster_gang(seen: &Observed) -> GangPlan {
    if !is_gang(GangOwner::Cluster(&seen.cluster)) || seen.in_flight.is_creating(KIND, seen.name()) {
        return GangPlan::default();
    }
    let demand = Demand::desired(&seen.cluster.spec);
    match seen.related(KIND, seen.name()) {
        Some(known) => shrink(seen, known, &demand).map(GangPlan::from_step).unwrap_or_default(),
        None => GangPlan::from_step(create(seen, &demand)),
    }
}

fn create(seen: &Observed, demand: &Demand) -> Step {
    let body = json!({
        "apiVersion": KIND.resource().api_version(),
        "kind": KIND.resource().kind,
        "metadata": {
            "name": seen.name(),
            "namespace": seen.namespace(),
            "ownerReferences": [{
                "apiVersion": API_VERSION,
                "kind": RayCluster::KIND,
                "name": seen.name(),
                "uid": seen.uid(),
            }],
        },
        "spec": demand.to_json(),
    });
    let action = Action::Create { key: seen.key(KIND, seen.name()), body: Body::of(&body) };
    let failed = format!("Failed to create PodGroup {}: ", seen.path(seen.name()));
    Step::new(action, "the Pods are scheduled as a gang")
        .failed(Event::warning(reasons::FAILED_TO_CREATE_POD_GROUP, "Create", failed))
        .accept(Accept::AlreadyExists)
}

/// Reduces the PodGroup to the Pods of the cluster unless another object owns it.
fn shrink(seen: &Observed, known: &WholeView, demand: &Demand) -> Option<Step> {
    let is_ours = known.metadata.owner_references.iter().any(|owner| owner.uid == seen.uid());
    let spec = &known.object["spec"];
    let asked: &Value = &spec["minMember"];
    if !is_ours || asked.as_i64().unwrap_or(0) <= i64::from(demand.members) {
        return None;
    }
    let before = json!({"minMember": asked, "minResources": spec["minResources"]});
    let patch = json!({"spec": merge_difference(&before, &demand.to_json())});
    let action = Action::Merge { key: seen.key(KIND, seen.name()), patch: Box::new(patch) };
    Some(Step::new(action, "the cluster has fewer Pods than its gang").accept(Accept::NotFound))
}
