//! Any bytes as the body of a write: never a panic or a failure of the server, and always an object as the answer.
#![no_main]

use std::sync::OnceLock;

use axum::body::{Body, to_bytes};
use libfuzzer_sys::fuzz_target;
use manta_apiserver::auth::User;
use manta_apiserver::{Options, Server};
use tower::ServiceExt;

const WRITES: [(&str, &str, &str); 8] = [
    ("POST", "/api/v1/namespaces/default/pods?dryRun=All", "application/json"),
    ("POST", "/apis/apps/v1/namespaces/default/deployments?dryRun=All&fieldValidation=Strict", "application/json"),
    ("POST", "/apis/apiextensions.k8s.io/v1/customresourcedefinitions?dryRun=All", "application/json"),
    ("POST", "/api/v1/namespaces/default/services?dryRun=All", "application/yaml"),
    ("POST", "/api/v1/namespaces/default/secrets?dryRun=All", "application/vnd.kubernetes.protobuf"),
    ("PATCH", "/api/v1/namespaces/default?dryRun=All", "application/json-patch+json"),
    ("PATCH", "/api/v1/namespaces/default?dryRun=All", "application/strategic-merge-patch+json"),
    ("PATCH", "/api/v1/namespaces/default?dryRun=All&fieldManager=m&force=true", "application/apply-patch+yaml"),
];

struct World {
    runtime: tokio::runtime::Runtime,
    router: axum::Router,
    _server: Server,
}

fn world() -> &'static World {
    static WORLD: OnceLock<World> = OnceLock::new();
    WORLD.get_or_init(|| {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
        let server = runtime.block_on(Server::start(Options::default())).expect("the server starts");
        World { runtime, router: server.router(), _server: server }
    })
}

fuzz_target!(|bytes: &[u8]| {
    let Some((first, body)) = bytes.split_first() else { return };
    let (method, path, content) = WRITES[usize::from(*first) % WRITES.len()];
    let mut request = http::Request::builder()
        .method(method)
        .uri(path)
        .header("Content-Type", content)
        .body(Body::from(body.to_vec()))
        .expect("a request");
    request.extensions_mut().insert(User::admin());
    let world = world();
    world.runtime.block_on(async {
        let answer = world.router.clone().oneshot(request).await.expect("an answer");
        let code = answer.status().as_u16();
        let bytes = to_bytes(answer.into_body(), 64 << 20).await.expect("a whole answer");
        let value: serde_json::Value = serde_json::from_slice(&bytes).expect("JSON");
        // Some refusals have no better code in Kubernetes than 500; a failure of ours names itself so.
        assert_ne!(value["reason"], "InternalError", "{code} {value}");
        assert!(value.is_object(), "{code}");
    });
});
