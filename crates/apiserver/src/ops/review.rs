//! Reviews of tokens, subjects and access, which are not stored.

use serde_json::{Value, json};

use super::Cluster;
use crate::auth::{Attributes, ISSUER, User};
use crate::error::{ApiError, Named};
use crate::registry::Resource;
use crate::schema::FieldError;

impl Cluster {
    /// Evaluates a review on behalf of `user`.
    pub fn review(
        &self,
        resource: &Resource,
        namespace: &str,
        mut body: Value,
        user: &User,
    ) -> Result<Value, ApiError> {
        if !body.is_object() {
            return Err(ApiError::bad_request("the body must be an object"));
        }
        body["apiVersion"] = (*resource.api_version).into();
        body["kind"] = (*resource.kind).into();
        if !body["metadata"].is_object() {
            body["metadata"] = json!({});
        }
        let spec = &body["spec"];
        if resource.kind.ends_with("AccessReview") {
            check_access(resource, spec)?;
        }
        body["status"] = match &*resource.kind {
            "SelfSubjectReview" => json!({"userInfo": user.to_value()}),
            "TokenReview" => self.review_token(spec),
            "SelfSubjectRulesReview" => self.authority.rules_of(user, namespace_of(spec, namespace), self),
            "SelfSubjectAccessReview" => self.access(spec, user, namespace),
            _ => {
                let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
                let groups = spec["groups"].as_array().into_iter().flatten().map(text).collect();
                let asked = User { name: text(&spec["user"]), uid: text(&spec["uid"]), groups, ..User::default() };
                self.access(spec, &asked, namespace)
            }
        };
        Ok(body)
    }

    fn review_token(&self, spec: &Value) -> Value {
        let token = spec["token"].as_str().unwrap_or("");
        let audiences: Vec<&str> =
            spec["audiences"].as_array().into_iter().flatten().filter_map(Value::as_str).collect();
        let found = match audiences.is_empty() {
            true => self.authority.user_of_token(token, self).map(|user| (user, vec![ISSUER])),
            false => self.authority.account_of_token(token, &audiences, self),
        };
        match found {
            Some((user, audiences)) => {
                json!({"authenticated": true, "user": user.to_value(), "audiences": audiences})
            }
            None => json!({"user": {}, "error": "invalid bearer token"}),
        }
    }

    fn access(&self, spec: &Value, user: &User, namespace: &str) -> Value {
        let text = |value: &Value| value.as_str().unwrap_or("").to_owned();
        let asked = &spec["resourceAttributes"];
        let attributes = if asked.is_object() {
            let given = text(&asked["namespace"]);
            Attributes {
                verb: text(&asked["verb"]),
                group: text(&asked["group"]),
                version: text(&asked["version"]),
                resource: text(&asked["resource"]),
                subresource: text(&asked["subresource"]),
                namespace: if namespace.is_empty() { given } else { namespace.to_owned() },
                name: text(&asked["name"]),
                path: String::new(),
            }
        } else {
            let asked = &spec["nonResourceAttributes"];
            Attributes { verb: text(&asked["verb"]), path: text(&asked["path"]), ..Attributes::default() }
        };
        match self.authority.allows(user, &attributes, self) {
            Ok(reason) if reason.is_empty() => json!({"allowed": true}),
            Ok(reason) => json!({"allowed": true, "reason": reason}),
            Err(reason) => json!({"allowed": false, "reason": reason}),
        }
    }
}

/// Validates the spec of an access review.
fn check_access(resource: &Resource, spec: &Value) -> Result<(), ApiError> {
    let mut errors = Vec::new();
    if spec["resourceAttributes"].is_object() == spec["nonResourceAttributes"].is_object() {
        let why = "exactly one of nonResourceAttributes or resourceAttributes must be specified";
        errors.push(FieldError::invalid("spec.resourceAttributes", &Value::Null, why));
    }
    let somebody = !spec["user"].as_str().unwrap_or("").is_empty() || spec["groups"].is_array();
    if &*resource.kind != "SelfSubjectAccessReview" && !somebody {
        errors.push(FieldError::invalid("spec.user", &json!(""), "at least one of user or group must be specified"));
    }
    match errors.is_empty() {
        true => Ok(()),
        false => Err(ApiError::invalid(Named { group: &resource.group, what: "", name: "" }, &errors)),
    }
}

fn namespace_of<'a>(spec: &'a Value, fallback: &'a str) -> &'a str {
    spec["namespace"].as_str().unwrap_or(fallback)
}
