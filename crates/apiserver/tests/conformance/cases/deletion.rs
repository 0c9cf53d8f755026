//! Deletion: finalizers, preconditions, propagation, collections, namespaces.

use super::*;

fn owned(name: &str, block: bool) -> Value {
    json!({"metadata": {"name": name, "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "owner", "uid": "{uid}", "blockOwnerDeletion": block}]}})
}

pub(crate) fn cases() -> Vec<Case> {
    let one = format!("{MAPS}/a");
    let owner = || post(MAPS, map("owner", json!({}))).keep("uid", "/metadata/uid");
    vec![
        case(
            "delete",
            vec![
                post(MAPS, map("a", json!({}))).keep("uid", "/metadata/uid"),
                delete_with(&one, json!({"preconditions": {"uid": "00000000-0000-4000-8000-000000000000"}})),
                delete_with(&one, json!({"preconditions": {"resourceVersion": "1"}})),
                delete_with(&one, json!({"propagationPolicy": "Sideways"})),
                delete_with(&one, json!({"preconditions": {"uid": "{uid}"}})),
                delete(&one),
                post(PODS, pod("p")),
                delete(&format!("{PODS}/p")),
                get(&format!("{PODS}/p")),
            ],
        ),
        case(
            "permanent namespaces",
            vec![delete("/api/v1/namespaces/kube-public"), delete("/api/v1/namespaces/default")],
        ),
        case(
            "finalizers",
            vec![
                post(MAPS, json!({"metadata": {"name": "a", "finalizers": ["x.io/wait"]}})),
                delete(&one),
                get(&one),
                delete(&one),
                patch("merge", &one, json!({"metadata": {"finalizers": ["x.io/wait", "x.io/more"]}})),
                patch("merge", &one, json!({"data": {"x": "y"}})),
                patch("merge", &one, json!({"metadata": {"finalizers": null}})),
                get(&one),
            ],
        ),
        case(
            "graceful",
            vec![
                post(PODS, {
                    let mut pod = pod("p");
                    pod["spec"]["nodeName"] = json!("n");
                    pod
                }),
                delete(&format!("{PODS}/p")),
                get(&format!("{PODS}/p")),
                delete_with(&format!("{PODS}/p"), json!({"gracePeriodSeconds": 5})),
                delete_with(&format!("{PODS}/p"), json!({"gracePeriodSeconds": 0})),
                get(&format!("{PODS}/p")),
            ],
        ),
        case(
            "collections",
            vec![
                post(MAPS, json!({"metadata": {"name": "a", "labels": {"x": "1"}}})),
                post(MAPS, json!({"metadata": {"name": "b", "labels": {"x": "1"}}})),
                post(MAPS, json!({"metadata": {"name": "c", "labels": {"x": "2"}}})),
                delete(&format!("{MAPS}?labelSelector=x%3D1")),
                get(&format!("{MAPS}?labelSelector=x")),
            ],
        ),
        case(
            "background",
            vec![
                owner(),
                post(MAPS, owned("child", true)),
                delete_with(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Background"})),
                get(&format!("{MAPS}/child")).until("/code", json!(404)),
            ],
        ),
        case(
            "foreground",
            vec![
                owner(),
                post(MAPS, owned("child", true)),
                delete_with(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Foreground"})),
                get(&format!("{MAPS}/owner")).until("/code", json!(404)),
                get(&format!("{MAPS}/child")),
            ],
        ),
        case(
            "orphan",
            vec![
                owner(),
                post(MAPS, owned("child", true)),
                delete_with(&format!("{MAPS}/owner"), json!({"propagationPolicy": "Orphan"})),
                get(&format!("{MAPS}/owner")).until("/code", json!(404)),
                get(&format!("{MAPS}/child")),
            ],
        ),
        case(
            "absent owner",
            vec![
                post(
                    MAPS,
                    json!({"metadata": {"name": "child", "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "gone", "uid": "00000000-0000-4000-8000-000000000000"}]}}),
                ),
                get(&format!("{MAPS}/child")).until("/code", json!(404)),
            ],
        ),
        case(
            "namespaces",
            vec![
                post("/api/v1/namespaces", json!({"metadata": {"name": "{ns}-inner"}})),
                post(
                    "/api/v1/namespaces/{ns}-inner/configmaps",
                    json!({"metadata": {"name": "a", "finalizers": ["x.io/wait"]}}),
                ),
                delete("/api/v1/namespaces/{ns}-inner"),
                post("/api/v1/namespaces/{ns}-inner/configmaps", map("b", json!({}))),
                get("/api/v1/namespaces/{ns}-inner/configmaps/a")
                    .until("/metadata/deletionGracePeriodSeconds", json!(0)),
                patch("merge", "/api/v1/namespaces/{ns}-inner/configmaps/a", json!({"metadata": {"finalizers": null}})),
                get("/api/v1/namespaces/{ns}-inner").until("/code", json!(404)),
                post("/api/v1/namespaces", json!({"metadata": {"name": "Not_Good"}})),
            ],
        ),
    ]
}
