//! The Pods of a gang have a PodGroup, which asks for as many Pods as there are to be.

use super::pods::sizes;
use super::{Others, Seen};
use crate::object::{controller, is_owned_by, label, name, text, uid};
use crate::scheduler::{BatchScheduler, GANG, pod_group};
use serde_json::Value;

impl Seen {
    /// A Pod is not created before the PodGroup that it names.
    pub(super) fn before_its_group(&self, pod: &Value, others: &Others) -> Option<String> {
        let group = pod_group(pod)?;
        // The Pod of a Job may come in the instant in which the PodGroup goes.
        let existed = self.get("PodGroup", &group).is_some() || self.gone.contains(&("PodGroup", group.clone()));
        let absent = !existed && others.api.get("PodGroup", &group).is_none();
        absent.then(|| format!("Pod {} was created before PodGroup {group}", name(pod)))
    }

    /// Returns what is wrong with the PodGroup of a cluster.
    pub(super) fn gang_unsettled(&self, cluster: &Value, suspended: bool, scheduler: BatchScheduler) -> Option<String> {
        let autoscaled = cluster["spec"]["enableInTreeAutoscaling"] == true;
        match scheduler {
            BatchScheduler::SchedulerPlugins if label(cluster, GANG).is_empty() => return None,
            BatchScheduler::Kai | BatchScheduler::Yunikorn => return None,
            BatchScheduler::KubernetesWorkloads if autoscaled || label(cluster, GANG).is_empty() => {
                let group = self.get("PodGroup", &format!("{}-cluster", name(cluster)));
                return group.map(|_| "it has a PodGroup, and asks for none".to_owned());
            }
            _ => {}
        }
        let job = controller(cluster).filter(|owner| owner["kind"] == "RayJob");
        let (group, owner) = match (scheduler, job) {
            (BatchScheduler::Volcano, Some(job)) => (format!("ray-{}-pg", text(&job["name"])), text(&job["uid"])),
            (BatchScheduler::Volcano, None) => (format!("ray-{}-pg", name(cluster)), uid(cluster)),
            (BatchScheduler::KubernetesWorkloads, _) => (format!("{}-cluster", name(cluster)), uid(cluster)),
            _ => (name(cluster), uid(cluster)),
        };
        let Some(found) = self.get("PodGroup", &group) else {
            // Nothing has been scheduled yet.
            return (!suspended).then(|| format!("it has no PodGroup {group}"));
        };
        if !is_owned_by(found, &owner) {
            return Some(format!("PodGroup {group} belongs to another"));
        }
        let count = &found["spec"]["schedulingPolicy"]["gang"]["minCount"];
        let members = found["spec"]["minMember"].as_i64().or_else(|| count.as_i64()).unwrap_or_default();
        let workers: i64 = sizes(cluster).iter().map(|(_, size)| size).sum();
        // The autoscaler may keep as few as the minimum, which is none here.
        let wanted = if autoscaled { 1 } else { workers + 1 };
        let wrong = match scheduler {
            BatchScheduler::Volcano => members != if suspended { 0 } else { wanted },
            BatchScheduler::KubernetesWorkloads => members != workers + 1 && !suspended,
            // It never grows, and a suspended one asks for nothing.
            _ => members > workers + 1 && !suspended,
        };
        wrong.then(|| format!("PodGroup {group} asks for {members} Pods"))
    }
}
