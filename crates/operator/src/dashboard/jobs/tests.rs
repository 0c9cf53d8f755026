//! The job API against a dashboard with injected faults.

use super::*;
use crate::dashboard::client::Route;
use axum::Router;
use axum::http::StatusCode;
use axum::response::IntoResponse;
use manta_testkit::{DashboardMode as Mode, FakeDashboard};
use serde_json::json;
use std::time::Duration;

/// A Kubernetes API that knows one Secret, and a Service `head` whose dashboard knows one job.
fn kube(token: &'static str) -> kube::Client {
    let handler = move |uri: axum::http::Uri| async move {
        match uri.path() {
            "/api/v1/namespaces/ns/secrets/token" => {
                use base64::Engine;
                let token = base64::engine::general_purpose::STANDARD.encode(token);
                axum::Json(json!({"metadata": {"name": "token"}, "data": {"auth_token": token}})).into_response()
            }
            "/api/v1/namespaces/ns/secrets/empty" => axum::Json(json!({"metadata": {"name": "empty"}})).into_response(),
            "/api/v1/namespaces/ns/services/head:dashboard/proxy/api/jobs/known" => {
                axum::Json(json!({"status": "RUNNING"})).into_response()
            }
            "/api/v1/namespaces/ns/services/head:dashboard/proxy/api/jobs/unknown" => {
                (StatusCode::NOT_FOUND, "Job unknown does not exist").into_response()
            }
            _ => {
                let status = json!({"kind": "Status", "code": 404, "message": "no such thing", "reason": "NotFound"});
                (StatusCode::NOT_FOUND, axum::Json(status)).into_response()
            }
        }
    };
    kube::Client::new(Router::new().fallback(handler), "ns")
}

pub(crate) fn client(route: Route) -> Client {
    Client::new(kube("s3cret"), route)
}

pub(crate) fn endpoint(dashboard: &FakeDashboard) -> DashboardEndpoint {
    DashboardEndpoint {
        namespace: "ns".into(),
        address: dashboard.address().to_string(),
        service: "head".into(),
        token_secret: None,
    }
}

async fn dashboard() -> (FakeDashboard, Client, DashboardEndpoint) {
    let dashboard = FakeDashboard::start().await.unwrap();
    let endpoint = endpoint(&dashboard);
    (dashboard, client(Route::Direct), endpoint)
}

#[tokio::test]
async fn a_job_from_submission_to_deletion() {
    let (dashboard, client, endpoint) = dashboard().await;
    let error = info(&client, &endpoint, "train").await.unwrap_err();
    assert_eq!(error.to_string(), "Job train does not exist on the cluster");
    let body = json!({"entrypoint": "python x.py", "submission_id": "train"});
    assert_eq!(submit(&client, &endpoint, &body).await.unwrap(), "train");
    assert_eq!(info(&client, &endpoint, "train").await.unwrap().status, "PENDING");
    let error = submit(&client, &endpoint, &body).await.unwrap_err().to_string();
    assert_eq!(error, "submission ID 'train' already used, Please use a different submission_id");
    assert_eq!(logs(&client, &endpoint, "train").await.unwrap(), "");
    assert_eq!(logs(&client, &endpoint, "other").await.unwrap(), "");
    stop(&client, &endpoint, "train").await.unwrap();
    assert_eq!(info(&client, &endpoint, "train").await.unwrap().status, "STOPPED");
    delete(&client, &endpoint, "train").await.unwrap();
    delete(&client, &endpoint, "train").await.unwrap();
    assert!(matches!(info(&client, &endpoint, "train").await, Err(JobError::NotFound(_))));
    assert_eq!(dashboard.writes()[0].body, body);
}

#[tokio::test]
async fn replies_without_job_info_are_errors() {
    let (dashboard, client, endpoint) = dashboard().await;
    dashboard.set_job("train", &json!({"status": "RUNNING"}));
    let wrong = [
        (500, "out of order", "GetJobInfo fail: 500 Internal Server Error out of order"),
        (500, "{\"error\":\"x\"}", "GetJobInfo fail: 500 Internal Server Error {\"error\":\"x\"}"),
        (200, "<html>sign in</html>", "GetJobInfo fail: <html>sign in</html>"),
        (200, "{\"status\": \"RUNN", "GetJobInfo fail: {\"status\": \"RUNN"),
        (200, "", "GetJobInfo fail: "),
        (200, "{}", "GetJobInfo fail: {}"),
        (200, "null", "GetJobInfo fail: null"),
    ];
    for (status, body, expect) in wrong {
        dashboard.set_mode(Mode::Answers(status, body.to_owned()));
        assert_eq!(info(&client, &endpoint, "train").await.unwrap_err().to_string(), expect);
    }
    dashboard.set_mode(Mode::Broken);
    assert!(matches!(info(&client, &endpoint, "train").await, Err(JobError::Request(_))));
    dashboard.set_mode(Mode::Up);
    assert_eq!(info(&client, &endpoint, "train").await.unwrap().status, "RUNNING");
}

#[tokio::test]
async fn rejected_submissions_return_the_cause() {
    let (dashboard, client, endpoint) = dashboard().await;
    dashboard.set_mode(Mode::Answers(400, "bad runtime_env".to_owned()));
    let error = submit(&client, &endpoint, &json!({})).await.unwrap_err().to_string();
    assert_eq!(error, "SubmitJob fail: 400 Bad Request bad runtime_env");
    dashboard.set_mode(Mode::Answers(200, "no JSON".to_owned()));
    assert_eq!(submit(&client, &endpoint, &json!({})).await.unwrap_err().to_string(), "SubmitJob fail: no JSON");
}

#[tokio::test]
async fn a_job_that_has_ended_counts_as_stopped() {
    let (dashboard, client, endpoint) = dashboard().await;
    stop(&client, &endpoint, "unknown").await.unwrap();
    dashboard.set_mode(Mode::RefusesWrites(200, "{\"stopped\": false}".to_owned()));
    dashboard.set_job("train", &json!({"status": "SUCCEEDED"}));
    stop(&client, &endpoint, "train").await.unwrap();
    dashboard.set_job("train", &json!({"status": "RUNNING"}));
    let error = stop(&client, &endpoint, "train").await.unwrap_err().to_string();
    assert_eq!(error, "failed to stop job: its status is RUNNING");
    dashboard.set_mode(Mode::RefusesWrites(500, "no".to_owned()));
    let error = stop(&client, &endpoint, "train").await.unwrap_err().to_string();
    assert_eq!(error, "failed to stop job: 500 Internal Server Error no");
}

#[tokio::test]
async fn tokens_come_from_the_secret_and_are_looked_up_again_when_refused() {
    let (dashboard, client, mut endpoint) = dashboard().await;
    dashboard.set_job("train", &json!({"status": "RUNNING"}));
    dashboard.require_token("s3cret");
    assert!(info(&client, &endpoint, "train").await.unwrap_err().to_string().contains("401"));
    endpoint.token_secret = Some("token".into());
    assert_eq!(info(&client, &endpoint, "train").await.unwrap().status, "RUNNING");
    assert_eq!(dashboard.asked().last().unwrap().authorization.as_deref(), Some("Bearer s3cret"));
    dashboard.require_token("another");
    assert!(info(&client, &endpoint, "train").await.unwrap_err().to_string().contains("403"));
    dashboard.require_token("s3cret");
    assert_eq!(info(&client, &endpoint, "train").await.unwrap().status, "RUNNING");

    endpoint.token_secret = Some("missing".into());
    let error = info(&client, &endpoint, "train").await.unwrap_err().to_string();
    assert_eq!(error, "failed to get auth secret ns/missing: no such thing");
    endpoint.token_secret = Some("empty".into());
    let error = info(&client, &endpoint, "train").await.unwrap_err().to_string();
    assert_eq!(error, "auth token key '\"auth_token\"' not found in secret ns/empty");
}

#[tokio::test]
async fn requests_can_go_through_the_api_server_proxy() {
    let dashboard = FakeDashboard::start().await.unwrap();
    let (client, mut endpoint) = (client(Route::ApiServerProxy), endpoint(&dashboard));
    assert_eq!(info(&client, &endpoint, "known").await.unwrap().status, "RUNNING");
    assert!(matches!(info(&client, &endpoint, "unknown").await, Err(JobError::NotFound(_))));
    // A missing Service does not mean that the job is unknown.
    endpoint.service = "gone".into();
    assert!(matches!(info(&client, &endpoint, "known").await, Err(JobError::Info(_))));
    assert!(dashboard.asked().is_empty());
}

#[tokio::test]
async fn a_request_times_out_after_two_seconds() {
    let (dashboard, client, endpoint) = dashboard().await;
    dashboard.set_mode(Mode::Slow(Duration::from_secs(30)));
    let error = info(&client, &endpoint, "train").await.unwrap_err().to_string();
    assert_eq!(error, "no answer within 2 s");
}

#[test]
fn job_ids_are_escaped_in_the_path() {
    assert_eq!(path("train-bcdfg", "/stop"), "/api/jobs/train-bcdfg/stop");
    assert_eq!(path("a/../b?c d", ""), "/api/jobs/a%2F..%2Fb%3Fc%20d");
}
