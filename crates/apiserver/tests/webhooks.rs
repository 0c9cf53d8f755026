//! Webhooks: a small one on loopback is asked about writes, and converts between the versions of a custom kind.

use std::sync::{Arc, Mutex};

use axum::Json;
use axum::extract::{Path, State};
use axum::routing::post;
use base64::Engine;
use futures::StreamExt;
use http::{Method, Request};
use http_body_util::BodyExt;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::service::TowerToHyperService;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, PostParams, WatchEvent, WatchParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, ResourceExt};
use manta_apiserver::schema::FieldError;
use manta_apiserver::{Options, Reviewer, Server, Verdict};
use serde_json::{Value, json};

/// What the webhook was asked.
type Asked = Arc<Mutex<Vec<Value>>>;

/// A webhook: `/label` adds a label and warns, `/scale` asks for two replicas, `/judge` refuses what is called bad, `/convert` converts, `/never` does not
/// answer.
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
    if path == "convert" {
        return Json(converted(&review["request"]));
    }
    let object = [&review["request"]["object"], &review["request"]["oldObject"]];
    let name = object.iter().find_map(|object| object["metadata"]["name"].as_str()).unwrap_or("").to_owned();
    let response = match path.as_str() {
        "label" => {
            let patch = json!([{"op": "add", "path": "/metadata/labels", "value": {"labelled": "yes"}}]).to_string();
            let patch = base64::engine::general_purpose::STANDARD.encode(patch);
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch, "warnings": ["labels are ours"]})
        }
        "scale" => {
            let patch = json!([{"op": "replace", "path": "/spec/replicas", "value": 2}]).to_string();
            let patch = base64::engine::general_purpose::STANDARD.encode(patch);
            json!({"uid": uid, "allowed": true, "patchType": "JSONPatch", "patch": patch})
        }
        "judge" => {
            json!({"uid": uid, "allowed": !name.starts_with("bad"), "status": {"code": 403, "message": "it is bad"}})
        }
        _ => std::future::pending().await,
    };
    Json(json!({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "response": response}))
}

/// Converts between `v1`, which has `hostPort`, and `v2`, which has `host` and `port`.
fn converted(request: &Value) -> Value {
    let convert = |object: &Value| {
        let mut object = object.clone();
        object["apiVersion"] = request["desiredAPIVersion"].clone();
        let fields = object.as_object_mut().expect("an object");
        match fields.remove("hostPort") {
            Some(both) => {
                let (host, port) = both.as_str().and_then(|both| both.split_once(':')).expect("a host and a port");
                fields.extend([("host".to_owned(), host.into()), ("port".to_owned(), port.into())]);
            }
            None => {
                let mut part = |key: &str| fields.remove(key).and_then(|part| part.as_str().map(str::to_owned));
                let both = format!("{}:{}", part("host").unwrap_or_default(), part("port").unwrap_or_default());
                fields.insert("hostPort".to_owned(), both.into());
            }
        }
        object
    };
    let objects: Vec<&Value> = request["objects"].as_array().expect("objects").iter().collect();
    let response = match objects.iter().any(|object| object["host"] == "bad") {
        true => json!({"uid": request["uid"], "result": {"status": "Failure", "message": "it is bad"}}),
        false => json!({"uid": request["uid"], "result": {"status": "Success"},
            "convertedObjects": objects.into_iter().map(convert).collect::<Vec<_>>()}),
    };
    json!({"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "response": response})
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
async fn connections_are_reviewed_with_what_the_client_asks_for() {
    let (server, client, webhook) = start().await;
    let rules =
        json!([{"operations": ["CONNECT"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/attach"]}]);
    configure(&client, "ValidatingWebhookConfiguration", webhook.hook("judge", json!({"rules": rules}))).await;
    let path = "/api/v1/namespaces/default/pods/p/attach?stdin=true&tty=false&container=c";
    // There is no node to connect to.
    assert_eq!(call(&client, Method::POST, path, Value::Null).await.code, 503);
    let asked = webhook.asked();
    assert_eq!((asked.len(), &asked[0]["subResource"]), (1, &json!("attach")));
    let expect = json!({"kind": "PodAttachOptions", "apiVersion": "v1", "stdin": true, "container": "c"});
    assert_eq!(asked[0]["object"], expect);
    server.stop().await;
}

#[tokio::test]
async fn scales_and_evictions_are_reviewed() {
    let (server, client, webhook) = start().await;
    let labels = json!({"app": "bad"});
    let deployment = json!({"metadata": {"name": "bad"}, "spec": {"replicas": 0, "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "c", "image": "i"}]}}}});
    let deployments = "/apis/apps/v1/namespaces/default/deployments";
    assert_eq!(call(&client, Method::POST, deployments, deployment).await.code, 201);
    let pods = "/api/v1/namespaces/default/pods";
    for name in ["bad", "good"] {
        let pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        assert_eq!(call(&client, Method::POST, pods, pod).await.code, 201);
    }
    let rules = json!([
        {"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"], "resources": ["deployments/scale"]},
        {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods/eviction"]}]);
    configure(&client, "ValidatingWebhookConfiguration", webhook.hook("judge", json!({"rules": rules}))).await;
    let scale = format!("{deployments}/bad/scale");
    let refused = call(&client, Method::PATCH, &scale, json!({"spec": {"replicas": 3}})).await;
    assert_eq!(refused.code, 403, "{}", refused.body);
    let asked = webhook.asked().remove(0);
    assert_eq!(asked["kind"], json!({"group": "autoscaling", "version": "v1", "kind": "Scale"}));
    assert_eq!((&asked["resource"]["resource"], &asked["subResource"]), (&json!("deployments"), &json!("scale")));
    assert_eq!((&asked["object"]["spec"]["replicas"], &asked["oldObject"]["kind"]), (&json!(3), &json!("Scale")));
    assert_eq!(call(&client, Method::GET, &scale, Value::Null).await.body["spec"], json!({}), "it is as it was");

    let evict = async |name: &str| {
        let eviction = json!({"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": name}});
        call(&client, Method::POST, &format!("{pods}/{name}/eviction"), eviction).await.code
    };
    assert_eq!((evict("bad").await, evict("good").await), (403, 201));
    let asked = webhook.asked().remove(0);
    assert_eq!((&asked["kind"]["kind"], &asked["operation"]), (&json!("Eviction"), &json!("CREATE")));
    assert_eq!((&asked["object"]["kind"], &asked["subResource"]), (&json!("Eviction"), &json!("eviction")));

    // What a mutating webhook makes of a scale is what is written.
    let labels = json!([{"operations": ["UPDATE"], "apiGroups": ["apps"], "apiVersions": ["v1"],
        "resources": ["deployments/scale"]}]);
    call(&client, Method::DELETE, "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations", Value::Null)
        .await;
    configure(&client, "MutatingWebhookConfiguration", webhook.hook("scale", json!({"rules": labels}))).await;
    let scaled =
        call(&client, Method::PUT, &scale, json!({"metadata": {"name": "bad"}, "spec": {"replicas": 3}})).await;
    assert_eq!((scaled.code, &scaled.body["spec"]["replicas"]), (200, &json!(2)), "{}", scaled.body);
    server.stop().await;
}

#[tokio::test]
async fn a_webhook_that_wants_to_is_asked_again_after_later_changes() {
    let (server, client, webhook) = start().await;
    let again = webhook.hook("judge", json!({"reinvocationPolicy": "IfNeeded"}));
    let configuration = json!({"metadata": {"name": "c"}, "webhooks": [again, webhook.hook("label", json!({}))]});
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
    assert_eq!(call(&client, Method::POST, path, configuration).await.code, 201);
    let labels = async |body: Value| {
        assert_eq!(call(&client, Method::POST, MAPS, body).await.code, 201);
        let asked = webhook.asked();
        asked.iter().map(|one| one["object"]["metadata"]["labels"]["labelled"].clone()).collect::<Vec<_>>()
    };
    let given = json!({"metadata": {"name": "a"}});
    assert_eq!(labels(given).await, [Value::Null, Value::Null, json!("yes")]);
    let given = json!({"metadata": {"name": "b", "labels": {"labelled": "yes"}}});
    assert_eq!(labels(given).await, ["yes", "yes"], "nothing changed after it was asked");
    server.stop().await;
}

/// Addresses of a service without a selector come from EndpointSlices that users write.
#[tokio::test]
async fn a_service_without_a_selector_leads_to_its_endpoints() {
    let (server, client, webhook) = start().await;
    let service = json!({"metadata": {"name": "s"}, "spec": {"ports": [{"port": 443}]}});
    assert_eq!(call(&client, Method::POST, "/api/v1/namespaces/default/services", service).await.code, 201);
    let service = json!({"service": {"namespace": "default", "name": "s"}, "caBundle": webhook.authority});
    configure(&client, "ValidatingWebhookConfiguration", webhook.hook("judge", json!({"clientConfig": service}))).await;
    let refusal = async || {
        let answer = call(&client, Method::POST, MAPS, json!({"metadata": {"name": "a"}})).await;
        assert_eq!(answer.code, 500, "{}", answer.body);
        answer.body["message"].as_str().expect("a message").to_owned()
    };
    let none = "no endpoints available for service \"s\"";
    let message = refusal().await;
    assert!(message.contains(none), "{message}");
    // No packet leaves for an address of this block.
    let slice = json!({"metadata": {"name": "s-1", "labels": {"kubernetes.io/service-name": "s"}}, "addressType": "IPv4",
        "endpoints": [{"addresses": ["240.0.0.1"]}], "ports": [{"name": "", "port": 8443}]});
    let slices = "/apis/discovery.k8s.io/v1/namespaces/default/endpointslices";
    let made = call(&client, Method::POST, slices, slice).await;
    assert_eq!(made.code, 201, "{}", made.body);
    let message = refusal().await;
    assert!(message.contains("failed calling webhook") && !message.contains(none), "{message}");
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

const ADDRESSES: &str = "/apis/example.com/v2/namespaces/default/addresses";

/// Returns a definition whose versions the webhook converts.
fn definition(webhook: &Webhook, stored: &str) -> Value {
    let version = |name: &str, fields: &[&str]| {
        let properties: serde_json::Map<String, Value> =
            fields.iter().map(|field| ((*field).to_owned(), json!({"type": "string"}))).collect();
        let selectable: Vec<Value> = fields.iter().map(|field| json!({"jsonPath": format!(".{field}")})).collect();
        json!({"name": name, "served": true, "storage": name == stored, "selectableFields": selectable,
            "schema": {"openAPIV3Schema": {"type": "object", "properties": properties}}})
    };
    let config = json!({"url": format!("{}/convert", webhook.url), "caBundle": webhook.authority});
    json!({"metadata": {"name": "addresses.example.com"}, "spec": {
        "group": "example.com", "scope": "Namespaced",
        "names": {"kind": "Address", "plural": "addresses", "singular": "address"},
        "versions": [version("v1", &["hostPort"]), version("v2", &["host", "port"])],
        "conversion": {"strategy": "Webhook",
            "webhook": {"clientConfig": config, "conversionReviewVersions": ["v1"]}},
    }})
}

/// Creates a definition and waits until its kind is served.
async fn define(client: &kube::Client, definition: Value) {
    let definition: CustomResourceDefinition = serde_json::from_value(definition).expect("a definition");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.expect("created");
    let name = definition.metadata.name.as_deref().expect("a name");
    await_condition(definitions, name, conditions::is_crd_established()).await.expect("established");
}

#[tokio::test]
async fn conversion_webhooks_convert_what_is_written_and_read() {
    let (server, client, webhook) = start().await;
    define(&client, definition(&webhook, "v1")).await;
    let one = |version: &str| format!("{}/a", ADDRESSES.replace("v2", version));
    let address = |name: &str, host: &str| {
        json!({"apiVersion": "example.com/v2", "kind": "Address",
        "metadata": {"name": name, "labels": {"l": name}}, "host": host, "port": "80"})
    };
    let made = call(&client, Method::POST, ADDRESSES, address("a", "h")).await;
    assert_eq!((made.code, &made.body["host"], &made.body["hostPort"]), (201, &json!("h"), &Value::Null));
    let asked = webhook.asked();
    let wanted: Vec<&Value> = asked.iter().map(|request| &request["desiredAPIVersion"]).collect();
    assert_eq!(wanted, ["example.com/v1", "example.com/v2"], "once to store it, and once to show it");

    let read = call(&client, Method::GET, &one("v1"), Value::Null).await.body;
    assert_eq!((&read["apiVersion"], &read["hostPort"]), (&json!("example.com/v1"), &json!("h:80")));
    assert_eq!(read["metadata"]["uid"], made.body["metadata"]["uid"]);
    assert!(webhook.asked().is_empty(), "it is stored like this");

    let patched = call(&client, Method::PATCH, &one("v2"), json!({"port": "81"})).await;
    assert_eq!((patched.code, &patched.body["port"]), (200, &json!("81")), "{}", patched.body);
    let read = call(&client, Method::GET, &one("v1"), Value::Null).await.body;
    assert_eq!((&read["hostPort"], &read["metadata"]["generation"]), (&json!("h:81"), &json!(2)));

    let refused = call(&client, Method::POST, ADDRESSES, address("b", "bad")).await;
    let why = "Internal error occurred: conversion webhook for example.com/v2, Kind=Address failed: it is bad";
    assert_eq!((refused.code, refused.body["message"].as_str()), (500, Some(why)));

    let mut changed = definition(&webhook, "v2");
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/addresses.example.com";
    changed["metadata"] = call(&client, Method::GET, crd, Value::Null).await.body["metadata"].take();
    assert_eq!(call(&client, Method::PUT, crd, changed).await.code, 200);
    assert_eq!(call(&client, Method::POST, ADDRESSES, address("c", "h")).await.code, 201);
    // Whichever version each of them is stored in, a list has one.
    for (version, field, expect) in [("v1", "hostPort", ["h:81", "h:80"]), ("v2", "port", ["81", "80"])] {
        let list = call(&client, Method::GET, &ADDRESSES.replace("v2", version), Value::Null).await.body;
        let found: Vec<&Value> = list["items"].as_array().expect("items").iter().map(|item| &item[field]).collect();
        assert_eq!(found, expect, "{version}");
    }
    server.stop().await;
}

#[tokio::test]
async fn field_selectors_read_the_version_that_is_asked_for() {
    let (server, client, webhook) = start().await;
    define(&client, definition(&webhook, "v1")).await;
    let kind = GroupVersionKind::gvk("example.com", "v2", "Address");
    let addresses: Api<DynamicObject> =
        Api::default_namespaced_with(client.clone(), &ApiResource::from_gvk_with_plural(&kind, "addresses"));
    let watch = addresses.watch(&WatchParams::default().fields("host=h"), "0").await.expect("a watch");
    for (name, host) in [("a", "x"), ("b", "h")] {
        let body = json!({"apiVersion": "example.com/v2", "kind": "Address", "metadata": {"name": name},
            "host": host, "port": "80"});
        assert_eq!(call(&client, Method::POST, ADDRESSES, body).await.code, 201);
    }
    let patch = json!({"host": "y"});
    assert_eq!(call(&client, Method::PATCH, &format!("{ADDRESSES}/b"), patch).await.code, 200);
    let seen = watch.take(2).map(|event| match event.expect("an event") {
        WatchEvent::Added(object) => ("added", object.name_any()),
        WatchEvent::Deleted(object) => ("deleted", object.name_any()),
        other => panic!("unexpected: {other:?}"),
    });
    let seen: Vec<(&str, String)> = seen.collect().await;
    assert_eq!(seen, [("added", "b".to_owned()), ("deleted", "b".to_owned())]);

    let names = |list: Value| -> Vec<Value> {
        list["items"].as_array().expect("items").iter().map(|item| item["metadata"]["name"].clone()).collect()
    };
    let selected =
        |version: &str, selector: &str| format!("{}?fieldSelector={selector}", ADDRESSES.replace("v2", version));
    for (version, selector, expect) in
        [("v2", "host%3Dx", json!(["a"])), ("v2", "host%3Dh", json!([])), ("v1", "hostPort%3Dy:80", json!(["b"]))]
    {
        let list = call(&client, Method::GET, &selected(version, selector), Value::Null).await;
        assert_eq!(json!(names(list.body)), expect, "{version} {selector}");
    }
    assert_eq!(call(&client, Method::DELETE, &selected("v2", "host%3Dx"), Value::Null).await.code, 200);
    let rest = call(&client, Method::GET, ADDRESSES, Value::Null).await.body;
    assert_eq!(json!(names(rest)), json!(["b"]));
    server.stop().await;
}
