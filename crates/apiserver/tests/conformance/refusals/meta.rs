//! Names, labels, media types, queries and broken bodies: what holds for every kind.

use http::Method;
use serde_json::{Value, json};

use super::{Row, base};

const MAPS: &str = "/api/v1/namespaces/{ns}/configmaps";

fn raw(name: &str, method: Method, path: &str, content: &'static str, body: &str) -> Row {
    Row { name: format!("request {name}"), method, path: path.into(), content, body: body.into(), existing: None }
}

pub(super) fn rows() -> Vec<Row> {
    let namespace = base(
        "Namespace",
        "/api/v1/namespaces",
        json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "conformance-fine"}}),
    );
    let mut rows = vec![namespace.good()];
    rows.extend(namespace.each([
        ("/metadata/name", json!("a.b")),
        ("/metadata/name", json!("Bad")),
        ("/metadata/name", json!("x".repeat(64))),
        ("/metadata/name", Value::Null),
        ("/spec/finalizers", json!(["odd"])),
    ]));
    let account = base(
        "ServiceAccount",
        "/api/v1/namespaces/{ns}/serviceaccounts",
        json!({"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": "a"}}),
    );
    rows.push(account.good());
    rows.extend(account.each([
        ("/metadata/name", json!("Bad_Name")),
        ("/metadata/name", json!("x".repeat(254))),
        ("/metadata/namespace", json!("other")),
        ("/metadata/labels", json!({"k": "bad value"})),
        ("/metadata/labels", json!({"k": "x".repeat(64)})),
        ("/metadata/labels", json!({"/k": "x"})),
        ("/metadata/labels", json!({"a/b/c": "x"})),
        ("/metadata/labels", json!({"k": 1})),
        ("/metadata/annotations", json!({"bad key": "x"})),
        ("/metadata/annotations", json!({"k": "x".repeat(257 << 10)})),
        ("/metadata/finalizers", json!(["odd"])),
        ("/metadata/finalizers", json!(["example.com/f"])),
        ("/metadata/ownerReferences", json!([{"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": ""}])),
        ("/metadata/ownerReferences", json!([{"apiVersion": "", "kind": "Pod", "name": "p", "uid": "u"}])),
        ("/metadata/ownerReferences", json!([{"apiVersion": "v1", "kind": "Event", "name": "p", "uid": "u"}])),
        (
            "/metadata/ownerReferences",
            json!([
            {"apiVersion": "v1", "kind": "Pod", "name": "p", "uid": "u", "controller": true},
            {"apiVersion": "v1", "kind": "Pod", "name": "q", "uid": "v", "controller": true}]),
        ),
        ("/metadata/generateName", json!("Bad_")),
        ("/kind", json!("Pod")),
        ("/apiVersion", json!("v2")),
        ("/secrets", json!("x")),
    ]));
    let event = base(
        "Event",
        "/api/v1/namespaces/{ns}/events",
        json!({"apiVersion": "v1", "kind": "Event", "metadata": {"name": "e"},
            "involvedObject": {"kind": "Pod", "namespace": "{ns}", "name": "p"}, "reason": "R", "type": "Normal"}),
    );
    rows.push(event.good());
    rows.extend(event.each([
        ("/involvedObject/namespace", json!("other")),
        ("/type", json!("Odd")),
        ("/eventTime", json!("2024-01-01T00:00:00.000001Z")),
    ]));
    let node = base(
        "Node",
        "/api/v1/nodes",
        json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": "conformance-node"}}),
    );
    rows.push(node.good());
    rows.extend(node.each([
        ("/spec/taints", json!([{"key": "", "effect": "NoSchedule"}])),
        ("/spec/taints", json!([{"key": "k", "effect": "Odd"}])),
        ("/spec/taints", json!([{"key": "k", "effect": "NoSchedule"}, {"key": "k", "effect": "NoSchedule"}])),
        ("/spec/podCIDR", json!("x")),
    ]));
    let json = "application/json";
    let map = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"}}"#;
    let create = format!("{MAPS}?dryRun=All");
    let strict = format!("{create}&fieldValidation=Strict");
    rows.extend([
        raw("media type text/html", Method::POST, &create, "text/html", map),
        raw("media type application/xml", Method::POST, &create, "application/xml", map),
        raw("broken JSON", Method::POST, &create, json, "{"),
        raw("empty body", Method::POST, &create, json, ""),
        raw("a list as body", Method::POST, &create, json, "[]"),
        raw(
            "strict unknown field",
            Method::POST,
            &strict,
            json,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"odd":1}"#,
        ),
        raw(
            "strict duplicate key",
            Method::POST,
            &strict,
            json,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a"},"data":{"k":"v"},"data":{"l":"v"}}"#,
        ),
        raw(
            "strict duplicate nested key",
            Method::POST,
            &strict,
            json,
            r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"a","name":"b"}}"#,
        ),
        raw(
            "strict duplicate YAML key",
            Method::POST,
            &strict,
            "application/yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\ndata:\n  k: v\n  k: w\n",
        ),
        raw(
            "strict unknown YAML field",
            Method::POST,
            &strict,
            "application/yaml",
            "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: a\nodd: 1\n",
        ),
        raw("field validation odd", Method::POST, &format!("{create}&fieldValidation=Odd"), json, map),
        raw("dryRun odd", Method::POST, &format!("{MAPS}?dryRun=Some"), json, map),
        raw("limit=x", Method::GET, &format!("{MAPS}?limit=x"), json, ""),
        raw("continue=x", Method::GET, &format!("{MAPS}?continue=x"), json, ""),
        raw("labelSelector=a in", Method::GET, &format!("{MAPS}?labelSelector=a%20in"), json, ""),
        raw("labelSelector=bad", Method::GET, &format!("{MAPS}?labelSelector=a%3D%3D%3Db"), json, ""),
        raw("fieldSelector unknown", Method::GET, &format!("{MAPS}?fieldSelector=spec.x%3Dy"), json, ""),
        raw("fieldSelector broken", Method::GET, &format!("{MAPS}?fieldSelector=x"), json, ""),
        raw("resourceVersion=x", Method::GET, &format!("{MAPS}?resourceVersion=x"), json, ""),
        raw("resourceVersionMatch alone", Method::GET, &format!("{MAPS}?resourceVersionMatch=Exact"), json, ""),
        raw("timeoutSeconds=x", Method::GET, &format!("{MAPS}?timeoutSeconds=x"), json, ""),
        raw("watch with limit=x", Method::GET, &format!("{MAPS}?watch=1&timeoutSeconds=1&limit=x"), json, ""),
        raw("absent object", Method::GET, &format!("{MAPS}/none"), json, ""),
        raw("absent kind", Method::GET, "/api/v1/namespaces/{ns}/oddities", json, ""),
        raw("absent group", Method::GET, "/apis/odd.example.com/v1/things", json, ""),
        raw("absent subresource", Method::GET, &format!("{MAPS}/none/odd"), json, ""),
        raw("post to an object", Method::POST, &format!("{MAPS}/a"), json, map),
        raw("put with another name", Method::PUT, &format!("{MAPS}/b?dryRun=All"), json, map),
        raw("put of an absent object", Method::PUT, &format!("{MAPS}/a?dryRun=All"), json, map),
        raw(
            "patch of an absent object",
            Method::PATCH,
            &format!("{MAPS}/a?dryRun=All"),
            "application/merge-patch+json",
            "{}",
        ),
        raw("patch as JSON", Method::PATCH, &format!("{MAPS}/a?dryRun=All"), json, "{}"),
        raw(
            "apply without a manager",
            Method::PATCH,
            &format!("{MAPS}/a?dryRun=All"),
            "application/apply-patch+yaml",
            map,
        ),
        raw(
            "apply of a broken body",
            Method::PATCH,
            &format!("{MAPS}/a?dryRun=All&fieldManager=m"),
            "application/apply-patch+yaml",
            "a: [",
        ),
        raw(
            "delete with an odd policy",
            Method::DELETE,
            &format!("{MAPS}/existing?dryRun=All&propagationPolicy=Odd"),
            json,
            "",
        ),
        raw(
            "delete with grace period x",
            Method::DELETE,
            &format!("{MAPS}/existing?dryRun=All&gracePeriodSeconds=x"),
            json,
            "",
        ),
        raw(
            "delete with another uid",
            Method::DELETE,
            &format!("{MAPS}/existing?dryRun=All"),
            json,
            r#"{"preconditions":{"uid":"00000000-0000-0000-0000-000000000000"}}"#,
        ),
    ]);
    rows
}
