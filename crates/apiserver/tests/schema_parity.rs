//! The same objects to the real kube-apiserver and to our schemas: the same answer.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod real;

use http::Method;
use kube::Client;
use manta_apiserver::schema::StructuralSchema;
use manta_testkit::ControlPlane;
use serde_json::{Value, json};

use self::real::{Answer, call, install_crd};

const GROUP: &str = "schema.manta.test";

/// Returns a schema with one field for every keyword.
fn schema() -> Value {
    serde_json::from_str(include_str!("fixtures/thing.schema.json")).unwrap()
}

/// Specs that are sent as they are; what comes back, or what is complained of, must be the same.
fn creations() -> Vec<Value> {
    let one = |name: &str, values: &[Value]| -> Vec<Value> { values.iter().map(|v| json!({(name): v})).collect() };
    let mut specs = vec![json!({}), json!(null), json!("x"), json!([])];
    specs.extend(one(
        "string",
        &[json!("abc"), json!("a"), json!("abcdef"), json!("ABC"), json!(1), json!(null), json!({}), json!([])],
    ));
    specs.extend(one(
        "integer",
        &[json!(2), json!(0), json!(12), json!(3), json!(2.0), json!(2.5), json!("2"), json!(true)],
    ));
    specs.extend(one("int32", &[json!(1), json!(5_000_000_000_i64), json!(1e30)]));
    specs.extend(one("number", &[json!(1), json!(0.5), json!(0.25), json!("1")]));
    specs.extend(one("boolean", &[json!(true), json!("true"), json!(0)]));
    specs.extend(one("nullable", &[json!("a"), json!("c"), json!(null)]));
    specs.extend(one("enum", &[json!("a"), json!("c"), json!(1)]));
    specs.extend(one("intEnum", &[json!(1), json!(3), json!("1")]));
    specs.extend(one("time", &[json!("2024-01-02T03:04:05Z"), json!("2024-01-02"), json!(5), json!(""), json!(true)]));
    specs.extend(one("bytes", &[json!("aGk="), json!("%%"), json!("")]));
    specs.extend(one("duration", &[json!("1h"), json!("3 days"), json!("soon"), json!("")]));
    specs.extend(one("ip", &[json!("1.2.3.4"), json!("1.2.3"), json!("::1")]));
    specs.extend(one("uuid", &[json!("123e4567-e89b-12d3-a456-426614174000"), json!("x")]));
    specs.extend(one("hostname", &[json!("a.example.com"), json!("-x"), json!("a b")]));
    specs.extend(one("email", &[json!("a@b.c"), json!("nobody")]));
    specs.extend(one("uri", &[json!("http://a.b/c"), json!("nothing"), json!("/path"), json!("http://a b")]));
    specs.extend(one("date", &[json!("2024-02-29"), json!("2023-02-29"), json!("x")]));
    specs.extend(one("cidr", &[json!("10.0.0.0/8"), json!("10.0.0.0"), json!("10.0.0.0/99")]));
    specs.extend(one("mac", &[json!("00:11:22:33:44:55"), json!("zz")]));
    specs.extend(one("quantity", &[json!(1), json!("5m"), json!("x"), json!(1.5), json!(true), json!({})]));
    specs.extend(one("plainIntOrString", &[json!(1), json!("x"), json!(false), json!(1.5)]));
    specs.extend(one(
        "list",
        &[json!(["a"]), json!([]), json!(["a", "b", "c"]), json!(["abcd", 1]), json!({}), json!([null])],
    ));
    specs.extend(one(
        "map",
        &[json!({"a": 1}), json!({}), json!({"a": 1, "b": 2, "c": 3}), json!({"a": 9, "b": "x"}), json!([])],
    ));
    specs.extend(one(
        "listMap",
        &[
            json!([{"name": "a"}, {"name": "a", "proto": "UDP"}]),
            json!([{"name": "a"}, {"name": "a", "proto": "TCP"}]),
            json!([{"name": "a", "v": 1}, {"name": "a", "v": 2}, {"name": "a"}]),
            json!([{}, {"name": "b"}]),
            json!(["x"]),
        ],
    ));
    specs.extend(one("set", &[json!([1, 2]), json!([1, 1, 1, 2, 2]), json!(["a"])]));
    specs.extend(one("required", &[json!({"a": "x"}), json!({}), json!({"a": null}), json!({"a": 1, "b": 2})]));
    specs.extend(one("one", &[json!({"a": "x"}), json!({}), json!({"a": "x", "b": "y"}), json!({"a": 1})]));
    specs.extend(one("all", &[json!("xy"), json!("x"), json!("yy"), json!("y")]));
    specs.extend(one("not", &[json!("good"), json!("bad")]));
    specs.extend(one("free", &[json!({"x": {"y": 1}, "inner": {"a": "k", "b": 1}})]));
    specs.extend(one("resource", &[
        json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "x", "labels": {"a": "b"}}, "spec": {"k": 1}}),
        json!({"kind": "Pod"}),
        json!({"apiVersion": "", "kind": "Pod"}),
    ]));
    specs.extend(one("anything", &[json!(1), json!({"a": [1]}), json!([{}])]));
    specs.extend(one("defaults", &[json!({}), json!({"a": null, "n": null, "x": null}), json!(null)]));
    specs.extend(one("immutable", &[json!("x"), json!("longer than ten")]));
    specs.extend(one("optionalOld", &[json!(1)]));
    specs.extend(one(
        "rules",
        &[
            json!({"min": 2, "max": 1}),
            json!({"min": 1, "max": 2}),
            json!({"a-b": "no"}),
            json!({"namespace": ""}),
            json!({"when": "2019-01-01T00:00:00Z"}),
            json!({"when": "2021-01-01T00:00:00Z"}),
            json!({"for": "2h"}),
            json!({"for": "2m"}),
            json!({"list": ["a", "b"]}),
            json!({"list": []}),
            json!({"list": ["zz"]}),
            json!({"min": "x", "a-b": "no"}),
        ],
    ));
    specs.extend(one("dyn", &[json!(4), json!(3), json!("x")]));
    specs.push(json!({"string": "A", "integer": 99, "enum": "z", "listMap": [{}]}));
    specs.push(json!({"unknown": 1, "listMap": [{"name": "a", "unknown": 1}], "resource": {"apiVersion": "v1", "kind": "K", "metadata": {"oops": 1}}}));
    specs
}

/// Returns an old and a new spec.
fn updates() -> Vec<(Value, Value)> {
    vec![
        (json!({"immutable": "x"}), json!({"immutable": "y"})),
        (json!({"immutable": "x"}), json!({"immutable": "x", "boolean": true})),
        (json!({"immutable": "x"}), json!({})),
        (json!({"optionalOld": 1}), json!({"optionalOld": 1, "boolean": true})),
        (json!({"optionalOld": 1}), json!({"optionalOld": 2})),
        (
            json!({"listMap": [{"name": "a", "v": 5}, {"name": "b", "v": 5}]}),
            json!({"listMap": [{"name": "b", "v": 4}, {"name": "a", "v": 6}, {"name": "c", "v": 1}]}),
        ),
        (json!({"integer": 2}), json!({"integer": 3})),
        (json!({"map": {"a": 1}}), json!({"map": {"a": 1, "b": 9}})),
    ]
}

#[tokio::test]
async fn objects_get_the_same_answer_as_from_the_real_server() {
    let plane = ControlPlane::shared();
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace("schema").await.unwrap();
    install_crd(&client, GROUP, "Thing", &schema()).await;
    let ours = StructuralSchema::compile(&schema()).unwrap();
    let mut differences = Vec::new();
    let mut compared = 0;
    for strict in ["Ignore", "Strict"] {
        for (i, spec) in creations().iter().enumerate() {
            let object = thing(&format!("thing-{i}"), spec);
            let path = format!("{}?dryRun=All&fieldValidation={strict}", things(&namespace));
            let answer = call(&client, Method::POST, &path, "application/json", &object).await;
            let expect = summary(&answer);
            let found = our_answer(&ours, &object, None, strict == "Strict");
            compared += 1;
            if expect != found {
                differences.push(format!("{strict} {spec}\n  real {expect:#}\n  ours {found:#}"));
            }
        }
    }
    let forbidden = thing("forbidden", &json!({}));
    let answer = call(&client, Method::POST, &things(&namespace), "application/json", &forbidden).await;
    assert_eq!(summary(&answer), our_answer(&ours, &forbidden, None, false));
    assert!(differences.is_empty(), "{} of {compared} differ:\n{}", differences.len(), differences.join("\n"));
    println!("compared {compared} creations with the real server");
}

#[tokio::test]
async fn updates_get_the_same_answer_as_from_the_real_server() {
    let plane = ControlPlane::shared();
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace("schema").await.unwrap();
    install_crd(&client, GROUP, "Thing", &schema()).await;
    let ours = StructuralSchema::compile(&schema()).unwrap();
    for (i, (old, new)) in updates().iter().enumerate() {
        let created = create(&client, &namespace, &thing(&format!("old-{i}"), old)).await;
        let mut object = thing(&format!("old-{i}"), new);
        object["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
        let path = format!("{}/old-{i}?dryRun=All", things(&namespace));
        let answer = call(&client, Method::PUT, &path, "application/json", &object).await;
        assert_eq!(our_answer(&ours, &object, Some(&created), false), summary(&answer), "{old} -> {new}");
    }
    let created = create(&client, &namespace, &thing("with-status", &json!({}))).await;
    for status in [json!({"count": 1}), json!({"count": -1}), json!({"count": "x"}), json!("x")] {
        let mut object = created.clone();
        object["status"] = status;
        let path = format!("{}/with-status/status?dryRun=All", things(&namespace));
        let answer = call(&client, Method::PUT, &path, "application/json", &object).await;
        let mut found = object.clone();
        ours.prune(&mut found);
        ours.default(&mut found);
        let errors = ours.validate_status(&found, &created);
        let causes: Vec<Value> = sorted(errors.iter().map(|e| json!([e.field, e.reason(), e.body])).collect());
        let found = if causes.is_empty() { json!({"spec": found["spec"]}) } else { json!({"causes": causes}) };
        assert_eq!(found, summary(&answer), "{}", object["status"]);
    }
}

/// A value that was wrong before its schema became strict may stay, but not change.
#[tokio::test]
async fn ratcheting_matches_the_real_server() {
    let plane = ControlPlane::shared();
    let client = plane.client().await.unwrap();
    let namespace = plane.namespace("ratchet").await.unwrap();
    let with_maximum = |maximum: i64| {
        json!({"type": "object", "properties": {"spec": {"type": "object", "properties": {
            "a": {"type": "integer", "maximum": maximum}, "b": {"type": "integer"},
            "l": {"type": "array", "items": {"type": "integer", "maximum": maximum}},
        }}}})
    };
    install_crd(&client, "ratchet.manta.test", "Ratchet", &with_maximum(100)).await;
    let path = format!("/apis/ratchet.manta.test/v1/namespaces/{namespace}/ratchets");
    let object = |spec: &Value| json!({"apiVersion": "ratchet.manta.test/v1", "kind": "Ratchet", "metadata": {"name": "r"}, "spec": spec});
    let old = json!({"a": 50, "b": 1, "l": [50, 1]});
    let created = call(&client, Method::POST, &path, "application/json", &object(&old)).await.body;
    let crd = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/ratchets.ratchet.manta.test";
    let patch =
        json!([{"op": "replace", "path": "/spec/versions/0/schema/openAPIV3Schema", "value": with_maximum(10)}]);
    assert_eq!(call(&client, Method::PATCH, crd, "application/json-patch+json", &patch).await.code, 200);
    let ours = StructuralSchema::compile(&with_maximum(10)).unwrap();
    let update = async |spec: &Value| {
        let mut new = object(spec);
        new["metadata"]["resourceVersion"] = created["metadata"]["resourceVersion"].clone();
        let answer = call(&client, Method::PUT, &format!("{path}/r?dryRun=All"), "application/json", &new).await;
        (summary(&answer), our_answer(&ours, &new, Some(&created), false))
    };
    // The stricter schema is in force once a changed value is refused.
    let mut in_force = false;
    for _ in 0..200 {
        in_force = update(&json!({"a": 51})).await.0.get("causes").is_some();
        if in_force {
            break;
        }
        tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    }
    assert!(in_force, "the schema never became strict");
    for spec in [
        json!({"a": 50, "b": 2, "l": [50, 1]}),
        json!({"a": 51, "b": 1, "l": [50, 1]}),
        json!({"a": 50, "b": 1, "l": [1, 50]}),
        json!({"a": 50, "b": 1, "l": [50]}),
    ] {
        let (expect, found) = update(&spec).await;
        assert_eq!(found, expect, "{spec}");
    }
}

fn thing(name: &str, spec: &Value) -> Value {
    json!({"apiVersion": format!("{GROUP}/v1"), "kind": "Thing", "metadata": {"name": name}, "spec": spec})
}

fn things(namespace: &str) -> String {
    format!("/apis/{GROUP}/v1/namespaces/{namespace}/things")
}

async fn create(client: &Client, namespace: &str, object: &Value) -> Value {
    let answer = call(client, Method::POST, &things(namespace), "application/json", object).await;
    assert_eq!(answer.code, 201, "{}", answer.body);
    answer.body
}

/// Returns what matters of an answer: the stored spec, or the complaints in an order of their own.
fn summary(answer: &Answer) -> Value {
    match answer.code {
        200 | 201 => json!({"spec": answer.body["spec"]}),
        422 => {
            let causes = answer.body["details"]["causes"].as_array().cloned().unwrap_or_default();
            json!({"causes": sorted(causes.iter().map(|c| json!([c["field"], c["reason"], c["message"]])).collect())})
        }
        _ => {
            let message = answer.body["message"].as_str().unwrap_or_default();
            let message = message.split("strict decoding error: ").last().unwrap_or_default();
            json!({"message": message})
        }
    }
}

fn our_answer(schema: &StructuralSchema, object: &Value, old: Option<&Value>, strict: bool) -> Value {
    let unknown = schema.unknown_fields(object);
    if strict && !unknown.is_empty() {
        return json!({"message": unknown.join(", ")});
    }
    let mut object = object.clone();
    schema.prune(&mut object);
    schema.default(&mut object);
    let errors = schema.validate(&object, old);
    if errors.is_empty() {
        return json!({"spec": object["spec"]});
    }
    json!({"causes": sorted(errors.iter().map(|e| json!([e.field, e.reason(), e.body])).collect())})
}

fn sorted(mut causes: Vec<Value>) -> Vec<Value> {
    causes.sort_by_key(Value::to_string);
    causes.dedup();
    causes
}
