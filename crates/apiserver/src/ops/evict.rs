//! The eviction and binding of pods.

use serde_json::{Value, json};

use super::{Cluster, DeleteOptions, Target, Written};
use crate::error::ApiError;
use crate::schema::FieldError;
use crate::selector::{LabelRule, labels_match};
use crate::store::ListRange;

/// Checks that the body of a pod subresource names the same pod.
fn check_name(target: Target<'_>, body: &Value, kind: &str) -> Result<(), ApiError> {
    match body["metadata"]["name"].as_str() {
        Some(name) if !name.is_empty() && name != target.name => {
            Err(ApiError::bad_request(format!("name in URL does not match name in {kind} object")))
        }
        _ => Ok(()),
    }
}

impl Cluster {
    /// Deletes a pod unless a disruption budget forbids it for now.
    pub fn evict(&self, target: Target<'_>, body: &Value) -> Result<(), ApiError> {
        let pod = self.get(target)?;
        check_name(target, body, "Eviction")?;
        let span = ListRange { namespace: Some(target.namespace), ..ListRange::default() };
        let budgets = self.store.list("poddisruptionbudgets.policy", &span, |_| true);
        for budget in budgets.map(|page| page.entries).unwrap_or_default() {
            let value = budget.value();
            let rules = LabelRule::from_object(&value["spec"]["selector"]);
            let allowed = value["status"]["disruptionsAllowed"].as_i64().unwrap_or(0);
            if !rules.is_empty() && labels_match(&rules, &pod) && allowed <= 0 {
                return Err(ApiError::too_many_requests(
                    "Cannot evict pod as it would violate the pod's disruption budget.",
                ));
            }
        }
        let options = DeleteOptions::parse(&body["deleteOptions"])?;
        self.delete(target, &options).map(|_| ())
    }

    /// Binds a pod to a node.
    pub fn bind(&self, target: Target<'_>, body: &Value) -> Result<Written, ApiError> {
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
            if let Some(other) = pod["spec"]["nodeName"].as_str().filter(|other| !other.is_empty()) {
                let why = format!("pod {} is already assigned to node {other:?}", target.name);
                let named = crate::error::Named { group: "", what: "pods/binding", name: target.name };
                return Err(ApiError::conflict(named, &why));
            }
            pod["spec"]["nodeName"] = node.as_str().into();
            let mut conditions = pod["status"]["conditions"].as_array().cloned().unwrap_or_default();
            conditions.retain(|condition| condition["type"] != "PodScheduled");
            conditions.push(
                json!({"type": "PodScheduled", "status": "True", "lastProbeTime": null, "lastTransitionTime": now}),
            );
            pod["status"]["conditions"] = conditions.into();
            let write = crate::store::Write::Update(entry.revision, pod);
            match self.store.commit(&target.resource.table, target.key(), write) {
                Ok(entry) => return Ok(Written { entry, created: true, warnings: Vec::new() }),
                Err(crate::store::CommitError::Conflict) => {}
                Err(error) => return Err(target.commit_error(error)),
            }
        }
    }
}
