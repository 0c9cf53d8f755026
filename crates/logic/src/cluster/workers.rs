//! Worker groups with one host per replica: as many Pods as the spec asks for.
//!
//! Pods that have ended go first, then those named in `workersToDelete`, then the count is
//! compared. With the autoscaler on, only what it named is removed.

use super::observed::Observed;
use super::plan::Draft;
use super::{counts, mtls, multihost, pods, replace};
use crate::action::{Accept, Action, Event, Kind, Step, create};
use crate::build::{self, WorkerIdentity, cluster_facts as facts};
use crate::config::Config;
use crate::labels::{REPLICA_INDEX, WORKER};
use crate::names::Suffixes;
use crate::validate::ValidCluster;
use crate::view::PodView;
use jiff::Timestamp;
use manta_api::WorkerGroupSpec;
use std::collections::BTreeSet;
use std::sync::Arc;

pub(super) fn plan(
    seen: &Observed,
    valid: &ValidCluster<'_>,
    now: Timestamp,
    cfg: &Config,
    suffixes: &mut Suffixes,
    draft: &mut Draft,
) {
    let mut done = BTreeSet::new();
    for group in facts::worker_groups(&valid.spec) {
        // Groups of the same name share their Pods: the first one decides.
        if !done.insert(group.group_name.as_str()) || seen.in_flight.is_creating_in(&group.group_name) {
            continue;
        }
        let found: Vec<_> =
            seen.group_pods(&group.group_name).filter(|pod| !pods::is_lost(pod, now, draft)).cloned().collect();
        let scene = Scene { seen, valid, cfg, group, pods: &found };
        if facts::is_suspended(group) {
            delete_suspended_group(&scene, draft);
        } else if facts::is_multi_host(group) && cfg.gates.ray_multi_host_indexing {
            multihost::plan(&scene, suffixes, draft);
        } else {
            plan_group(&scene, suffixes, draft);
        }
        if draft.halt.is_some() {
            return;
        }
    }
}

/// One group and its Pods.
pub(super) struct Scene<'a> {
    pub(super) seen: &'a Observed,
    pub(super) valid: &'a ValidCluster<'a>,
    pub(super) cfg: &'a Config,
    pub(super) group: &'a WorkerGroupSpec,
    pub(super) pods: &'a [Arc<PodView>],
}

impl Scene<'_> {
    /// Names that the autoscaler, or a user, wants gone.
    pub(super) fn workers_to_delete(&self) -> &[String] {
        let strategy = self.group.scale_strategy.as_ref();
        strategy.and_then(|strategy| strategy.workers_to_delete.as_deref()).unwrap_or_default()
    }

    /// Whether Pods beyond the desired count may be removed by us.
    pub(super) fn may_remove_surplus(&self) -> bool {
        !facts::is_autoscaling(&self.valid.spec) || self.cfg.random_pod_delete
    }

    /// An action that deletes one Pod, with the events of its kind of reason.
    pub(super) fn delete(&self, pod: &PodView, why: &str, done: String, failed: String) -> Step {
        Step::new(
            Action::Delete {
                key: self.seen.key(Kind::Pod, &pod.metadata.name),
                uid: pod.metadata.uid.clone(),
                force: false,
            },
            why,
        )
        .done(Event::normal("DeletedWorkerPod", "Delete", done))
        .failed(Event::warning("FailedToDeleteWorkerPod", "Delete", failed))
        .failure_reason("FailedDeleteWorkerPod")
        .accept(Accept::NotFound)
    }

    /// An action that makes one Pod.
    pub(super) fn create(&self, identity: WorkerIdentity<'_>) -> Step {
        let pod = build::worker_pod(self.valid, self.group, self.cfg, identity);
        let name = pod.metadata.name.clone().unwrap_or_default();
        Step::new(
            create(self.seen.key(Kind::Pod, &name), &pod),
            format!("group {} has fewer Pods than wanted", self.group.group_name),
        )
        .done(Event::normal("CreatedWorkerPod", "Create", format!("Created worker Pod {}", self.seen.path(&name))))
        .failed(Event::warning(
            "FailedToCreateWorkerPod",
            "Create",
            format!("Failed to create worker Pod for the cluster {}, ", self.seen.path(self.seen.name())),
        ))
        .failure_reason("FailedCreateWorkerPod")
        .in_group(&self.group.group_name)
    }
}

fn delete_suspended_group(scene: &Scene<'_>, draft: &mut Draft) {
    let (group, cluster) = (&scene.group.group_name, scene.seen.path(scene.seen.name()));
    let mut any = false;
    for pod in scene.pods.iter().filter(|pod| !scene.seen.is_going(pod)) {
        any = true;
        draft.push(
            Step::new(
                Action::Delete {
                    key: scene.seen.key(Kind::Pod, &pod.metadata.name),
                    uid: pod.metadata.uid.clone(),
                    force: false,
                },
                "the group is suspended",
            )
            .failed(Event::warning(
                "FailedToDeleteWorkerPodCollection",
                "Delete",
                format!("Failed deleting worker Pods for suspended group {group} in RayCluster {cluster}, "),
            ))
            .failure_reason("FailedDeleteWorkerPod")
            .accept(Accept::NotFound),
        );
    }
    if any {
        draft.events.push(Event::normal(
            "DeletedWorkerPod",
            "Delete",
            format!("Deleted all pods for suspended worker group {group} in RayCluster {cluster}"),
        ));
    }
}

fn plan_group(scene: &Scene<'_>, suffixes: &mut Suffixes, draft: &mut Draft) {
    let ended: Vec<_> =
        scene.pods.iter().filter(|pod| !scene.seen.is_going(pod) && replace::must_replace(pod)).collect();
    if !ended.is_empty() {
        for pod in &ended {
            let (path, state) = (scene.seen.path(&pod.metadata.name), replace::state(pod));
            draft.push(scene.delete(
                pod,
                &replace::reason(pod, WORKER),
                format!("Deleted worker Pod {path}; {state}"),
                format!("Failed deleting worker Pod {path}; {state}, "),
            ));
        }
        draft.halt(format!("delete {} unhealthy worker Pods", ended.len()));
        return;
    }
    let named = scene.workers_to_delete();
    let (leaving, staying): (Vec<_>, Vec<_>) =
        scene.pods.iter().partition(|pod| named.contains(&pod.metadata.name) && !scene.seen.is_going(pod));
    for pod in &leaving {
        let path = scene.seen.path(&pod.metadata.name);
        draft.push(scene.delete(
            pod,
            "workersToDelete names it",
            format!("Deleted pod {path}"),
            format!("Failed deleting pod {path}, "),
        ));
    }
    let desired = i64::from(counts::desired_pods(scene.group));
    let missing = desired - staying.len() as i64;
    if missing > 0 {
        create_missing(scene, &staying, missing, suffixes, draft);
    } else if missing < 0 && scene.may_remove_surplus() {
        remove_surplus(scene, &staying, missing.unsigned_abs() as usize, draft);
    }
}

fn create_missing(
    scene: &Scene<'_>,
    staying: &[&Arc<PodView>],
    missing: i64,
    suffixes: &mut Suffixes,
    draft: &mut Draft,
) {
    if !mtls::gate(scene.seen, scene.cfg, draft) {
        return;
    }
    let mut free = free_indices(staying.iter().copied());
    for _ in 0..missing {
        let replica_index = free.next().unwrap_or_default();
        let identity = WorkerIdentity { suffix: &suffixes.draw(), replica_index, replica_name: "", host_index: 0 };
        draft.push(scene.create(identity));
    }
}

fn remove_surplus(scene: &Scene<'_>, staying: &[&Arc<PodView>], surplus: usize, draft: &mut Draft) {
    let going = staying.iter().filter(|pod| scene.seen.is_going(pod)).count();
    let alive = staying.iter().filter(|pod| !scene.seen.is_going(pod));
    for pod in alive.take(surplus.saturating_sub(going)) {
        let path = scene.seen.path(&pod.metadata.name);
        draft.push(scene.delete(
            pod,
            "the group has more Pods than wanted",
            format!("Deleted Pod {path}"),
            format!("Failed deleting Pod {path}, "),
        ));
    }
}

/// Replica indices that no Pod has, from the lowest.
pub(super) fn free_indices<'a>(pods: impl Iterator<Item = &'a Arc<PodView>>) -> impl Iterator<Item = u32> {
    let taken: BTreeSet<u32> =
        pods.filter_map(|pod| pod.metadata.label(REPLICA_INDEX)).filter_map(|index| index.parse().ok()).collect();
    (0..).filter(move |index| !taken.contains(index))
}
