//! Operators delete what they saw, and nothing else.

use super::{Checker, Seen};
use crate::object::{is_deleting, label, name, uid};
use serde_json::Value;
use tokio::time::Instant;

impl Checker {
    /// Returns what is wrong with a deletion by an operator that arrives now and was sent at a time.
    pub(crate) fn operator_deletes(&self, path: &str, sent: Instant) -> Option<String> {
        let seen = self.lock();
        let (resource, deleted) = resource_and_name(path)?;
        let object = seen.get(kind(resource)?, deleted)?;
        let newer = seen.first_seen.get(&uid(object)).is_some_and(|first| *first > sent);
        if newer {
            return Some(format!("{resource}/{deleted} was deleted, and created after somebody sent that"));
        }
        if resource == "pods" { seen.deleted_without_need(&name(object), sent) } else { None }
    }

    /// Notes that a deletion arrives that a process sent which has died since. Nobody knows of it any more: another Pod may
    /// have been chosen in its place, and one too many goes.
    pub(crate) fn dead_operator_deletes(&self, path: &str) {
        let mut seen = self.lock();
        let Some(("pods", name)) = resource_and_name(path) else { return };
        let group = seen.get("Pod", name).and_then(|pod| Some((seen.cluster_of(pod)?, label(pod, "ray.io/group"))));
        if let Some(group) = group {
            seen.lost_to_the_dead.entry(group).or_default().push(Instant::now());
            seen.named_for_deletion.insert(name.to_owned());
        }
    }

    /// Notes that an operator asks for the deletion of a Pod, where it is not known yet which state the deletion will meet.
    /// It is judged by the state in which it takes effect.
    pub(crate) fn operator_asks_to_delete(&self, path: &str) {
        if let Some(("pods", name)) = resource_and_name(path) {
            self.lock().deleted_by_operator.insert(name.to_owned());
        }
    }

    /// Notes that a deletion which an operator asked for was refused.
    pub(crate) fn operator_was_refused(&self, path: &str) {
        if let Some((_, name)) = resource_and_name(path) {
            self.lock().deleted_by_operator.remove(name);
        }
    }

    /// Reports a request of an operator that took effect.
    pub(crate) fn operator_wrote(&self, wrong: Option<String>) {
        self.lock().report(wrong);
    }
}

impl Seen {
    /// Returns what is wrong with the deletion of a Pod that an operator asked for, when it takes effect.
    pub(super) fn operator_deleted_pod(&mut self, kind: &str, name: &str, now: &Value) -> Option<String> {
        let takes_effect = kind == "Pod" && is_deleting(now) && self.deleted_by_operator.remove(name);
        if takes_effect { self.deleted_without_need(name, Instant::now()) } else { None }
    }
}

pub(super) fn resource_and_name(path: &str) -> Option<(&str, &str)> {
    let (_, rest) = path.split_once("/namespaces/")?;
    let (resource, name) = rest.split_once('/')?.1.split_once('/')?;
    Some((resource, name))
}

pub(super) fn kind(resource: &str) -> Option<&'static str> {
    Some(match resource {
        "pods" => "Pod",
        "services" => "Service",
        "secrets" => "Secret",
        "jobs" => "Job",
        "rayclusters" => "RayCluster",
        "rayjobs" => "RayJob",
        "gateways" => "Gateway",
        "httproutes" => "HTTPRoute",
        "podgroups" => "PodGroup",
        "certificates" => "Certificate",
        "ingresses" => "Ingress",
        "networkpolicies" => "NetworkPolicy",
        "persistentvolumeclaims" => "PersistentVolumeClaim",
        "workloads" => "Workload",
        "serviceaccounts" => "ServiceAccount",
        "roles" => "Role",
        "rolebindings" => "RoleBinding",
        _ => return None,
    })
}
