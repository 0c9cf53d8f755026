//! OpenAPI documents as clients read them.

use http::Request;
use http_body_util::BodyExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::PostParams;
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use manta_apiserver::{Options, Server};
use serde_json::{Value, json};

struct Answer {
    code: u16,
    tag: String,
    body: Value,
}

async fn get(client: &Client, path: &str, tag: &str) -> Answer {
    let request = Request::get(path).header("If-None-Match", tag).body(Vec::new().into()).expect("a request");
    let response = client.send(request).await.expect("an answer");
    let tag = response.headers()["etag"].to_str().expect("text").to_owned();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.expect("a body").to_bytes();
    Answer { code, tag, body: serde_json::from_slice(&bytes).unwrap_or_default() }
}

async fn define(client: &Client, plural: &str, kind: &str, schema: Value) {
    let name = format!("{plural}.example.com");
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {"group": "example.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": schema}}]},
    }))
    .expect("a definition");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.expect("created");
    await_condition(definitions, &name, conditions::is_crd_established()).await.expect("established");
}

#[tokio::test]
async fn documents_are_sent_once_and_again_when_a_definition_changes_them() {
    let server = Server::start(Options::default()).await.expect("the server starts");
    let client = server.client();
    for path in ["/openapi/v2", "/openapi/v3", "/openapi/v3/api/v1"] {
        let first = get(&client, path, "").await;
        assert_eq!(first.code, 200);
        assert_eq!(get(&client, path, &first.tag).await.code, 304, "{path}");
    }
    let (all, core) = (get(&client, "/openapi/v2", "").await.tag, get(&client, "/openapi/v3/api/v1", "").await.tag);
    define(&client, "things", "Thing", json!({"type": "object"})).await;
    assert_eq!(get(&client, "/openapi/v2", &all).await.code, 200);
    assert_eq!(get(&client, "/openapi/v3/api/v1", &core).await.code, 304, "nothing changed in this group");
    server.stop().await;
}

#[tokio::test]
async fn definitions_are_published_in_both_versions() {
    let server = Server::start(Options::default()).await.expect("the server starts");
    let client = server.client();
    let spec = json!({"type": "object", "description": "What is wanted.", "properties": {"a": {"type": "string", "nullable": true}}});
    define(&client, "things", "Thing", json!({"type": "object", "properties": {"spec": spec}})).await;
    define(&client, "others", "Other", json!({"type": "object", "x-kubernetes-preserve-unknown-fields": true})).await;
    let document = get(&client, "/openapi/v2", "").await.body;
    let definition = |name: &str| document["definitions"][format!("com.example.v1.{name}")].clone();
    let thing = definition("Thing");
    assert_eq!(thing["properties"]["spec"]["properties"]["a"], json!({}));
    let metadata = thing["properties"]["metadata"]["allOf"][0]["$ref"].as_str().expect("a reference").to_owned();
    assert!(document.pointer(metadata.trim_start_matches('#')).is_some(), "{metadata}");
    // kubectl would refuse every field that is not listed.
    assert_eq!(definition("Other")["properties"], Value::Null);

    let document = get(&client, "/openapi/v3/apis/example.com/v1", "").await.body;
    let thing = &document["components"]["schemas"]["com.example.v1.Thing"];
    assert_eq!(thing["properties"]["spec"], spec);
    for field in ["apiVersion", "kind"] {
        assert!(thing["properties"][field]["description"].is_string(), "{field}");
    }
    server.stop().await;
}
