//! What clusters ask for beside their Pods, and what is not the operators'.

use super::{Checker, Seen};
use crate::object::{is_owned_by, name, owner, text, uid};
use crate::script::BatchScheduler;
use crate::specs::is_invalid;
use serde_json::Value;

impl Checker {
    /// Takes note that somebody changed the label of a Pod which says whose it is.
    pub(crate) fn relabelled(&self, name: &str) {
        self.lock().relabelled.insert(name.to_owned());
    }

    /// Takes note that somebody removed the owner of an object.
    pub(crate) fn orphaned(&self, name: &str) {
        self.lock().without_owner.insert(name.to_owned());
    }

    /// Returns the objects that nobody deletes, since somebody removed their owner.
    pub(crate) fn without_owner(&self) -> Vec<String> {
        self.lock().without_owner.iter().cloned().collect()
    }
}

impl Seen {
    /// Returns what is missing of what a cluster asks for.
    pub(super) fn feature_unsettled(&self, cluster: &Value) -> Option<String> {
        let (id, of, spec) = (uid(cluster), name(cluster), &cluster["spec"]);
        let owned = |kind: &str, name: &str| self.get(kind, name).is_some_and(|object| is_owned_by(object, &id));
        if spec["headGroupSpec"]["enableIngress"] == true && !owned("Ingress", &format!("{of}-head-ingress")) {
            return Some("it has no Ingress".to_owned());
        }
        let policies = [format!("{of}-head"), format!("{of}-workers-small")];
        if !spec["networkPolicy"].is_null()
            && let Some(missing) = policies.iter().find(|policy| !owned("NetworkPolicy", policy))
        {
            return Some(format!("it has no NetworkPolicy {missing}"));
        }
        let storage = &spec["gcsFaultToleranceOptions"]["storage"];
        if storage.is_null() {
            return None;
        }
        let claim = self.get("PersistentVolumeClaim", &format!("{of}-gcs-pvc"));
        let Some(claim) = claim else { return Some("it has no claim".to_owned()) };
        let goes = storage["deletionPolicy"] == "DeleteWithCluster";
        (goes != is_owned_by(claim, &id)).then(|| format!("its claim belongs to {:?}", owner(claim)))
    }

    /// Returns the Pod of a cluster that another scheduler than the one that was asked for would schedule.
    pub(super) fn scheduled_by_another(&self, cluster: &Value, scheduler: BatchScheduler) -> Option<String> {
        let wanted = scheduler.name()?;
        let id = uid(cluster);
        let mut pods = self.of_kind("Pod").map(|(_, pod)| pod).filter(|pod| owner(pod).as_deref() == Some(&id));
        let other = pods.find(|pod| pod["spec"]["schedulerName"] != wanted)?;
        Some(format!("{} is scheduled by {}", name(other), text(&other["spec"]["schedulerName"])))
    }
}

/// Returns whether another controller takes care of a cluster.
pub(super) fn is_managed_elsewhere(cluster: &Value) -> bool {
    cluster["spec"]["managedBy"].is_string()
}

/// Operators leave alone what another controller takes care of.
pub(super) fn touched(cluster: &Value) -> Option<String> {
    let touched = !cluster["status"].is_null() || !cluster["metadata"]["finalizers"].is_null();
    (is_managed_elsewhere(cluster) && touched)
        .then(|| format!("RayCluster {} was changed, and another controller takes care of it", name(cluster)))
}

/// The webhook admits nothing that is invalid, unless another controller takes care of it, or it is being deleted.
pub(super) fn admitted(kind: &str, object: &Value) -> Option<String> {
    let stays = object["metadata"]["deletionTimestamp"].is_null();
    (kind.starts_with("Ray") && is_invalid(object) && stays && !is_managed_elsewhere(object))
        .then(|| format!("{kind} {} is invalid, and was admitted", name(object)))
}

/// Returns whether an object stays when all Ray objects are gone: it was there before, or is to be kept.
pub(super) fn stays(kind: &str, object: &Value) -> bool {
    let is_first = matches!(
        (kind, name(object).as_str()),
        ("Service" | "EndpointSlice", "kubernetes") | ("ServiceAccount", "default")
    );
    is_first || kind == "PersistentVolumeClaim" && owner(object).is_none()
}
