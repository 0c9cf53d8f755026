//! Watchers that do nothing: thousands of them, and one that never reads.

use std::time::{Duration, Instant};

use axum::body::Body;
use futures::StreamExt;
use http::{Request, StatusCode};
use manta_apiserver::auth::User;
use manta_apiserver::{Options, Server};
use serde_json::{Value, json};
use tower::ServiceExt;

const MAPS: &str = "/api/v1/namespaces/default/configmaps";

async fn send(server: &Server, method: &str, path: &str, body: Value) -> http::Response<Body> {
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let mut request = Request::builder()
        .method(method)
        .uri(path)
        .header("Content-Type", "application/json")
        .body(Body::from(text))
        .expect("a request");
    request.extensions_mut().insert(User::admin());
    server.router().oneshot(request).await.expect("an answer")
}

/// Creates a ConfigMap and returns its version.
async fn create(server: &Server, name: &str, data: &str) -> String {
    let made = send(server, "POST", MAPS, json!({"metadata": {"name": name}, "data": {"d": data}})).await;
    assert_eq!(made.status(), StatusCode::CREATED);
    let bytes = axum::body::to_bytes(made.into_body(), 4 << 20).await.expect("a body");
    let made: Value = serde_json::from_slice(&bytes).expect("JSON");
    made["metadata"]["resourceVersion"].as_str().expect("a version").to_owned()
}

/// Held by the test that runs: memory is measured for the whole process.
static ALONE: tokio::sync::Mutex<()> = tokio::sync::Mutex::const_new(());

/// Resident memory of this process in bytes.
fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").expect("/proc");
    text.split(' ').nth(1).and_then(|pages| pages.parse::<usize>().ok()).expect("pages") * 4096
}

/// Returns the events of a watch until it ends or nothing comes for a while.
async fn events(watch: http::Response<Body>) -> Vec<Value> {
    let mut stream = watch.into_body().into_data_stream();
    let mut text = Vec::new();
    while let Ok(Some(Ok(piece))) = tokio::time::timeout(Duration::from_secs(2), stream.next()).await {
        text.extend_from_slice(&piece);
    }
    let lines = text.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    lines.map(|line| serde_json::from_slice(line).expect("JSON")).collect()
}

#[tokio::test]
async fn thousands_of_idle_watches_cost_little() {
    let _alone = ALONE.lock().await;
    let server = Server::start(Options::default()).await.expect("the server starts");
    let first = create(&server, "first", "x").await;
    let before = resident();
    let mut watches = Vec::new();
    for index in 0..5000 {
        let path = format!("{MAPS}?watch=1&resourceVersion={first}&labelSelector=w%3D{index}");
        let watch = send(&server, "GET", &path, Value::Null).await;
        assert_eq!(watch.status(), StatusCode::OK);
        watches.push(watch);
    }
    let each = resident().saturating_sub(before) / watches.len();
    assert!(each < 20_000, "{each} bytes for each idle watch");

    let begun = Instant::now();
    for index in 0..200 {
        create(&server, &format!("m-{index}"), "x").await;
    }
    assert!(begun.elapsed() < Duration::from_secs(20), "idle watches slow writers down: {:?}", begun.elapsed());
    let path = format!("{MAPS}?watch=1&resourceVersion={first}&timeoutSeconds=1");
    let seen = events(send(&server, "GET", &path, Value::Null).await).await;
    assert!(seen.len() >= 200, "a watcher that reads saw only {}", seen.len());
    drop(watches);
    server.stop().await;
}

#[tokio::test]
async fn a_watch_that_is_never_read_expires() {
    let _alone = ALONE.lock().await;
    let server = Server::start(Options::default()).await.expect("the server starts");
    create(&server, "first", "x").await;
    let sleeper = send(&server, "GET", &format!("{MAPS}?watch=1"), Value::Null).await;
    let before = resident();
    let big = "x".repeat(900 << 10);
    for index in 0..60 {
        create(&server, &format!("m-{index}"), &big).await;
        let path = format!("{MAPS}/m-{index}");
        assert_eq!(send(&server, "DELETE", &path, Value::Null).await.status(), StatusCode::OK);
    }
    // More than 100 MB went by; the history keeps 32 MB of it.
    let grown = resident().saturating_sub(before);
    assert!(grown < 90 << 20, "{} MB kept for a watcher that does not read", grown >> 20);
    let seen = events(sleeper).await;
    let last = seen.last().expect("at least an end");
    assert_eq!((&last["type"], &last["object"]["code"]), (&json!("ERROR"), &json!(410)), "{} events", seen.len());
    server.stop().await;
}
