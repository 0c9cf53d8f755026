//! Definitions of custom kinds, as clients meet them.

use std::time::Duration;

use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{ApiResource, DynamicObject, GroupVersionKind, ListParams, PostParams};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use manta_apiserver::{Options, Server};
use serde_json::json;
use tokio::task::JoinSet;

const DEFINITIONS: usize = 64;

/// Defines a kind and lists its objects as soon as it is established.
async fn define(client: Client, index: usize) -> Result<(), String> {
    let (singular, plural) = (format!("thing{index}"), format!("things{index}"));
    let name = format!("{plural}.example.com");
    let definition: CustomResourceDefinition = serde_json::from_value(json!({
        "metadata": {"name": name},
        "spec": {
            "group": "example.com",
            "scope": "Namespaced",
            "names": {"kind": format!("Thing{index}"), "plural": plural, "singular": singular},
            "versions": [{"name": "v1", "served": true, "storage": true,
                          "schema": {"openAPIV3Schema": {"type": "object"}}}],
        },
    }))
    .expect("a definition");
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    definitions.create(&PostParams::default(), &definition).await.map_err(|error| error.to_string())?;
    let established = await_condition(definitions, &name, conditions::is_crd_established());
    tokio::time::timeout(Duration::from_secs(60), established)
        .await
        .map_err(|_| format!("{name} was not established within a minute"))?
        .map_err(|error| error.to_string())?;
    let kind = GroupVersionKind::gvk("example.com", "v1", &format!("Thing{index}"));
    let resource = ApiResource::from_gvk_with_plural(&kind, &plural);
    let objects = Api::<DynamicObject>::all_with(client, &resource).list(&ListParams::default()).await;
    objects.map(drop).map_err(|error| format!("{name} is established and not served: {error}"))
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn established_kinds_are_served() {
    let server = Server::start(Options::default()).await.expect("the server starts");
    let client = server.client();
    let all: JoinSet<_> = (0..DEFINITIONS).map(|index| define(client.clone(), index)).collect();
    let problems: Vec<String> = all.join_all().await.into_iter().filter_map(Result::err).collect();
    server.stop().await;
    assert_eq!(problems, Vec::<String>::new());
}
