//! Definitions of custom kinds, as clients meet them.

use std::time::Duration;

use http_body_util::BodyExt;
use k8s_openapi::apiextensions_apiserver::pkg::apis::apiextensions::v1::CustomResourceDefinition;
use kube::api::{
    ApiResource, DeleteParams, DynamicObject, GroupVersionKind, ListParams, Patch, PatchParams, PostParams,
};
use kube::runtime::wait::{await_condition, conditions};
use kube::{Api, Client};
use manta_apiserver::{Options, Server};
use manta_testkit::{ControlPlane, eventually};
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

/// Go programs send definitions as protobuf: the bytes of the real server mean the same to this one.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_are_read_from_protobuf() {
    const PROTOBUF: &str = "application/vnd.kubernetes.protobuf";
    const PATH: &str = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions";
    let real = ControlPlane::shared().client().await.expect("a client");
    let server = Server::start(Options::default()).await.expect("starts");
    let ours = server.client();
    let send = async |client: &Client, path: &str, content: &str, accept: &str, body: Vec<u8>| {
        let request = http::Request::post(path).header("content-type", content).header("accept", accept);
        let response = client.send(request.body(body.into()).expect("valid")).await.expect("an answer");
        let status = response.status();
        let bytes = response.into_body().collect().await.expect("a body").to_bytes();
        assert_eq!(status.as_u16(), 201, "{}", String::from_utf8_lossy(&bytes));
        bytes
    };
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../deploy/crds");
    let mut count = 0;
    for file in std::fs::read_dir(folder).expect("the CRDs").flatten() {
        // In a group of its own: other tests install the CRDs on the same server.
        let text = std::fs::read_to_string(file.path()).expect("readable").replace("ray.io", "protobuf.example.com");
        let text = text.into_bytes();
        let dry_run = format!("{PATH}?dryRun=All");
        let json = send(&real, &dry_run, "application/yaml", "application/json", text.clone()).await;
        let bytes = send(&real, &dry_run, "application/yaml", PROTOBUF, text).await;
        let expect: serde_json::Value = serde_json::from_slice(&json).expect("JSON");
        let got = send(&ours, PATH, PROTOBUF, "application/json", bytes.to_vec()).await;
        let got: serde_json::Value = serde_json::from_slice(&got).expect("JSON");
        assert_eq!(got["spec"], expect["spec"], "{:?}", file.path());
        count += 1;
    }
    assert!(count >= 4, "all of the Ray CRDs");
}

#[tokio::test]
async fn new_defaults_show_on_objects_from_before() {
    let server = Server::start(Options::default()).await.expect("starts");
    let client = server.client();
    let definitions: Api<CustomResourceDefinition> = Api::all(client.clone());
    let definition = |default: serde_json::Value| -> CustomResourceDefinition {
        let mut size = json!({"type": "integer"});
        if !default.is_null() {
            size["default"] = default;
        }
        let spec = json!({"type": "object", "properties": {"size": size}});
        serde_json::from_value(json!({"apiVersion": "apiextensions.k8s.io/v1", "kind": "CustomResourceDefinition",
            "metadata": {"name": "things.example.com"}, "spec": {
            "group": "example.com", "scope": "Namespaced", "names": {"kind": "Thing", "plural": "things"},
            "versions": [{"name": "v1", "served": true, "storage": true, "schema": {"openAPIV3Schema": {
                "type": "object", "properties": {"spec": spec}}}}]}}))
        .expect("a definition")
    };
    let apply = async |definition: CustomResourceDefinition| {
        let params = kube::api::PatchParams::apply("test");
        definitions.patch("things.example.com", &params, &kube::api::Patch::Apply(&definition)).await.expect("applied");
        let served = await_condition(definitions.clone(), "things.example.com", conditions::is_crd_established());
        tokio::time::timeout(Duration::from_secs(60), served).await.expect("in time").expect("established");
    };
    apply(definition(serde_json::Value::Null)).await;
    let resource = ApiResource::from_gvk(&GroupVersionKind::gvk("example.com", "v1", "Thing"));
    let things: Api<DynamicObject> = Api::default_namespaced_with(client, &resource);
    let thing = json!({"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "old"}, "spec": {}});
    let thing: DynamicObject = serde_json::from_value(thing).expect("an object");
    things.create(&PostParams::default(), &thing).await.expect("created");
    apply(definition(json!(7))).await;
    let shown = async || {
        let list = things.list(&ListParams::default()).await?;
        let object = things.get("old").await?;
        let sizes = (&list.items[0].data["spec"]["size"], &object.data["spec"]["size"]);
        anyhow::ensure!(sizes == (&json!(7), &json!(7)), "{sizes:?}");
        Ok(())
    };
    manta_testkit::eventually("the default is shown", shown).await.expect("shown");
}

fn definition(plural: &str, kind: &str, versions: &[(&str, bool)]) -> CustomResourceDefinition {
    let versions: Vec<_> = versions
        .iter()
        .map(|(name, storage)| {
            json!({"name": name, "served": true, "storage": storage, "schema": {"openAPIV3Schema": {"type": "object"}}})
        })
        .collect();
    serde_json::from_value(json!({"metadata": {"name": format!("{plural}.example.com")}, "spec": {
        "group": "example.com", "scope": "Namespaced", "names": {"kind": kind, "plural": plural}, "versions": versions}}))
    .expect("a definition")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn definitions_keep_what_stored_objects_depend_on() {
    let server = Server::start(Options::default()).await.expect("the server starts");
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    let things = definition("things", "Thing", &[("v1", false), ("v2", true)]);
    definitions.create(&PostParams::default(), &things).await.expect("created");
    let established = await_condition(definitions.clone(), "things.example.com", conditions::is_crd_established());
    tokio::time::timeout(Duration::from_secs(60), established).await.expect("in time").expect("established");
    for (change, expect) in [
        (json!({"scope": "Cluster"}), "spec.scope: Invalid value: \"Cluster\": field is immutable"),
        (
            json!({"names": {"kind": "Other", "plural": "things", "listKind": "ThingList"}}),
            "spec.names.kind: Invalid value: \"Other\": field is immutable",
        ),
        (
            json!({"versions": [{"name": "v1", "served": true, "storage": true,
                "schema": {"openAPIV3Schema": {"type": "object"}}}]}),
            "status.storedVersions[0]: Invalid value: \"v2\": missing from spec.versions; v2 was previously a storage \
             version, and must remain in spec.versions until a storage migration ensures no data remains persisted in v2 \
             and removes v2 from status.storedVersions",
        ),
    ] {
        let patch = Patch::Merge(json!({"spec": change}));
        let refused = definitions.patch("things.example.com", &PatchParams::default(), &patch).await;
        match refused.expect_err("refused") {
            kube::Error::Api(status) => {
                let expect = format!(
                    "CustomResourceDefinition.apiextensions.k8s.io \"things.example.com\" is invalid: {expect}"
                );
                assert_eq!((status.code, status.message.as_str()), (422, expect.as_str()));
            }
            other => panic!("{other}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_kind_belongs_to_one_definition() {
    let server = Server::start(Options::default()).await.expect("the server starts");
    let definitions: Api<CustomResourceDefinition> = Api::all(server.client());
    let state = async |name: &str, kind: &str, value: &str| {
        let known = definitions.get(name).await?.status.and_then(|status| status.conditions).unwrap_or_default();
        anyhow::ensure!(known.iter().any(|one| one.type_ == kind && one.status == value), "{known:?}");
        Ok(())
    };
    definitions.create(&PostParams::default(), &definition("things", "Thing", &[("v1", true)])).await.expect("created");
    let first = async || state("things.example.com", "Established", "True").await;
    eventually("the first is served", first).await.expect("established");
    definitions.create(&PostParams::default(), &definition("others", "Thing", &[("v1", true)])).await.expect("created");
    let refused = async || state("others.example.com", "NamesAccepted", "False").await;
    eventually("the second has no names", refused).await.expect("refused");
    let others = ApiResource::from_gvk_with_plural(&GroupVersionKind::gvk("example.com", "v1", "Thing"), "others");
    let listed = Api::<DynamicObject>::all_with(server.client(), &others).list(&ListParams::default()).await;
    assert!(matches!(listed, Err(kube::Error::Api(status)) if status.code == 404));
    definitions.delete("things.example.com", &DeleteParams::default()).await.expect("deleted");
    let second = async || state("others.example.com", "Established", "True").await;
    eventually("the second is served instead", second).await.expect("established");
}
