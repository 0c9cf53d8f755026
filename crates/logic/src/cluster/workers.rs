//! Worker groups with one host per replica: as many Pods as the spec asks for.
//!
//! Pods that have ended go first, then those named in `workersToDelete`, then the count is
//! compared. With the autoscaler on, only what it named is removed.

use super::observed::Observed;
use super::{Planner, counts, mtls, multihost, orphans, pods, replace};
use crate::action::{Event, Kind, PodsOf, Step};
use crate::build::{self, WorkerIdentity};
use crate::cluster_spec;
use crate::config::Config;
use crate::labels::{GROUP, REPLICA_INDEX, WORKER};
use crate::names::Suffixes;
use crate::reasons;
use crate::validate::ValidCluster;
use crate::view::{MetaView, PodView};
use manta_api::WorkerGroupSpec;
use std::collections::{BTreeSet, HashSet};
use std::sync::Arc;

/// Pods that one pass creates at most, save for a replica with more hosts. The next one goes on when the watch has shown
/// them: a plan for thousands would take a second of computing, and megabytes for their bodies.
const CREATED_PER_PASS: usize = 256;

pub(super) fn plan(planner: &mut Planner<'_>, valid: &ValidCluster<'_>, suffixes: &mut Suffixes) {
    let (seen, config) = (planner.seen, planner.config);
    orphans::plan(planner);
    let mut done = BTreeSet::new();
    let mut left = CREATED_PER_PASS;
    for group in cluster_spec::worker_groups(&valid.spec) {
        // Groups of the same name share their Pods: the first one decides.
        if !done.insert(group.group_name.as_str()) || seen.in_flight.is_creating_in(&group.group_name) {
            continue;
        }
        let found: Vec<_> =
            seen.group_pods(&group.group_name).filter(|pod| !pods::lost_or_wake(planner, pod)).cloned().collect();
        let workers = WorkerGroup { seen, valid, config, spec: group, pods: &found };
        if cluster_spec::is_suspended(group) {
            delete_suspended_group(planner, &workers);
        } else if cluster_spec::is_multi_host(group) && config.gates.ray_multi_host_indexing {
            multihost::plan(planner, &workers, suffixes, &mut left);
        } else {
            plan_group(planner, &workers, suffixes, &mut left);
        }
        if planner.is_halted() {
            return;
        }
    }
}

/// One group and its Pods.
pub(super) struct WorkerGroup<'a> {
    pub(super) seen: &'a Observed,
    pub(super) valid: &'a ValidCluster<'a>,
    pub(super) config: &'a Config,
    pub(super) spec: &'a WorkerGroupSpec,
    pub(super) pods: &'a [Arc<PodView>],
}

impl WorkerGroup<'_> {
    /// Returns the Pods that the autoscaler, or a user, wants deleted.
    pub(super) fn workers_to_delete(&self) -> HashSet<&str> {
        let strategy = self.spec.scale_strategy.as_ref();
        let named = strategy.and_then(|strategy| strategy.workers_to_delete.as_deref()).unwrap_or_default();
        named.iter().map(String::as_str).collect()
    }

    /// Returns whether we may delete Pods beyond the desired count.
    pub(super) fn may_remove_surplus(&self) -> bool {
        !cluster_spec::is_autoscaling(&self.valid.spec) || self.config.random_pod_delete
    }

    /// Deletes one Pod, with the notes of its events.
    pub(super) fn delete(&self, pod: &PodView, why: &str, done: String, failed: String) -> Step {
        self.seen
            .delete_pod(pod, why)
            .on_success(reasons::DELETED_WORKER_POD, done)
            .on_failure(reasons::FAILED_TO_DELETE_WORKER_POD, failed)
            .failure_reason(reasons::FAILED_DELETE_WORKER_POD)
    }

    /// Creates one Pod.
    pub(super) fn create(&self, identity: WorkerIdentity<'_>) -> Step {
        let (seen, group) = (self.seen, &self.spec.group_name);
        let pod = build::worker_pod(self.valid, self.spec, self.config, identity);
        let name = pod.metadata.name.clone().unwrap_or_default();
        let failed = format!("Failed to create worker Pod for the cluster {}, ", seen.path(seen.name()));
        Step::create(seen.key(Kind::Pod, &name), &pod, format!("group {group} has fewer Pods than wanted"))
            .on_success(reasons::CREATED_WORKER_POD, format!("Created worker Pod {}", seen.path(&name)))
            .on_failure(reasons::FAILED_TO_CREATE_WORKER_POD, failed)
            .failure_reason(reasons::FAILED_CREATE_WORKER_POD)
            .counts_among(PodsOf::Group(group.clone()))
    }
}

fn delete_suspended_group(planner: &mut Planner<'_>, group: &WorkerGroup<'_>) {
    let (seen, name) = (group.seen, &group.spec.group_name);
    let cluster = seen.path(seen.name());
    let alive: Vec<_> = group.pods.iter().filter(|pod| !seen.is_going(pod)).collect();
    for pod in &alive {
        let failed = format!("Failed deleting worker Pods for suspended group {name} in RayCluster {cluster}, ");
        planner.push(
            seen.delete_pod(pod, "the group is suspended")
                .on_failure(reasons::FAILED_TO_DELETE_WORKER_POD_COLLECTION, failed)
                .failure_reason(reasons::FAILED_DELETE_WORKER_POD),
        );
    }
    if !alive.is_empty() {
        planner.event(Event::normal(
            reasons::DELETED_WORKER_POD,
            "Delete",
            format!("Deleted all pods for suspended worker group {name} in RayCluster {cluster}"),
        ));
    }
}

fn plan_group(planner: &mut Planner<'_>, group: &WorkerGroup<'_>, suffixes: &mut Suffixes, left: &mut usize) {
    let ended: Vec<_> =
        group.pods.iter().filter(|pod| !group.seen.is_going(pod) && replace::must_replace(pod)).collect();
    if !ended.is_empty() {
        for pod in &ended {
            let (path, state) = (group.seen.path(&pod.metadata.name), replace::state(pod));
            planner.push(group.delete(
                pod,
                &replace::reason(pod, WORKER),
                format!("Deleted worker Pod {path}; {state}"),
                format!("Failed deleting worker Pod {path}; {state}, "),
            ));
        }
        planner.halt(format!("delete {} unhealthy worker Pods", ended.len()));
        return;
    }
    let named = group.workers_to_delete();
    let (leaving, staying): (Vec<_>, Vec<_>) =
        group.pods.iter().partition(|pod| named.contains(pod.metadata.name.as_str()));
    for pod in leaving.iter().filter(|pod| !group.seen.is_going(pod)) {
        let path = group.seen.path(&pod.metadata.name);
        planner.push(group.delete(
            pod,
            "workersToDelete names it",
            format!("Deleted pod {path}"),
            format!("Failed deleting pod {path}, "),
        ));
    }
    let desired = i64::from(counts::desired_pods(group.spec));
    let missing = desired - staying.len() as i64;
    if missing > 0 {
        if !leaving.is_empty() {
            // A deletion that fails leaves no room for another Pod.
            planner.end_stage();
        }
        let now = (*left).min(missing as usize);
        *left -= now;
        create_missing(planner, group, &staying, now, suffixes);
    } else if missing < 0 && group.may_remove_surplus() {
        remove_surplus(planner, group, &staying, missing.unsigned_abs() as usize);
    }
}

fn create_missing(
    planner: &mut Planner<'_>,
    group: &WorkerGroup<'_>,
    staying: &[&Arc<PodView>],
    missing: usize,
    suffixes: &mut Suffixes,
) {
    if !mtls::gate(planner) {
        return;
    }
    // Those whose creation broke off may still appear: under another name there would be one Pod too many.
    let broken = group.seen.in_flight.broken_creations.iter();
    let reserved: Vec<&str> =
        broken.filter(|pod| pod.label(GROUP) == Some(&group.spec.group_name)).filter_map(suffix_of).collect();
    let mut free = free_indices(staying.iter().copied());
    for index in 0..missing {
        let suffix = reserved.get(index).map_or_else(|| suffixes.draw_except(&reserved), |known| (*known).to_owned());
        let replica_index = free.next().unwrap_or_default();
        let identity = WorkerIdentity { suffix: &suffix, replica_index, replica_name: "", host_index: 0 };
        planner.push(group.create(identity));
    }
}

/// Returns the part of a Pod's name that was drawn.
pub(super) fn suffix_of(pod: &MetaView) -> Option<&str> {
    pod.name.rsplit_once('-').map(|(_, suffix)| suffix)
}

fn remove_surplus(planner: &mut Planner<'_>, group: &WorkerGroup<'_>, staying: &[&Arc<PodView>], surplus: usize) {
    let mut by_loss = staying.to_vec();
    by_loss.sort_by_key(|pod| loss(group.seen, pod));
    for pod in by_loss.into_iter().take(surplus).filter(|pod| !group.seen.is_going(pod)) {
        let path = group.seen.path(&pod.metadata.name);
        planner.push(group.delete(
            pod,
            "the group has more Pods than wanted",
            format!("Deleted Pod {path}"),
            format!("Failed deleting Pod {path}, "),
        ));
    }
}

/// What is lost with a Pod, from the least. Scaling down takes the Pods in this order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Loss {
    Terminating,
    /// Its deletion broke off, and may still take effect: another one would be deleted in addition.
    MayTerminate,
    Unscheduled,
    Starting,
    Running,
    Ready,
}

/// Returns what is lost with a Pod.
pub(super) fn loss(seen: &Observed, pod: &PodView) -> Loss {
    match pod.status.phase.as_str() {
        _ if seen.is_going(pod) => Loss::Terminating,
        _ if seen.in_flight.broken_deletions.contains(pod.metadata.uid.as_str()) => Loss::MayTerminate,
        "Running" if pod.is_running_and_ready() => Loss::Ready,
        "Running" => Loss::Running,
        _ if pod.spec.node_name.is_empty() => Loss::Unscheduled,
        _ => Loss::Starting,
    }
}

/// Returns the replica indices that no Pod has, from the lowest.
pub(super) fn free_indices<'a>(pods: impl Iterator<Item = &'a Arc<PodView>>) -> impl Iterator<Item = u32> {
    let taken: BTreeSet<u32> =
        pods.filter_map(|pod| pod.metadata.label(REPLICA_INDEX)).filter_map(|index| index.parse().ok()).collect();
    (0..).filter(move |index| !taken.contains(index))
}
