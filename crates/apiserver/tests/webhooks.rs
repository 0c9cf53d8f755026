//! Admission webhooks: a small one on loopback is asked about writes.

use std::sync::{Arc, Mutex};

use axum::Json;
use axum::extract::{Path, State};
use axum::routing::post;
use base64::Engine;
use http::{Method, Request};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use manta_apiserver::schema::FieldError;
use manta_apiserver::{Options, Reviewer, Server, Verdict};
use serde_json::{Value, json};

/// What the webhook was asked.
type Asked = Arc<Mutex<Vec<Value>>>;

/// A webhook: `/label` adds a label and warns, `/judge` refuses what is called bad, `/never` does not answer.
struct Webhook {
    url: String,
    authority: String,
    asked: Asked,
    task: tokio::task::JoinHandle<()>,
}

impl Drop for Webhook {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn answer(State(asked): State<Asked>, Path(path): Path<String>, Json(review): Json<Value>) -> Json<Value> {
    asked.lock().expect("no panic").push(review["request"].clone());
    let uid = review["request"]["uid"].clone();
    let object = [&review["request"]["object"], &review["request"]["oldObject"]];
    let name = object.iter().find_map(|object| object["metadata"]["name"].as_str()).unwrap_or("").to_owned();
    let response = match path.as_str() {
        "label" => {
            let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"labelled": "yes"}}]).to_string();
            let patch = base64::engine::general_purpose::STANDARD.encode(patch);
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch, "warnings": ["labels are ours"]})
        }
        "judge" => {
            json!({"uid": uid, "allowed": !name.starts_with("bad"), "status": {"code": 403, "message": "it is bad"}})
        }
        _ => std::future::pending().await,
    };
    Json(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}))
}

impl Webhook {
    async fn start() -> Webhook {
        let made = rcgen::generate_simple_self_signed(vec!["127.0.0.1".to_owned()]).expect("a certificate");
        let authority = base64::engine::general_purpose::STANDARD.encode(made.cert.pem());
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).expect("a key");
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let tls = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .expect("versions")
            .with_no_client_auth()
            .with_single_cert(vec![made.cert.der().clone()], key)
            .expect("a certificate with its key");
        let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(tls));
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.expect("a port");
        let url = format!("https://{}", listener.local_addr().expect("an address"));
        let asked = Asked::default();
        let router = axum::Router::new().route("/{path}", post(answer)).with_state(asked.clone());
        let task = tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (acceptor, service) = (acceptor.clone(), TowerToHyperService::new(router.clone()));
                tokio::spawn(async move {
                    let Ok(stream) = acceptor.accept(stream).await else { return };
                    let builder = hyper_util::server::conn::auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        Webhook { url, authority, asked, task }
    }

    fn asked(&self) -> Vec<Value> {
        std::mem::take(&mut *self.asked.lock().expect("no panic"))
    }

    /// Returns a webhook of a configuration, about ConfigMaps.
    fn hook(&self, path: &str, more: Value) -> Value {
        let mut hook = json!({
            "name": format!("{path}.example.com"),
            "clientConfig": {"url": format!("{}/{path}", self.url), "caBundle": self.authority},
            "rules": [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}],
            "admissionReviewVersions": ["v1"],
            "sideEffects": "None",
            "timeoutSeconds": 1,
        });
        for (key, value) in more.as_object().into_iter().flatten() {
            hook[key] = value.clone();
        }
        hook
    }
}

struct Answer {
    code: u16,
    warnings: Vec<String>,
    body: Value,
}

async fn call(client: &kube::Client, method: Method, path: &str, body: Value) -> Answer {
    let content = if method == Method::PATCH { "application/merge-patch+json" } else { "application/json" };
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let request = Request::builder().method(method).uri(path).header("Content-Type", content);
    let response = client.send(request.body(text.into_bytes().into()).expect("a request")).await.expect("an answer");
    let code = response.status().as_u16();
    let warnings = response.headers().get_all("warning").iter();
    let warnings = warnings.map(|value| value.to_str().expect("text").to_owned()).collect();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    Answer { code, warnings, body: serde_json::from_slice(&bytes).expect("JSON") }
}

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

/// Replaces the webhook configuration.
async fn configure(client: &kube::Client, kind: &str, hook: Value) {
    let path = format!("/apis/admissionregistration.k8s.io/v1/{}s", kind.to_lowercase());
    call(client, Method::DELETE, &path, Value::Null).await;
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": [hook]});
    assert_eq!(call(client, Method::POST, &path, configuration).await.code, 201);
}

async fn start() -> (Server, kube::Client, Webhook) {
    let server = Server::start(Options::default()).await.expect("the server starts");
    let client = server.client();
    (server, client, Webhook::start().await)
}

#[tokio::test]
async fn mutating_webhooks_change_what_is_written() {
    let (server, client, webhook) = start().await;
    let hook = webhook.hook(
        "label",
        json!({"matchConditions": [{"name": "not-exempt", "expression": "object.metadata.name != 'exempt'"}]}),
    );
    configure(&client, "MutatingWebhookConfiguration", hook).await;
    let made = call(&client, Method::POST, MAPS, json!({"metadata": {"generateName": "a-"}})).await;
    assert_eq!((made.code, &made.body["metadata"]["labels"]["labelled"]), (201, &json!("yes")));
    assert_eq!(made.warnings, ["299 - \"labels are ours\""]);
    let asked = webhook.asked();
    assert_eq!(asked.len(), 1);
    assert_eq!((&asked[0]["operation"], &asked[0]["oldObject"]), (&json!("CREATE"), &Value::Null));
    // The webhook saw the name that was drawn, and who is asking.
    assert_eq!(asked[0]["object"]["metadata"]["name"], made.body["metadata"]["name"]);
    assert_eq!(asked[0]["userInfo"]["username"], "kubernetes-admin");

    let path = format!("{MAPS}/{}", made.body["metadata"]["name"].as_str().expect("a name"));
    let patched = call(&client, Method::PATCH, &path, json!({"data": {"k": "v"}, "metadata": {"labels": null}})).await;
    assert_eq!((patched.code, &patched.body["data"]["k"]), (200, &json!("v")));
    assert_eq!(patched.body["metadata"]["labels"]["labelled"], "yes");
    let asked = webhook.asked();
    assert_eq!((asked.len(), &asked[0]["operation"]), (1, &json!("UPDATE")));
    assert_eq!(asked[0]["oldObject"]["data"], Value::Null);

    let exempt = call(&client, Method::POST, MAPS, json!({"metadata": {"name": "exempt"}})).await;
    assert_eq!((exempt.code, &exempt.body["metadata"]["labels"]), (201, &Value::Null));
    // Other kinds are none of its business.
    let secret = call(&client, Method::POST, "/api/v1/namespaces/default/secrets", json!({"metadata": {"name": "s"}}));
    assert_eq!(secret.await.code, 201);
    assert!(webhook.asked().is_empty());
    server.stop().await;
}

#[tokio::test]
async fn validating_webhooks_refuse() {
    let (server, client, webhook) = start().await;
    assert_eq!(call(&client, Method::POST, MAPS, json!({"metadata": {"name": "bad-old"}})).await.code, 201);
    configure(&client, "ValidatingWebhookConfiguration", webhook.hook("judge", json!({}))).await;
    let why = "admission webhook \"judge.example.com\" denied the request: it is bad";
    let refused = [
        (Method::POST, MAPS.to_owned(), json!({"metadata": {"name": "bad-new"}})),
        (Method::PATCH, format!("{MAPS}/bad-old"), json!({"data": {"k": "v"}})),
        (Method::DELETE, format!("{MAPS}/bad-old"), Value::Null),
        (Method::DELETE, MAPS.to_owned(), Value::Null),
    ];
    for (method, path, body) in refused {
        let shown = format!("{method} {path}");
        let answer = call(&client, method, &path, body).await;
        assert_eq!((answer.code, answer.body["message"].as_str()), (403, Some(why)), "{shown}");
    }
    assert_eq!(call(&client, Method::POST, MAPS, json!({"metadata": {"name": "good"}})).await.code, 201);
    assert_eq!(call(&client, Method::GET, &format!("{MAPS}/bad-old"), Value::Null).await.code, 200);
    server.stop().await;
}

#[tokio::test]
async fn a_reviewer_in_the_process_refuses_and_warns() {
    let review = |kind: &str, object: &Value, old: Option<&Value>| {
        assert_eq!(kind, "Deployment", "only of its group");
        let is_bad = object["metadata"]["labels"]["bad"] == "yes" && old.is_none();
        let errors = is_bad.then(|| FieldError::forbidden("metadata.labels", "it is bad"));
        Verdict { errors: errors.into_iter().collect(), warnings: vec!["reviewed".to_owned()] }
    };
    let reviewer = Reviewer { group: "apps", review: Arc::new(review) };
    let server = Server::start(Options { reviewer: Some(reviewer), ..Options::default() }).await.expect("starts");
    let client = server.client();
    let path = "/apis/apps/v1/namespaces/default/deployments";
    let deployment = |name: &str, bad: &str| {
        let labels = json!({"app": name, "bad": bad});
        json!({"metadata": {"name": name, "labels": labels}, "spec": {"selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}})
    };
    let refused = call(&client, Method::POST, path, deployment("a", "yes")).await;
    assert_eq!(
        (refused.code, refused.body["message"].as_str()),
        (422, Some("Deployment.apps \"a\" is invalid: metadata.labels: Forbidden: it is bad"))
    );
    let made = call(&client, Method::POST, path, deployment("b", "no")).await;
    assert_eq!((made.code, made.warnings.len()), (201, 1), "{}", made.body);
    let patch = json!({"metadata": {"labels": {"bad": "yes"}}});
    assert_eq!(call(&client, Method::PATCH, &format!("{path}/b"), patch).await.code, 200);
    assert_eq!(call(&client, Method::POST, MAPS, json!({"metadata": {"name": "other-group"}})).await.code, 201);
    server.stop().await;
}

#[tokio::test]
async fn selectors_and_dry_runs_skip_webhooks() {
    let (server, client, webhook) = start().await;
    let cases = [
        (json!({"namespaceSelector": {"matchLabels": {"team": "x"}}}), "", 201, 0),
        (json!({"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}}}), "", 201, 1),
        (json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "Exists"}]}}), "", 201, 0),
        (json!({"objectSelector": {"matchExpressions": [{"key": "a", "operator": "DoesNotExist"}]}}), "", 201, 1),
        (json!({}), "?dryRun=All", 201, 1),
        (json!({"sideEffects": "Some"}), "?dryRun=All", 400, 0),
    ];
    for (index, (more, query, code, asked)) in cases.into_iter().enumerate() {
        configure(&client, "ValidatingWebhookConfiguration", webhook.hook("judge", more.clone())).await;
        let body = json!({"metadata": {"name": format!("m-{index}")}});
        let answer = call(&client, Method::POST, &format!("{MAPS}{query}"), body).await;
        assert_eq!((answer.code, webhook.asked().len()), (code, asked), "{more} {query}: {}", answer.body);
    }
    server.stop().await;
}

#[tokio::test]
async fn failure_policy_decides_whether_a_failed_webhook_blocks() {
    let (server, client, webhook) = start().await;
    let closed = json!({"url": "https://127.0.0.1:1/", "caBundle": webhook.authority});
    let cases = [
        (webhook.hook("never", json!({"failurePolicy": "Ignore"})), 201, ""),
        (webhook.hook("never", json!({})), 500, "context deadline exceeded"),
        (webhook.hook("judge", json!({"clientConfig": closed, "failurePolicy": "Ignore"})), 201, ""),
        (webhook.hook("judge", json!({"clientConfig": closed})), 500, "refused"),
        (webhook.hook("judge", json!({"clientConfig": {"url": webhook.url}})), 500, "caBundle"),
    ];
    for (index, (hook, code, why)) in cases.into_iter().enumerate() {
        configure(&client, "ValidatingWebhookConfiguration", hook.clone()).await;
        let body = json!({"metadata": {"name": format!("m-{index}")}});
        let answer = call(&client, Method::POST, MAPS, body).await;
        assert_eq!(answer.code, code, "{hook}: {}", answer.body);
        let message = answer.body["message"].as_str().unwrap_or("");
        assert!(message.contains(why), "{hook}: {message}");
        assert!(code == 201 || message.starts_with("Internal error occurred: failed calling webhook"), "{message}");
    }
    server.stop().await;
}
