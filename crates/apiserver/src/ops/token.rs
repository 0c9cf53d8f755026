//! Tokens for service accounts.

use serde_json::{Value, json};

use super::{Cluster, Target};
use crate::error::{ApiError, Named};
use crate::schema::FieldError;

impl Cluster {
    /// Serves a `TokenRequest` for a service account.
    pub fn issue_token(&self, target: Target<'_>, mut body: Value) -> Result<Value, ApiError> {
        let account = self.get(target)?.value();
        let seconds = &body["spec"]["expirationSeconds"];
        let why = match seconds.as_i64() {
            Some(seconds) if seconds < 600 => Some("may not specify a duration less than 10 minutes"),
            Some(seconds) if seconds > 1 << 32 => Some("may not specify a duration larger than 2^32 seconds"),
            _ => None,
        };
        if let Some(why) = why {
            let error = FieldError::invalid("spec.expirationSeconds", seconds, why);
            let named = Named { group: "authentication.k8s.io", what: "TokenRequest", name: "" };
            return Err(ApiError::invalid(named, &[error]));
        }
        let (token, end) = self.authority.issue(&account, &body, &self.clock);
        if !body.is_object() {
            body = json!({});
        }
        body["apiVersion"] = "authentication.k8s.io/v1".into();
        body["kind"] = "TokenRequest".into();
        body["metadata"] = json!({"name": target.name, "namespace": target.namespace,
            "creationTimestamp": self.clock.stamp(), "uid": self.clock.uid()});
        body["status"] = json!({"token": token, "expirationTimestamp": crate::clock::seconds(end)});
        Ok(body)
    }
}
