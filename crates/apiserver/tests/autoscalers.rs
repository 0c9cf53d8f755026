//! Autoscalers, which are served at two versions and do nothing.

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use manta_apiserver::{Options, Server};
use serde_json::{Value, json};

async fn send(client: &Client, method: Method, path: &str, body: Value) -> (u16, bool, Value) {
    let request = Request::builder().method(method).uri(path).header("Content-Type", "application/json");
    let text = if body.is_null() { String::new() } else { body.to_string() };
    let response = client.send(request.body(text.into_bytes().into()).expect("a request")).await.expect("an answer");
    let (code, warns) = (response.status().as_u16(), response.headers().contains_key("warning"));
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    (code, warns, serde_json::from_slice(&bytes).expect("JSON"))
}

#[tokio::test]
async fn an_autoscaler_is_one_object_at_both_versions() {
    let server = Server::start(Options::default()).await.expect("the server starts");
    let client = server.client();
    let path = |version: &str, name: &str| {
        format!("/apis/autoscaling/{version}/namespaces/default/horizontalpodautoscalers{name}")
    };
    let target = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "d"});
    let spec = json!({"scaleTargetRef": target, "maxReplicas": 3, "targetCPUUtilizationPercentage": 50});
    let body = json!({"metadata": {"name": "a"}, "spec": spec});
    let (code, warns, made) = send(&client, Method::POST, &path("v1", ""), body).await;
    assert_eq!((code, warns), (201, true), "{made}");
    assert_eq!(
        (&made["spec"]["targetCPUUtilizationPercentage"], &made["spec"]["minReplicas"]),
        (&json!(50), &json!(1))
    );

    let (_, _, shown) = send(&client, Method::GET, &path("v2", "/a"), Value::Null).await;
    let metric = &shown["spec"]["metrics"][0]["resource"];
    assert_eq!((&metric["name"], &metric["target"]["averageUtilization"]), (&json!("cpu"), &json!(50)));
    assert_eq!(shown["metadata"]["uid"], made["metadata"]["uid"]);

    let bad =
        json!({"metadata": {"name": "b"}, "spec": {"scaleTargetRef": target, "minReplicas": 4, "maxReplicas": 3}});
    assert_eq!(send(&client, Method::POST, &path("v2", ""), bad).await.0, 422);
    let (_, _, group) = send(&client, Method::GET, "/apis/autoscaling", Value::Null).await;
    assert_eq!(group["preferredVersion"]["version"], "v2");
    server.stop().await;
}
