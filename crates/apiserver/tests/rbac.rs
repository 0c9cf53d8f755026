//! RBAC: default roles, impersonation, escalation checks, and tokens that die with their pod.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use axum::body::Body;
use http::{Method, Request};
use http_body_util::BodyExt;
use manta_apiserver::auth::User;
use manta_apiserver::clock::Clock;
use manta_apiserver::{Options, Server};
use manta_testkit::ControlPlane;
use serde_json::{Value, json};
use tower::ServiceExt;

const RBAC: &str = "/apis/rbac.authorization.k8s.io/v1";

/// How a request proves who sends it.
enum As<'a> {
    User(&'a User),
    Token(&'a str),
    /// The administrator, who impersonates a user.
    Impersonating(&'a str),
}

async fn call(server: &Server, who: As<'_>, method: Method, path: &str, body: &Value) -> (u16, Value) {
    let mut request = Request::builder().method(method).uri(path).header("content-type", "application/json");
    match who {
        As::User(user) => {
            request.extensions_mut().expect("valid").insert(user.clone());
        }
        As::Token(token) => request = request.header("authorization", format!("Bearer {token}")),
        As::Impersonating(name) => {
            request.extensions_mut().expect("valid").insert(User::admin());
            request = request.header("impersonate-user", name);
        }
    }
    let bytes = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let response = server.router().oneshot(request.body(Body::from(bytes)).expect("valid")).await.expect("infallible");
    let status = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (status, serde_json::from_slice(&bytes).unwrap_or(Value::Null))
}

async fn start() -> Server {
    Server::start(Options { rbac: true, ..Options::default() }).await.expect("starts")
}

async fn post(server: &Server, path: &str, body: Value) -> Value {
    let (status, answer) = call(server, As::User(&User::admin()), Method::POST, path, &body).await;
    assert_eq!(status, 201, "{answer}");
    answer
}

fn user(name: &str) -> User {
    User { name: name.into(), groups: vec!["system:authenticated".into()], ..User::default() }
}

fn binding(name: &str, role: &str, subject: &str) -> Value {
    json!({"metadata": {"name": name}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole",
        "name": role}, "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": subject}]})
}

async fn can_i(server: &Server, name: &str, verb: &str, group: &str, resource: &str) -> bool {
    let (resource, subresource) = resource.split_once('/').unwrap_or((resource, ""));
    let review = json!({"spec": {"resourceAttributes": {"verb": verb, "group": group, "resource": resource,
        "subresource": subresource, "namespace": "default"}}});
    let path = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
    let (status, answer) = call(server, As::Impersonating(name), Method::POST, path, &review).await;
    assert_eq!(status, 201, "{answer}");
    answer["status"]["allowed"] == true
}

#[tokio::test]
async fn a_service_account_may_do_nothing_by_default() {
    let server = start().await;
    let account = "system:serviceaccount:default:default";
    assert!(!can_i(&server, account, "*", "*", "*").await);
    assert!(!can_i(&server, account, "get", "", "secrets").await);
    assert!(can_i(&server, account, "create", "authorization.k8s.io", "selfsubjectaccessreviews").await);
    let (status, _) = call(&server, As::Impersonating(account), Method::GET, "/api", &Value::Null).await;
    assert_eq!(status, 200, "discovery is for every authenticated user");
    let (status, answer) = call(&server, As::Impersonating(account), Method::GET, "/metrics", &Value::Null).await;
    assert_eq!(status, 403);
    assert_eq!(answer["message"], format!("forbidden: User {account:?} cannot get path \"/metrics\""));
}

#[tokio::test]
async fn aggregated_default_roles_grant_what_their_names_say() {
    let server = start().await;
    for role in ["view", "edit", "admin"] {
        post(&server, &format!("{RBAC}/namespaces/default/rolebindings"), binding(role, role, role)).await;
    }
    for (name, verb, group, resource, expect) in [
        ("view", "list", "", "pods", true),
        ("view", "get", "", "secrets", false),
        ("view", "create", "", "pods", false),
        ("edit", "create", "apps", "deployments", true),
        ("edit", "get", "", "secrets", true),
        ("edit", "list", "batch", "jobs", true),
        ("edit", "create", "rbac.authorization.k8s.io", "roles", false),
        ("admin", "create", "rbac.authorization.k8s.io", "roles", true),
        ("admin", "create", "", "pods/exec", true),
        ("admin", "get", "", "nodes", false),
    ] {
        assert_eq!(can_i(&server, name, verb, group, resource).await, expect, "{name} {verb} {resource}");
    }
    // A role that is labelled for aggregation extends the defaults.
    post(
        &server,
        &format!("{RBAC}/clusterroles"),
        json!({"metadata": {"name": "ray-view",
        "labels": {"rbac.authorization.k8s.io/aggregate-to-view": "true"}},
        "rules": [{"apiGroups": ["ray.io"], "resources": ["rayclusters"], "verbs": ["get"]}]}),
    )
    .await;
    for _ in 0..500 {
        if can_i(&server, "admin", "get", "ray.io", "rayclusters").await {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(10)).await;
    }
    panic!("the role was not aggregated into view, edit and admin");
}

#[tokio::test]
async fn impersonation_needs_permission() {
    let server = start().await;
    let mut request = Request::builder().uri("/api/v1/pods").header("impersonate-user", "kubernetes-admin");
    request.extensions_mut().expect("valid").insert(user("bob"));
    let response = server.router().oneshot(request.body(Body::empty()).expect("valid")).await.expect("infallible");
    assert_eq!(response.status().as_u16(), 403);
    let mut request = Request::builder()
        .uri("/api/v1/pods")
        .header("impersonate-user", "x")
        .header("impersonate-group", "system:masters");
    request.extensions_mut().expect("valid").insert(user("bob"));
    let response = server.router().oneshot(request.body(Body::empty()).expect("valid")).await.expect("infallible");
    assert_eq!(response.status().as_u16(), 403);
}

#[tokio::test]
async fn nobody_grants_more_than_they_hold() {
    let server = start().await;
    // An admin of a namespace may write roles and bindings there.
    post(&server, &format!("{RBAC}/namespaces/default/rolebindings"), binding("admins", "admin", "bob")).await;
    let bob = user("bob");
    let roles = format!("{RBAC}/namespaces/default/roles");
    let bindings = format!("{RBAC}/namespaces/default/rolebindings");
    let try_post = async |path: &str, body: Value| call(&server, As::User(&bob), Method::POST, path, &body).await;
    let role = |name: &str, rules: Value| json!({"metadata": {"name": name}, "rules": rules});
    let pods = json!([{"apiGroups": [""], "resources": ["pods"], "verbs": ["get", "list"]}]);
    assert_eq!(try_post(&roles, role("fine", pods.clone())).await.0, 201);
    let everything = json!([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]);
    let (status, answer) = try_post(&roles, role("all", everything.clone())).await;
    assert_eq!(status, 403, "{answer}");
    assert_eq!(
        answer["message"],
        "roles.rbac.authorization.k8s.io \"all\" is forbidden: user \"bob\" (groups=[\"system:authenticated\"]) is \
         attempting to grant RBAC permissions not currently held:\n{APIGroups:[\"*\"], Resources:[\"*\"], Verbs:[\"*\"]}"
    );
    let (status, _) = try_post(&bindings, binding("steal", "cluster-admin", "bob")).await;
    assert_eq!(status, 403, "binding a stronger role");
    assert_eq!(try_post(&bindings, binding("ok", "view", "carol")).await.0, 201, "bob holds all of view");
    assert_eq!(try_post(&bindings, binding("none", "no-such-role", "bob")).await.0, 404);
    // The same by an update and by a patch.
    let path = format!("{roles}/fine");
    let mut grown = role("fine", everything.clone());
    assert_eq!(call(&server, As::User(&bob), Method::PUT, &path, &grown).await.0, 403);
    grown["rules"] = pods;
    grown["metadata"]["labels"] = json!({"a": "b"});
    assert_eq!(call(&server, As::User(&bob), Method::PUT, &path, &grown).await.0, 200, "labels are not permissions");
    // The verbs bind and escalate lift the checks.
    post(
        &server,
        &format!("{RBAC}/clusterroles"),
        json!({"metadata": {"name": "lifter"}, "rules": [
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["clusterroles"], "verbs": ["bind"],
            "resourceNames": ["cluster-admin"]},
        {"apiGroups": ["rbac.authorization.k8s.io"], "resources": ["roles"], "verbs": ["escalate"]}]}),
    )
    .await;
    post(&server, &bindings, binding("lifters", "lifter", "bob")).await;
    assert_eq!(try_post(&bindings, binding("steal", "cluster-admin", "dave")).await.0, 201);
    assert_eq!(try_post(&roles, role("all", everything)).await.0, 201);
}

#[tokio::test]
async fn a_bound_token_dies_with_its_pod() {
    let second = Arc::new(AtomicI64::new(1_000_000));
    let shared = second.clone();
    let now = move || jiff::Timestamp::from_second(shared.load(Ordering::Relaxed)).expect("in range");
    let options = Options { rbac: true, clock: Some(Clock::new(now, 1)), ..Options::default() };
    let server = Server::start(options).await.expect("starts");
    let account = "/api/v1/namespaces/default/serviceaccounts/robot";
    post(&server, "/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    let pod = |name: &str, account: &str| {
        json!({"metadata": {"name": name}, "spec": {"serviceAccountName": account,
        "nodeName": "n", "containers": [{"name": "c", "image": "i"}]}})
    };
    let pods = "/api/v1/namespaces/default/pods";
    let uid = post(&server, pods, pod("p", "robot")).await["metadata"]["uid"].clone();
    post(&server, pods, pod("other", "default")).await;
    let request = |name: &str, uid: &Value, seconds: i64| {
        json!({"spec": {"expirationSeconds": seconds,
        "boundObjectRef": {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}}})
    };
    let path = format!("{account}/token");
    let issued = post(&server, &path, request("p", &uid, 365 * 24 * 3600)).await;
    assert_eq!(issued["spec"]["expirationSeconds"], 24 * 3600, "the tokens of pods are short-lived");
    let token = issued["status"]["token"].as_str().expect("a token").to_owned();
    for (name, uid, expect) in [("missing", json!("u"), 404), ("p", json!("another"), 409), ("other", Value::Null, 400)]
    {
        let (status, answer) =
            call(&server, As::User(&User::admin()), Method::POST, &path, &request(name, &uid, 600)).await;
        assert_eq!(status, expect, "{answer}");
    }
    let whoami = async || {
        let path = "/apis/authentication.k8s.io/v1/selfsubjectreviews";
        call(&server, As::Token(&token), Method::POST, path, &json!({})).await
    };
    let (status, answer) = whoami().await;
    assert_eq!(status, 201, "{answer}");
    assert_eq!(answer["status"]["userInfo"]["extra"]["authentication.kubernetes.io/pod-name"], json!(["p"]));
    // The pod has 30 seconds to stop, and its token a minute more.
    call(&server, As::User(&User::admin()), Method::DELETE, &format!("{pods}/p"), &Value::Null).await;
    second.fetch_add(80, Ordering::Relaxed);
    assert_eq!(whoami().await.0, 201, "the pod is still stopping");
    second.fetch_add(20, Ordering::Relaxed);
    assert_eq!(whoami().await.0, 401, "the pod should have stopped long ago");
    second.fetch_sub(100, Ordering::Relaxed);
    let options = json!({"gracePeriodSeconds": 0});
    call(&server, As::User(&User::admin()), Method::DELETE, &format!("{pods}/p"), &options).await;
    assert_eq!(whoami().await.0, 401, "the pod is gone");
    post(&server, pods, pod("p", "robot")).await;
    assert_eq!(whoami().await.0, 401, "a pod of the same name is another pod");
}

#[tokio::test]
async fn a_token_for_another_audience_is_refused() {
    let server = start().await;
    post(&server, "/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    let path = "/api/v1/namespaces/default/serviceaccounts/robot/token";
    let issued = post(&server, path, json!({"spec": {"audiences": ["vault"]}})).await;
    let token = issued["status"]["token"].as_str().expect("a token");
    assert_eq!(call(&server, As::Token(token), Method::GET, "/api", &Value::Null).await.0, 401);
    let review = |audiences: Value| json!({"spec": {"token": token, "audiences": audiences}});
    let path = "/apis/authentication.k8s.io/v1/tokenreviews";
    let reviewed = post(&server, path, review(json!(["vault"]))).await;
    assert_eq!(reviewed["status"]["authenticated"], true);
    assert_eq!(post(&server, path, review(json!(["bank"]))).await["status"]["error"], "invalid bearer token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_default_roles_are_those_of_the_real_server() {
    let options = manta_testkit::Options { rbac: true, ..manta_testkit::Options::default() };
    let real = ControlPlane::start_with(options).expect("the real server starts");
    let client = real.client().await.expect("a client");
    let server = start().await;
    for plural in ["clusterroles", "clusterrolebindings"] {
        let request = Request::builder().uri(format!("{RBAC}/{plural}")).body(Vec::new()).expect("valid");
        let theirs: Value = client.request(request).await.expect("a list");
        let path = format!("{RBAC}/{plural}");
        let (_, ours) = call(&server, As::User(&User::admin()), Method::GET, &path, &Value::Null).await;
        let summary = |list: &Value| -> Vec<Value> {
            let items = list["items"].as_array().into_iter().flatten();
            let known = items.filter(|item| {
                let name = item["metadata"]["name"].as_str().unwrap_or("");
                // Nodes are authorized by this role alone here, so it is bound to them.
                !name.starts_with("system:controller:") && (plural, name) != ("clusterrolebindings", "system:node")
            });
            let part = |item: &Value| {
                // The rules of aggregated roles are derived from the others.
                let rules = if item["aggregationRule"].is_object() { &Value::Null } else { &item["rules"] };
                json!({"name": item["metadata"]["name"], "labels": item["metadata"]["labels"], "rules": rules,
                    "aggregationRule": item["aggregationRule"], "roleRef": item["roleRef"], "subjects": item["subjects"]})
            };
            known.map(part).collect()
        };
        let (theirs, ours) = (summary(&theirs), summary(&ours));
        assert!(theirs.len() > 10, "{theirs:?}");
        for (one, other) in theirs.iter().zip(&ours) {
            assert_eq!(one, other);
        }
        assert_eq!(theirs.len(), ours.len());
    }
}
