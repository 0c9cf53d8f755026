//! JSON, merge and strategic merge patches; server-side apply.

use super::*;

pub(crate) fn cases() -> Vec<Case> {
    let one = format!("{MAPS}/a");
    let make = || post(MAPS, map("a", json!({"k": "v"}))).keep("rv", "/metadata/resourceVersion");
    vec![
        case(
            "json patch",
            vec![
                make(),
                patch(
                    "json",
                    &one,
                    json!([{"op": "replace", "path": "/data/k", "value": "w"}, {"op": "add", "path": "/data/n", "value": "1"}]),
                ),
                patch("json", &one, json!([{"op": "replace", "path": "/data/missing", "value": "w"}])),
                patch("json", &one, json!([{"op": "remove", "path": "/data/none"}])),
                patch(
                    "json",
                    &one,
                    json!([{"op": "test", "path": "/metadata/resourceVersion", "value": "{rv}"}, {"op": "remove", "path": "/data/k"}]),
                ),
                patch("json", &one, json!([{"op": "add", "path": "/metadata/finalizers", "value": ["x.io/a"]}])),
                patch("json", &one, json!([{"op": "add", "path": "/metadata/finalizers/-", "value": "x.io/b"}])),
                patch("json", &one, json!([{"op": "remove", "path": "/metadata/finalizers"}])),
                patch("json", &one, json!({"op": "add"})),
                patch("json", &one, json!([{"op": "jump", "path": "/data"}])),
                patch("json", &format!("{MAPS}/none"), json!([])),
                patch("json", &one, json!([{"op": "replace", "path": "/metadata/name", "value": "b"}])),
            ],
        ),
        case(
            "merge patch",
            vec![
                make(),
                patch("merge", &one, json!({"data": {"k": null, "x": "y"}, "metadata": {"labels": {"a": "b"}}})),
                patch("merge", &one, json!({"metadata": {"resourceVersion": "{rv}"}, "data": {"z": "z"}})),
                patch("merge", &one, json!({"metadata": {"labels": null}})),
                patch("merge", &one, json!({"data": {"x": "y"}})),
                patch("merge", &one, json!([])),
                patch("merge", &one, json!({"data": 5})),
                patch("merge", &one, json!({})).content("application/x"),
            ],
        ),
        case(
            "strategic merge patch",
            vec![
                post(PODS, pod("p")),
                patch(
                    "strategic",
                    &format!("{PODS}/p"),
                    json!({"spec": {"containers": [{"name": "c", "image": "busybox:2"}]}}),
                ),
                patch(
                    "strategic",
                    &format!("{PODS}/p"),
                    json!({"spec": {"tolerations": [{"key": "x", "operator": "Exists"}]}}),
                ),
                patch(
                    "strategic",
                    &format!("{PODS}/p"),
                    json!({"metadata": {"annotations": {"a": "b"}, "finalizers": ["x.io/a"]}}),
                ),
                patch(
                    "strategic",
                    &format!("{PODS}/p"),
                    json!({"metadata": {"$deleteFromPrimitiveList/finalizers": ["x.io/a"]}}),
                ),
                post(
                    SERVICES,
                    json!({"metadata": {"name": "s"}, "spec": {"clusterIP": "None", "ports": [{"port": 1, "name": "a"}, {"port": 2, "name": "b"}]}}),
                ),
                patch(
                    "strategic",
                    &format!("{SERVICES}/s"),
                    json!({"spec": {"ports": [{"port": 2, "targetPort": 5}]}}),
                ),
                patch(
                    "strategic",
                    &format!("{SERVICES}/s"),
                    json!({"spec": {"ports": [{"port": 1, "$patch": "delete"}]}}),
                ),
            ],
        ),
        case(
            "apply",
            vec![
                patch("apply", &format!("{one}?fieldManager=m1"), map("a", json!({"k": "v", "x": "1"}))),
                patch("apply", &format!("{one}?fieldManager=m1"), map("a", json!({"k": "v"}))),
                patch("apply", &format!("{one}?fieldManager=m2"), map("a", json!({"k": "w"}))),
                patch("apply", &format!("{one}?fieldManager=m2&force=true"), map("a", json!({"k": "w", "y": "2"}))),
                patch("apply", &format!("{one}?fieldManager=m1"), map("a", json!({}))),
                patch("merge", &format!("{one}?fieldManager=m3"), json!({"data": {"y": "3"}})),
                patch("apply", &format!("{one}?fieldManager=m2"), map("a", json!({"k": "w", "y": "2"}))),
                patch("apply", &one, map("a", json!({}))),
                patch("apply", &format!("{one}?fieldManager=m1"), json!({"metadata": {"name": "a"}})),
                patch("apply", &format!("{one}?fieldManager=m1"), map("b", json!({}))),
                patch("merge", &format!("{one}?force=true"), json!({})),
            ],
        ),
        case(
            "apply to a service",
            vec![
                patch(
                    "apply",
                    &format!("{SERVICES}/s?fieldManager=m1"),
                    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
                "spec": {"clusterIP": "None", "ports": [{"name": "a", "port": 1, "protocol": "TCP"}, {"name": "b", "port": 2, "protocol": "TCP"}]}}),
                ),
                patch(
                    "apply",
                    &format!("{SERVICES}/s?fieldManager=m1"),
                    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
                "spec": {"clusterIP": "None", "ports": [{"name": "b", "port": 2, "protocol": "TCP"}]}}),
                ),
                patch(
                    "apply",
                    &format!("{SERVICES}/s?fieldManager=m2"),
                    json!({"apiVersion": "v1", "kind": "Service", "metadata": {"name": "s"},
                "spec": {"ports": [{"name": "c", "port": 3, "protocol": "TCP"}]}}),
                ),
            ],
        ),
        case(
            "scale",
            vec![
                post(
                    "/apis/apps/v1/namespaces/{ns}/deployments",
                    json!({"metadata": {"name": "d"}, "spec": {"paused": true, "replicas": 0,
                "selector": {"matchLabels": {"a": "b"}}, "template": {"metadata": {"labels": {"a": "b"}}, "spec": {"containers": [{"name": "c", "image": "x"}]}}}}),
                ),
                patch(
                    "merge",
                    "/apis/apps/v1/namespaces/{ns}/deployments/d/scale?dryRun=All",
                    json!({"spec": {"replicas": 3}}),
                ),
                get("/apis/apps/v1/namespaces/{ns}/deployments/d/scale"),
            ],
        ),
    ]
}
