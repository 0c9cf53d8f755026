//! The eviction and binding of pods.

use serde_json::{Value, json};

use super::update::check_uid;
use super::{Cluster, DeleteOptions, Target, WriteOptions, Written, dry_run_entry};
use crate::error::ApiError;
use crate::schema::FieldError;
use crate::selector::{LabelRule, map_matches};
use crate::store::{Entry, ListRange};

/// Checks that the body of a pod subresource names the same pod.
fn check_name(target: Target<'_>, body: &Value, kind: &str) -> Result<(), ApiError> {
    match body["metadata"]["name"].as_str() {
        Some(name) if !name.is_empty() && name != target.name => {
            Err(ApiError::bad_request(format!("name in URL does not match name in {kind} object")))
        }
        _ => Ok(()),
    }
}

/// Checks that a binding means this very pod.
fn check_version(target: Target<'_>, entry: &Entry, pod: &Value, binding: &Value) -> Result<(), ApiError> {
    check_uid(target, binding, pod)?;
    match binding["metadata"]["resourceVersion"].as_str() {
        Some(version) if !version.is_empty() && version != entry.revision.to_string() => Err(target.modified()),
        _ => Ok(()),
    }
}

/// Returns why a pod cannot be bound to a node now.
fn unbindable(name: &str, pod: &Value) -> Option<String> {
    if pod["metadata"]["deletionTimestamp"].is_string() {
        return Some(format!("pod {name} is being deleted, cannot be assigned to a host"));
    }
    if let Some(node) = pod["spec"]["nodeName"].as_str().filter(|node| !node.is_empty()) {
        return Some(format!("pod {name} is already assigned to node {node:?}"));
    }
    let gates = pod["spec"]["schedulingGates"].as_array();
    gates.is_some_and(|gates| !gates.is_empty()).then(|| format!("pod {name} has non-empty .spec.schedulingGates"))
}

/// How many evicted pods a budget keeps in mind until they are gone.
const MAX_DISRUPTED: usize = 2000;

/// Returns whether a pod is ready.
fn is_ready(pod: &Value) -> bool {
    let conditions = pod["status"]["conditions"].as_array().into_iter().flatten();
    conditions.clone().any(|one| one["type"] == "Ready" && one["status"] == "True")
}

/// Returns whether a budget lets pods go that are not ready, and so do not count for it.
fn may_go_unready(budget: &Value) -> bool {
    let number = |key: &str| budget["status"][key].as_i64().unwrap_or(0);
    let (healthy, desired) = (number("currentHealthy"), number("desiredHealthy"));
    budget["spec"]["unhealthyPodEvictionPolicy"] == "AlwaysAllow" || (desired > 0 && healthy >= desired)
}

/// Takes one disruption from a budget for a pod.
fn spend(budget: &mut Value, pod: &str, now: &str) -> Result<(), ApiError> {
    const DENIED: &str = "Cannot evict pod as it would violate the pod's disruption budget.";
    let name = budget["metadata"]["name"].as_str().unwrap_or("").to_owned();
    let number = |value: &Value| value.as_i64().unwrap_or(0);
    if number(&budget["status"]["observedGeneration"]) < number(&budget["metadata"]["generation"]) {
        let why = format!("The disruption budget {name} is still being processed by the server.");
        return Err(ApiError::too_many_requests(DENIED).caused_by("DisruptionBudget", &why));
    }
    let allowed = number(&budget["status"]["disruptionsAllowed"]);
    let disrupted = budget["status"]["disruptedPods"].as_object().map_or(0, serde_json::Map::len);
    if allowed <= 0 || disrupted >= MAX_DISRUPTED {
        let (desired, healthy) = (&budget["status"]["desiredHealthy"], &budget["status"]["currentHealthy"]);
        let why = format!(
            "The disruption budget {name} needs {} healthy pods and has {} currently",
            number(desired),
            number(healthy)
        );
        return Err(ApiError::too_many_requests(DENIED).caused_by("DisruptionBudget", &why));
    }
    let status = &mut budget["status"];
    status["disruptionsAllowed"] = (allowed - 1).into();
    if !status["disruptedPods"].is_object() {
        status["disruptedPods"] = json!({});
    }
    status["disruptedPods"][pod] = now.into();
    Ok(())
}

impl Cluster {
    /// Deletes a pod unless a disruption budget forbids it for now.
    pub fn evict(&self, target: Target<'_>, body: &Value, dry_run: bool) -> Result<(), ApiError> {
        let pod = self.get(target)?;
        check_name(target, body, "Eviction")?;
        let options = DeleteOptions { dry_run, ..DeleteOptions::parse(&body["deleteOptions"])? };
        let pod = pod.value();
        // A pod that serves nobody may always go.
        let serves = !matches!(pod["status"]["phase"].as_str(), Some("Pending" | "Succeeded" | "Failed"));
        if serves && !pod["metadata"]["deletionTimestamp"].is_string() {
            self.spend_disruption(target, &pod, options.dry_run)?;
        }
        if !options.dry_run {
            self.note_disruption(target)?;
        }
        self.delete(target, &options).map(|_| ())
    }

    /// Takes one disruption from the budget of a pod, in the same write that finds one left.
    fn spend_disruption(&self, pod: Target<'_>, value: &Value, dry_run: bool) -> Result<(), ApiError> {
        let span = ListRange { namespace: Some(pod.namespace), ..ListRange::default() };
        let labels = &value["metadata"]["labels"];
        let selects = |budget: &Value| {
            let rules = LabelRule::from_object(&budget["spec"]["selector"]);
            budget["spec"]["selector"].is_object() && map_matches(&rules, labels)
        };
        let page = self.store.list("poddisruptionbudgets.policy", &span, |budget| selects(&budget.shared_value()));
        let budgets = page.map(|page| page.entries).unwrap_or_default();
        let budget = match budgets.as_slice() {
            [] => return Ok(()),
            [budget] => budget,
            _ => {
                let why = "This pod has more than one PodDisruptionBudget, which the eviction subresource does not \
                           support.";
                return Err(ApiError::internal(why));
            }
        };
        if !is_ready(value) && may_go_unready(&budget.shared_value()) {
            return Ok(());
        }
        let resource = self.registry.builtin("policy", "poddisruptionbudgets");
        let target = Target { resource: &resource, namespace: pod.namespace, name: &budget.key.name };
        let now = self.clock.stamp();
        let options = WriteOptions { dry_run, ..WriteOptions::default() };
        let spent = self.modify(target, Some("status"), &options, |old| {
            let mut new = old.clone();
            spend(&mut new, pod.name, &now)?;
            Ok(new)
        });
        match spent {
            // A budget that went meanwhile forbids nothing.
            Err(error) if error.is_not_found() => Ok(()),
            other => other.map(|_| ()),
        }
    }

    /// Notes on a pod that it does not end by itself.
    fn note_disruption(&self, target: Target<'_>) -> Result<(), ApiError> {
        let now = self.clock.stamp();
        let noted = self.edit_status(target, |pod| {
            let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.retain(|condition| condition["type"] != "DisruptionTarget");
            conditions.push(json!({"type": "DisruptionTarget", "status": "True", "reason": "EvictionByEvictionAPI",
                "message": "Eviction API: evicting", "lastProbeTime": null, "lastTransitionTime": now}));
            pod["status"]["conditions"] = conditions.into();
        });
        noted.map(|_| ())
    }

    /// Binds a pod to a node.
    pub fn bind(&self, target: Target<'_>, body: &Value, dry_run: bool) -> Result<Written, ApiError> {
        check_name(target, body, "Binding")?;
        let (node, kind) = (&body["target"]["name"], &body["target"]["kind"]);
        let node = node.as_str().unwrap_or("").to_owned();
        let mut errors = Vec::new();
        if !matches!(kind.as_str().unwrap_or(""), "" | "Node") {
            errors.push(FieldError::not_supported("target.kind", kind, &["Node", "<empty>"]).to_string());
        }
        if node.is_empty() {
            errors.push(FieldError::required("target.name", "").to_string());
        }
        match errors.as_slice() {
            [] => {}
            [one] => return Err(ApiError::untyped(one.clone())),
            several => return Err(ApiError::untyped(format!("[{}]", several.join(", ")))),
        }
        let now = self.clock.stamp();
        loop {
            let entry = self.get(target)?;
            let mut pod = entry.value();
            check_version(target, &entry, &pod, body)?;
            if let Some(why) = unbindable(target.name, &pod) {
                let named = crate::error::Named { group: "", what: "pods/binding", name: target.name };
                return Err(ApiError::conflict(named, &why));
            }
            pod["spec"]["nodeName"] = node.as_str().into();
            for (key, value) in body["metadata"]["annotations"].as_object().into_iter().flatten() {
                pod["metadata"]["annotations"][key] = value.clone();
            }
            let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.retain(|condition| condition["type"] != "PodScheduled");
            conditions.push(
                json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}),
            );
            pod["status"]["conditions"] = conditions.into();
            if dry_run {
                let entry = dry_run_entry(target.key(), pod, Some(entry.revision));
                return Ok(Written { entry, created: true, warnings: Vec::new() });
            }
            let write = crate::store::Write::Update(entry.revision, pod);
            match self.store.commit(&target.resource.table, target.key(), write) {
                Ok(entry) => return Ok(Written { entry, created: true, warnings: Vec::new() }),
                Err(crate::store::CommitError::Conflict) => {}
                Err(error) => return Err(target.commit_error(error)),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pods_are_bound_once_they_may_run() {
        let check = |pod: Value, expect: Option<&str>| assert_eq!(unbindable("p", &pod).as_deref(), expect, "{pod}");
        check(json!({"spec": {}}), None);
        check(json!({"spec": {"nodeName": "", "schedulingGates": []}}), None);
        check(json!({"spec": {"nodeName": "n"}}), Some(r#"pod p is already assigned to node "n""#));
        check(json!({"spec": {"schedulingGates": [{"name": "g"}]}}), Some("pod p has non-empty .spec.schedulingGates"));
        check(
            json!({"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}, "spec": {}}),
            Some("pod p is being deleted, cannot be assigned to a host"),
        );
    }
}
