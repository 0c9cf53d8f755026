//! Checks [`stored`], on which the other tests rely, against the real API server.

use crate::{generate, parity_objects, schemas, stored};
use kube::Api;
use kube::api::{ApiResource, DynamicObject, PostParams};
use manta_api::{RayCluster, RayCronJob, RayJob, RayService};
use manta_testkit::ControlPlane;
use serde_json::{Value, json};
use std::collections::BTreeMap;

#[tokio::test]
async fn special_and_random_objects_are_stored_as_expected() {
    let mut objects: Vec<_> = special()
        .into_iter()
        .map(|spec| ("special", spec.to_string(), "RayCluster".to_owned(), cluster(spec)))
        .collect();
    for (kind, schema) in schemas() {
        for seed in 0..100 {
            let object = generate::random(&kind, &schema, seed);
            objects.push(("random", format!("{kind} of seed {seed}"), kind.clone(), object));
        }
    }
    let accepted = check(objects).await;
    assert!(accepted["random"] > 50, "too few random objects are accepted to mean anything: {accepted:?}");
}

#[tokio::test]
#[cfg_attr(not(has_shared), ignore = "needs ../shared")]
async fn parity_cases_are_stored_as_expected() {
    let objects = parity_objects().into_iter().map(|(case, kind, object)| ("parity", case, kind, object));
    check(objects.collect()).await;
}

/// Sends objects (group, origin, kind and object) to a server and returns how many of each group it accepts.
async fn check(objects: Vec<(&'static str, String, String, Value)>) -> BTreeMap<&'static str, usize> {
    let plane = ControlPlane::shared();
    plane.install_ray_crds().await.unwrap();
    let namespace = plane.namespace("stored").await.unwrap();
    let client = plane.client().await.unwrap();
    let schemas = schemas();
    let kinds = [
        ApiResource::erase::<RayCluster>(&()),
        ApiResource::erase::<RayCronJob>(&()),
        ApiResource::erase::<RayJob>(&()),
        ApiResource::erase::<RayService>(&()),
    ];
    let apis: BTreeMap<String, Api<DynamicObject>> = kinds
        .into_iter()
        .map(|kind| (kind.kind.clone(), Api::namespaced_with(client.clone(), &namespace, &kind)))
        .collect();

    let mut accepted = BTreeMap::new();
    for (group, origin, kind, object) in objects {
        let mut sent: DynamicObject = serde_json::from_value(object.clone()).unwrap();
        sent.metadata = kube::api::ObjectMeta { name: Some("a".to_owned()), ..Default::default() };
        let dry_run = PostParams { dry_run: true, ..PostParams::default() };
        match apis[&kind].create(&dry_run, &sent).await {
            Ok(answer) => {
                let expected = stored::as_stored(&schemas[&kind], object);
                assert_eq!(answer.data["spec"], expected["spec"], "{origin}");
                *accepted.entry(group).or_default() += 1;
            }
            // Random objects break CEL rules and repeat the keys of list maps.
            Err(kube::Error::Api(status)) if status.code == 422 => {
                assert!(group == "random" || origin.contains("invalid"), "{origin}: {}", status.message);
            }
            Err(error) => panic!("{origin}: {error}"),
        }
    }
    println!("stored as expected: {accepted:?}");
    accepted
}

fn cluster(spec: Value) -> Value {
    json!({"apiVersion": "ray.io/v1", "kind": "RayCluster", "metadata": {}, "spec": spec})
}

/// Returns specs with nulls, unknown fields and numbers wherever they make a difference.
fn special() -> Vec<Value> {
    let head = |template: Value| json!({"headGroupSpec": {"template": template}});
    let container = |container: Value| head(json!({"spec": {"containers": [container]}}));
    let worker = |worker: Value| json!({"headGroupSpec": {"template": {}}, "workerGroupSpecs": [worker]});
    vec![
        head(json!({})),
        head(json!({"spec": null})),
        head(json!({"metadata": {"labels": {"a": null, "b": ""}, "generateName": "x"}, "unknown": 1})),
        head(json!({"metadata": {"creationTimestamp": null}, "spec": {"containers": []}})),
        container(json!({"name": "c", "args": null, "env": [{"name": "e", "value": null}], "resources": {}})),
        container(json!({"name": "c", "resources": {"limits": {"cpu": 1, "memory": null, "gpu": "2"}}})),
        container(json!({"name": "c", "ports": [{"containerPort": 1}, {"containerPort": 1, "protocol": "UDP"}]})),
        worker(json!({"groupName": "w", "template": {}, "replicas": null})),
        worker(json!({"groupName": "w", "template": {}, "replicas": 3_000_000_000_u32})),
        worker(json!({"groupName": "w", "template": {}, "replicas": 3, "rayStartParams": {}, "odd": {}})),
        json!({"headGroupSpec": {"template": {}}, "networkPolicy": {}, "suspend": null}),
    ]
}
