//! `AdmissionReview` v1: requests and responses.

use crate::metrics::Metrics;
use axum::Router;
use axum::body::Bytes;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use axum::routing::post;
use manta_logic::action::Kind;
use manta_logic::admission::refuse::{AdmissionRequest, Refusal, message, refuse};
use manta_logic::config::Config;
use serde::Deserialize;
use serde_json::{Value, json};
use std::sync::Arc;
use tokio::time::Instant;

/// The validated kinds and their paths. KubeRay has no webhook for RayCronJobs.
pub(super) const PATHS: [(Kind, &str); 4] = [
    (Kind::RayCluster, "/validate-ray-io-v1-raycluster"),
    (Kind::RayJob, "/validate-ray-io-v1-rayjob"),
    (Kind::RayService, "/validate-ray-io-v1-rayservice"),
    (Kind::RayCronJob, "/validate-ray-io-v1-raycronjob"),
];
/// The API server stores no larger object.
const MAX_BODY_BYTES: usize = 8 << 20;

/// Returns the handlers for all kinds.
pub(super) fn router(config: Arc<Config>, metrics: Arc<Metrics>) -> Router {
    let mut router = Router::new();
    for (kind, path) in PATHS {
        let (config, metrics) = (Arc::clone(&config), Arc::clone(&metrics));
        let handler = move |body: Bytes| async move {
            metrics.webhook_started(path);
            let start = Instant::now();
            let response = respond(kind, &body, &config);
            metrics.webhook_ended(path, response.status().as_u16(), start.elapsed());
            response
        };
        router = router.route(path, post(handler));
    }
    router.layer(axum::extract::DefaultBodyLimit::max(MAX_BODY_BYTES))
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Review {
    api_version: String,
    request: Request,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Request {
    uid: String,
    operation: String,
    #[serde(default)]
    name: String,
    #[serde(default)]
    object: Value,
    #[serde(default)]
    old_object: Value,
}

fn respond(kind: Kind, body: &[u8], config: &Config) -> Response {
    match serde_json::from_slice::<Review>(body) {
        Ok(review) if review.api_version == "admission.k8s.io/v1" => {
            let body = review_request(kind, &review.request, config).to_string();
            ([(header::CONTENT_TYPE, "application/json")], body).into_response()
        }
        Ok(review) => {
            let text = format!("unsupported AdmissionReview version {}; use admission.k8s.io/v1", review.api_version);
            (StatusCode::BAD_REQUEST, text).into_response()
        }
        Err(error) => (StatusCode::BAD_REQUEST, format!("not an AdmissionReview: {error}")).into_response(),
    }
}

fn review_request(kind: Kind, request: &Request, config: &Config) -> Value {
    let is_change = matches!(request.operation.as_str(), "CREATE" | "UPDATE");
    let old = Some(&request.old_object).filter(|old| !old.is_null());
    let candidate = AdmissionRequest { kind, object: &request.object, old };
    let refusals = if is_change { refuse(&candidate, config) } else { Vec::new() };
    let mut response = json!({"uid": request.uid, "allowed": refusals.is_empty()});
    if !refusals.is_empty() {
        response["status"] = status(kind, request, &refusals);
    }
    json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "response": response})
}

/// Returns the status that the API server itself gives for an invalid object.
fn status(kind: Kind, request: &Request, refusals: &[Refusal]) -> Value {
    // With `generateName`, the request has no name yet.
    let name = request.object["metadata"]["name"].as_str().unwrap_or(&request.name);
    let kind_name = kind.resource().kind;
    let causes: Vec<_> = refusals
        .iter()
        .map(|refusal| json!({"reason": "FieldValueInvalid", "message": refusal.to_string(), "field": refusal.field}))
        .collect();
    json!({
        "status": "Failure", "reason": "Invalid", "code": 422, "message": message(kind_name, name, refusals),
        "details": {"name": name, "group": "ray.io", "kind": kind_name, "causes": causes},
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn review_cluster(operation: &str, name: &str) -> Value {
        let spec = json!({"headGroupSpec": {"template": {"spec": {"containers": [{"name": "head"}]}}}});
        let object = json!({"metadata": {"name": name}, "spec": spec});
        let request = json!({"uid": "u-1", "operation": operation, "name": name, "object": object, "oldObject": null});
        let request = serde_json::from_value(request).unwrap();
        review_request(Kind::RayCluster, &request, &Config::default())
    }

    #[test]
    fn a_rejection_reads_like_one_of_the_api_server() {
        let allowed = json!({"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview",
                             "response": {"uid": "u-1", "allowed": true}});
        assert_eq!(review_cluster("CREATE", "good"), allowed);
        let long = "a".repeat(54);
        // Deletions are always allowed.
        assert_eq!(review_cluster("DELETE", &long), allowed);
        let response = &review_cluster("UPDATE", &long)["response"];
        assert_eq!((&response["allowed"], &response["uid"]), (&json!(false), &json!("u-1")));
        let status = &response["status"];
        assert_eq!((&status["code"], &status["reason"]), (&json!(422), &json!("Invalid")));
        let text = status["message"].as_str().unwrap();
        assert!(text.ends_with("RayCluster name should be no more than 53 characters"), "{text}");
        assert_eq!(status["details"]["causes"][0]["field"], "metadata.name");
    }

    #[test]
    fn a_malformed_review_is_a_bad_request() {
        for (body, expect) in [
            ("", "not an AdmissionReview"),
            ("{}", "not an AdmissionReview"),
            (
                r#"{"apiVersion": "admission.k8s.io/v1beta1", "request": {"uid": "u", "operation": "CREATE"}}"#,
                "unsupported AdmissionReview version admission.k8s.io/v1beta1",
            ),
        ] {
            let response = respond(Kind::RayJob, body.as_bytes(), &Config::default());
            assert_eq!(response.status(), StatusCode::BAD_REQUEST, "{body}");
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            let text = runtime.block_on(axum::body::to_bytes(response.into_body(), 1000)).unwrap();
            assert!(String::from_utf8_lossy(&text).starts_with(expect), "{text:?}");
        }
    }
}
