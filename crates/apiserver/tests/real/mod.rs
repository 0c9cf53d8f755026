//! Requests to the real kube-apiserver, with the answer as it came.

use http::{Method, Request};
use http_body_util::BodyExt;
use kube::Client;
use kube::client::Body;
use serde_json::Value;

/// A status code and a JSON body.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) code: u16,
    pub(crate) body: Value,
}

pub(crate) async fn call(client: &Client, method: Method, path: &str, content_type: &str, body: &Value) -> Answer {
    let body = if body.is_null() { Vec::new() } else { body.to_string().into_bytes() };
    let request = Request::builder()
        .method(method)
        .uri(path)
        .header("content-type", content_type)
        .header("user-agent", "tester/1.0")
        .body(Body::from(body))
        .unwrap();
    let response = client.send(request).await.unwrap();
    let code = response.status().as_u16();
    let bytes = response.into_body().collect().await.unwrap().to_bytes();
    Answer { code, body: serde_json::from_slice(&bytes).unwrap_or_default() }
}

/// Installs a CRD of kind `kind` with this schema and waits until it is served.
pub(crate) async fn install_crd(client: &Client, group: &str, kind: &str, schema: &Value) {
    let plural = format!("{}s", kind.to_lowercase());
    let crd = serde_json::json!({
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": format!("{plural}.{group}")},
        "spec": {
            "group": group, "scope": "Namespaced",
            "names": {"plural": plural, "singular": kind.to_lowercase(), "kind": kind},
            "versions": [{
                "name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": schema}, "subresources": {"status": {}},
            }],
        },
    });
    let path = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let created = call(client, Method::POST, path, "application/json", &crd).await;
    assert!(matches!(created.code, 201 | 409), "{}", created.body);
    let list = format!("/apis/{group}/v1/{plural}");
    for _ in 0..200 {
        if call(client, Method::GET, &list, "application/json", &Value::Null).await.code == 200 {
            return;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    panic!("{kind} is not served");
}
