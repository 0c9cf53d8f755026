//! Who gets in, who may do what, and what happens to bad input.

use axum::body::Body;
use http::{Method, Request, StatusCode};
use manta_apiserver::auth::User;
use manta_apiserver::{Options, Server};
use serde_json::{Value, json};
use tower::ServiceExt;

struct Answer {
    status: StatusCode,
    body: Value,
}

/// Sends a request through the router, with a token if there is one.
async fn call(server: &Server, token: Option<&str>, method: Method, path: &str, body: impl Into<Body>) -> Answer {
    let mut request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    if let Some(token) = token {
        request = request.header("Authorization", format!("Bearer {token}"));
    }
    let response = server.router().oneshot(request.body(body.into()).expect("a request")).await.expect("an answer");
    let status = response.status();
    let bytes = axum::body::to_bytes(response.into_body(), 64 << 20).await.expect("a body");
    Answer { status, body: serde_json::from_slice(&bytes).unwrap_or(Value::Null) }
}

async fn start(rbac: bool) -> Server {
    Server::start(Options { rbac, ..Options::default() }).await.expect("the server starts")
}

#[tokio::test]
async fn anonymous_requests_reach_only_discovery_and_health() {
    let server = start(false).await;
    for path in ["/version", "/healthz", "/readyz", "/livez", "/api", "/apis", "/api/v1", "/openapi/v3"] {
        assert_eq!(call(&server, None, Method::GET, path, "").await.status, StatusCode::OK, "{path}");
    }
    for path in [
        "/api/v1/pods",
        "/api/v1/namespaces/default",
        "/apis/apps/v1/deployments",
        "/api/v1/secrets?watch=1",
        "/metrics",
        "/api/v1/nonsense",
    ] {
        assert_eq!(call(&server, None, Method::GET, path, "").await.status, StatusCode::UNAUTHORIZED, "{path}");
    }
    let guess = call(&server, Some("guess"), Method::GET, "/api/v1/pods", "").await;
    assert_eq!((guess.status, guess.body["reason"].as_str()), (StatusCode::UNAUTHORIZED, Some("Unauthorized")));
    let admin = server.identity().admin_token.clone();
    assert_eq!(call(&server, Some(&admin), Method::GET, "/api/v1/pods", "").await.status, StatusCode::OK);
    server.stop().await;
}

#[tokio::test]
async fn rbac_authorizes_requests() {
    let server = start(true).await;
    let admin = server.identity().admin_token.clone();
    let admin = Some(admin.as_str());
    let post = |path: &'static str, body: Value| call(&server, admin, Method::POST, path, body.to_string());
    post("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    let asked =
        post("/api/v1/namespaces/default/serviceaccounts/robot/token", json!({"spec": {"expirationSeconds": 600}}))
            .await;
    let token = asked.body["status"]["token"].as_str().expect("a token").to_owned();
    let pods = "/api/v1/namespaces/default/pods";
    let refused = call(&server, Some(&token), Method::GET, pods, "").await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert_eq!(
        refused.body["message"],
        "pods is forbidden: User \"system:serviceaccount:default:robot\" cannot list resource \"pods\" in API group \"\" in the namespace \"default\""
    );
    post(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/roles",
        json!({"metadata": {"name": "r"}, "rules": [{"apiGroups": [""], "resources": ["pods"], "verbs": ["list"]}]}),
    )
    .await;
    post(
        "/apis/rbac.authorization.k8s.io/v1/namespaces/default/rolebindings",
        json!({"metadata": {"name": "rb"}, "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": "r"},
            "subjects": [{"kind": "ServiceAccount", "name": "robot", "namespace": "default"}]}),
    )
    .await;
    assert_eq!(call(&server, Some(&token), Method::GET, pods, "").await.status, StatusCode::OK);
    assert_eq!(call(&server, Some(&token), Method::DELETE, pods, "").await.status, StatusCode::FORBIDDEN);
    let review = post(
        "/apis/authorization.k8s.io/v1/subjectaccessreviews",
        json!({"spec": {"user": "system:serviceaccount:default:robot", "resourceAttributes": {"namespace": "default", "verb": "list", "resource": "pods"}}}),
    )
    .await;
    assert_eq!(review.body["status"]["allowed"], true);
    let review = post("/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": {"token": token}})).await;
    assert_eq!(review.body["status"]["user"]["username"], "system:serviceaccount:default:robot");
    // A token dies with its account.
    call(&server, admin, Method::DELETE, "/api/v1/namespaces/default/serviceaccounts/robot", "").await;
    assert_eq!(call(&server, Some(&token), Method::GET, pods, "").await.status, StatusCode::UNAUTHORIZED);
    server.stop().await;
}

#[tokio::test]
async fn the_in_process_client_acts_as_its_user() {
    use k8s_openapi::api::core::v1::Namespace;
    let server = start(true).await;
    let list =
        |client: kube::Client| async move { kube::Api::<Namespace>::all(client).list(&Default::default()).await };
    assert!(list(server.client()).await.is_ok_and(|found| found.items.len() >= 4));
    let nobody = User { name: "nobody".into(), ..User::default() };
    assert!(list(server.client_as(nobody)).await.is_err());
    server.stop().await;
}

/// Returns a client that shows a certificate, or a token.
async fn client(server: &Server, address: std::net::SocketAddr, user: Value) -> kube::Client {
    let file: kube::config::Kubeconfig = serde_json::from_value(json!({
        "current-context": "c",
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "clusters": [{"name": "c", "cluster": {"server": format!("https://{address}"),
            "certificate-authority-data": encoded(&server.identity().ca_pem)}}],
        "users": [{"name": "u", "user": user}],
    }))
    .expect("a kubeconfig");
    let config = kube::Config::from_custom_kubeconfig(file, &Default::default()).await.expect("a config");
    kube::Client::try_from(config).expect("a client")
}

fn encoded(text: &str) -> String {
    use base64::Engine;
    base64::engine::general_purpose::STANDARD.encode(text)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_and_token_files_authenticate() {
    let folder = tempfile::tempdir().expect("a folder");
    let (tokens, audit_log) = (folder.path().join("tokens.csv"), folder.path().join("audit.log"));
    std::fs::write(&tokens, "secret-token,bob,7,\"readers\"\n").expect("written");
    let options = Options { token_file: Some(tokens), audit_log: Some(audit_log.clone()), ..Options::default() };
    let server = Server::start(options).await.expect("the server starts");
    let address = server.listen(std::net::TcpListener::bind("127.0.0.1:0").expect("a port")).expect("it listens");
    let (certificate, key) = server.identity().client_certificate("ann", &["writers"]).expect("a certificate");
    let ann = json!({"client-certificate-data": encoded(&certificate), "client-key-data": encoded(&key)});
    for (user, name, group) in [(ann, "ann", "writers"), (json!({"token": "secret-token"}), "bob", "readers")] {
        let client = client(&server, address, user).await;
        let request = Request::post("/apis/authentication.k8s.io/v1/selfsubjectreviews");
        let request = request.header("Content-Type", "application/json").body(b"{}".to_vec()).expect("a request");
        let review: Value = client.request(request).await.expect("an answer");
        let info = &review["status"]["userInfo"];
        assert_eq!(info["username"], name);
        assert!(info["groups"].as_array().is_some_and(|groups| groups.iter().any(|one| one == group)), "{info}");
        let pods = kube::Api::<k8s_openapi::api::core::v1::Pod>::default_namespaced(client);
        assert!(pods.get_opt("none").await.expect("an answer").is_none());
    }
    server.stop().await;
    let log = std::fs::read_to_string(&audit_log).expect("a log");
    let lines: Vec<Value> = log.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    let gets: Vec<&Value> = lines.iter().filter(|line| line["verb"] == "get").collect();
    let expect = json!({"resource": "pods", "namespace": "default", "name": "none", "apiVersion": "v1"});
    assert_eq!(gets.len(), 2);
    for (line, name) in gets.iter().zip(["ann", "bob"]) {
        assert_eq!((&line["objectRef"], &line["user"]["username"]), (&expect, &json!(name)));
        assert_eq!(line["responseStatus"]["code"], 404);
    }
    assert!(!log.contains("secret-token"), "a token is in the log");
}

#[tokio::test]
async fn malformed_requests_get_a_status() {
    let server = start(false).await;
    let admin = server.identity().admin_token.clone();
    let pods = "/api/v1/namespaces/default/pods";
    let huge = vec![b'x'; 100 << 20];
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let nested =
        format!("{{\"metadata\":{{\"name\":\"a\"}},\"spec\":{}}}", "{\"a\":".repeat(500) + "1" + &"}".repeat(500));
    let cases: Vec<(Method, &str, Body, u16)> = vec![
        (Method::POST, pods, huge.into(), 413),
        (Method::POST, pods, deep.into(), 400),
        (Method::POST, pods, nested.into(), 400),
        (Method::POST, pods, "\u{0}".into(), 400),
        (Method::POST, pods, "null".into(), 400),
        (Method::POST, pods, "{\"metadata\":null,\"spec\":null}".into(), 422),
        (Method::PUT, "/api/v1/namespaces/default/pods/a", "{}".into(), 404),
        (Method::from_bytes(b"BREW").expect("a method"), pods, "".into(), 405),
        (Method::GET, "/api/v1/namespaces/default/pods?labelSelector=%ff", "".into(), 200),
        (Method::GET, "/api/v1/namespaces/default/pods?labelSelector=((((", "".into(), 400),
        (Method::GET, "/api/v1/namespaces/default/pods?limit=-1&continue=%00", "".into(), 400),
        (Method::GET, "/api/v1/namespaces/default/pods/%2e%2e", "".into(), 404),
        (Method::GET, "/api/v1/namespaces/default/pods?resourceVersion=99999999999999999999999", "".into(), 400),
        (Method::DELETE, "/api/v1/namespaces/default/pods/none", "{\"propagationPolicy\":5}".into(), 404),
    ];
    for (method, path, body, expect) in cases {
        let shown = format!("{method} {path}");
        let answer = call(&server, Some(&admin), method, path, body).await;
        assert_eq!(answer.status.as_u16(), expect, "{shown}: {}", answer.body);
        assert!(expect == 200 || answer.body["kind"] == "Status", "{shown}: {}", answer.body);
    }
    server.stop().await;
}
