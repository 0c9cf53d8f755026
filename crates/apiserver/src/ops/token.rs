//! Tokens for service accounts.

use serde_json::{Value, json};

use super::{Cluster, Target};
use crate::auth::{Bound, ISSUER};
use crate::error::{ApiError, Named};
use crate::schema::FieldError;

/// The default lifetime of a token, in seconds.
const DEFAULT_SECONDS: i64 = 3600;
/// The longest lifetime of a token that is bound to a pod; node agents renew them.
const MAX_POD_SECONDS: i64 = 24 * 3600;

impl Cluster {
    /// Serves a `TokenRequest` for a service account.
    pub fn issue_token(&self, target: Target<'_>, body: Value) -> Result<Value, ApiError> {
        let account = self.get(target)?.value();
        let spec = &body["spec"];
        let wanted = &spec["expirationSeconds"];
        let why = match wanted.as_i64() {
            Some(seconds) if seconds < 600 => Some("may not specify a duration less than 10 minutes"),
            Some(seconds) if seconds > 1 << 32 => Some("may not specify a duration larger than 2^32 seconds"),
            None if !wanted.is_null() => Some("must be an integer"),
            _ => None,
        };
        if let Some(why) = why {
            let error = FieldError::invalid("spec.expirationSeconds", wanted, why);
            let named = Named { group: "authentication.k8s.io", what: "TokenRequest", name: "" };
            return Err(ApiError::invalid(named, &[error]));
        }
        let reference = &spec["boundObjectRef"];
        let bound = Bound::resolve(reference, target.namespace, target.name, self)?;
        let mut seconds = wanted.as_i64().unwrap_or(DEFAULT_SECONDS);
        if reference["kind"] == "Pod" {
            seconds = seconds.min(MAX_POD_SECONDS);
        }
        let audiences: Vec<String> =
            spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).map(str::to_owned).collect();
        let audiences = if audiences.is_empty() { vec![ISSUER.to_owned()] } else { audiences };
        let (token, end) = self.authority.issue(&account, bound.as_ref(), &audiences, seconds, &self.clock);
        Ok(json!({
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "metadata": {"name": target.name, "namespace": target.namespace,
                "creationTimestamp": self.clock.stamp(), "uid": self.clock.uid()},
            "spec": {"audiences": audiences, "expirationSeconds": seconds, "boundObjectRef": reference},
            "status": {"token": token, "expirationTimestamp": crate::clock::seconds(end)},
        }))
    }
}
