//! Worker groups whose replicas have several hosts: a replica is made, replaced and removed whole.

use super::plan::Draft;
use super::workers::{Scene, free_indices};
use super::{counts, mtls, replace};
use crate::build::WorkerIdentity;
use crate::cluster_spec;
use crate::labels::{REPLICA_NAME, WORKER};
use crate::names::Suffixes;
use crate::view::PodView;
use std::collections::BTreeMap;
use std::sync::Arc;

pub(super) fn plan(scene: &Scene<'_>, suffixes: &mut Suffixes, draft: &mut Draft) {
    let hosts = cluster_spec::hosts(scene.group).max(1) as usize;
    let mut replicas = by_replica(scene.pods);

    // A replica that has lost a host cannot work. One per pass, like KubeRay, so that a cache that
    // lags behind costs one replica at most. Replicas on their way out are waited for.
    let alive = |pods: &[&Arc<PodView>]| pods.iter().filter(|pod| !scene.seen.is_going(pod)).count();
    let incomplete = replicas.iter().find(|(_, pods)| (1..hosts).contains(&alive(pods)));
    if let Some((name, pods)) = incomplete {
        delete_all(scene, pods, "cleanup of incomplete multi-host group", draft);
        draft.halt(format!("cleaned up incomplete replica group {name}, requeueing"));
        return;
    }
    let mut broken = Vec::new();
    for (name, pods) in &replicas {
        let ended = pods.iter().find(|pod| !scene.seen.is_going(pod) && replace::must_replace(pod));
        if let Some(pod) = ended {
            delete_all(scene, pods, &replace::reason(pod, WORKER), draft);
            broken.push(*name);
        }
    }
    for name in broken {
        replicas.remove(name);
    }
    if delete_named(scene, &replicas, draft) {
        return;
    }
    let desired = counts::desired_pods(scene.group) as usize / hosts;
    if desired > replicas.len() {
        create(scene, &replicas, desired - replicas.len(), suffixes, draft);
    } else if desired < replicas.len() && scene.may_remove_surplus() {
        for pods in replicas.values().take(replicas.len() - desired) {
            delete_all(scene, pods, "scaling down", draft);
        }
    }
}

/// Pods by the replica that they belong to; Pods of none are left alone.
fn by_replica(pods: &[Arc<PodView>]) -> BTreeMap<&str, Vec<&Arc<PodView>>> {
    let mut replicas: BTreeMap<&str, Vec<&Arc<PodView>>> = BTreeMap::new();
    for pod in pods {
        if let Some(name) = pod.metadata.label(REPLICA_NAME) {
            replicas.entry(name).or_default().push(pod);
        }
    }
    replicas
}

/// Deletes the replicas of the Pods that `workersToDelete` names. Answers whether there were any.
fn delete_named(scene: &Scene<'_>, replicas: &BTreeMap<&str, Vec<&Arc<PodView>>>, draft: &mut Draft) -> bool {
    let named = scene.workers_to_delete();
    let mut deleted = 0;
    for pods in replicas.values() {
        if pods.iter().any(|pod| named.contains(&pod.metadata.name)) {
            deleted += delete_all(scene, pods, "autoscaler scale-down request", draft);
        }
    }
    if deleted > 0 {
        draft.halt(format!("deleted {deleted} worker Pods based on ScaleStrategy, requeueing"));
    }
    deleted > 0
}

fn create(
    scene: &Scene<'_>,
    replicas: &BTreeMap<&str, Vec<&Arc<PodView>>>,
    missing: usize,
    suffixes: &mut Suffixes,
    draft: &mut Draft,
) {
    if !mtls::gate(scene.seen, scene.cfg, draft) {
        return;
    }
    let mut free = free_indices(replicas.values().flatten().copied());
    for _ in 0..missing {
        let replica_name = format!("{}-{}", scene.group.group_name, suffixes.draw());
        let replica_index = free.next().unwrap_or_default();
        for host_index in 0..cluster_spec::hosts(scene.group).max(1) as u32 {
            let identity =
                WorkerIdentity { suffix: &suffixes.draw(), replica_index, replica_name: &replica_name, host_index };
            draft.push(scene.create(identity));
        }
    }
}

/// Deletes those Pods that live. Answers how many.
fn delete_all(scene: &Scene<'_>, pods: &[&Arc<PodView>], why: &str, draft: &mut Draft) -> usize {
    let alive: Vec<_> = pods.iter().filter(|pod| !scene.seen.is_going(pod)).collect();
    for pod in &alive {
        let (path, group) = (scene.seen.path(&pod.metadata.name), &scene.group.group_name);
        draft.push(scene.delete(
            pod,
            why,
            format!("Deleted worker Pod {path} for group {group}: {why}"),
            format!("Failed deleting worker Pod {path} for group {group}; {}, ", replace::state(pod)),
        ));
    }
    alive.len()
}
