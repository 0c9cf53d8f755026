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
        (Method::GET, "/api/v1/namespaces/default/pods?labelSelector=%ff", "".into(), 400),
        (Method::GET, "/api/v1/namespaces/default/pods?labelSelector=((((", "".into(), 400),
        (Method::GET, "/api/v1/namespaces/default/pods?limit=-1&continue=%00", "".into(), 400),
        (Method::GET, "/api/v1/namespaces/default/pods/%2e%2e", "".into(), 404),
        (Method::GET, "/api/v1/namespaces/default/pods?resourceVersion=99999999999999999999999", "".into(), 400),
        (Method::DELETE, "/api/v1/namespaces/default/pods/none", "{\"propagationPolicy\":5}".into(), 400),
    ];
    for (method, path, body, expect) in cases {
        let shown = format!("{method} {path}");
        let answer = call(&server, Some(&admin), method, path, body).await;
        assert_eq!(answer.status.as_u16(), expect, "{shown}: {}", answer.body);
        assert!(expect == 200 || answer.body["kind"] == "Status", "{shown}: {}", answer.body);
    }
    server.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_holds_a_token_that_lives_as_long_as_it_does() {
    use base64::Engine;
    let server = start(false).await;
    let admin = server.identity().admin_token.clone();
    let admin = Some(admin.as_str());
    let post = |path: &'static str, body: Value| call(&server, admin, Method::POST, path, body.to_string());
    let secrets = "/api/v1/namespaces/default/secrets";
    let path = format!("{secrets}/robot-token");
    post("/api/v1/namespaces/default/serviceaccounts", json!({"metadata": {"name": "robot"}})).await;
    let secret = |account: &str| {
        json!({"metadata": {"name": format!("{account}-token"),
            "annotations": {"kubernetes.io/service-account.name": account}}, "type": "kubernetes.io/service-account-token"})
    };
    post(secrets, secret("robot")).await;
    let data = manta_testkit::eventually("the Secret is filled", async || {
        let data = call(&server, admin, Method::GET, &path, "").await.body["data"].take();
        anyhow::ensure!(data["token"].is_string(), "{data}");
        Ok(data)
    });
    let data = data.await.expect("filled");
    let decode = |key: &str| {
        let bytes = base64::engine::general_purpose::STANDARD.decode(data[key].as_str().expect("a text"));
        String::from_utf8(bytes.expect("base64")).expect("text")
    };
    assert_eq!(decode("namespace"), "default");
    assert!(decode("ca.crt").starts_with("-----BEGIN CERTIFICATE-----"));
    let token = decode("token");
    let review = post("/apis/authentication.k8s.io/v1/tokenreviews", json!({"spec": {"token": token}})).await;
    assert_eq!(review.body["status"]["user"]["username"], "system:serviceaccount:default:robot");
    assert_eq!(call(&server, Some(&token), Method::GET, "/api/v1/pods", "").await.status, StatusCode::OK);
    call(&server, admin, Method::DELETE, &path, "").await;
    assert_eq!(call(&server, Some(&token), Method::GET, "/api/v1/pods", "").await.status, StatusCode::UNAUTHORIZED);
    // Nobody needs the token of an account that does not exist.
    post(secrets, secret("nobody")).await;
    let gone = manta_testkit::eventually("the Secret is gone", async || {
        let found = call(&server, admin, Method::GET, &format!("{secrets}/nobody-token"), "").await.status;
        anyhow::ensure!(found == StatusCode::NOT_FOUND, "{found}");
        Ok(())
    });
    gone.await.expect("deleted");
    server.stop().await;
}

/// Other programs verify tokens with what the issuer publishes.
#[tokio::test]
async fn the_issuer_publishes_the_keys_of_its_tokens() {
    use base64::Engine;
    use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
    use rustls::pki_types::SignatureVerificationAlgorithm;
    let server = start(false).await;
    let admin = server.identity().admin_token.clone();
    let get = |path: &'static str| call(&server, Some(&admin), Method::GET, path, "");
    let about = get("/.well-known/openid-configuration").await.body;
    assert_eq!(about["id_token_signing_alg_values_supported"], json!(["ES256"]));
    assert_eq!(about["jwks_uri"], format!("{}/openid/v1/jwks", about["issuer"].as_str().expect("an issuer")));
    let keys = get("/openid/v1/jwks").await.body;
    let path = "/api/v1/namespaces/default/serviceaccounts/default/token";
    let made = async || {
        let made = call(&server, Some(&admin), Method::POST, path, json!({"spec": {}}).to_string()).await;
        anyhow::ensure!(made.status == StatusCode::CREATED, "{}", made.body);
        Ok(made.body["status"]["token"].as_str().expect("a token").to_owned())
    };
    let token = manta_testkit::eventually("the default account exists", made).await.expect("a token");
    let (body, signature) = token.rsplit_once('.').expect("a signature");
    let parse = |part: &str| serde_json::from_slice::<Value>(&BASE64.decode(part).expect("base64")).expect("JSON");
    let (header, claims) = body.split_once('.').expect("a header");
    let (header, claims) = (parse(header), parse(claims));
    assert_eq!((&header["alg"], &claims["iss"]), (&json!("ES256"), &about["issuer"]));
    let key = keys["keys"].as_array().expect("keys").iter().find(|key| key["kid"] == header["kid"]).expect("its key");
    assert_eq!((&key["kty"], &key["crv"]), (&json!("EC"), &json!("P-256")));
    let axis = |name: &str| BASE64.decode(key[name].as_str().expect("a text")).expect("base64");
    let point = [vec![4], axis("x"), axis("y")].concat();
    let signature = BASE64.decode(signature).expect("base64");
    assert_eq!(signature.len(), 64, "two numbers, as JSON Web Signatures have them");
    // Verifiers of certificates read them as DER, where a number whose first bit is set would be negative.
    let number = |bytes: &[u8]| {
        let start = bytes.iter().position(|byte| *byte != 0).unwrap_or(31);
        let pad = usize::from(bytes[start] >= 0x80);
        [vec![2, (32 - start + pad) as u8], vec![0; pad], bytes[start..].to_vec()].concat()
    };
    let both = [number(&signature[..32]), number(&signature[32..])].concat();
    let der = [vec![0x30, both.len() as u8], both].concat();
    let known = rustls::crypto::ring::default_provider().signature_verification_algorithms.all;
    let p256 = known.iter().find(|one| {
        one.public_key_alg_id() == rustls::pki_types::alg_id::ECDSA_P256
            && one.signature_alg_id() == rustls::pki_types::alg_id::ECDSA_SHA256
    });
    let p256: &dyn SignatureVerificationAlgorithm = *p256.expect("ring knows it");
    assert!(p256.verify_signature(&point, body.as_bytes(), &der).is_ok());
    server.stop().await;
}
