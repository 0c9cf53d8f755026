//! The AdmissionReview that is sent to a webhook, and its response.

use base64::Engine;
use serde_json::{Value, json};

use crate::auth::User;
use crate::error::ApiError;
use crate::ops::{Cluster, Target};
use crate::patch::json_patch;
use crate::store::ObjectKey;

/// The operation under review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Operation {
    /// Create.
    Create,
    /// Update.
    Update,
    /// Delete.
    Delete,
    /// Exec, attach, port-forward or proxy.
    Connect,
}

impl Operation {
    pub(super) fn name(self) -> &'static str {
        match self {
            Operation::Create => "CREATE",
            Operation::Update => "UPDATE",
            Operation::Delete => "DELETE",
            Operation::Connect => "CONNECT",
        }
    }

    /// Returns the kind of the options; a connection has none.
    fn options(self) -> Option<&'static str> {
        match self {
            Operation::Create => Some("CreateOptions"),
            Operation::Update => Some("UpdateOptions"),
            Operation::Delete => Some("DeleteOptions"),
            Operation::Connect => None,
        }
    }
}

/// A write under admission review.
pub(super) struct AdmissionRequest<'a> {
    pub(super) target: Target<'a>,
    pub(super) subresource: Option<&'a str>,
    pub(super) operation: Operation,
    pub(super) dry_run: bool,
    /// The labels of the namespace that the object is in, or null.
    pub(super) namespace_labels: Value,
    /// The versions in which the kind is served.
    pub(super) versions: Vec<std::sync::Arc<str>>,
    /// Group, version and kind of the object under review, where they are not those of the target.
    about: Option<[&'static str; 3]>,
    user: &'a User,
    uid: String,
}

impl<'a> AdmissionRequest<'a> {
    pub(super) fn new(
        cluster: &Cluster,
        target: Target<'a>,
        subresource: Option<&'a str>,
        operation: Operation,
        user: &'a User,
        dry_run: bool,
    ) -> AdmissionRequest<'a> {
        let namespace = cluster.store.get("namespaces", &ObjectKey::new("", target.namespace));
        let namespace_labels = namespace.map_or(Value::Null, |found| found.value()["metadata"]["labels"].take());
        let now = cluster.registry.now();
        let served = now.resources.iter().filter(|resource| resource.table == target.resource.table);
        let versions = served.map(|resource| resource.version.clone()).collect();
        let uid = cluster.clock.uid();
        AdmissionRequest { target, subresource, operation, dry_run, namespace_labels, versions, about: None, user, uid }
    }

    /// Says that the object under review is of another kind than the target: a subresource with a kind of its own.
    pub(super) fn about(mut self, group: &'static str, version: &'static str, kind: &'static str) -> Self {
        self.about = Some([group, version, kind]);
        self
    }

    pub(super) fn forbidden(&self, why: &str) -> ApiError {
        ApiError::forbidden(self.target.resource.named(self.target.name), why)
    }

    /// Returns the `AdmissionReview` to send.
    pub(super) fn review(&self, object: &Value, old: &Value) -> Value {
        let resource = self.target.resource;
        let own = [&*resource.group, &*resource.version, &*resource.kind];
        let [group, version, kind] = self.about.unwrap_or(own);
        let kind = json!({"group": group, "version": version, "kind": kind});
        let path = json!({"group": *resource.group, "version": *resource.version, "resource": *resource.plural});
        let mut request = json!({
            "uid": self.uid,
            "kind": kind,
            "resource": path,
            "requestKind": kind,
            "requestResource": path,
            "name": self.target.name,
            "operation": self.operation.name(),
            "userInfo": self.user.to_value(),
            "object": object,
            "oldObject": old,
            "dryRun": self.dry_run,
            "options": self.operation.options().map(|kind| json!({"kind": kind, "apiVersion": "meta.k8s.io/v1"})),
        });
        if let Some(subresource) = self.subresource {
            request["subResource"] = subresource.into();
            request["requestSubResource"] = subresource.into();
        }
        if resource.namespaced {
            request["namespace"] = self.target.namespace.into();
        }
        json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})
    }
}

/// The response of a webhook.
#[derive(Debug)]
pub(super) struct Answer {
    webhook: String,
    allows: bool,
    status: Value,
    patch: Option<Value>,
    pub(super) warnings: Vec<String>,
}

impl Answer {
    /// Parses the response to a review.
    pub(super) fn read(webhook: &str, request: &Value, answer: Value) -> Result<Answer, String> {
        let response = &answer["response"];
        if answer["kind"] != "AdmissionReview" || answer["apiVersion"] != request["apiVersion"] || !response.is_object()
        {
            let expected = "expected webhook response of admission.k8s.io/v1, Kind=AdmissionReview";
            return Err(format!("received invalid webhook response: {expected}"));
        }
        let (wanted, got) = (&request["request"]["uid"], &response["uid"]);
        if wanted != got {
            return Err(format!("received invalid webhook response: expected response.uid={wanted}, got {got}"));
        }
        let patch = match response["patch"].as_str().filter(|text| !text.is_empty()) {
            None => None,
            Some(_) if response["patchType"] != "JSONPatch" => {
                return Err("received invalid webhook response: webhook returned response.patch but not \
                            response.patchType=\"JSONPatch\""
                    .to_owned());
            }
            Some(text) => {
                let bytes = base64::engine::general_purpose::STANDARD.decode(text);
                let patch = bytes.ok().and_then(|bytes| serde_json::from_slice(&bytes).ok());
                Some(patch.ok_or("received undecodable patch from webhook")?)
            }
        };
        let warnings = response["warnings"].as_array().into_iter().flatten();
        Ok(Answer {
            webhook: webhook.to_owned(),
            allows: response["allowed"] == true,
            status: response["status"].clone(),
            patch,
            warnings: warnings.filter_map(Value::as_str).map(str::to_owned).collect(),
        })
    }

    /// Returns the response itself, or the error for a denial.
    pub(super) fn allowed(self) -> Result<Answer, ApiError> {
        if self.allows {
            return Ok(self);
        }
        let text = |key: &str| self.status[key].as_str().filter(|text| !text.is_empty());
        let denied = format!("admission webhook {:?} denied the request", self.webhook);
        let message = match text("message").or(text("reason")) {
            Some(why) => format!("{denied}: {why}"),
            None => format!("{denied} without explanation"),
        };
        let code = self.status["code"].as_u64().and_then(|code| u16::try_from(code).ok()).unwrap_or(0);
        Err(ApiError::denied(code.clamp(400, 599), text("reason").unwrap_or(""), message))
    }

    /// Applies the webhook's patch.
    pub(super) fn apply(&self, object: &mut Value) -> Result<(), ApiError> {
        let Some(patch) = &self.patch else { return Ok(()) };
        let patched = json_patch(object.clone(), patch)
            .map_err(|error| ApiError::internal(format!("cannot apply the patch of {:?}: {error}", self.webhook)))?;
        *object = patched;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(response: Value) -> Result<Answer, String> {
        let request = json!({"apiVersion": "admission.k8s.io/v1", "request": {"uid": "u"}});
        let answer = json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response});
        Answer::read("hook.example.com", &request, answer)
    }

    #[test]
    fn denials_read_as_from_the_real_server() {
        for (status, code, message) in [
            (json!(null), 400, "admission webhook \"hook.example.com\" denied the request without explanation"),
            (json!({"message": "no"}), 400, "admission webhook \"hook.example.com\" denied the request: no"),
            (
                json!({"code": 200, "message": "no"}),
                400,
                "admission webhook \"hook.example.com\" denied the request: no",
            ),
            (
                json!({"code": 403, "reason": "Forbidden"}),
                403,
                "admission webhook \"hook.example.com\" denied the request: Forbidden",
            ),
        ] {
            let error = read(json!({"uid": "u", "allowed": false, "status": status})).unwrap().allowed().unwrap_err();
            assert_eq!((error.code(), error.to_string()), (code, message.to_owned()));
        }
    }

    #[test]
    fn malformed_responses_are_failures() {
        for response in [
            json!(null),
            json!({"uid": "other", "allowed": true}),
            json!({"uid": "u", "allowed": true, "patch": "W10="}),
            json!({"uid": "u", "allowed": true, "patch": "?", "patchType": "JSONPatch"}),
        ] {
            assert!(read(response.clone()).is_err(), "{response}");
        }
    }

    #[test]
    fn patches_are_applied() {
        let patch = base64::engine::general_purpose::STANDARD.encode(r#"[{"op": "add", "path": "/a", "value": 1}]"#);
        let answer = read(json!({"uid": "u", "allowed": true, "patch": patch, "patchType": "JSONPatch"})).unwrap();
        let mut object = json!({});
        answer.apply(&mut object).unwrap();
        assert_eq!(object, json!({"a": 1}));
    }
}
