//! Evidence from a router in place of an API server.

use super::*;
use crate::dashboard::{Client as Dashboards, Route};
use axum::Router;
use axum::http::{StatusCode, Uri};
use axum::response::IntoResponse;
use serde_json::json;

/// Serves a failed RayJob with its cluster; events and logs are refused.
fn sources() -> Sources {
    let answer = |uri: Uri| async move {
        let refused = |what: &str| {
            let message = format!("{what} is forbidden: User \"u\" cannot list resource");
            let status = json!({"kind": "Status", "code": 403, "reason": "Forbidden", "message": message});
            (StatusCode::FORBIDDEN, axum::Json(status)).into_response()
        };
        let found = |object: Value| axum::Json(object).into_response();
        let labels = json!({"ray.io/cluster": "train-x", "ray.io/node-type": "head"});
        let ended = json!({"terminated": {"exitCode": 1, "reason": "Error"}});
        match uri.path() {
            "/apis/ray.io/v1/namespaces/ns/rayjobs/train" => found(json!({
                "metadata": {"name": "train", "uid": "u1"}, "spec": {"entrypoint": "python x.py"},
                "status": {"rayClusterName": "train-x", "jobDeploymentStatus": "Failed", "jobId": "id"},
            })),
            "/apis/ray.io/v1/namespaces/ns/rayclusters/train-x" => found(json!({
                "metadata": {"name": "train-x"}, "spec": {"headGroupSpec": {"template": {}}},
            })),
            "/api/v1/namespaces/ns/pods"
                if uri.query().is_some_and(|query| query.contains("ray.io%2Fcluster%3Dtrain-x")) =>
            {
                found(json!({"items": [{
                    "metadata": {"name": "train-x-head", "labels": labels},
                    "status": {"phase": "Failed", "containerStatuses": [{"name": "ray", "state": ended}]},
                }]}))
            }
            "/api/v1/namespaces/ns/pods" => found(json!({"items": []})),
            "/api/v1/namespaces/ns/events" => refused("events"),
            "/api/v1/namespaces/ns/pods/train-x-head/log" => refused("pods/log"),
            _ => {
                let status = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"});
                (StatusCode::NOT_FOUND, axum::Json(status)).into_response()
            }
        }
    };
    let client = kube::Client::new(Router::new().fallback(answer), "ns");
    Sources {
        dashboards: Dashboards::new(client.clone(), Route::ApiServerProxy),
        client,
        cluster_domain: String::new(),
        workloads: true,
    }
}

fn subject(name: &str) -> Subject {
    Subject { kind: "RayJob".to_owned(), namespace: "ns".to_owned(), name: name.to_owned(), uid: String::new() }
}

#[tokio::test]
async fn sources_that_cannot_be_read_are_named() {
    let evidence = gather(&sources(), &subject("train"), Timestamp::UNIX_EPOCH).await.unwrap().unwrap();
    assert_eq!(evidence.subject.uid, "u1");
    assert_eq!(evidence.clusters.len(), 1);
    assert_eq!(evidence.pods.iter().map(|pod| pod.metadata.name.as_str()).collect::<Vec<_>>(), ["train-x-head"]);
    let unreadable: Vec<&str> = evidence.unreadable.iter().map(|it| it.what.as_str()).collect();
    assert_eq!(unreadable, ["list events", "get pods/log"]);
    assert!(evidence.unreadable[0].why.contains("cannot list resource"));
}

#[tokio::test]
async fn an_absent_object_has_no_evidence() {
    assert_eq!(gather(&sources(), &subject("other"), Timestamp::UNIX_EPOCH).await.unwrap(), None);
}

/// Serves a RayCluster in a queue of Kueue, among many events.
fn busy_namespace(events: usize, kueue: &'static str) -> Sources {
    let answer = move |uri: Uri| async move {
        let path = uri.path();
        let from: usize = uri.query().and_then(|query| query.split("continue=t").nth(1)?.parse().ok()).unwrap_or(0);
        if path == "/apis/ray.io/v1/namespaces/ns/rayclusters/a" {
            let labels = json!({"kueue.x-k8s.io/queue-name": "team"});
            return axum::Json(json!({"metadata": {"name": "a", "uid": "u1", "labels": labels}, "spec": {}}))
                .into_response();
        }
        if path == format!("/apis/kueue.x-k8s.io/{kueue}/namespaces/ns/workloads") {
            let owners = json!([{"kind": "RayCluster", "name": "a"}]);
            let workload = json!({"metadata": {"name": "w", "ownerReferences": owners}, "spec": {"queueName": "team"}, "status": {}});
            return axum::Json(
                json!({"items": [workload, {"metadata": {"name": "other"}, "spec": {"queueName": "x"}, "status": {}}]}),
            )
            .into_response();
        }
        if path == "/api/v1/namespaces/ns/events" {
            let to = events.min(from + 500);
            let about = |number: usize| if number + 1 == events { "a" } else { "other" };
            let items = (from..to)
                .map(|number| json!({"involvedObject": {"kind": "RayCluster", "name": about(number)}, "reason": "R"}));
            let more = if to < events {
                json!({"continue": format!("t{to}"), "remainingItemCount": events - to})
            } else {
                json!({})
            };
            return axum::Json(json!({"metadata": more, "items": items.collect::<Vec<_>>()})).into_response();
        }
        if path.starts_with("/api/v1/") {
            return axum::Json(json!({"items": []})).into_response();
        }
        let status = json!({"kind": "Status", "code": 404, "reason": "NotFound", "message": "not found"});
        (StatusCode::NOT_FOUND, axum::Json(status)).into_response()
    };
    let client = kube::Client::new(Router::new().fallback(answer), "ns");
    Sources { dashboards: Dashboards::new(client.clone(), Route::ApiServerProxy), client, ..sources() }
}

#[tokio::test]
async fn long_lists_are_read_to_a_bound_and_the_rest_is_reported() {
    let subject = Subject { kind: "RayCluster".to_owned(), ..subject("a") };
    let gathered = async |events| gather(&busy_namespace(events, "v1beta2"), &subject, Timestamp::UNIX_EPOCH).await;
    let evidence = gathered(2600).await.unwrap().unwrap();
    assert_eq!((evidence.events.len(), evidence.unreadable.len()), (1, 0), "the last of many pages: {evidence:?}");
    let evidence = gathered(10_400).await.unwrap().unwrap();
    let [left] = evidence.unreadable.as_slice() else { panic!("{:?}", evidence.unreadable) };
    assert_eq!(
        (left.what.as_str(), left.why.as_str()),
        ("list events", "only the first 10000 of them were read (400 more)")
    );
}

#[tokio::test]
async fn workloads_are_found_in_every_version_of_kueue() {
    let subject = Subject { kind: "RayCluster".to_owned(), ..subject("a") };
    for (version, expect) in [("v1beta1", 1), ("v1beta2", 1), ("none", 0)] {
        let evidence = gather(&busy_namespace(0, version), &subject, Timestamp::UNIX_EPOCH).await.unwrap().unwrap();
        assert_eq!((evidence.workloads.len(), evidence.unreadable.len()), (expect, 0), "{version}");
    }
}

/// Serves a RayCluster of a RayJob, with a token, on which another RayJob runs; `refused` is a path that may not be read.
fn cluster_with_secrets(refused: &'static str) -> Sources {
    let answer = move |uri: Uri| async move {
        let status = |code: StatusCode, message: &str| {
            let status = json!({"kind": "Status", "code": code.as_u16(), "reason": "", "message": message});
            (code, axum::Json(status)).into_response()
        };
        let found = |object: Value| axum::Json(object).into_response();
        let env = |value: &str| format!("env_vars: {{A: {value}}}");
        let path = uri.path();
        if path == refused {
            return status(StatusCode::FORBIDDEN, "forbidden");
        }
        match path
            .strip_prefix("/apis/ray.io/v1/namespaces/ns/")
            .or_else(|| path.strip_prefix("/api/v1/namespaces/ns/"))
        {
            Some("rayclusters/train-x") => found(json!({
                "metadata": {"name": "train-x", "uid": "c1", "ownerReferences": [{"kind": "RayJob", "name": "train", "uid": "j1"}]},
                "spec": {"authOptions": {"mode": "token"}, "headGroupSpec": {"template": {}}},
            })),
            Some("rayjobs/train") => found(json!({
                "metadata": {"name": "train", "uid": "j1"}, "spec": {"runtimeEnvYAML": env("marker-owner")}, "status": {},
            })),
            Some("rayjobs") => found(json!({"items": [{
                "metadata": {"name": "other", "uid": "j2"}, "spec": {"runtimeEnvYAML": env("marker-other")},
                "status": {"rayClusterName": "train-x"},
            }]})),
            Some("secrets/train-x") => {
                let token = k8s_openapi::ByteString(b"marker-token".to_vec());
                found(json!({"metadata": {"name": "train-x"}, "data": {"auth_token": token}}))
            }
            Some("pods") => {
                let labels = json!({"ray.io/cluster": "train-x", "ray.io/node-type": "head"});
                let killed = json!({"terminated": {"exitCode": 137, "reason": "OOMKilled"}});
                found(json!({"items": [{
                    "metadata": {"name": "train-x-head", "labels": labels},
                    "status": {"phase": "Failed", "containerStatuses": [{"name": "ray", "state": killed}]},
                }]}))
            }
            Some("pods/train-x-head/log") => "marker-owner\nmarker-other\nmarker-token\nplain\n".into_response(),
            Some("events") => found(json!({"items": []})),
            _ => status(StatusCode::NOT_FOUND, "not found"),
        }
    };
    let client = kube::Client::new(Router::new().fallback(answer), "ns");
    Sources { dashboards: Dashboards::new(client.clone(), Route::ApiServerProxy), client, ..sources() }
}

#[tokio::test]
async fn records_of_a_cluster_hold_no_secret_of_the_jobs_on_it() {
    let subject = Subject { kind: "RayCluster".to_owned(), ..subject("train-x") };
    let gathered = async |refused: &'static str| {
        let sources = cluster_with_secrets(refused);
        gather_redacted(&sources, &subject, Timestamp::UNIX_EPOCH).await.unwrap().unwrap()
    };
    let evidence = gathered("").await;
    assert_eq!(evidence.logs[0].lines, ["[redacted]", "[redacted]", "[redacted]", "plain"], "{evidence:?}");
    assert_eq!(evidence.unreadable, []);
    for refused in ["rayjobs/train", "rayjobs"].map(|path| format!("/apis/ray.io/v1/namespaces/ns/{path}")) {
        let evidence = gathered(refused.leak()).await;
        assert_eq!((evidence.logs.len(), evidence.pods.len()), (0, 1), "{evidence:?}");
        assert!(evidence.unreadable[0].why.contains("secrets are not known"), "{evidence:?}");
    }
    let evidence = gathered("/api/v1/namespaces/ns/secrets/train-x").await;
    assert_eq!(evidence.logs.len(), 0, "{evidence:?}");
}
