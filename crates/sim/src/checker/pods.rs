//! Never too many Pods, and none deleted without need.

use super::{Checker, Others, Seen};
use crate::object::{condition, is_alive, is_deleting, label, name, owner, text, uid};
use serde_json::Value;
use std::time::Duration;
use tokio::time::Instant;

/// An operator may act on what was asked for this long ago: watches lag, requests are slow, operators are down.
const STALE: Duration = Duration::from_secs(120);

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
        for (group, replicas) in sizes(cluster) {
            let sizes = self.sizes.entry((id.clone(), group)).or_default();
            if sizes.last().is_none_or(|(_, last)| *last != replicas) {
                sizes.push((now, replicas));
            }
        }
        if cluster["spec"]["suspend"] == true {
            self.suspended.insert(id.clone());
        }
        // What a status says has happened.
        let claims_ready = cluster["status"]["state"] == "ready";
        let claims = (claims_ready && !self.head_ran.contains(&id))
            .then(|| format!("RayCluster {} is ready, and its head never ran", name(cluster)));
        claims.or_else(|| self.overruled("RayCluster", cluster)).or_else(|| self.not_admitted("RayCluster", cluster))
    }

    pub(super) fn see_pod(&mut self, pod: &Value) -> Option<String> {
        let cluster = owner(pod)?;
        let is_head = label(pod, "ray.io/node-type") == "head";
        if is_head && pod["status"]["phase"] == "Running" {
            self.head_ran.insert(cluster.clone());
        }
        self.too_many(pod, &cluster, is_head)
            .or_else(|| self.wrong_token(pod, &cluster))
            .or_else(|| self.not_admitted("Pod", pod))
    }

    /// A Pod that is new is not so before what it needs.
    pub(super) fn created_too_early(&self, pod: &Value, others: &Others) -> Option<String> {
        if !pod["spec"]["nodeName"].is_null() || !is_alive(pod) {
            return None;
        }
        self.before_its_group(pod, others).or_else(|| self.before_its_certificates(pod, others))
    }

    /// Never two heads, never more workers than were ever asked for.
    fn too_many(&self, pod: &Value, cluster: &str, is_head: bool) -> Option<String> {
        let group = label(pod, "ray.io/group");
        let names = self.alive_of(cluster, &group);
        let allowed = match is_head {
            true => 1,
            false if label(pod, "ray.io/node-type") == "worker" => {
                self.sizes.get(&(cluster.to_owned(), group.clone()))?.iter().map(|(_, size)| *size).max()?
            }
            false => return None,
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

    fn alive_of(&self, cluster: &str, group: &str) -> Vec<&str> {
        self.of_kind("Pod")
            .filter(|(_, pod)| {
                is_alive(pod) && owner(pod).as_deref() == Some(cluster) && label(pod, "ray.io/group") == group
            })
            .map(|(name, _)| name)
            .collect()
    }

    /// A Pod that runs is deleted only if somebody asked for it.
    pub(super) fn deleted_without_need(&self, name: &str) -> Option<String> {
        let pod = self.get("Pod", name)?;
        let id = owner(pod)?;
        let cluster = self.get("RayCluster", &label(pod, "ray.io/cluster")).filter(|cluster| uid(cluster) == id)?;
        let runs = pod["status"]["phase"] == "Running" && condition(pod, "Ready") && !is_deleting(pod);
        if !runs || is_deleting(cluster) || self.suspended.contains(&id) || self.named_for_deletion.contains(name) {
            return None;
        }
        let group = label(pod, "ray.io/group");
        let surplus = label(pod, "ray.io/node-type") == "worker"
            && self.alive_of(&id, &group).len() as i64 > self.least_recent(&id, &group)?
            && cluster["spec"]["enableInTreeAutoscaling"] != true;
        (!surplus).then(|| format!("Pod {name} of {group} was deleted without need"))
    }

    /// Returns the smallest size that an operator may know.
    fn least_recent(&self, cluster: &str, group: &str) -> Option<i64> {
        let sizes = self.sizes.get(&(cluster.to_owned(), group.to_owned()))?;
        let ended = |index: usize| sizes.get(index + 1).map(|(at, _)| *at);
        let recent = sizes.iter().enumerate().filter(|(index, _)| ended(*index).is_none_or(|at| at.elapsed() < STALE));
        recent.map(|(_, (_, size))| *size).min()
    }
}

/// Returns the groups of a cluster with their sizes.
pub(super) fn sizes(cluster: &Value) -> Vec<(String, i64)> {
    let groups = cluster["spec"]["workerGroupSpecs"].as_array().cloned().unwrap_or_default();
    groups.iter().map(|group| (text(&group["groupName"]), group["replicas"].as_i64().unwrap_or_default())).collect()
}
