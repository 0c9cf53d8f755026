//! Which events are about an object and what belongs to it.

use super::evidence::{Cluster, Event, Evidence, Meta, Pod};
use crate::labels;
use crate::names::pod_prefix;

/// How many characters Kubernetes and the operator append to the names that they draw.
const SUFFIX: usize = 5;

impl Evidence {
    /// Returns the names of the RayClusters that the status of a RayJob or RayService names.
    pub fn cluster_names(&self) -> Vec<String> {
        let job = self.job_status().and_then(|status| status.ray_cluster_name.clone());
        let slots = self
            .service_status()
            .into_iter()
            .flat_map(|status| [&status.pending_service_status, &status.active_service_status]);
        let of_service = slots.flatten().filter_map(|slot| slot.ray_cluster_name.clone());
        job.into_iter().chain(of_service).filter(|name| !name.is_empty()).collect()
    }

    /// Returns whether an event is about the subject or about what belongs to it, Pods that are gone included.
    pub fn concerns(&self, event: &Event) -> bool {
        self.knows(event) || event.kind == "Pod" && self.owned_pod(&event.name)
    }

    /// Returns whether an event is about one of the objects that were found, by kind, name and, where known, UID.
    fn knows(&self, event: &Event) -> bool {
        let is = |kind: &str, meta: &Meta| event.is_about(kind, &meta.name, &meta.uid);
        let is_gone_cluster = || {
            let is_found = |name: &String| self.clusters.iter().any(|cluster| cluster.metadata.name == *name);
            event.kind == "RayCluster" && self.cluster_names().iter().any(|name| *name == event.name && !is_found(name))
        };
        event.is_about(&self.subject.kind, &self.subject.name, &self.subject.uid)
            || self.clusters.iter().any(|cluster| is("RayCluster", &cluster.metadata))
            || self.job.iter().any(|job| is("RayJob", &job.metadata))
            || self.pods.iter().any(|pod| is("Pod", &pod.metadata))
            || self.batch_jobs.iter().any(|job| is("Job", &job.metadata))
            || self.workloads.iter().any(|workload| is("Workload", &workload.metadata))
            || is_gone_cluster()
    }

    /// Returns whether the name of a Pod that is gone is one that a cluster or the submitter of the subject draws.
    fn owned_pod(&self, pod: &str) -> bool {
        // A Pod that exists is known by its UID.
        if self.pods.iter().any(|found| found.metadata.name == pod) {
            return false;
        }
        let is_found = |name: &String| self.clusters.iter().any(|cluster| cluster.metadata.name == *name);
        let is_submitter = self.job.iter().any(|job| is_drawn(pod, &job.metadata.name));
        is_submitter
            || self.clusters.iter().any(|cluster| is_pod_of(cluster, pod))
            || self.cluster_names().iter().any(|name| !is_found(name) && is_pod_of_gone(name, pod))
    }
}

impl Event {
    pub(super) fn is_about_pod(&self, pod: &Pod) -> bool {
        self.is_about("Pod", &pod.metadata.name, &pod.metadata.uid)
    }

    /// Returns whether it is about an object; an empty UID is not known.
    pub(super) fn is_about(&self, kind: &str, name: &str, uid: &str) -> bool {
        self.kind == kind && self.name == name && (uid.is_empty() || self.uid.is_empty() || self.uid == uid)
    }
}

fn is_pod_of(cluster: &Cluster, pod: &str) -> bool {
    let name = &cluster.metadata.name;
    let head = pod_prefix(name, labels::HEAD);
    let groups = cluster.spec.worker_group_specs.iter();
    pod == head
        || is_drawn(pod, &head)
        || groups
            .map(|group| pod_prefix(&format!("{name}-{}", group.group_name), labels::WORKER))
            .any(|prefix| is_drawn(pod, &prefix))
}

/// The groups of a cluster that is gone are not known.
fn is_pod_of_gone(cluster: &str, pod: &str) -> bool {
    let head = pod_prefix(cluster, labels::HEAD);
    let is_worker = || {
        let rest = pod.strip_prefix(cluster).and_then(|rest| rest.strip_prefix('-'));
        rest.is_some_and(|rest| rest.rsplit_once("-worker-").is_some_and(|(_, suffix)| suffix.len() == SUFFIX))
    };
    pod == head || is_drawn(pod, &head) || is_worker()
}

/// Returns whether a name is a prefix with a suffix that was drawn.
fn is_drawn(name: &str, prefix: &str) -> bool {
    let suffix = name.strip_prefix(prefix).and_then(|rest| rest.strip_prefix('-'));
    suffix.is_some_and(|suffix| suffix.len() == SUFFIX && suffix.bytes().all(|byte| byte.is_ascii_alphanumeric()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn check(evidence: &Value, cases: &[(&str, &str, &str, bool)]) {
        let evidence: Evidence = serde_json::from_value(evidence.clone()).unwrap();
        for (kind, name, uid, expect) in cases {
            let event = Event { kind: (*kind).into(), name: (*name).into(), uid: (*uid).into(), ..Event::default() };
            assert_eq!(evidence.concerns(&event), *expect, "{kind} {name} {uid}");
        }
    }

    #[test]
    fn events_are_told_apart_by_kind_and_uid() {
        let labels = json!({"ray.io/cluster": "train"});
        let cluster = json!({
            "subject": {"kind": "RayCluster", "name": "train", "uid": "u1"},
            "clusters": [{"metadata": {"name": "train", "uid": "u1"}, "spec": {"workerGroupSpecs": [{"groupName": "gpu"}]}}],
            "pods": [{"metadata": {"name": "train-head-bcdfg", "uid": "p1", "labels": labels}}],
        });
        check(
            &cluster,
            &[
                ("RayCluster", "train", "u1", true),
                ("RayCluster", "train", "", true),
                ("RayCluster", "train", "earlier", false),
                ("RayJob", "train", "u9", false),
                ("Service", "train", "", false),
                ("Pod", "train-head-bcdfg", "p1", true),
                ("Pod", "train-head-bcdfg", "p0", false),
                ("Pod", "train-head-zzzzz", "p2", true),
                ("Pod", "train-gpu-worker-zzzzz", "p3", true),
                ("Pod", "train-cpu-worker-zzzzz", "p4", false),
                ("Pod", "train-2-head-zzzzz", "p5", false),
                ("Pod", "train-gpu-worker-head-zzzzz", "p6", false),
            ],
        );
    }

    #[test]
    fn events_of_what_a_job_used_are_found_after_its_cluster_is_gone() {
        let job = json!({
            "subject": {"kind": "RayJob", "name": "train", "uid": "u1"},
            "job": {"metadata": {"name": "train", "uid": "u1"}, "status": {"rayClusterName": "train-xk2p7"}},
            "batchJobs": [{"metadata": {"name": "train", "uid": "b1"}}],
            "workloads": [{"metadata": {"name": "rayjob-train-1", "uid": "w1"}}],
        });
        check(
            &job,
            &[
                ("RayJob", "train", "u1", true),
                ("Job", "train", "b1", true),
                ("Job", "train", "b0", false),
                ("Workload", "rayjob-train-1", "w1", true),
                ("RayCluster", "train-xk2p7", "c1", true),
                ("Pod", "train-xk2p7-head-bcdfg", "p1", true),
                ("Pod", "train-xk2p7-gpu-worker-bcdfg", "p2", true),
                ("Pod", "train-bcdfg", "p3", true),
                ("Pod", "train-two-head-bcdfg", "p4", false),
            ],
        );
    }
}
