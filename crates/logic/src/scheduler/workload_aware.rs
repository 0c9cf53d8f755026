//! The workload-aware scheduling of Kubernetes: a Workload that describes the gang, and a PodGroup that represents it.
//!
//! ```text
//!   RayCluster <name> ──owns──▶ Workload <name> ◀──template── PodGroup <name>-cluster ◀── all its Pods
//! ```
//! Both are immutable, so they are replaced when the size of the gang changes: the PodGroup is deleted first and created
//! last. A cluster without gang scheduling or with an autoscaler has neither.

use super::demand::Demand;
use super::{GangOwner, GangPlan, SchedulerFields};
use crate::action::{Accept, Action, Body, Event, Kind, PodGroupApi, Step};
use crate::build::owner::cluster_reference;
use crate::cluster::Observed;
use crate::cluster_spec;
use crate::labels;
use crate::reasons;
use crate::view::WholeView;
use manta_api::{RayCluster, RayClusterSpec};
use serde_json::{Value, json};

const POD_GROUP: Kind = Kind::PodGroup(PodGroupApi::KubernetesWorkloads);
const SCHEDULER: &str = "default-scheduler";
/// The name of the only template in a Workload.
const TEMPLATE: &str = "cluster";
/// The finalizer that protects a PodGroup while it has Pods, which it also has when it is replaced.
const PROTECTION: &str = "scheduling.k8s.io/podgroup-protection";

/// Returns the name of the cluster that a PodGroup of this name belongs to.
pub(super) fn cluster_name(pod_group: &str) -> Option<&str> {
    pod_group.strip_suffix("-cluster")
}

fn pod_group_name(cluster: &str) -> String {
    format!("{cluster}-cluster")
}

pub(super) fn fields(owner: GangOwner<'_>) -> SchedulerFields {
    match owner {
        GangOwner::Cluster(cluster) if has_gang(cluster) => SchedulerFields {
            scheduler_name: Some(SCHEDULER),
            pod_group: Some(pod_group_name(owner.name())),
            ..SchedulerFields::default()
        },
        _ => SchedulerFields::default(),
    }
}

/// Returns whether a cluster requests a gang and has no autoscaler, which is not supported.
fn has_gang(cluster: &RayCluster) -> bool {
    cluster_spec::is_true(cluster_spec::label(cluster, labels::GANG_SCHEDULING))
        && !cluster_spec::is_autoscaling(&cluster.spec)
}

pub(super) fn plan_cluster_gang(seen: &Observed) -> GangPlan {
    let objects = GangObjects {
        seen,
        pod_group_name: pod_group_name(seen.name()),
        workload: seen.related(Kind::Workload, seen.name()).map(|known| &**known),
        pod_group: seen.related(POD_GROUP, &pod_group_name(seen.name())).map(|known| &**known),
    };
    if has_gang(&seen.cluster) { objects.sync(gang_size(&seen.cluster.spec)) } else { objects.remove() }
}

fn gang_size(spec: &RayClusterSpec) -> i64 {
    Demand::desired(spec).members.into()
}

/// A cluster with the existing objects of its gang.
struct GangObjects<'a> {
    seen: &'a Observed,
    pod_group_name: String,
    workload: Option<&'a WholeView>,
    pod_group: Option<&'a WholeView>,
}

impl GangObjects<'_> {
    fn sync(&self, size: i64) -> GangPlan {
        let mut gang = GangPlan::default();
        match self.workload {
            Some(workload) if !self.owns(workload) => return self.collision(Kind::Workload, self.seen.name()),
            Some(workload) if self.is_terminating(workload) => {
                return gang.waiting(format!("Workload {} is being deleted, will retry", self.workload_path()));
            }
            Some(workload) if !describes(workload, size) => return self.replace_workload(workload),
            Some(_) => {}
            None if self.seen.in_flight.is_creating(Kind::Workload, self.seen.name()) => {}
            None => gang.steps.push(self.create(Kind::Workload, self.seen.name(), self.workload_spec(size))),
        }
        match self.pod_group {
            Some(group) if !self.owns(group) => self.collision(POD_GROUP, &self.pod_group_name),
            Some(group) if self.is_terminating(group) => {
                gang.steps.extend(self.unprotect(group));
                gang.waiting(format!("PodGroup {} is being deleted, will retry", self.group_path()))
            }
            Some(group) if size_of(&group.object["spec"]) != Some(size) => {
                let why = format!("deleted stale PodGroup {}, will retry after deletion completes", self.group_path());
                self.delete_group(group).waiting(why)
            }
            Some(_) => gang,
            None if self.seen.in_flight.is_creating(POD_GROUP, &self.pod_group_name) => gang,
            None => {
                gang.steps.push(self.create(POD_GROUP, &self.pod_group_name, self.group_spec(size)));
                gang
            }
        }
    }

    /// Deletes the PodGroup, which refers to the Workload, and then the Workload.
    fn replace_workload(&self, workload: &WholeView) -> GangPlan {
        let path = self.workload_path();
        match self.pod_group.filter(|group| self.owns(group)) {
            Some(group) if self.is_terminating(group) => {
                let steps = self.unprotect(group).into_iter().collect();
                let why = format!("PodGroup {} is being deleted, will retry", self.group_path());
                GangPlan { steps, blocked: None }.waiting(why)
            }
            Some(group) => self.delete_group(group).waiting(format!(
                "deleted PodGroup {} before replacing stale Workload, will retry after deletion completes",
                self.group_path()
            )),
            None => GangPlan::from_step(self.delete(Kind::Workload, workload))
                .waiting(format!("deleted stale Workload {path}, will retry after deletion completes")),
        }
    }

    /// Deletes the objects of a gang that is no longer requested.
    fn remove(&self) -> GangPlan {
        let waiting = || format!("waiting for PodGroup {} to finish deleting", self.group_path());
        match (self.pod_group.filter(|group| self.owns(group)), self.workload.filter(|workload| self.owns(workload))) {
            (Some(group), _) if self.is_terminating(group) => {
                let steps = self.unprotect(group).into_iter().collect();
                GangPlan { steps, blocked: None }.waiting(waiting())
            }
            (Some(group), _) => self.delete_group(group).waiting(waiting()),
            (None, Some(workload)) if self.is_terminating(workload) => {
                GangPlan::default().waiting(format!("Workload {} is being deleted, will retry", self.workload_path()))
            }
            (None, Some(workload)) => GangPlan::from_step(self.delete(Kind::Workload, workload)),
            (None, None) => GangPlan::default(),
        }
    }

    fn owns(&self, object: &WholeView) -> bool {
        object.metadata.is_controlled_by(self.seen.uid())
    }

    fn is_terminating(&self, object: &WholeView) -> bool {
        object.metadata.deletion_timestamp.is_some()
            || self.seen.in_flight.deleting.contains(object.metadata.uid.as_str())
    }

    fn collision(&self, kind: Kind, name: &str) -> GangPlan {
        let kind = kind.resource().kind;
        let path = self.seen.path(name);
        let error = format!(
            "{kind} {path} already exists and is not owned by this RayCluster; rename it or use a different RayCluster \
             name to avoid the collision"
        );
        let (reason, note) = match kind {
            "Workload" => (reasons::FAILED_TO_CREATE_WORKLOAD, format!("Failed to create Workload {path}: {error}")),
            _ => (reasons::FAILED_TO_CREATE_POD_GROUP, format!("Failed to create PodGroup {path}: {error}")),
        };
        GangPlan::refused(error, Event::warning(reason, "Create", note))
    }

    fn create(&self, kind: Kind, name: &str, spec: Value) -> Step {
        let body = json!({
            "apiVersion": kind.resource().api_version(),
            "kind": kind.resource().kind,
            "metadata": {
                "name": name,
                "namespace": self.seen.namespace(),
                "labels": {labels::CLUSTER: self.seen.name()},
                "ownerReferences": [cluster_reference(&self.seen.cluster)],
            },
            "spec": spec,
        });
        let action = Action::Create { key: self.seen.key(kind, name), body: Body::of(&body) };
        Step::new(action, "the Pods are scheduled as a gang")
    }

    fn workload_spec(&self, size: i64) -> Value {
        json!({
            "controllerRef": {"apiGroup": "ray.io", "kind": RayCluster::KIND, "name": self.seen.name()},
            "podGroupTemplates": [{"name": TEMPLATE, "schedulingPolicy": {"gang": {"minCount": size}}}],
        })
    }

    fn group_spec(&self, size: i64) -> Value {
        json!({
            "podGroupTemplateRef": {
                "workload": {"workloadName": self.seen.name(), "podGroupTemplateName": TEMPLATE},
            },
            "schedulingPolicy": {"gang": {"minCount": size}},
        })
    }

    fn delete_group(&self, group: &WholeView) -> GangPlan {
        let mut gang = GangPlan::default();
        gang.steps.extend(self.unprotect(group));
        gang.steps.push(self.delete(POD_GROUP, group));
        gang
    }

    /// Removes the finalizer, with which live Pods would block the deletion of the PodGroup forever.
    fn unprotect(&self, group: &WholeView) -> Option<Step> {
        let finalizers = group.object["metadata"]["finalizers"].as_array()?;
        let others: Vec<&Value> = finalizers.iter().filter(|name| *name != PROTECTION).collect();
        if others.len() == finalizers.len() {
            return None;
        }
        let patch = json!({"metadata": {
            "finalizers": others,
            "resourceVersion": group.metadata.resource_version,
        }});
        let action = Action::Merge { key: self.seen.key(POD_GROUP, &self.pod_group_name), patch: Box::new(patch) };
        Some(Step::new(action, "the PodGroup is replaced while its Pods run").accept(Accept::NotFound))
    }

    fn delete(&self, kind: Kind, object: &WholeView) -> Step {
        let key = self.seen.key(kind, &object.metadata.name);
        let action = Action::Delete { key, uid: object.metadata.uid.to_string(), force: false };
        Step::new(action, "the gang has changed its size or is no longer requested").accept(Accept::NotFound)
    }

    fn workload_path(&self) -> String {
        self.seen.path(self.seen.name())
    }

    fn group_path(&self) -> String {
        self.seen.path(&self.pod_group_name)
    }
}

/// Returns whether a Workload describes exactly one gang of this size.
fn describes(workload: &WholeView, size: i64) -> bool {
    match workload.object["spec"]["podGroupTemplates"].as_array().map(Vec::as_slice) {
        Some([template]) => template["name"] == TEMPLATE && size_of(template) == Some(size),
        _ => false,
    }
}

fn size_of(holder: &Value) -> Option<i64> {
    holder["schedulingPolicy"]["gang"]["minCount"].as_i64()
}
