//! Never too many Pods, and none deleted without need.

use super::{Checker, Others, Seen};
use crate::object::{condition, is_alive, is_deleting, label, name, owner, text, uid};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// The label with the replica of a Pod in a group with several hosts per replica.
const REPLICA: &str = "ray.io/worker-group-replica-name";

/// The group of the head.
const HEAD_GROUP: &str = "headgroup";

/// An operator may act on what was asked for this long ago: watches lag, requests are slow, operators are down.
pub(super) const STALE: Duration = Duration::from_secs(120);

impl Checker {
    /// Returns the UID of a Pod, if it is ready.
    pub(crate) fn uid_of_ready_pod(&self, pod: &str) -> Option<String> {
        let seen = self.lock();
        seen.get("Pod", pod).filter(|pod| condition(pod, "Ready")).map(uid)
    }

    /// Returns whether a Pod is still there.
    pub(crate) fn has_pod(&self, pod: &str) -> bool {
        self.lock().get("Pod", pod).is_some()
    }

    /// Remembers that somebody asked for the deletion of these Pods.
    pub(crate) fn asked_to_delete(&self, pods: impl IntoIterator<Item = String>) {
        self.lock().named_for_deletion.extend(pods);
    }

    /// Returns the running workers of a cluster, by name.
    pub(crate) fn workers(&self, cluster: &str) -> Vec<String> {
        let seen = self.lock();
        let is_worker = |pod: &Value| {
            label(pod, "ray.io/cluster") == cluster && label(pod, "ray.io/node-type") == "worker" && is_alive(pod)
        };
        seen.of_kind("Pod").filter(|(_, pod)| is_worker(pod)).map(|(name, _)| name.to_owned()).collect()
    }
}

impl Seen {
    pub(super) fn see_cluster(&mut self, cluster: &Value) -> Option<String> {
        let id = uid(cluster);
        let now = Instant::now();
        let suspended = cluster["spec"]["suspend"] == true;
        for (group, replicas) in sizes(cluster).into_iter().chain([(HEAD_GROUP.to_owned(), 1)]) {
            let replicas = if suspended { 0 } else { replicas };
            let sizes = self.sizes.entry((id.clone(), group)).or_default();
            if sizes.last().is_none_or(|(_, last)| *last != replicas) {
                sizes.push((now, replicas));
            }
        }
        // A head without an owner that ran before its cluster was created again is not seen again.
        if self.has_running_head(&id) {
            self.head_ran.insert(id.clone());
        }
        // What a status says has happened.
        let claims_ready = cluster["status"]["state"] == "ready";
        let claims = (claims_ready && !self.head_ran.contains(&id))
            .then(|| format!("RayCluster {} is ready, and its head never ran", name(cluster)));
        claims.or_else(|| self.overruled("RayCluster", cluster)).or_else(|| self.not_admitted("RayCluster", cluster))
    }

    pub(super) fn see_pod(&mut self, pod: &Value) -> Option<String> {
        let cluster = self.cluster_of(pod)?;
        let is_head = label(pod, "ray.io/node-type") == "head";
        if is_head && pod["status"]["phase"] == "Running" {
            self.head_ran.insert(cluster.clone());
        }
        if !is_alive(pod) {
            let ended = (cluster.clone(), label(pod, "ray.io/group"), Instant::now());
            self.ended_pods.entry(uid(pod)).or_insert(ended);
        }
        let is_new = !self.first_seen.contains_key(&uid(pod));
        self.too_many(pod, &cluster, (is_head, is_new))
            .or_else(|| self.wrong_token(pod, &cluster))
            .or_else(|| self.not_admitted("Pod", pod))
    }

    /// A Pod of another cluster may get the name of one that is gone.
    pub(super) fn pod_gone(&mut self, name: &str) {
        self.relabelled.remove(name);
        self.named_for_deletion.remove(name);
    }

    /// A Pod that is new is not so before what it needs.
    pub(super) fn created_too_early(&self, pod: &Value, others: &Others) -> Option<String> {
        if !pod["spec"]["nodeName"].is_null() || !is_alive(pod) {
            return None;
        }
        self.before_its_group(pod, others).or_else(|| self.before_its_certificates(pod, others))
    }

    /// Never two heads, never more workers than were ever asked for, and no new Pod that was not asked for recently.
    fn too_many(&self, pod: &Value, cluster: &str, (is_head, is_new): (bool, bool)) -> Option<String> {
        let group = label(pod, "ray.io/group");
        let names = self.alive_of(cluster, &group);
        let is_worker = label(pod, "ray.io/node-type") == "worker";
        let ever = || self.sizes.get(&(cluster.to_owned(), group.clone()))?.iter().map(|(_, size)| *size).max();
        let allowed = match is_new {
            true if is_head || is_worker => self.recent_sizes(cluster, &group).max()?,
            false if is_head => 1,
            false if is_worker => ever()?,
            _ => return None,
        };
        (names.len() as i64 > allowed).then(|| format!("{allowed} Pods of {group} were asked for: {}", names.join(" ")))
    }

    /// A Pod starts with the token of its own cluster.
    fn wrong_token(&self, pod: &Value, cluster: &str) -> Option<String> {
        let of = label(pod, "ray.io/cluster");
        let is_new = pod["status"]["podIP"].is_null() && is_alive(pod);
        let uses_token = self.get("RayCluster", &of)?["spec"]["authOptions"]["mode"] == "token";
        let other = owner(self.get("Secret", &of)?).filter(|owner| owner != cluster)?;
        let is_current = uid(self.get("RayCluster", &of)?) == cluster;
        (is_new && uses_token && is_current)
            .then(|| format!("Pod {} was created while its token belonged to {other}", name(pod)))
    }

    /// Returns whether a head runs that a cluster of this UID took over: one without an owner.
    fn has_running_head(&self, cluster: &str) -> bool {
        self.of_kind("Pod").any(|(_, pod)| {
            let is_running_head = label(pod, "ray.io/node-type") == "head" && pod["status"]["phase"] == "Running";
            is_running_head && self.cluster_of(pod).as_deref() == Some(cluster)
        })
    }

    fn alive_of(&self, cluster: &str, group: &str) -> Vec<&str> {
        let is_of =
            |pod: &Value| label(pod, "ray.io/group") == group && self.cluster_of(pod).as_deref() == Some(cluster);
        let alive = self.of_kind("Pod").filter(|(_, pod)| is_alive(pod) && is_of(pod));
        alive.map(|(name, _)| name).collect()
    }

    /// Returns the UID of the cluster that a Pod belongs to: its owner, or, if it has none any more, the one that its label
    /// names. It belongs to none if somebody changed that label, or if it is somebody else's.
    pub(super) fn cluster_of(&self, pod: &Value) -> Option<String> {
        if self.relabelled.contains(&name(pod)) || self.is_foreign(pod) {
            return None;
        }
        owner(pod).or_else(|| self.get("RayCluster", &label(pod, "ray.io/cluster")).map(uid))
    }

    /// A Pod that runs is deleted only if somebody asked for it. Others may have ended since the deletion was sent.
    pub(super) fn deleted_without_need(&self, name: &str, sent: Instant) -> Option<String> {
        let pod = self.get("Pod", name)?;
        let relabelled = self.relabelled.contains(name);
        let id = if relabelled { owner(pod)? } else { self.cluster_of(pod)? };
        let (_, cluster) = self.of_kind("RayCluster").find(|(_, cluster)| uid(cluster) == id)?;
        let runs = pod["status"]["phase"] == "Running" && condition(pod, "Ready") && !is_deleting(pod);
        if !runs || is_deleting(cluster) || self.may_be_suspended(&id) || self.named_for_deletion.contains(name) {
            return None;
        }
        let group = label(pod, "ray.io/group");
        let lost = self.lost_to_the_dead.get(&(id.clone(), group.clone())).into_iter().flatten();
        let lost = lost.filter(|at| at.elapsed() < STALE).count();
        let ended = self.ended_pods.values().filter(|(of, in_group, at)| *of == id && *in_group == group && *at > sent);
        // An operator may not know yet that somebody changed its label.
        let present = self.alive_of(&id, &group).len() + lost + ended.count() + usize::from(relabelled);
        let surplus = label(pod, "ray.io/node-type") == "worker"
            && present as i64 > self.recent_sizes(&id, &group).min()?
            && cluster["spec"]["enableInTreeAutoscaling"] != true;
        (!surplus && !self.is_of_broken_replica(cluster, pod))
            .then(|| format!("Pod {name} of {group} was deleted without need"))
    }

    /// Returns whether a host of the replica that a Pod belongs to has failed or is going: the others go with it.
    fn is_of_broken_replica(&self, cluster: &Value, pod: &Value) -> bool {
        let (id, replica, group) = (uid(cluster), label(pod, REPLICA), label(pod, "ray.io/group"));
        let hosts = self.of_kind("Pod").map(|(_, pod)| pod).filter(|other| {
            label(other, REPLICA) == replica && self.cluster_of(other).as_ref() == Some(&id) && is_alive(other)
        });
        !replica.is_empty() && (hosts.count() as i64) < hosts_per_replica(cluster, &group)
    }

    /// Returns whether a cluster is suspended as far as an operator may know: any Pod of it may go.
    fn may_be_suspended(&self, cluster: &str) -> bool {
        self.recent_sizes(cluster, HEAD_GROUP).any(|size| size == 0)
    }

    /// Returns the sizes of a group that an operator may know.
    fn recent_sizes(&self, cluster: &str, group: &str) -> impl Iterator<Item = i64> {
        let sizes = self.sizes.get(&(cluster.to_owned(), group.to_owned())).map(Vec::as_slice).unwrap_or_default();
        let ended = |index: usize| sizes.get(index + 1).map(|(at, _)| *at);
        let recent =
            sizes.iter().enumerate().filter(move |(index, _)| ended(*index).is_none_or(|at| at.elapsed() < STALE));
        recent.map(|(_, (_, size))| *size)
    }
}

/// Returns the groups of a cluster with their sizes, in Pods.
pub(super) fn sizes(cluster: &Value) -> Vec<(String, i64)> {
    let size = |group: &Value| match group["suspend"] == true {
        true => 0,
        false => group["replicas"].as_i64().unwrap_or_default() * hosts(group),
    };
    groups(cluster).map(|group| (text(&group["groupName"]), size(group))).collect()
}

/// Returns how many Pods a replica of a group has.
fn hosts_per_replica(cluster: &Value, name: &str) -> i64 {
    groups(cluster).find(|group| group["groupName"] == name).map_or(1, hosts)
}

fn hosts(group: &Value) -> i64 {
    group["numOfHosts"].as_i64().unwrap_or(1)
}

fn groups(cluster: &Value) -> impl Iterator<Item = &Value> {
    cluster["spec"]["workerGroupSpecs"].as_array().into_iter().flatten()
}
