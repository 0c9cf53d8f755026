//! Worker groups whose replicas have several hosts: a replica is made, replaced and removed whole.

use super::workers::{WorkerGroup, free_indices, loss, suffix_of};
use super::{Planner, counts, mtls, replace};
use crate::build::WorkerIdentity;
use crate::cluster_spec;
use crate::labels::{HOST_INDEX, REPLICA_INDEX, REPLICA_NAME, WORKER};
use crate::names::Suffixes;
use crate::view::{MetaView, PodView};
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn plan(planner: &mut Planner<'_>, group: &WorkerGroup<'_>, suffixes: &mut Suffixes, left: &mut usize) {
    let hosts = cluster_spec::hosts(group.spec).max(1) as usize;
    let mut replicas = by_replica(group.pods);

    // A replica that has lost a host cannot work. One per pass, like KubeRay, so that a cache that
    // lags behind costs one replica at most. Replicas that terminate are waited for.
    let alive = |pods: &[&Arc<PodView>]| pods.iter().filter(|pod| !group.seen.is_going(pod)).count();
    let incomplete = replicas.iter().find(|(_, pods)| (1..hosts).contains(&alive(pods)));
    let desired = counts::desired_pods(group.spec) as usize / hosts;
    if let Some((name, pods)) = incomplete {
        if replicas.len() <= desired && complete(planner, group, (name, pods), suffixes) {
            return;
        }
        delete_all(planner, group, pods, "cleanup of incomplete multi-host group");
        planner.halt(format!("cleaned up incomplete replica group {name}, requeueing"));
        return;
    }
    let mut broken = Vec::new();
    for (name, pods) in &replicas {
        let ended = pods.iter().find(|pod| !group.seen.is_going(pod) && replace::must_replace(pod));
        if let Some(pod) = ended {
            delete_all(planner, group, pods, &replace::reason(pod, WORKER));
            broken.push(*name);
        }
    }
    if !broken.is_empty() {
        // A host that still runs leaves no room for another one.
        planner.end_stage();
    }
    for name in broken {
        replicas.remove(name);
    }
    if delete_named(planner, group, &replicas) {
        return;
    }
    if desired > replicas.len() {
        let now = left.div_ceil(hosts).min(desired - replicas.len());
        *left = left.saturating_sub(now * hosts);
        create(planner, group, &replicas, now, suffixes);
    } else if desired < replicas.len() && group.may_remove_surplus() {
        let mut by_loss: Vec<_> = replicas.values().collect();
        // A replica works only as a whole: its worst host decides.
        by_loss.sort_by_key(|pods| pods.iter().map(|pod| loss(group.seen, pod)).min());
        for pods in by_loss.into_iter().take(replicas.len() - desired) {
            delete_all(planner, group, pods, "scaling down");
        }
    }
}

/// Returns the Pods by the replica that they belong to; Pods without one are ignored.
fn by_replica(pods: &[Arc<PodView>]) -> BTreeMap<&str, Vec<&Arc<PodView>>> {
    let mut replicas: BTreeMap<&str, Vec<&Arc<PodView>>> = BTreeMap::new();
    for pod in pods {
        if let Some(name) = pod.metadata.label(REPLICA_NAME) {
            replicas.entry(name).or_default().push(pod);
        }
    }
    replicas
}

/// Creates the hosts that a replica has never had, if the creation of one broke off: it may still take effect, and that host
/// would be one too many beside a new replica. It gets the same name again, so that only one can be created. Returns whether
/// the replica is one of those.
fn complete(
    planner: &mut Planner<'_>,
    group: &WorkerGroup<'_>,
    (replica_name, pods): (&str, &[&Arc<PodView>]),
    suffixes: &mut Suffixes,
) -> bool {
    let broken = &group.seen.in_flight.broken_creations;
    let broken: Vec<_> = broken.iter().filter(|pod| pod.label(REPLICA_NAME) == Some(replica_name)).collect();
    let reserved: Vec<&str> = broken.iter().filter_map(|pod| suffix_of(pod)).collect();
    let named = group.workers_to_delete();
    let is_lost = |pod: &&Arc<PodView>| {
        group.seen.is_going(pod) || replace::must_replace(pod) || named.contains(pod.metadata.name.as_str())
    };
    let Some(replica_index) = broken.first().and_then(|pod| pod.label(REPLICA_INDEX)?.parse().ok()) else {
        return false;
    };
    if pods.iter().any(is_lost) {
        return false;
    }
    if !mtls::gate(planner) {
        return true;
    }
    for host_index in 0..cluster_spec::hosts(group.spec).max(1) as u32 {
        let host = host_index.to_string();
        let is_host = |pod: &MetaView| pod.label(HOST_INDEX) == Some(&host);
        if pods.iter().any(|pod| is_host(&pod.metadata)) {
            continue;
        }
        let known = broken.iter().find(|pod| is_host(pod)).and_then(|pod| suffix_of(pod));
        let suffix = known.map_or_else(|| suffixes.draw_except(&reserved), str::to_owned);
        planner.push(group.create(WorkerIdentity { suffix: &suffix, replica_index, replica_name, host_index }));
    }
    true
}

/// Deletes the replicas of the Pods that `workersToDelete` names. Returns whether there were any.
fn delete_named(
    planner: &mut Planner<'_>,
    group: &WorkerGroup<'_>,
    replicas: &BTreeMap<&str, Vec<&Arc<PodView>>>,
) -> bool {
    let named = group.workers_to_delete();
    let mut deleted = 0;
    for pods in replicas.values() {
        if pods.iter().any(|pod| named.contains(pod.metadata.name.as_str())) {
            deleted += delete_all(planner, group, pods, "autoscaler scale-down request");
        }
    }
    if deleted > 0 {
        planner.halt(format!("deleted {deleted} worker Pods based on ScaleStrategy, requeueing"));
    }
    deleted > 0
}

fn create(
    planner: &mut Planner<'_>,
    group: &WorkerGroup<'_>,
    replicas: &BTreeMap<&str, Vec<&Arc<PodView>>>,
    missing: usize,
    suffixes: &mut Suffixes,
) {
    if !mtls::gate(planner) {
        return;
    }
    let mut free = free_indices(replicas.values().flatten().copied());
    for _ in 0..missing {
        let replica_name = format!("{}-{}", group.spec.group_name, suffixes.draw());
        let replica_index = free.next().unwrap_or_default();
        for host_index in 0..cluster_spec::hosts(group.spec).max(1) as u32 {
            let identity =
                WorkerIdentity { suffix: &suffixes.draw(), replica_index, replica_name: &replica_name, host_index };
            planner.push(group.create(identity));
        }
    }
}

/// Deletes the Pods that are not terminating yet. Returns how many.
fn delete_all(planner: &mut Planner<'_>, group: &WorkerGroup<'_>, pods: &[&Arc<PodView>], why: &str) -> usize {
    let alive: Vec<_> = pods.iter().filter(|pod| !group.seen.is_going(pod)).collect();
    for pod in &alive {
        let (path, name) = (group.seen.path(&pod.metadata.name), &group.spec.group_name);
        planner.push(group.delete(
            pod,
            why,
            format!("Deleted worker Pod {path} for group {name}: {why}"),
            format!("Failed deleting worker Pod {path} for group {name}; {}, ", replace::state(pod)),
        ));
    }
    alive.len()
}
