//! API errors, as Kubernetes `Status` objects.
//!
//! Clients act on `reason` and `code`, people read `message`; all three match the real server.

use std::fmt;

use serde_json::{Map, Value, json};

use crate::schema::FieldError;

/// A request that was refused or failed.
#[derive(Debug, Clone)]
pub struct ApiError(Box<Inner>);

#[derive(Debug, Clone)]
struct Inner {
    code: u16,
    reason: &'static str,
    message: String,
    details: Map<String, Value>,
    /// The Status carries `details` even if they are empty.
    bare: bool,
}

/// The subject of an error message: `pods "a"`, `rayclusters.ray.io "b"`.
#[derive(Debug, Clone, Copy)]
pub struct Named<'a> {
    /// The API group; empty for the core group.
    pub group: &'a str,
    /// The plural resource, or the kind where the message wants a kind.
    pub what: &'a str,
    /// The object's name.
    pub name: &'a str,
}

impl fmt::Display for Named<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Named { group, what, name } = self;
        match group.is_empty() {
            true => write!(f, "{what} {name:?}"),
            false => write!(f, "{what}.{group} {name:?}"),
        }
    }
}

impl Named<'_> {
    fn details(&self) -> Map<String, Value> {
        let mut details = Map::new();
        for (key, value) in [("name", self.name), ("group", self.group), ("kind", self.what)] {
            if !value.is_empty() {
                details.insert(key.into(), value.into());
            }
        }
        details
    }
}

impl ApiError {
    fn new(code: u16, reason: &'static str, message: impl Into<String>) -> ApiError {
        ApiError(Box::new(Inner { code, reason, message: message.into(), details: Map::new(), bare: false }))
    }

    /// Adds empty `details`, as the real server does where the object is not known.
    fn bare(mut self) -> ApiError {
        self.0.bare = true;
        self
    }

    fn about(mut self, named: Named<'_>) -> ApiError {
        self.0.details = named.details();
        self
    }

    /// Adds a cause that belongs to no field.
    pub(crate) fn caused_by(mut self, reason: &str, message: &str) -> ApiError {
        self.0.details.insert("causes".into(), json!([{"reason": reason, "message": message}]));
        self
    }

    /// 404: there is no such object.
    pub fn not_found(named: Named<'_>) -> ApiError {
        ApiError::new(404, "NotFound", format!("{named} not found")).about(named)
    }

    /// 404: there is no such path or subresource.
    pub fn no_such_path() -> ApiError {
        ApiError::new(404, "NotFound", "the server could not find the requested resource").bare()
    }

    /// 409: the name is taken.
    pub fn already_exists(named: Named<'_>) -> ApiError {
        ApiError::new(409, "AlreadyExists", format!("{named} already exists")).about(named)
    }

    /// 409: the object changed meanwhile, or a precondition failed.
    pub fn conflict(named: Named<'_>, why: &str) -> ApiError {
        ApiError::new(409, "Conflict", format!("Operation cannot be fulfilled on {named}: {why}")).about(named)
    }

    /// 409: the resourceVersion is outdated.
    pub fn modified(named: Named<'_>) -> ApiError {
        let why = "the object has been modified; please apply your changes to the latest version and try again";
        ApiError::conflict(named, why)
    }

    /// 409: fields that other managers own.
    pub fn apply_conflict(message: String, causes: Vec<Value>) -> ApiError {
        let mut error = ApiError::new(409, "Conflict", message);
        error.0.details.insert("causes".into(), causes.into());
        error
    }

    /// 422: validation failed; `named.what` is the kind.
    pub fn invalid(named: Named<'_>, errors: &[FieldError]) -> ApiError {
        let lines: Vec<String> = errors.iter().map(ToString::to_string).collect();
        let text = if lines.len() == 1 { lines.concat() } else { format!("[{}]", lines.join(", ")) };
        let mut error = ApiError::new(422, "Invalid", format!("{named} is invalid: {text}")).about(named);
        let causes: Vec<Value> = errors
            .iter()
            .map(|error| json!({"reason": error.reason(), "message": error.body, "field": error.field}))
            .collect();
        error.0.details.insert("causes".into(), causes.into());
        error
    }

    /// 422: the patch cannot be processed.
    pub fn unprocessable(message: impl Into<String>) -> ApiError {
        ApiError::new(422, "Invalid", message)
    }

    /// 422: a patch that does not fit its object.
    pub fn patch_rejected(why: &str) -> ApiError {
        let message = "the server rejected our request due to an error in our request";
        tracing::debug!(why, "rejected a patch");
        ApiError::new(422, "Invalid", message).bare()
    }

    /// 413: a patch with too many operations.
    pub fn patch_too_large(message: String) -> ApiError {
        ApiError::new(413, "RequestEntityTooLarge", message)
    }

    /// 500: an applied configuration that does not fit its type.
    pub fn untyped(message: String) -> ApiError {
        ApiError::new(500, "", message)
    }

    /// 400: the request is malformed.
    pub fn bad_request(message: impl Into<String>) -> ApiError {
        ApiError::new(400, "BadRequest", message)
    }

    /// 401: the credentials are missing or invalid.
    pub fn unauthorized() -> ApiError {
        ApiError::new(401, "Unauthorized", "Unauthorized")
    }

    /// 403: not allowed.
    pub fn forbidden(named: Named<'_>, why: &str) -> ApiError {
        let subject = if named.name.is_empty() {
            match named.group {
                "" => named.what.to_owned(),
                group => format!("{}.{group}", named.what),
            }
        } else {
            named.to_string()
        };
        ApiError::new(403, "Forbidden", format!("{subject} is forbidden: {why}")).about(named)
    }

    /// A refusal by an admission policy, with the reason that the policy gives.
    pub fn denied_by_policy(named: Named<'_>, reason: &str, why: &str) -> ApiError {
        let (code, reason) = match reason {
            "Unauthorized" => (401, "Unauthorized"),
            "Forbidden" => (403, "Forbidden"),
            "RequestEntityTooLarge" => (413, "RequestEntityTooLarge"),
            _ => (422, "Invalid"),
        };
        let mut error = ApiError::forbidden(named, why);
        (error.0.code, error.0.reason) = (code, reason);
        error.0.details.insert("causes".into(), json!([{"message": why}]));
        error
    }

    /// 403: the caller may not use a path that is no resource.
    pub fn forbidden_path(user: &str, verb: &str, path: &str) -> ApiError {
        let message = format!("forbidden: User {user:?} cannot {verb} path {path:?}");
        ApiError::new(403, "Forbidden", message).bare()
    }

    /// 403: the namespace is being terminated.
    pub fn terminating(named: Named<'_>, namespace: &str) -> ApiError {
        let why = format!("unable to create new content in namespace {namespace} because it is being terminated");
        let mut error = ApiError::forbidden(named, &why);
        let cause = json!({"reason": "NamespaceTerminating",
            "message": format!("namespace {namespace} is being terminated"), "field": "metadata.namespace"});
        error.0.details.insert("causes".into(), json!([cause]));
        error
    }

    /// 405: the resource does not support this method.
    pub fn method_not_allowed() -> ApiError {
        let message = "the server does not allow this method on the requested resource";
        ApiError::new(405, "MethodNotAllowed", message).bare()
    }

    /// 406: none of the accepted media types is available.
    pub fn not_acceptable() -> ApiError {
        let message = "406: Not Acceptable\n\nAvailable representations: application/json, application/yaml, \
                       application/vnd.kubernetes.protobuf";
        ApiError::new(406, "NotAcceptable", message).bare()
    }

    /// 410: the requested revision has been compacted.
    pub fn expired(message: impl Into<String>) -> ApiError {
        ApiError::new(410, "Expired", message)
    }

    /// 410: the continue token's revision has been compacted; carries a token for an inconsistent continuation.
    pub fn expired_continue(fresh: &str) -> ApiError {
        let message = "The provided continue parameter is too old to display a consistent list result. You can start \
                       a new list without the continue parameter, or use the continue token in this response to \
                       retrieve the remainder of the results. Continuing with the provided token results in an \
                       inconsistent list - objects that were created, modified, or deleted between the time the \
                       first chunk was returned and now may show up in the list.";
        let mut error = ApiError::new(410, "Expired", message);
        error.0.details.insert("\u{0}continue".into(), fresh.into());
        error
    }

    /// 413: the request body is too large.
    pub fn too_large(limit: usize) -> ApiError {
        let message = format!("Request entity is too large: limit is {limit}");
        ApiError::new(413, "RequestEntityTooLarge", message)
    }

    /// 415: the media type of the body is not supported.
    pub fn unsupported_media_type(accepted: &str) -> ApiError {
        let message =
            format!("the body of the request was in an unknown format - accepted media types include: {accepted}");
        ApiError::new(415, "UnsupportedMediaType", message)
    }

    /// 415: the media type is not a patch type.
    pub fn unsupported_patch() -> ApiError {
        ApiError::new(415, "UnsupportedMediaType", "415: Unsupported Media Type").bare()
    }

    /// 422: invalid options; `kind` is e.g. `ListOptions`.
    pub fn invalid_options(kind: &str, error: FieldError) -> ApiError {
        ApiError::invalid(Named { group: "meta.k8s.io", what: kind, name: "" }, &[error])
    }

    /// 422: the patched object does not decode as its kind.
    pub fn patch_unreadable(object: &Value, why: &str) -> ApiError {
        let error = FieldError::invalid("patch", &object.to_string().into(), why);
        ApiError::invalid(Named { group: "", what: "", name: "" }, &[error])
    }

    /// 429: a disruption budget does not allow the eviction now.
    pub fn too_many_requests(message: impl Into<String>) -> ApiError {
        ApiError::new(429, "TooManyRequests", message)
    }

    /// Returns the denial of an admission webhook, with the webhook's code and reason.
    pub fn denied(code: u16, reason: &str, message: String) -> ApiError {
        const REASONS: [&str; 12] = [
            "Unauthorized",
            "Forbidden",
            "NotFound",
            "AlreadyExists",
            "Conflict",
            "Gone",
            "Invalid",
            "BadRequest",
            "MethodNotAllowed",
            "NotAcceptable",
            "TooManyRequests",
            "InternalError",
        ];
        ApiError::new(code, REASONS.into_iter().find(|known| *known == reason).unwrap_or(""), message)
    }

    /// 500: internal error.
    pub fn internal(message: impl fmt::Display) -> ApiError {
        ApiError::new(500, "InternalError", format!("Internal error occurred: {message}"))
    }

    /// 503: temporarily unavailable.
    pub fn unavailable(message: impl Into<String>) -> ApiError {
        ApiError::new(503, "ServiceUnavailable", message)
    }

    /// 504: the requested revision did not become visible in time.
    pub fn too_new(wanted: u64, current: u64) -> ApiError {
        let message = format!("Timeout: Too large resource version: {wanted}, current: {current}");
        let mut error = ApiError::new(504, "Timeout", message);
        let cause = json!({"reason": "ResourceVersionTooLarge", "message": "Too large resource version"});
        error.0.details.insert("causes".into(), json!([cause]));
        error.0.details.insert("retryAfterSeconds".into(), 1.into());
        error
    }

    /// Returns the HTTP status.
    pub fn code(&self) -> u16 {
        self.0.code
    }

    /// Returns the machine-readable reason.
    pub fn reason(&self) -> &'static str {
        self.0.reason
    }

    /// Returns whether this is a conflict, which a retry may resolve.
    pub fn is_conflict(&self) -> bool {
        self.0.reason == "Conflict"
    }

    /// Returns whether the object was not found.
    pub fn is_not_found(&self) -> bool {
        self.0.code == 404
    }

    /// Returns the `Status` object.
    pub fn status(&self) -> Value {
        let Inner { code, reason, message, details, bare } = &*self.0;
        let mut details = details.clone();
        let fresh = details.remove("\u{0}continue");
        let mut status = json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": message, "code": code});
        if !reason.is_empty() {
            status["reason"] = (*reason).into();
        }
        if let Some(fresh) = fresh {
            status["metadata"]["continue"] = fresh;
        }
        if !details.is_empty() || *bare {
            status["details"] = details.into();
        }
        status
    }
}

impl fmt::Display for ApiError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.message)
    }
}

impl std::error::Error for ApiError {}

impl From<crate::store::WriteFailed> for ApiError {
    fn from(broken: crate::store::WriteFailed) -> ApiError {
        ApiError::internal(broken)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn messages_name_the_resource_as_the_real_server_does() {
        let check = |error: ApiError, expect: &str| assert_eq!(error.to_string(), expect);
        let pod = Named { group: "", what: "pods", name: "a" };
        check(ApiError::not_found(pod), r#"pods "a" not found"#);
        check(ApiError::already_exists(Named { group: "ray.io", ..pod }), r#"pods.ray.io "a" already exists"#);
        let field = FieldError::required("spec.a", "");
        let kind = Named { what: "Pod", ..pod };
        check(ApiError::invalid(kind, std::slice::from_ref(&field)), r#"Pod "a" is invalid: spec.a: Required value"#);
        check(
            ApiError::invalid(kind, &[field.clone(), field]),
            r#"Pod "a" is invalid: [spec.a: Required value, spec.a: Required value]"#,
        );
    }
}
