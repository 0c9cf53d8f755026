//! Requests that must not be carried out as they are, or not at all.

use axum::body::Body;
use base64::Engine;
use http::{Method, Request, StatusCode, header};
use http_body_util::BodyExt;
use serde_json::{Value, json};
use tower::ServiceExt;

use crate::auth::User;
use crate::{Options, Server};

const MAPS: &str = "/api/v1/namespaces/default/configmaps";
const PODS: &str = "/api/v1/namespaces/default/pods";
const REQUESTS: &str = "/apis/certificates.k8s.io/v1/certificatesigningrequests";
const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";

struct Answer {
    status: StatusCode,
    body: Value,
    warnings: Vec<String>,
}

async fn start() -> Server {
    Server::start(Options::default()).await.expect("starts")
}

async fn send(server: &Server, method: Method, path: &str, content: &str, body: String) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header(header::CONTENT_TYPE, content);
    request.extensions_mut().expect("valid").insert(User::admin());
    let response = server.router().oneshot(request.body(Body::from(body)).expect("valid")).await.expect("infallible");
    let status = response.status();
    let warnings = response.headers().get_all(header::WARNING).iter();
    let warnings = warnings.map(|value| value.to_str().expect("text").to_owned()).collect();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    Answer { status, body: serde_json::from_slice(&bytes).unwrap_or_default(), warnings }
}

async fn call(server: &Server, method: Method, path: &str, body: Value) -> Answer {
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let body = if body.is_null() { String::new() } else { body.to_string() };
    send(server, method, path, content, body).await
}

async fn make(server: &Server, path: &str, object: Value) -> Value {
    let made = call(server, Method::POST, path, object).await;
    assert_eq!(made.status, StatusCode::CREATED, "{}", made.body);
    made.body
}

fn pod(name: &str, spec: Value) -> Value {
    let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    for (key, value) in spec.as_object().into_iter().flatten() {
        pod["spec"][key] = value.clone();
    }
    pod
}

#[tokio::test]
async fn deletions_that_are_not_understood_delete_nothing() {
    let server = start().await;
    make(&server, MAPS, json!({"metadata": {"name": "a"}})).await;
    let one = format!("{MAPS}/a");
    let check = async |path: &str, content: &str, body: &str, code: u16, why: &str| {
        let answer = send(&server, Method::DELETE, path, content, body.to_owned()).await;
        let message = answer.body["message"].as_str().unwrap_or("");
        assert!(answer.status.as_u16() == code && message.contains(why), "{path} {body}: {}", answer.body);
        assert_eq!(call(&server, Method::GET, &one, Value::Null).await.status, StatusCode::OK, "{path} {body}");
    };
    let json = "application/json";
    check(&format!("{MAPS}?labelSelector=app%3Dx%ff"), json, "", 400, "not properly escaped").await;
    check(&format!("{MAPS}?fieldSelector=%zz"), json, "", 400, "not properly escaped").await;
    for path in [&one, MAPS] {
        for stage in ["true", "all", "", "All&dryRun=Some"] {
            let path = format!("{path}?dryRun={stage}");
            check(&path, json, "", 422, "supported values: \"All\"").await;
        }
        check(path, json, r#"{"dryRun": ["all"]}"#, 422, "supported values: \"All\"").await;
        check(path, json, r#"{"dryRun": "All"}"#, 400, "must be a list of strings").await;
        check(path, json, "[]", 400, "must be an object").await;
        check(path, "text/plain", r#"{"dryRun": ["All"]}"#, 415, "unknown format").await;
    }
    let gone = call(&server, Method::DELETE, &one, Value::Null).await;
    assert_eq!(gone.status, StatusCode::OK, "{}", gone.body);
}

#[tokio::test]
async fn writes_with_unknown_options_are_refused() {
    let server = start().await;
    let check = async |query: &str, why: &str| {
        let made = call(&server, Method::POST, &format!("{MAPS}?{query}"), json!({"metadata": {"name": "a"}})).await;
        assert_eq!(made.status, StatusCode::UNPROCESSABLE_ENTITY, "{query}: {}", made.body);
        assert!(made.body["message"].as_str().is_some_and(|text| text.contains(why)), "{query}: {}", made.body);
    };
    check("dryRun=true", "supported values: \"All\"").await;
    check("dryRun=", "supported values: \"All\"").await;
    check(&format!("fieldManager={}", "m".repeat(129)), "fieldManager: Too long: may not be more than 128").await;
}

#[tokio::test]
async fn statuses_are_not_taken_from_clients() {
    let server = start().await;
    let approved = json!({"conditions": [{"type": "Approved", "status": "True"}], "certificate": "eA=="});
    let request = base64::engine::general_purpose::STANDARD.encode("-----BEGIN CERTIFICATE REQUEST-----");
    let spec = json!({"request": request, "signerName": "example.com/s", "usages": ["client auth"]});
    let made = make(&server, REQUESTS, json!({"metadata": {"name": "r"}, "spec": spec, "status": approved})).await;
    assert_eq!(made["status"], json!({}));
    let template = json!({"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
    let mut deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "d"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template}, "status": {"readyReplicas": 7}});
    assert_eq!(make(&server, DEPLOYMENTS, deployment.clone()).await["status"], json!({}));
    deployment["metadata"]["name"] = json!("applied");
    let path = format!("{DEPLOYMENTS}/applied?fieldManager=m");
    let applied = send(&server, Method::PATCH, &path, "application/apply-patch+yaml", deployment.to_string()).await;
    assert_eq!((applied.status, &applied.body["status"]), (StatusCode::CREATED, &json!({})));
    let node = json!({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "1"}}});
    assert_eq!(make(&server, "/api/v1/nodes", node).await["status"]["capacity"]["cpu"], "1", "nodes bring their own");
}

#[tokio::test]
async fn pods_are_bound_only_as_the_client_means_it() {
    let server = start().await;
    make(&server, PODS, pod("free", json!({}))).await;
    make(&server, PODS, pod("gated", json!({"schedulingGates": [{"name": "example.com/g"}]}))).await;
    let bind = async |name: &str, query: &str, metadata: Value| {
        let body = json!({"metadata": metadata, "target": {"name": "n"}});
        let answer = call(&server, Method::POST, &format!("{PODS}/{name}/binding{query}"), body).await;
        let pod = call(&server, Method::GET, &format!("{PODS}/{name}"), Value::Null).await.body;
        (answer.status.as_u16(), pod["spec"]["nodeName"] == "n", pod["metadata"]["annotations"]["a"].clone())
    };
    let unbound = |code: u16| (code, false, Value::Null);
    assert_eq!(bind("gated", "", json!({})).await, unbound(409));
    assert_eq!(bind("free", "", json!({"uid": "other"})).await, unbound(409));
    assert_eq!(bind("free", "?dryRun=all", json!({})).await, unbound(422));
    assert_eq!(bind("free", "?dryRun=All", json!({})).await, unbound(201));
    assert_eq!(bind("free", "", json!({"annotations": {"a": "b"}})).await, (201, true, json!("b")));
}

#[tokio::test]
async fn evictions_without_an_object_are_refused() {
    let server = start().await;
    make(&server, PODS, pod("p", json!({}))).await;
    let hook = json!({"metadata": {"name": "h"}, "webhooks": [{"name": "h.example.com", "sideEffects": "None",
        "admissionReviewVersions": ["v1"], "clientConfig": {"url": "https://127.0.0.1:1/"},
        "rules": [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"],
            "resources": ["pods/eviction"]}]}]});
    let hooks = "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations";
    make(&server, hooks, hook).await;
    let answer = call(&server, Method::POST, &format!("{PODS}/p/eviction"), json!([])).await;
    assert_eq!(answer.status, StatusCode::BAD_REQUEST, "{}", answer.body);
}

#[tokio::test]
async fn changes_warn_of_what_has_no_effect() {
    let server = start().await;
    let policies = "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies";
    let policy = |name: &str| {
        json!({"apiVersion": "networking.k8s.io/v1", "kind": "NetworkPolicy", "metadata": {"name": name},
        "spec": {"podSelector": {}}})
    };
    let warned = |answer: &Answer| {
        assert!(answer.status.is_success(), "{}", answer.body);
        answer.warnings.iter().any(|warning| warning.contains("nothing acts on them"))
    };
    let made = call(&server, Method::POST, policies, policy("p")).await;
    assert!(warned(&made));
    let path = format!("{policies}/p");
    let patch = json!({"spec": {"podSelector": {"matchLabels": {"a": "b"}}}});
    assert!(warned(&call(&server, Method::PATCH, &path, patch).await));
    let labelled = json!({"metadata": {"labels": {"a": "b"}}});
    assert!(!warned(&call(&server, Method::PATCH, &path, labelled).await), "what is wanted stays the same");
    assert!(warned(&call(&server, Method::PUT, &path, policy("p")).await));
    let apply = format!("{policies}/applied?fieldManager=m");
    let body = policy("applied").to_string();
    assert!(warned(&send(&server, Method::PATCH, &apply, "application/apply-patch+yaml", body).await));
}

#[tokio::test]
async fn the_scheme_of_a_token_is_written_as_one_likes() {
    let server = start().await;
    let token = server.cluster().authority.admin_token().to_owned();
    for (value, expect) in [
        (format!("Bearer {token}"), StatusCode::OK),
        (format!("bearer  {token}"), StatusCode::OK),
        (format!("BEARER {token}"), StatusCode::OK),
        ("bearer other".to_owned(), StatusCode::UNAUTHORIZED),
    ] {
        let request = Request::builder().uri(MAPS).header(header::AUTHORIZATION, &value);
        let request = request.body(Body::empty()).expect("valid");
        let response = server.router().oneshot(request).await.expect("infallible");
        assert_eq!(response.status(), expect);
    }
}
